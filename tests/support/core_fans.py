"""Graphs that fan out, and what comes of their items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_drive import Drive, Ways, graph

from abeyance.core.json import Json
from abeyance.core.spec import START, FunctionNode, GraphSpec, Node, Reducer
from abeyance.core.state import Limits

FIELDS: Mapping[str, Reducer] = {"x": "last", "log": "append", "sum": "add", "by": "merge"}


def sending(
    *nodes: str | Node, ways: Ways = (), to: tuple[str, ...] = ("one",), **kwargs: Any
) -> GraphSpec:
    """A graph that begins with `s`, which sends items."""
    sender = FunctionNode(id="s", to=to)
    return graph(sender, *nodes, ways=[(START, "s"), *ways], fields=FIELDS, **kwargs)


def fan(*nodes: str | Node, ways: Ways = (), **kwargs: Any) -> GraphSpec:
    """`s` sends items to `one`, and `c` is what comes after the join behind it."""
    names = {node if isinstance(node, str) else node.id for node in nodes}
    own = [node for node in ("one", "c") if node not in names]
    return sending(*nodes, *own, ways=[(["one"], "c"), *ways], **kwargs)


def sent(
    spec: GraphSpec,
    items: list[Json],
    *,
    values: Mapping[str, Json] | None = None,
    limits: Limits | None = None,
) -> Drive:
    """A run in which `s` has sent the items to `one`."""
    run = Drive(spec, values=values, limits=limits)
    run.finish("s", sends=[("one", item) for item in items])
    return run


def results(run: Drive) -> list[tuple[Json, str]]:
    """Item and status of every item, as `c`, the node behind the join, sees them."""
    found = run.orders("c")[-1].results
    assert found is not None
    return [(each["item"], each["status"]) for each in found]
