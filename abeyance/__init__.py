"""Abeyance: a durable human-in-the-loop runtime for agent graphs on Temporal."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from abeyance.authoring.context import Context, Goto, Send
from abeyance.authoring.graph import Graph
from abeyance.authoring.interrupts import CompositeInterrupt, Interrupt
from abeyance.core.policy import Principal
from abeyance.core.spec import END, START
from abeyance.errors import (
    AbeyanceError,
    Fatal,
    GraphError,
    NodeError,
    Refusal,
    SettingsError,
    Unavailable,
)
from abeyance.schemas.state_model import add, append, merge, union

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
    from abeyance.agents.tool_decorator import tool
    from abeyance.agents.transcript_view import TranscriptItem
    from abeyance.client import Client, TemporalRun
    from abeyance.core.ledger import Receipt
    from abeyance.core.state import Limits
    from abeyance.handle import InboxFilter, RunFilter, RunHandle, Started, Steered
    from abeyance.mcp.server import McpServer
    from abeyance.views import (
        ClosingRecord,
        Event,
        InterruptView,
        MessageReceipt,
        MessageView,
        RunView,
    )
    from abeyance.yaml.loader import load

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
    "ClosingRecord",
    "CompositeInterrupt",
    "Context",
    "Event",
    "Fatal",
    "Goto",
    "Graph",
    "GraphError",
    "InboxFilter",
    "Interrupt",
    "InterruptView",
    "Limits",
    "McpServer",
    "MessageReceipt",
    "MessageView",
    "NodeError",
    "Principal",
    "Receipt",
    "Refusal",
    "RunFilter",
    "RunHandle",
    "RunView",
    "Send",
    "SettingsError",
    "Started",
    "Steered",
    "TemporalRun",
    "Tool",
    "ToolContext",
    "TranscriptItem",
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
    "ClosingRecord": "views",
    "Event": "views",
    "InboxFilter": "handle",
    "InterruptView": "views",
    "Limits": "core.state",
    "McpServer": "mcp.server",
    "MessageReceipt": "views",
    "MessageView": "views",
    "Receipt": "core.ledger",
    "RunFilter": "handle",
    "RunHandle": "handle",
    "RunView": "views",
    "Started": "handle",
    "Steered": "handle",
    "TemporalRun": "client",
    "Tool": "agents.tool",
    "ToolContext": "agents.tool",
    "TranscriptItem": "agents.transcript_view",
    "load": "yaml.loader",
    "testing": "testing",
    "tool": "agents.tool_decorator",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    module = import_module(f"abeyance.{_LATE[name]}")
    return module if name == "testing" else getattr(module, name)
