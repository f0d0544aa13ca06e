"""One visit of the node `a` of a graph, without a worker."""

from __future__ import annotations

import logging
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from abeyance import Context, Graph
from abeyance.authoring.context import VisitRuntime
from abeyance.authoring.journal import Journal
from abeyance.core.effects import VisitInput
from abeyance.runtime.node_runner import run_visit


class NoMail:
    async def take(self, number: int) -> None:
        return None

    async def wait_if_paused(self, timeout: float | None) -> bool:
        return True


async def _forget(steps: Any) -> None:
    """Store nothing, because there is only one attempt."""


def given(values: Any = None, **about: Any) -> VisitInput:
    where = {"graph": "g", "node": "a", "address": "graph:g;node:a"}
    return VisitInput(
        **{"run_id": "r1", "execution": "e1", "values": values or {}, **where, **about}
    )


def context(**about: Any) -> Context:
    """Return a context with these fields; names that the context lacks are fields of its input."""
    own = {each.name for each in fields(Context)}
    held: dict[str, Any] = {
        "input": given(
            **{name: value for name, value in about.items() if name not in {*own, "send_heartbeat"}}
        ),
        "attempt": 1,
        "logger": logging.LoggerAdapter(logging.getLogger("abeyance.node"), {}),
        "is_cancelled": lambda: False,
        "runtime": VisitRuntime(
            journal=Journal({}, _forget, lambda: datetime.now(UTC)),
            channel=NoMail(),
            send_heartbeat=about.get("send_heartbeat", lambda: None),
        ),
    }
    return Context(**held | {name: value for name, value in about.items() if name in own})


async def visit(graph: Graph, values: Any = None, **about: Any) -> Any:
    """Run the visit as an activity does: its input and its outcome pass through JSON."""
    built = graph.build()
    routes = tuple(route.name for route in built.routes_from("a"))
    own = {"routes": routes, "targets": built.targets_of("a")}
    sent = _read_again(given(values, **own | about))
    return _read_again(await run_visit(graph, context(input=sent)))


def _read_again(value: Any) -> Any:
    adapter: TypeAdapter[Any] = TypeAdapter(type(value))
    return adapter.validate_json(adapter.dump_json(value))
