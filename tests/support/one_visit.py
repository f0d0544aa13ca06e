"""One visit of the node `a` of a graph, without a worker."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from abeyance import Context, Graph, wire
from abeyance.nodes.notebook import Notebook
from abeyance.visit import run_visit


class NoMail:
    async def take(self, number: int) -> None:
        return None

    async def wait_if_paused(self, timeout: float | None) -> bool:
        return True


async def _forget(steps: Any) -> None:
    """Keep nothing: there is one attempt."""


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
        "mail": NoMail(),
        "notebook": Notebook({}, _forget, lambda: datetime.now(UTC)),
    }
    return Context(**{**given, **about})


def order(values: Any = None, **about: Any) -> wire.VisitOrder:
    given = {"kind": "visit", "run_id": "r1", "graph": "g", "node": "a", **about}
    return wire.VisitOrder(address="graph:g;node:a", values=values or {}, **given)


async def visit(graph: Graph, values: Any = None, **about: Any) -> Any:
    """Run it as an activity does: what it is given and what it gives back is JSON."""
    sent = wire.VisitOrder.model_validate_json(order(values, **about).model_dump_json())
    outcome = await run_visit(graph, sent, context(values=sent.values))
    return type(outcome).model_validate_json(outcome.model_dump_json())
