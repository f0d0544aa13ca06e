"""The document of Stargraph's InterruptNode loads and runs as it stands."""

from __future__ import annotations

from datetime import timedelta

import pytest
from yaml_documents import Load

from abeyance import Principal, Refusal, testing

DOCUMENT = """\
nodes:
  - id: human_gate
    kind: interrupt
rules:
  - id: r-gate-to-branch
    when: "?n <- (node-id (id human_gate))"
    then:
      - kind: interrupt
        prompt: "Approve remediation for {record_id}?"
        interrupt_payload:
          requested_capability: "runs:respond"
        requested_capability: "runs:respond"
        timeout: "PT5M"
        on_timeout: "halt"
"""


async def test_the_source_document_asks_one_question_and_completes(loaded: Load) -> None:
    run = testing.InMemoryRun(loaded(DOCUMENT), {"record_id": "R-7"})
    await run.start()

    (asked,) = await run.interrupts()
    assert (run.status, asked.name, asked.kind) == ("awaiting-input", "human_gate", "question")
    assert asked.prompt == "Approve remediation for R-7?"
    assert asked.payload == {"requested_capability": "runs:respond"}
    assert asked.deadline == run.now + timedelta(minutes=5)

    with pytest.raises(Refusal, match="runs:respond"):
        await run.respond("human_gate", "yes", principal=Principal(subject="guest"))
    clerk = Principal(subject="clerk", capabilities=("runs:respond",))
    await run.respond("human_gate", {"approved": True}, principal=clerk)

    assert run.status == "completed"
    assert [
        event.type
        async for event in run.events(follow=False)
        if event.type.startswith("interrupt.")
    ] == [
        "interrupt.opened",
        "interrupt.answered",
    ]


async def test_the_source_document_halts_at_its_timeout(loaded: Load) -> None:
    ended = await testing.run(loaded(DOCUMENT), {"record_id": "R-7"})

    assert (ended.status, ended.reason) == ("halted", "interrupt-timeout")
