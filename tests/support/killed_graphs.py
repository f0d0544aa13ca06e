"""Graphs for workers that are killed: what their nodes do is seen in a file, not in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from abeyance import START, Context, Graph


class Files(BaseModel):
    journal: str
    release: str
    log: list[str] = []


def _graph(name: str, retries: int) -> Graph:
    graph = Graph(name, state=Files)

    @graph.node(retries=retries)
    async def charge(state: Files, ctx: Context) -> dict[str, Any]:
        with Path(state.journal).open("a", encoding="utf-8") as journal:
            journal.write(f"{ctx.idempotency_key}\n")
        while not Path(state.release).exists():
            await asyncio.sleep(0.02)
        return {"log": ["charged"]}

    graph.interrupt("confirm", prompt="Charged?", timeout="P7D")

    @graph.node
    async def close(state: Files, ctx: Context) -> dict[str, Any]:
        return {"log": [*state.log, f"closed {ctx.answers['confirm']}"]}

    graph.edge(START, "charge")
    graph.edge("charge", "confirm")
    graph.edge("confirm", "close")
    return graph


patient = _graph("patient", retries=3)
once = _graph("once", retries=0)
graphs = [patient, once]
