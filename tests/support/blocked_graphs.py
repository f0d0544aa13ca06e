"""Graphs whose visits are blocked because the worker lacks a package; worker processes serve them too."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from abeyance import START, Context, Graph


class Export(BaseModel):
    witness: str = ""
    exported: int = 0


def exporting() -> Graph:
    """Return a graph whose node writes one line into the file `witness`, and then needs boto3."""
    graph = Graph("exporting", state=Export)

    @graph.node(retries=0, timeout="1s")
    async def export(state: Export, ctx: Context) -> dict[str, Any]:
        def collect() -> int:
            with Path(state.witness).open("a", encoding="utf-8") as witness:
                return witness.write("collected\n")

        collected = await ctx.step("collect", collect)
        importlib.import_module("boto3")
        return {"exported": collected}

    graph.edge(START, "export")
    return graph


graphs = [exporting()]
