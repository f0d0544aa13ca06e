"""Messages in a unit test of a graph."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel

from abeyance import START, Context, Graph, append
from abeyance.testing import InMemoryRun


class State(BaseModel):
    log: Annotated[list[str], append] = []


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
