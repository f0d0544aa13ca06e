"""What only Strands has: interrupts of hooks and of tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from foreign_office import FRAMEWORKS, Office, Recorder, _named, desk, strands_model

from abeyance.adapters import ForeignTurn
from abeyance.testing import InMemoryRun

strands: Any = pytest.importorskip("strands")


async def started(office: Office, *tools: Any, hook: Any = None) -> InMemoryRun:
    from strands.hooks import BeforeToolCallEvent

    from abeyance.adapters.strands import strands_agent

    def clerk() -> Any:
        agent = strands.Agent(
            model=strands_model(office), tools=[*tools], name="clerk", callback_handler=None
        )
        if hook is not None:
            agent.hooks.add_callback(BeforeToolCallEvent, hook)
        return agent

    run = InMemoryRun(desk(strands_agent(clerk)))
    await run.start()
    return run


async def test_an_interrupt_of_a_tool_is_a_question_of_its_call() -> None:
    office = Office([("c1", "book", 1), ("c2", "look", 2)], "Booked.")

    @strands.tool(context=True)  # type: ignore[untyped-decorator, unused-ignore]
    def book(x: int, tool_context: Any) -> str:
        """Book a seat."""
        return f"{x} by the {tool_context.interrupt('seat', reason='Window or aisle?')}"

    run = await started(office, book, strands.tool(_named("look", office.look)))
    (question,) = await run.interrupts()
    assert (question.kind, question.name, question.reason) == (
        "question",
        "seat",
        "Window or aisle?",
    )
    assert question.address.endswith(";tool:book:c1")
    await run.respond(question.id, "aisle")

    assert run.values["reply"] == "Booked."
    assert "1 by the aisle" in office.heard
    assert office.lines == ["turn 1", "look 2", "turn 2"]


@pytest.mark.parametrize(("answer", "lines"), [("y", ["pay 1"]), ("n", [])])
async def test_a_call_waits_for_what_a_hook_asks_about_it(answer: str, lines: list[str]) -> None:
    office = Office([("c1", "pay", 1), ("c2", "look", 2)], "Done.")

    def hook(event: Any) -> None:
        if event.tool_use["name"] == "pay" and event.interrupt("sure", reason="Pay?") != "y":
            event.cancel_tool = "It was not paid."

    both = [strands.tool(_named("pay", office.pay)), strands.tool(_named("look", office.look))]
    run = await started(office, *both, hook=hook)
    (question,) = await run.interrupts()
    assert (question.kind, question.name, question.reason) == ("question", "sure", "Pay?")
    assert office.lines == ["turn 1", "look 2"]
    await run.respond(question.id, answer)

    assert run.values["reply"] == "Done."
    assert office.lines == ["turn 1", "look 2", *lines, "turn 2"]


async def test_those_who_watch_are_told_what_the_model_says() -> None:
    said: list[Callable[[], str]] = []
    turn = ForeignTurn(
        state=None,
        results={},
        prompts=["Look."],
        journal=Recorder().journal,
        speak=said.append,
    )
    await FRAMEWORKS["strands"](Office("Done.")).framework.turn(turn)

    assert [each() for each in said] == ["Done."]


async def test_a_model_that_calls_a_tool_it_does_not_have_asks_nobody() -> None:
    office = Office([("c1", "interrupt", {"name": "seat"})], "Done.")
    run = await started(office, strands.tool(_named("look", office.look)))

    assert (run.status, run.values["reply"]) == ("completed", "Done.")
    assert "Unknown tool: interrupt" in office.heard


def test_an_agent_in_place_of_a_function_that_makes_it_is_refused() -> None:
    from abeyance.adapters.strands import strands_agent

    office = Office("Done.")
    agent: Any = strands.Agent(model=strands_model(office), callback_handler=None)
    nothing: Any = None
    for given in (agent, nothing):
        with pytest.raises(TypeError, match="not a function that makes an Agent of Strands"):
            strands_agent(given)
    assert office.lines == []
