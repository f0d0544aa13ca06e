"""The same run on LangGraph, with its SQLite saver: a checkpoint is on disk before the next node.

All in one process and one event loop, as it is used. The gate has no deadline: there is none to be had.
"""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

import aiosqlite
from approval.workload import AFTER, BEFORE, Claim, Decision, Trace, visit
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from stage import Processes


class ClaimState(TypedDict):
    """The claim, as JSON."""

    claim_id: str
    amount: float
    damage: str
    decision: dict[str, Any] | None
    resumed_at: float
    log: Annotated[list[str], operator.add]


async def _approve(state: ClaimState) -> dict[str, Any]:
    given = interrupt({"prompt": f"Pay {state['amount']} for the claim {state['claim_id']}?"})
    return {"decision": Decision.model_validate(given).model_dump()}


def _built(saver: AsyncSqliteSaver) -> Any:
    graph = StateGraph(ClaimState)

    def declare(node: str) -> None:
        async def code(state: ClaimState) -> dict[str, Any]:
            return visit(node, state["claim_id"])

        graph.add_node(node, code)

    for node in (*BEFORE, *AFTER):
        declare(node)
    graph.add_node("approve", _approve)
    for source, target in pairwise((START, *BEFORE, "approve", *AFTER, END)):
        graph.add_edge(source, target)
    return graph.compile(checkpointer=saver)


class OnLangGraph:
    """What the driver asks of LangGraph."""

    def __init__(self, graph: Any) -> None:
        self.processes = Processes()
        self._graph = graph

    async def until_gate(self, run: str, claim: Claim) -> None:
        stopped = await self._invoke(run, claim.model_dump())
        if "__interrupt__" not in stopped:
            message = f"the run {run!r} does not wait at its gate: {stopped}"
            raise ValueError(message)

    async def answer(self, run: str, decision: Decision) -> Claim:
        ended = await self._invoke(run, Command(resume=decision.model_dump()))
        return Claim.model_validate(ended)

    async def trace(self, run: str) -> Trace | None:
        return None

    async def _invoke(self, run: str, what: Any) -> dict[str, Any]:
        config = {"configurable": {"thread_id": run}}
        found: dict[str, Any] = await self._graph.ainvoke(what, config, durability="sync")
        return found


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[OnLangGraph]:
    """LangGraph on a database that is as safe as Temporal's here; the saver sets the log itself."""
    async with aiosqlite.connect(folder / "langgraph.db") as connection:
        await connection.execute("PRAGMA synchronous=NORMAL")
        yield OnLangGraph(_built(AsyncSqliteSaver(connection)))
