"""The framework itself judges the arguments of its tools: what it takes alone, it takes as a node."""

from __future__ import annotations

from typing import Any

import pytest
from foreign_hooks import PLACES, Guard, hooked
from foreign_office import FRAMEWORKS, Office, desk

from abeyance import Refusal
from abeyance.testing import InMemoryRun

GIVEN: dict[str, dict[str, Any]] = {
    "as declared": {"x": 5},
    "a number as text": {"x": "5"},
    "a whole number with a point": {"x": 5.0},
    "one more": {"x": 5, "note": "soon"},
    "no number": {"x": "five"},
    "none": {},
}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
@pytest.mark.parametrize("asks", [False, True], ids=["free", "approved"])
async def test_a_framework_takes_the_arguments_that_it_takes_alone_and_they_are_shown_as_sent(
    framework: str, given: str, asks: bool
) -> None:
    its, arguments = hooked(framework), GIVEN[given]
    alone, ours = (Office([("c1", "pay", arguments)], "Done.") for _ in range(2))
    place = next(iter(PLACES[framework]))
    await its.alone(its.agent(alone, place, Guard("nothing")))
    rules = {"pay": {"approve": True}} if asks else None
    agent = its.wrap(lambda: its.agent(ours, place, Guard("nothing")), tools=rules)
    run = InMemoryRun(desk(agent))
    await run.start()
    for question in await run.interrupts():
        assert question.reason["arguments"] == arguments
        await run.respond(question.id, {"approved": True, "arguments": arguments})

    assert ours.lines == alone.lines
    assert run.status == "completed"


@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
async def test_an_edit_that_the_framework_takes_is_made_as_the_approver_wrote_it(
    framework: str,
) -> None:
    office = Office([("c1", "pay", 1)], "Done.")
    run = InMemoryRun(desk(FRAMEWORKS[framework](office)))
    await run.start()
    (question,) = await run.interrupts()
    await run.respond(question.id, {"approved": True, "arguments": {"x": "7"}})

    assert office.lines == ["turn 1", "pay 7", "turn 2"]


WORDS = {
    "agent_framework": "Input should be a valid integer",
    "langgraph": "Input should be a valid integer",
    "openai_agents": "An error occurred while running the tool",
    "pydantic_ai": "Input should be a valid integer",
    "strands": "Input should be a valid integer",
}
"""What each framework says of `seven`. ADK judges no plain values."""
AT_ONCE = {"agent_framework", "pydantic_ai"}
"""Their validation is at hand where an answer is accepted."""


@pytest.mark.parametrize("framework", sorted(FRAMEWORKS.keys() & WORDS.keys()))
async def test_an_edit_that_the_framework_rejects_is_not_made_and_its_words_are_told(
    framework: str,
) -> None:
    office = Office([("c1", "pay", 1)], "Done.")
    run = InMemoryRun(desk(FRAMEWORKS[framework](office)))
    await run.start()
    (question,) = await run.interrupts()
    edit = {"approved": True, "arguments": {"x": "seven"}}
    if framework in AT_ONCE:
        with pytest.raises(Refusal, match=WORDS[framework]) as refused:
            await run.respond(question.id, edit)
        assert refused.value.details["errors"][0]["pointer"].startswith("/arguments")
        assert [each.id for each in await run.interrupts()] == [question.id]
    else:
        await run.respond(question.id, edit)
        assert WORDS[framework] in "\n".join(office.heard)
        assert run.status == "completed"

    assert "pay seven" not in office.lines
