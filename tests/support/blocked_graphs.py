"""Graphs whose visits are blocked by what their worker lacks, served by processes of their own too."""

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
    """A node that leaves a line in the file `witness`, once, and then needs an optional package."""
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
