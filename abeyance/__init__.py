"""Abeyance: a durable human-in-the-loop runtime for agent graphs on Temporal."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from abeyance.context import Context, Goto, Send
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
from abeyance.graph import Graph
from abeyance.interrupts import CompositeInterrupt, Interrupt
from abeyance.reducers import add, append, merge, union

if TYPE_CHECKING:
    from abeyance import testing
    from abeyance.agent import Agent
    from abeyance.client import Client
    from abeyance.hooks import (
        AfterModelCall,
        AfterToolCall,
        BeforeModelCall,
        BeforeNode,
        BeforeToolCall,
    )
    from abeyance.mcpserver import McpServer
    from abeyance.toolcall import Tool, ToolContext
    from abeyance.toolform import tool
    from abeyance.yaml import load

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
    "AfterModelCall": "hooks",
    "AfterToolCall": "hooks",
    "Agent": "agent",
    "BeforeModelCall": "hooks",
    "BeforeNode": "hooks",
    "BeforeToolCall": "hooks",
    "Client": "client",
    "McpServer": "mcpserver",
    "Tool": "toolcall",
    "ToolContext": "toolcall",
    "load": "yaml",
    "testing": "testing",
    "tool": "toolform",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    module = import_module(f"abeyance.{_LATE[name]}")
    return module if name == "testing" else getattr(module, name)
