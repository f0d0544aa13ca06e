"""The graphs that this service can start."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from abeyance.api import examples, openapi
from abeyance.api.auth import READ
from abeyance.api.dependencies import BackendDep
from abeyance.api.schemas import GraphSummary, Listed
from abeyance.authoring.diagram import mermaid
from abeyance.errors import Code

router = APIRouter(prefix="/graphs", tags=["graphs"], dependencies=[READ])


@router.get(
    "",
    responses=openapi.read("The graphs, sorted by name.", examples.listed(examples.GRAPH)),
)
async def list_graphs(backend: BackendDep) -> Listed[GraphSummary]:
    """List the graphs that this service can start."""
    specs = [backend.graphs[name].build() for name in sorted(backend.graphs)]
    items = [GraphSummary.model_validate(spec, from_attributes=True) for spec in specs]
    return Listed(items=items)


@router.get(
    "/{name}",
    responses=openapi.read("The graph.", examples.GRAPH_SPEC, Code.UNKNOWN_GRAPH),
)
async def read_graph(name: str, backend: BackendDep) -> dict[str, Any]:
    """Retrieve a graph: its nodes, edges and interrupts, and in `guarded_by` the capabilities that its
    interrupts can require. A run keeps the version that it was started with.
    """
    spec = backend.graph(name).build()
    return {**asdict(spec), "version": spec.version, "guarded_by": list(spec.guarded_by)}


@router.get(
    "/{name}/diagram",
    response_class=PlainTextResponse,
    responses=openapi.read(
        "The Mermaid flowchart.", examples.DIAGRAM, Code.UNKNOWN_GRAPH, media_type="text/plain"
    ),
)
async def draw_graph(name: str, backend: BackendDep) -> PlainTextResponse:
    """Render a graph as a Mermaid flowchart."""
    return PlainTextResponse(mermaid(backend.graph(name).build()))
