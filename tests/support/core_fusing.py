"""Graphs with fused nodes, and what a worker returns of a hop through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core_drive import Drive, at, chain

from abeyance.core import events
from abeyance.core.effects import RunNode, VisitInput
from abeyance.core.hops import following
from abeyance.core.outcome import (
    Finished,
    Ran,
    VisitOutcome,
)
from abeyance.core.spec import (
    START,
    FunctionNode,
    GraphSpec,
)


def fused(name: str, **options: Any) -> FunctionNode:
    return FunctionNode(id=name, fuse=True, **options)


def abc(**options: Any) -> GraphSpec:
    return chain(fused("a"), fused("b"), fused("c"), **options)


WAYS: list[tuple[str, str]] = [(START, "a"), ("a", "b")]


def order(drive: Drive) -> VisitInput:
    """What the visit was given whose code was ordered last."""
    return drive.wanted(RunNode)[-1].input


def address(node: str) -> str:
    return f"graph:g;node:{node}"


def log(node: str) -> Finished:
    return Finished(patch={"log": [node]})


def ran(visit: str, outcome: VisitOutcome, seconds: float = 0.0) -> Ran:
    return Ran(visit=visit, outcome=outcome, began=at(seconds), ended=at(seconds))


def walk(
    first: VisitInput, code: Callable[[VisitInput], VisitOutcome] = lambda it: log(it.node)
) -> tuple[Ran, ...]:
    """What a worker has done when it comes back with a hop."""
    done: tuple[Ran, ...] = ()
    following_: VisitInput | None = first
    while following_ is not None:
        done += (ran(following_.address, code(following_)),)
        following_ = following(first, done)
    return done


def nodes(done: tuple[Ran, ...]) -> list[str]:
    return [each.visit.rpartition(";node:")[2] for each in done]


def comes_back(drive: Drive, done: tuple[Ran, ...]) -> None:
    first, *then = done
    drive.feed(events.VisitEnded, visit=first.visit, outcome=first.outcome, then=tuple(then))
