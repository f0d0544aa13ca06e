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
    from abeyance.client import Client
    from abeyance.yaml import load

__all__ = [
    "END",
    "START",
    "AbeyanceError",
    "Client",
    "CompositeInterrupt",
    "Context",
    "Fatal",
    "Goto",
    "Graph",
    "GraphError",
    "Interrupt",
    "NodeError",
    "Principal",
    "Refusal",
    "Send",
    "SettingsError",
    "Unavailable",
    "add",
    "append",
    "load",
    "merge",
    "testing",
    "union",
]


def __getattr__(name: str) -> Any:
    # Who only writes graphs, and the workflow sandbox, should not pay for these imports.
    if name == "Client":
        return import_module("abeyance.client").Client
    if name == "load":
        return import_module("abeyance.yaml").load
    if name == "testing":
        return import_module("abeyance.testing")
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
