"""Features that only LangGraph has: graphs without a model, `interrupt()` anywhere, approvals per call.

Every test process imports this module, but only one needs LangGraph: the tests import it themselves.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from foreign_office import Letter, Office, _named, langgraph_clerk, started


class Offer(TypedDict):
    text: str
    said: Annotated[list[str], lambda one, two: [*one, *two]]


def asks(name: str) -> Any:
    from langgraph.types import interrupt

    def node(state: Offer) -> Any:
        return {"said": [f"{name} {interrupt({'for': name})}"]}

    return node


def offering(node: Any, result: Any) -> Any:
    """Return an agent that is a graph of one node."""
    from langgraph.graph import START, StateGraph

    from abeyance.adapters.langgraph import langgraph_agent

    graph = StateGraph(Offer)
    graph.add_node("only", node)
    graph.add_edge(START, "only")
    return langgraph_agent(
        graph.compile(name="offer"), enter=lambda text: {"text": text, "said": []}, result=result
    )


async def test_interrupts_of_nodes_are_questions_answered_in_any_order() -> None:
    from langgraph.graph import END, START, StateGraph

    from abeyance.adapters.langgraph import langgraph_agent

    graph = StateGraph(Offer)
    for name in ("price", "colour"):
        graph.add_node(name, asks(name))
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    agent = langgraph_agent(
        graph.compile(name="offer"),
        enter=lambda text: {"text": text, "said": []},
        result=lambda state: ", ".join(sorted(state["said"])),
    )
    run = await started(agent)
    questions = {each.reason["for"]: each for each in await run.interrupts()}
    assert {each.kind for each in questions.values()} == {"question"}
    await run.respond(questions["price"].id, "5 EUR")
    await run.respond(questions["colour"].id, "red")

    assert run.values["reply"] == "colour red, price 5 EUR"


@pytest.mark.parametrize(
    ("value", "prompt"),
    [
        ("Which colour?", "Which colour?"),
        ("x" * 5_000, "x" * 997 + "..."),
        (" ", "interrupt"),
        ({"question": "Which colour?"}, "interrupt"),
    ],
)
async def test_a_text_that_a_node_asks_is_the_prompt(value: Any, prompt: str) -> None:
    from langgraph.types import interrupt

    run = await started(offering(lambda _: {"text": interrupt(value)}, lambda state: state["text"]))
    (question,) = await run.interrupts()

    assert (question.prompt, question.reason) == (prompt, value)
    await run.respond(question.id, "red")
    assert run.values["reply"] == "red"


async def test_an_interrupt_of_a_tool_is_a_question_of_its_call() -> None:
    from langchain_core.tools import tool
    from langgraph.types import interrupt

    from abeyance.adapters.langgraph import langgraph_agent

    office = Office([("c1", "book", 1), ("c2", "look", 2)], "Booked.")

    @tool
    def book(x: int) -> str:
        """Book a seat."""
        return f"{x} by the {interrupt('Window or aisle?')}"

    look = tool(_named("look", office.look))
    run = await started(langgraph_agent(langgraph_clerk(office, [book, look])))
    (question,) = await run.interrupts()
    assert (question.kind, question.reason) == ("question", "Window or aisle?")
    assert question.prompt == "Window or aisle?"
    assert question.address.endswith(";tool:book:c1")
    await run.respond(question.id, "aisle")

    assert run.values["reply"] == "Booked."
    assert "1 by the aisle" in office.heard
    assert office.lines == ["turn 1", "look 2", "turn 2"]


async def test_a_model_that_calls_a_tool_it_does_not_have_asks_nobody() -> None:
    from langchain_core.tools import tool

    from abeyance.adapters.langgraph import langgraph_agent

    office = Office([("c1", "interrupt", {"value": "Your password?"}), ("c2", "look", 2)], "Done.")
    look = tool(_named("look", office.look))
    run = await started(langgraph_agent(langgraph_clerk(office, [look])))

    assert (run.status, run.values["reply"]) == ("completed", "Done.")
    assert "Error: interrupt is not a valid tool, try one of [look]." in office.heard
    assert "looked 2" in office.heard


@pytest.mark.parametrize("mode", ["batched", "per_call"])
async def test_the_middleware_decides_what_is_asked_in_both_of_its_modes(mode: Any) -> None:
    from langchain.agents.middleware import HumanInTheLoopMiddleware
    from langchain_core.tools import tool

    from abeyance.adapters.langgraph import langgraph_agent

    office = Office([("c1", "pay", 1), ("c2", "look", 2)], "Done.")
    both = [tool(_named("pay", office.pay)), tool(_named("look", office.look))]
    gate = HumanInTheLoopMiddleware(interrupt_on={"pay": True}, interrupt_mode=mode)
    run = await started(langgraph_agent(langgraph_clerk(office, both, gate)))
    (question,) = await run.interrupts()
    assert question.kind == "approval"
    await run.respond(question.id, {"approved": True, "arguments": {"x": 9}})

    assert run.values == {**Letter().model_dump(), "reply": "Done."}
    assert office.lines == ["turn 1", "look 2", "pay 9", "turn 2"]


async def test_a_state_that_cannot_be_stored_is_named() -> None:
    run = await started(offering(lambda _: {"text": object()}, str))

    assert run.status == "failed"
    assert "'text' in the state of the graph cannot be stored" in (run.reason or "")
    assert "object" in (run.reason or "")


async def test_an_output_that_is_not_json_is_named() -> None:
    run = await started(offering(lambda _: {"text": "x"}, lambda _: object()))

    assert run.status == "failed"
    assert "the output of the agent 'offer' is not JSON" in (run.reason or "")
    assert "'object'" in (run.reason or "")
