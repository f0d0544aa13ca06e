"""Messages in a unit test of a graph."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel

from abeyance import START, Context, Graph, append
from abeyance.core.events import Message
from abeyance.testing import InMemoryRun


class State(BaseModel):
    log: Annotated[list[str], append] = []


def steered() -> Graph:
    """a -> b -> gate -> c; every node says what it was told."""
    graph = Graph("steered", state=State)
    for name in ("a", "b", "c"):

        @graph.node(name=name)
        async def work(state: State, inbox: list[Message], name: str = name) -> dict[str, Any]:
            return {"log": [f"{name} {[message.text for message in inbox]}"]}

    graph.interrupt("gate", prompt="Go on?", requested_capability="open:gate")
    graph.edge(START, "a")
    graph.edge("a", "b")
    graph.edge("b", "gate")
    graph.edge("gate", "c")
    return graph


async def waiting() -> InMemoryRun:
    trial = InMemoryRun(steered())
    await trial.start()
    assert trial.status == "awaiting-input"
    return trial


async def test_messages_are_read_in_order_by_priority_and_target() -> None:
    trial = await waiting()
    await trial.send("low", priority="low")
    await trial.send("first")
    await trial.send("second", target="c")
    await trial.send("high", priority="high")
    await trial.respond("gate", True)
    assert trial.values["log"][-1] == "c ['high', 'first', 'second', 'low']"


async def test_a_long_node_takes_one_message_at_a_time() -> None:
    graph = Graph("long", state=State)

    @graph.node
    async def ask_first(state: State, ctx: Context) -> dict[str, Any]:
        await ctx.interrupt("ready")
        told = []
        while (message := await ctx.check_interrupt()) is not None:
            told.append(message.text)
        return {"log": told}

    graph.edge(START, "ask_first")
    trial = InMemoryRun(graph)
    await trial.start()
    for text in ("one", "two", "three"):
        await trial.send(text)
    await trial.respond("ready", True)
    assert trial.values["log"] == ["one", "two", "three"]
