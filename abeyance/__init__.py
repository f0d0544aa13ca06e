"""Abeyance: a durable human-in-the-loop runtime for agent graphs on Temporal."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from abeyance import testing
    from abeyance.agents.agent import Agent
    from abeyance.agents.hooks import (
        AfterToolCall,
        BeforeToolCall,
    )
    from abeyance.agents.tool import Tool, ToolContext
    from abeyance.agents.tool_decorator import tool
    from abeyance.agents.transcript_view import TranscriptItem
    from abeyance.authoring.budgets import Budget
    from abeyance.authoring.context import Context, Goto, Send
    from abeyance.authoring.graph import Graph
    from abeyance.authoring.interrupts import CompositeInterrupt, Interrupt
    from abeyance.authoring.retries import Backoff
    from abeyance.authoring.terms import Calendar, Escalation, Quorum
    from abeyance.client import Client, TemporalRun
    from abeyance.client.eviction import ActiveRun
    from abeyance.core.ledger import Receipt
    from abeyance.core.policy import Principal, ReadRights
    from abeyance.core.spec import END, START
    from abeyance.core.state import Limits
    from abeyance.errors import (
        AbeyanceError,
        Fatal,
        GraphError,
        NodeError,
        Refusal,
        SettingsError,
        Unavailable,
    )
    from abeyance.filters import EventFilter, InboxFilter, RunFilter
    from abeyance.handle import MessageFields, RunHandle, Started, Steered
    from abeyance.mcp.server import McpServer
    from abeyance.schemas.state_model import FromStart, add, append, merge, union
    from abeyance.settings import Settings
    from abeyance.temporal.workers import LiveWorker, Service
    from abeyance.views import (
        ClosingRecord,
        DelegationView,
        Event,
        InterruptView,
        MessageReceipt,
        MessageView,
        Migration,
        Obstacle,
        RunView,
        StreamEvent,
    )
    from abeyance.yaml.loader import load

    __version__: str

__all__ = [
    "END",
    "START",
    "AbeyanceError",
    "ActiveRun",
    "AfterToolCall",
    "Agent",
    "Backoff",
    "BeforeToolCall",
    "Budget",
    "Calendar",
    "Client",
    "ClosingRecord",
    "CompositeInterrupt",
    "Context",
    "DelegationView",
    "Escalation",
    "Event",
    "EventFilter",
    "Fatal",
    "FromStart",
    "Goto",
    "Graph",
    "GraphError",
    "InboxFilter",
    "Interrupt",
    "InterruptView",
    "Limits",
    "LiveWorker",
    "McpServer",
    "MessageFields",
    "MessageReceipt",
    "MessageView",
    "Migration",
    "NodeError",
    "Obstacle",
    "Principal",
    "Quorum",
    "ReadRights",
    "Receipt",
    "Refusal",
    "RunFilter",
    "RunHandle",
    "RunView",
    "Send",
    "Service",
    "Settings",
    "SettingsError",
    "Started",
    "Steered",
    "StreamEvent",
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

# Loaded at their first use: the command line, and who only writes graphs, should not pay for all of them.
_MODULES = {
    "END": "core.spec",
    "START": "core.spec",
    "AbeyanceError": "errors",
    "ActiveRun": "client.eviction",
    "AfterToolCall": "agents.hooks",
    "Agent": "agents.agent",
    "Backoff": "authoring.retries",
    "BeforeToolCall": "agents.hooks",
    "Budget": "authoring.budgets",
    "Calendar": "authoring.terms",
    "Client": "client",
    "ClosingRecord": "views",
    "CompositeInterrupt": "authoring.interrupts",
    "Context": "authoring.context",
    "DelegationView": "views",
    "Escalation": "authoring.terms",
    "Event": "views",
    "EventFilter": "filters",
    "Fatal": "errors",
    "FromStart": "schemas.state_model",
    "Goto": "authoring.context",
    "Graph": "authoring.graph",
    "GraphError": "errors",
    "InboxFilter": "filters",
    "Interrupt": "authoring.interrupts",
    "InterruptView": "views",
    "Limits": "core.state",
    "LiveWorker": "temporal.workers",
    "McpServer": "mcp.server",
    "MessageFields": "handle",
    "MessageReceipt": "views",
    "MessageView": "views",
    "Migration": "views",
    "NodeError": "errors",
    "Obstacle": "views",
    "Principal": "core.policy",
    "Quorum": "authoring.terms",
    "ReadRights": "core.policy",
    "Receipt": "core.ledger",
    "Refusal": "errors",
    "RunFilter": "filters",
    "RunHandle": "handle",
    "RunView": "views",
    "Send": "authoring.context",
    "Service": "temporal.workers",
    "Settings": "settings",
    "SettingsError": "errors",
    "Started": "handle",
    "Steered": "handle",
    "StreamEvent": "views",
    "TemporalRun": "client",
    "Tool": "agents.tool",
    "ToolContext": "agents.tool",
    "TranscriptItem": "agents.transcript_view",
    "Unavailable": "errors",
    "add": "schemas.state_model",
    "append": "schemas.state_model",
    "load": "yaml.loader",
    "merge": "schemas.state_model",
    "testing": "testing",
    "tool": "agents.tool_decorator",
    "union": "schemas.state_model",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  (slow to import)

        return version("abeyance")
    if name not in _MODULES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    module = import_module(f"abeyance.{_MODULES[name]}")
    return module if name == "testing" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
