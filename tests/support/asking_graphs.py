"""Graphs that ask people: in nested graphs, in items of a fan-out, and only if the start says so."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel

from abeyance import START, Context, Graph, Send, append


class Log(BaseModel):
    count: int = 0
    log: Annotated[list[str], append] = []


def nested() -> Graph:
    """Return a graph that has the same gate twice, each two graphs below the root."""
    deep = Graph("deep", state=Log)
    deep.interrupt("gate", prompt="Deep {count}?", timeout="P2D", on_timeout="goto:late")

    @deep.node
    async def late(state: Log) -> dict[str, Any]:
        return {"log": ["late"]}

    deep.edge(START, "gate")
    middle = Graph("middle", state=Log)
    middle.subgraph("inner", deep)
    middle.edge(START, "inner")
    outer = Graph("outer", state=Log)
    for name in ("left", "right"):
        outer.subgraph(name, middle)
        outer.edge(START, name)
    return outer


def spread() -> Graph:
    """Return a graph with a fan-out over `count` items, each of which asks."""
    graph = Graph("spread", state=Log)

    @graph.node(to=["one"])
    async def split(state: Log) -> list[Send]:
        return [Send("one", number) for number in range(state.count)]

    @graph.node
    async def one(state: Log, ctx: Context) -> dict[str, Any]:
        return {"log": [f"{ctx.item}:{await ctx.interrupt('ok', prompt=str(ctx.item))}"]}

    @graph.node
    async def collect(state: Log, ctx: Context) -> dict[str, Any]:
        return {"count": sum(result["status"] == "arrived" for result in ctx.results)}

    graph.edge(START, "split")
    graph.edge(["one"], "collect")
    return graph


def plain() -> Graph:
    """Return the graph add -> more, which asks nobody unless the start says so."""
    graph = Graph("plain", state=Log)

    @graph.node
    async def add(state: Log) -> dict[str, Any]:
        return {"count": state.count + 1}

    @graph.node(retries=0)
    async def more(state: Log) -> dict[str, Any]:
        if state.count > 100:
            message = f"{state.count} is too much"
            raise ValueError(message)
        return {"count": state.count + 10}

    graph.edge(START, "add")
    graph.edge("add", "more")
    return graph
