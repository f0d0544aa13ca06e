"""What nodes get from their graph or their run, where they say nothing themselves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from abeyance.core.model import GoTo, InterruptNode, Node, OnError

_EVERY: Final = "*"


def settled(
    nodes: Mapping[str, Node],
    default: OnError,
    by_default: Collection[str],
    finally_nodes: Collection[str],
) -> dict[str, Node]:
    """The nodes with the default for failures, where it is for them.

    Only when all are declared is it known which run after the end, from where nothing leads on. And who
    deals with errors does not deal with its own.
    """
    found: dict[str, Node] = {}
    for id_, node in nodes.items():
        is_own = default == GoTo(node=id_)
        found[id_] = node
        if is_own or id_ not in by_default or id_ in finally_nodes:
            continue
        if not isinstance(node, InterruptNode):
            found[id_] = replace(node, on_error=default)
    return found


def looked_at(
    names: tuple[str, ...], nodes: Mapping[str, Node], finally_nodes: Collection[str]
) -> tuple[str, ...]:
    """The nodes at which a person looks: `*` is every one that is no question itself."""
    every = [
        id_
        for id_, node in nodes.items()
        if not isinstance(node, InterruptNode) and id_ not in finally_nodes
    ]
    own = [name for name in names if name != _EVERY]
    return tuple(dict.fromkeys([*every, *own] if _EVERY in names else own))
