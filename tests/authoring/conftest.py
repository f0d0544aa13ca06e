"""One visit of one node, without a worker."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from abeyance import Context, Graph, wire
from abeyance.visit import run_visit

Visit: TypeAlias = Callable[..., Awaitable[Any]]


def context(**about: Any) -> Context:
    given: dict[str, Any] = {
        "run_id": "r1",
        "execution": "e1",
        "graph": "g",
        "node": "a",
        "address": "graph:g;node:a",
        "values": {},
        "answers": {},
        "attempt": 1,
        "outcome": None,
        "logger": logging.LoggerAdapter(logging.getLogger("abeyance.node"), {}),
        "is_cancelled": lambda: False,
        "beat": lambda: None,
    }
    return Context(**{**given, **about})


@pytest.fixture(name="context")
def context_fixture() -> Callable[..., Context]:
    """Makes the context of a visit of the node `a`."""
    return context


@pytest.fixture
def visit() -> Visit:
    """Runs a visit of the node `a` as an activity does: what it is given and gives back is JSON."""

    async def run(
        graph: Graph, values: Any = None, *, about: dict[str, Any] | None = None, **order: Any
    ) -> Any:
        given = {"kind": "visit", "run_id": "r1", "graph": "g", "node": "a", **order}
        sent = wire.VisitOrder(address="graph:g;node:a", values=values or {}, **given)
        sent = wire.VisitOrder.model_validate_json(sent.model_dump_json())
        outcome = await run_visit(graph, sent, context(values=sent.values, **(about or {})))
        return type(outcome).model_validate_json(outcome.model_dump_json())

    return run
