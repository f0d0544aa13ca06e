"""The Model Context Protocol, both ways: graphs are tools at `/mcp`, and agents use tools of servers.

Declaring a server imports this module too, so the routes are imported only when the API serves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from abeyance.api.protocols import Protocol, Serving
from abeyance.authoring.graph import Graph
from abeyance.errors import SettingsError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from abeyance.api.dependencies import Backend


def _install(app: FastAPI) -> Serving | None:
    graphs = _published(app.state.backend)
    if graphs is None:
        return None
    if find_spec("mcp") is None:
        raise SettingsError(
            "graphs are to be tools of MCP (build(mcp=True), or ABEYANCE_MCP), which needs an extra: "
            "pip install 'abeyance[mcp]'"
        )
    from abeyance.contrib.mcp.routes import install  # noqa: PLC0415  (an extra)

    return install(app, graphs)


def _published(backend: Backend) -> Mapping[str, Graph] | None:
    """Return the graphs that are tools of MCP, by name; None if MCP is off."""
    if backend.settings.mcp == "all":
        return backend.graphs
    return {name: graph for name, graph in backend.graphs.items() if graph.is_mcp_tool} or None


PROTOCOL: Final = Protocol(
    path="/mcp",
    install=_install,
    headers=("user-agent", "mcp-method", "mcp-name", "mcp-protocol-version"),
)
