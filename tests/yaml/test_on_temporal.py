"""A graph from YAML, with a rule that asks, on a real server."""

from __future__ import annotations

import pytest
from temporal_site import Site
from temporalio.client import Client as TemporalClient
from yaml_documents import Load

from abeyance import Principal, Refusal
from abeyance.core.state import Limits

GUARDED = """
    state: {record_id: str, verdict: str, ok: bool}
    nodes:
      - {id: classify, kind: "triage_nodes:classify"}
      - {id: human_gate, kind: interrupt}
      - {id: last, kind: "triage_nodes:nothing"}
    rules:
      - {id: benign, when: {node: classify, verdict: benign}, then: [{kind: halt, reason: benign}]}
      - id: sure
        when: {verdict: suspicious, node: classify}
        then: [{kind: interrupt, prompt: "Is {record_id} bad?", answer_to: ok, timeout: 1d}]
      - {id: gate, when: "?n <- (node-id (id human_gate))",
         then: [{kind: interrupt, prompt: "Remediate?", requested_capability: "runs:respond"}]}
"""


async def test_rules_ask_and_decide_on_a_real_server(
    temporal: TemporalClient, loaded: Load
) -> None:
    site = Site(temporal, loaded(GUARDED))
    clerk = Principal(subject="clerk", capabilities=("runs:respond",))
    # Handed over to a new history while the rule's question is open.
    short = Limits(continue_as_new_after=3)
    async with site.worker():
        quick = await site.start({"record_id": "ok-1"})
        asked = await site.start({"record_id": "R-7"}, limits=short)
        first = (await site.until(asked, "awaiting-input")).interrupts[0]
        await site.client.run(asked).respond(response=True, principal=clerk)
        second = (await site.until(asked, "awaiting-input")).interrupts[0]
        with pytest.raises(Refusal, match="runs:respond"):
            await site.client.run(asked).respond(response=1, principal=Principal(subject="guest"))
        await site.client.run(asked).respond(response=1, principal=clerk)
        halted, completed = await site.ended(quick), await site.ended(asked)
        began = (await site.history(asked)).events[0].workflow_execution_started_event_attributes
        await site.replays(asked)

    assert began.continued_execution_run_id, "it was handed over"
    assert (halted.status, halted.reason) == ("halted", "benign")
    assert (first.kind, first.name, first.prompt) == ("rule", "sure", "Is R-7 bad?")
    assert (second.kind, second.name) == ("question", "human_gate")
    assert (completed.status, completed.values["ok"]) == ("completed", True)
