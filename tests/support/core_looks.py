"""Graphs with static interrupts, and the answer that edits values at one."""

from __future__ import annotations

from typing import Any

from core_drive import chain, graph

from abeyance.core.json import Json
from abeyance.core.spec import START, FunctionNode, GraphSpec, Route

BEFORE, AFTER = "interrupt_before", "interrupt_after"


def before(*nodes: Any, **kwargs: Any) -> GraphSpec:
    return chain(*(nodes or ("a", "b")), before=["a"], **kwargs)


def routed(**kwargs: Any) -> GraphSpec:
    """`a` chooses `b` or `c`, and a person looks after it."""
    return graph(
        FunctionNode(id="a", to=("d",)),
        "b",
        "c",
        "d",
        ways=[(START, "a")],
        routes=[Route(source="a", name="r", targets=("b", "c"))],
        after=["a"],
        **kwargs,
    )


def edit(version: int, **values: Json) -> dict[str, Json]:
    return {"values": values, "version": version}
