"""Abeyance: a durable human-in-the-loop runtime for agent graphs on Temporal."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from abeyance.core.model import END, START
from abeyance.core.policy import Principal
from abeyance.errors import (
    AbeyanceError,
    Fatal,
    GraphError,
    NodeError,
    Refusal,
    SettingsError,
    Unavailable,
)
from abeyance.graphs.graph import Graph
from abeyance.nodes.context import Context, Goto, Send
from abeyance.nodes.interrupts import CompositeInterrupt, Interrupt
from abeyance.values.reducers import add, append, merge, union

if TYPE_CHECKING:
    from abeyance import testing
    from abeyance.agents.agent import Agent
    from abeyance.agents.hooks import (
        AfterModelCall,
        AfterToolCall,
        BeforeModelCall,
        BeforeNode,
        BeforeToolCall,
    )
    from abeyance.agents.tool import Tool, ToolContext
    from abeyance.agents.toolform import tool
    from abeyance.client import Client
    from abeyance.mcp.server import McpServer
    from abeyance.yaml.loading import load

__all__ = [
    "END",
    "START",
    "AbeyanceError",
    "AfterModelCall",
    "AfterToolCall",
    "Agent",
    "BeforeModelCall",
    "BeforeNode",
    "BeforeToolCall",
    "Client",
    "CompositeInterrupt",
    "Context",
    "Fatal",
    "Goto",
    "Graph",
    "GraphError",
    "Interrupt",
    "McpServer",
    "NodeError",
    "Principal",
    "Refusal",
    "Send",
    "SettingsError",
    "Tool",
    "ToolContext",
    "Unavailable",
    "add",
    "append",
    "load",
    "merge",
    "testing",
    "tool",
    "union",
]


# Who only writes graphs, and the workflow sandbox, should not pay for these imports.
_LATE = {
    "AfterModelCall": "agents.hooks",
    "AfterToolCall": "agents.hooks",
    "Agent": "agents.agent",
    "BeforeModelCall": "agents.hooks",
    "BeforeNode": "agents.hooks",
    "BeforeToolCall": "agents.hooks",
    "Client": "client",
    "McpServer": "mcp.server",
    "Tool": "agents.tool",
    "ToolContext": "agents.tool",
    "load": "yaml.loading",
    "testing": "testing",
    "tool": "agents.toolform",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    module = import_module(f"abeyance.{_LATE[name]}")
    return module if name == "testing" else getattr(module, name)
