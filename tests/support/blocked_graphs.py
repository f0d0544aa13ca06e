"""Graphs whose visits are blocked by what their worker lacks, served by processes of their own too."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from model_server import chat_model
from pydantic import BaseModel
from scripted_agents import desk

from abeyance import START, Agent, Context, Graph

MODEL_URL = "MODEL_URL"
"""The variable with the address of the model."""


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


def answering(url: str) -> Graph:
    """An agent whose model is at this address."""
    return desk(Agent("clerk", model=chat_model(url), model_retries=0))


graphs = [exporting(), answering(os.environ.get(MODEL_URL, "http://127.0.0.1:9"))]
