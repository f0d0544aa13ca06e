"""The hooks of a framework come before Abeyance: one table for all frameworks and places of hooks."""

from __future__ import annotations

from typing import Any

import pytest
from foreign_hooks import PLACES, Does, Guard, hooked
from foreign_office import FRAMEWORKS, Office, started

CASES = [
    pytest.param(framework, place, does, id=f"{framework}-{place}-{does}")
    for framework in sorted(FRAMEWORKS)
    for place, can in PLACES[framework].items()
    for does in can
]


def office() -> Office:
    return Office([("c1", "pay", 1)], "Done.")


@pytest.mark.parametrize(("framework", "place", "does"), CASES)
@pytest.mark.parametrize("asks", [False, True], ids=["free", "approved"])
async def test_the_approved_call_is_the_one_that_the_framework_would_run(
    framework: str, place: str, does: Does, asks: bool
) -> None:
    its = hooked(framework)
    alone, ours = office(), office()
    error = await _error(its.alone(its.agent(alone, place, Guard(does))))
    guard = Guard(does)
    rules = {"pay": {"approve": True}} if asks else None
    run = await started(its.wrap(lambda: its.agent(ours, place, guard), tools=rules))
    seen = []
    while asked := await run.interrupts():
        (question,) = asked
        assert question.kind == "approval"
        seen.append(f"pay {question.reason['arguments']['x']}")
        await run.respond(question.id, {"approved": True})

    assert ours.lines == alone.lines
    assert ours.heard == alone.heard
    paid = [line for line in alone.lines if line.startswith("pay")]
    assert seen == (paid if asks else []) or (asks and place in its.after_approval)
    assert run.status == ("completed" if error is None else "failed")
    assert paid == {"no": [], "error": [], "change": ["pay 7"], "no later": ["pay 1"]}[does]


async def _error(running: Any) -> Exception | None:
    try:
        await running
    except Exception as error:  # noqa: BLE001 whatever the framework makes of it
        return error
    return None
