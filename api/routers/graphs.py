"""The graphs that this service can start."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from abeyance.api import openapi
from abeyance.api.auth import READ
from abeyance.api.dependencies import BackendDep
from abeyance.api.schemas import GraphSummary, Listed
from abeyance.authoring.diagram import mermaid

router = APIRouter(prefix="/graphs", tags=["graphs"], dependencies=[READ])

SPEC_EXAMPLE: Final[dict[str, Any]] = {
    "name": "refund",
    "version": "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    "description": "Refunds an order after an approval.",
    "input_schema": {"type": "object", "properties": {"amount": {"type": "number"}}},
    "guarded_by": ["refunds:approve"],
    "fields": {"amount": {"reducer": "last"}},
    "open_values": False,
    "nodes": {
        "pay": {
            "kind": "function",
            "id": "pay",
            "description": "Pay the money back.",
            "timeout": 30.0,
            "retry": {
                "retries": 3,
                "first": 1.0,
                "factor": 2.0,
                "most": 60.0,
                "retry_for": None,
            },
            "heartbeat": 5.0,
            "local": False,
            "on_error": {"kind": "fail"},
            "to": [],
        }
    },
    "edges": [
        {
            "sources": ["START"],
            "target": "pay",
            "condition": {"kind": "always"},
            "join": "all",
        }
    ],
    "routes": [],
    "finally_nodes": [],
}

_DIAGRAM: Final = """\
flowchart TD
    e0(["START"])
    n0{{"approve"}}
    n1["pay"]
    e0 --> n0
    n0 -->|"decision.approved = true"| n1
"""


@router.get("", response_description="The graphs, sorted by name.")
async def list_graphs(backend: BackendDep) -> Listed[GraphSummary]:
    """List the graphs that this service can start."""
    specs = [backend.graphs[name].build() for name in sorted(backend.graphs)]
    items = [GraphSummary.model_validate(spec, from_attributes=True) for spec in specs]
    return Listed(items=items)


@router.get("/{name}", response_description="The graph.", responses=openapi.shown(SPEC_EXAMPLE))
async def read_graph(name: str, backend: BackendDep) -> dict[str, Any]:
    """Retrieve a graph: its nodes, edges and interrupts, and in `guarded_by` the capabilities that its
    interrupts can require. A run keeps the version that it was started with.
    """
    spec = backend.graph(name).build()
    return {**asdict(spec), "version": spec.version, "guarded_by": list(spec.guarded_by)}


@router.get(
    "/{name}/diagram",
    response_class=PlainTextResponse,
    response_description="The Mermaid flowchart.",
    responses=openapi.shown(_DIAGRAM, "text/plain"),
)
async def draw_graph(name: str, backend: BackendDep) -> PlainTextResponse:
    """Render a graph as a Mermaid flowchart."""
    return PlainTextResponse(mermaid(backend.graph(name).build()))
