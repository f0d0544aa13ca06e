"""Rules with CLIPS text on a real server: they are evaluated where code runs, and not in a replay."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pydantic import BaseModel
from temporal_site import ANYBODY, begun
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client as TemporalClient

from abeyance import START, Graph


class State(BaseModel):
    amount: int
    verdict: str | None = None
    done: str | None = None


def reviewed() -> Graph:
    """Return work -> gate -> pay, whose rules ask after the work and may lead an answer to hold."""
    graph = Graph("reviewed", state=State)
    graph.node(name="work")(lambda: {"verdict": "unsure"})
    graph.interrupt("gate", prompt="Pay {amount}?", answer_to="verdict")
    for name in ("pay", "hold"):
        graph.node(name=name)(lambda state, name=name: {"done": name})
    graph.edge(START, "work")
    graph.edge("work", "gate")
    graph.edge("gate", "pay")
    large = "(node-id (id work)) (amount (value ?a&:(> (string-to-field ?a) 100)))"
    graph.rule("large", when=large, then=[{"kind": "assert", "fact": "(alarm (of ?a))"}])
    graph.rule(
        "sure",
        when="(alarm (of ?a)) (amount (value ?a))",
        then=[{"kind": "interrupt", "prompt": "Sure of {amount}?"}],
    )
    graph.rule(
        "later",
        when='(node-id (id gate)) (verdict (value ?v&:(str-index "later" ?v)))',
        then=[{"kind": "goto", "node": "hold"}],
    )
    return graph


@pytest.mark.parametrize(
    ("amount", "asked", "answer", "done"),
    [(500, "sure", "yes", "pay"), (5, "gate", "later, please", "hold")],
)
async def test_rules_are_looked_at_after_code_and_after_an_answer_and_are_replayed(
    temporal: TemporalClient,
    monkeypatch: pytest.MonkeyPatch,
    *,
    amount: int,
    asked: str,
    answer: Any,
    done: str,
) -> None:
    async with begun(temporal, reviewed(), {"amount": amount}) as (site, run):
        first = await site.until(run.run_id, "awaiting-input")
        if asked == "sure":
            await run.respond(response=None, principal=ANYBODY)
            await site.until(run.run_id, "awaiting-input")
        await run.respond(response=answer, principal=ANYBODY)
        ended = await site.ended(run.run_id)

    assert first.interrupts[0].name == asked
    assert (ended.status, ended.values["done"]) == ("completed", done)
    # The workflow itself uses no CLIPS: a worker that could not evaluate the rules can replay it.
    monkeypatch.setitem(sys.modules, "clips", None)
    await site.replays(run.run_id)
    markers = [
        event
        for event in (await site.history(run.run_id)).events
        if event.event_type == EventType.EVENT_TYPE_MARKER_RECORDED
        and event.marker_recorded_event_attributes.marker_name == "core_local_activity"
        and b'"record"'
        not in event.marker_recorded_event_attributes.details["data"].payloads[0].data
    ]
    assert len(markers) == 1, "the rules after the answer are looked at in a local activity"
