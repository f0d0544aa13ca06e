"""The same run on LangGraph, with its SQLite saver: its own `Send`, a checkpoint after each superstep."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

import aiosqlite
from fanout.workload import work
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from stage import Processes


class Items(TypedDict):
    """What is to be done, and what was."""

    items: list[int]
    done: Annotated[list[str], operator.add]


async def _split(state: Items) -> dict[str, Any]:
    return {}


async def _one(item: dict[str, int]) -> dict[str, Any]:
    return {"done": [work(item["item"])]}


async def _collect(state: Items) -> dict[str, Any]:
    return {}


def _built(saver: AsyncSqliteSaver) -> Any:
    graph = StateGraph(Items)
    graph.add_node("split", _split)
    graph.add_node("one", _one)
    graph.add_node("collect", _collect)
    graph.add_edge(START, "split")
    graph.add_conditional_edges(
        "split", lambda state: [Send("one", {"item": item}) for item in state["items"]], ["one"]
    )
    graph.add_edge("one", "collect")
    graph.add_edge("collect", END)
    return graph.compile(checkpointer=saver)


class OnLangGraph:
    """What the driver asks of LangGraph."""

    def __init__(self, graph: Any) -> None:
        self.processes = Processes()
        self._graph = graph

    async def spread(self, run: str, items: list[int]) -> list[str]:
        config = {"configurable": {"thread_id": run}}
        given = {"items": items, "done": []}
        ended = await self._graph.ainvoke(given, config, durability="sync")
        done: list[str] = ended["done"]
        return done

    async def events(self, run: str) -> int | None:
        return None


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[OnLangGraph]:
    """LangGraph on a database that is as safe as Temporal's here."""
    async with aiosqlite.connect(folder / "langgraph.db") as connection:
        await connection.execute("PRAGMA synchronous=NORMAL")
        yield OnLangGraph(_built(AsyncSqliteSaver(connection)))
