"""Abeyance: a durable human-in-the-loop runtime for agent graphs on Temporal."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from abeyance import testing
    from abeyance.agents.agent import Agent
    from abeyance.agents.approvals import Remember
    from abeyance.agents.hooks import (
        AfterToolCall,
        BeforeToolCall,
    )
    from abeyance.agents.tool import Tool, ToolContext
    from abeyance.agents.tool_decorator import tool
    from abeyance.agents.transcript_view import TranscriptItem
    from abeyance.authoring.budgets import Budget
    from abeyance.authoring.calendars import Calendar
    from abeyance.authoring.context import Context, Goto, Send
    from abeyance.authoring.graph import Graph
    from abeyance.authoring.interrupts import CompositeInterrupt, Interrupt
    from abeyance.authoring.retries import Backoff
    from abeyance.authoring.terms import Escalation, Quorum
    from abeyance.client import Client, TemporalRun
    from abeyance.contrib.mcp.client.server import McpServer
    from abeyance.core.events import Message
    from abeyance.core.ledger import Receipt
    from abeyance.core.outcome import Call
    from abeyance.core.policy import Principal, ReadRights
    from abeyance.core.spec import END, START, GraphSpec
    from abeyance.core.state import Limits
    from abeyance.errors import (
        AbeyanceError,
        Fatal,
        GraphError,
        NodeError,
        Refusal,
        SettingsError,
        StillPaused,
        Unavailable,
    )
    from abeyance.filters import ApprovalsFilter, EventFilter, InboxFilter, RunFilter
    from abeyance.handle import MessageFields, RunHandle, Started, Steered
    from abeyance.records.grant_views import GrantView
    from abeyance.records.report import Approvals
    from abeyance.records.runs import ActiveRun
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
        Rewind,
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
    "Approvals",
    "ApprovalsFilter",
    "Backoff",
    "BeforeToolCall",
    "Budget",
    "Calendar",
    "Call",
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
    "GrantView",
    "Graph",
    "GraphError",
    "GraphSpec",
    "InboxFilter",
    "Interrupt",
    "InterruptView",
    "Limits",
    "LiveWorker",
    "McpServer",
    "Message",
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
    "Remember",
    "Rewind",
    "RunFilter",
    "RunHandle",
    "RunView",
    "Send",
    "Service",
    "Settings",
    "SettingsError",
    "Started",
    "Steered",
    "StillPaused",
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

# Loaded at first use: the command line, and programs that only write graphs, should not load them all.
_NAMES = {
    "agents.agent": "Agent",
    "agents.approvals": "Remember",
    "agents.hooks": "AfterToolCall BeforeToolCall",
    "agents.tool": "Tool ToolContext",
    "agents.tool_decorator": "tool",
    "agents.transcript_view": "TranscriptItem",
    "authoring.budgets": "Budget",
    "authoring.calendars": "Calendar",
    "authoring.context": "Context Goto Send",
    "authoring.graph": "Graph",
    "authoring.interrupts": "CompositeInterrupt Interrupt",
    "authoring.retries": "Backoff",
    "authoring.terms": "Escalation Quorum",
    "client": "Client TemporalRun",
    "contrib.mcp.client.server": "McpServer",
    "core.events": "Message",
    "core.ledger": "Receipt",
    "core.outcome": "Call",
    "core.policy": "Principal ReadRights",
    "core.spec": "END START GraphSpec",
    "core.state": "Limits",
    "errors": "AbeyanceError Fatal GraphError NodeError Refusal SettingsError StillPaused Unavailable",
    "filters": "ApprovalsFilter EventFilter InboxFilter RunFilter",
    "handle": "MessageFields RunHandle Started Steered",
    "records.report": "Approvals",
    "records.grant_views": "GrantView",
    "records.runs": "ActiveRun",
    "schemas.state_model": "FromStart add append merge union",
    "settings": "Settings",
    "temporal.workers": "LiveWorker Service",
    "testing": "testing",
    "views": (
        "ClosingRecord DelegationView Event InterruptView MessageReceipt MessageView "
        "Migration Obstacle Rewind RunView StreamEvent"
    ),
    "yaml.loader": "load",
}
"""The public names by their module."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


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
