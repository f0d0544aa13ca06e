"""Features that only Strands has: interventions that ask, and interrupts of hooks and of tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from foreign_office import FRAMEWORKS, Office, Recorder, _named, started, strands_model

from abeyance.adapters import ForeignTurn
from abeyance.testing import InMemoryRun

strands: Any = pytest.importorskip("strands")


async def working(
    office: Office, *tools: Any, hook: Any = None, interventions: Sequence[Any] = ()
) -> InMemoryRun:
    from strands.hooks import BeforeToolCallEvent

    from abeyance.adapters.strands import strands_agent

    def clerk() -> Any:
        agent = strands.Agent(
            model=strands_model(office),
            tools=[*tools],
            name="clerk",
            callback_handler=None,
            interventions=[*interventions],
        )
        if hook is not None:
            agent.hooks.add_callback(BeforeToolCallEvent, hook)
        return agent

    return await started(strands_agent(clerk))


async def test_an_interrupt_of_a_tool_is_a_question_of_its_call() -> None:
    office = Office([("c1", "book", 1), ("c2", "look", 2)], "Booked.")

    @strands.tool(context=True)  # type: ignore[untyped-decorator, unused-ignore]
    def book(x: int, tool_context: Any) -> str:
        """Book a seat."""
        return f"{x} by the {tool_context.interrupt('seat', reason='Window or aisle?')}"

    run = await working(office, book, strands.tool(_named("look", office.look)))
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
    run = await working(office, *both, hook=hook)
    (question,) = await run.interrupts()
    assert (question.kind, question.name, question.reason) == ("question", "sure", "Pay?")
    assert office.lines == ["turn 1", "look 2"]
    await run.respond(question.id, answer)

    assert run.values["reply"] == "Done."
    assert office.lines == ["turn 1", "look 2", *lines, "turn 2"]


def _gates() -> dict[str, Any]:
    from strands.interventions import Confirm, InterventionHandler
    from strands.vended_interventions.hitl import HumanInTheLoop

    class Gate(InterventionHandler):  # type: ignore[misc, unused-ignore]
        name = "gate"

        def before_tool_call(self, event: Any, **_: Any) -> Any:
            return Confirm(prompt="Pay?", reason="It is much.")

    return {
        "HumanInTheLoop": HumanInTheLoop(),
        "HumanInTheLoop with words of its own": HumanInTheLoop(evaluate=lambda said: said == "go"),
        "Confirm": Gate(),
    }


@pytest.mark.parametrize("gate", _gates())
@pytest.mark.parametrize(
    ("answer", "line", "told"),
    [
        ({"approved": True}, "pay 1", "paid 1"),
        ({"approved": True, "arguments": {"x": 9}}, "pay 9", "paid 9"),
    ],
)
async def test_the_question_of_an_intervention_is_an_approval(
    gate: str, answer: dict[str, Any], line: str, told: str
) -> None:
    office = Office([("c1", "pay", 1)], "Done.")
    pay = strands.tool(_named("pay", office.pay))
    run = await working(office, pay, interventions=[_gates()[gate]])
    (question,) = await run.interrupts()
    assert (question.kind, question.name) == ("approval", "approve")
    assert question.reason == {"tool": "pay", "arguments": {"x": 1}}
    assert question.payload["digest"]
    assert question.prompt.startswith("Run 'pay' with {\"x\":1}? ")
    assert ("Pay? It is much." in question.prompt) == (gate == "Confirm")
    assert office.lines == ["turn 1"]
    await run.respond(question.id, answer)

    assert run.values["reply"] == "Done."
    assert office.lines == ["turn 1", line, "turn 2"]
    assert any(told in text for text in office.heard)


async def test_an_intervention_that_lets_a_call_through_asks_nobody() -> None:
    from strands.vended_interventions.hitl import HumanInTheLoop

    office = Office([("c1", "look", 1)], "Done.")
    look = strands.tool(_named("look", office.look))
    await working(office, look, interventions=[HumanInTheLoop(allowed_tools=["look"])])
    assert office.lines == ["turn 1", "look 1", "turn 2"]


async def test_a_retry_by_a_hook_is_another_call() -> None:
    from strands.hooks import AfterToolCallEvent

    office = Office([("c1", "look", 1)], "Done.")

    class Again:
        def register_hooks(self, registry: Any, **_: Any) -> None:
            registry.add_callback(AfterToolCallEvent, self.after)

        def after(self, event: Any) -> None:
            event.retry = office.lines.count("look 1") < 2

    def clerk() -> Any:
        look = strands.tool(_named("look", office.look))
        model = strands_model(office)
        return strands.Agent(
            model=model, tools=[look], name="clerk", callback_handler=None, hooks=[Again()]
        )

    from abeyance.adapters.strands import strands_agent

    run = await started(strands_agent(clerk))
    assert run.values["reply"] == "Done."
    assert office.lines == ["turn 1", "look 1", "look 1", "turn 2"]


async def test_a_tool_that_a_hook_puts_in_place_of_another_is_not_run() -> None:
    office = Office([("c1", "look", 1)], "Done.")

    def hook(event: Any) -> None:
        event.selected_tool = strands.tool(_named("look", office.pay))

    run = await working(office, strands.tool(_named("look", office.look)), hook=hook)
    assert run.values["reply"] == "Done."
    assert office.lines == ["turn 1", "turn 2"]
    assert any("replaced by a tool that the agent does not have" in each for each in office.heard)


def test_an_agent_that_runs_tools_in_the_background_is_refused() -> None:
    from abeyance.adapters.strands import strands_agent

    model = strands_model(Office("Done."))
    with pytest.raises(TypeError, match="runs tools in the background"):
        strands_agent(lambda: strands.Agent(model=model, background_tasks=True))


async def test_watchers_see_the_text_of_the_model() -> None:
    said: list[Callable[[], str]] = []
    turn = ForeignTurn(
        state=None, results={}, prompts=["Look."], journal=Recorder().journal, speak=said.append
    )
    await FRAMEWORKS["strands"](Office("Done.")).framework.turn(turn)

    assert [each() for each in said] == ["Done."]


async def test_a_model_that_calls_a_tool_it_does_not_have_asks_nobody() -> None:
    office = Office([("c1", "interrupt", {"name": "seat"})], "Done.")
    run = await working(office, strands.tool(_named("look", office.look)))

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
