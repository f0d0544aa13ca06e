"""Retries of ended runs: the state to go on with, and calls that are repeated."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from abeyance.authoring.graph import Graph
from abeyance.commands import RetryBody, RewindBody
from abeyance.core import idempotency, run_retry
from abeyance.core.json import Json, sha256
from abeyance.core.policy import Principal
from abeyance.core.state import RunState
from abeyance.errors import Code, Refusal
from abeyance.runtime import graph_today
from abeyance.schemas.state_model import ValuesError
from abeyance.wire import StartRun

_MOST_MARKS: Final = 20


def not_finished(run_id: str, status: str) -> Refusal:
    """Return the refusal of a retry of an open run."""
    return Refusal(
        Code.NOT_FINISHED,
        f"The run {run_id!r} is {status}: only a run that has ended can be retried. Migrate an open one.",
        run_id=run_id,
        run_status=status,
    )


def retried(
    state: RunState,
    start: StartRun,
    order: RetryBody,
    graph: Graph | None,
    *,
    principal: Principal,
    now: datetime,
) -> tuple[RunState, str]:
    """Return the state of a retry, and the version of its graph.

    Raises the Refusals of the core, `invalid_input` for a patch that does not fit, or `cannot_migrate` if
    the run would move, and ValueError if the retry needs today's graph and there is none.
    """
    if not order.changes_course:
        version = start.graph_version
        again = run_retry.retried(
            state,
            now=now,
            principal=principal,
            versions=(version, version),
            patch={},
            renames={},
        )
        return again, version
    if graph is None:
        raise ValueError(
            "a retry with a patch or today's graph needs the run's graph: client.run(run_id, graph)"
        )
    # The changes of finally nodes are not kept.
    before = state if state.ending is None else state.ending.before or state
    today = graph_today.read_graph(
        graph, graph_today.order_of(before, start, patch=order.patch, renames=order.map)
    )
    is_today = order.graph == "today"
    version = today.version if is_today else start.graph_version

    def attempt() -> RunState:
        return run_retry.retried(
            state,
            now=now,
            principal=principal,
            spec=today.spec if is_today else None,
            versions=(start.graph_version, version),
            patch=today.patch,
            renames=order.map,
        )

    if found := graph_today.obstacles(today, attempt):
        if not is_today:
            _refuse_misfit(graph, order.patch)
        raise graph_today.cannot_migrate(found, is_moved=is_today)
    return attempt(), version


def _refuse_misfit(graph: Graph, patch: Mapping[str, Json]) -> None:
    try:
        graph.states.patch(patch)
    except ValuesError as error:
        raise error.refusal() from error


def mark(order: RetryBody | RewindBody, principal: Principal, key: str | None) -> str:
    """Return the mark of a retry or a rewind. Without a key, only the call itself knows it."""
    if key is None:
        return uuid.uuid4().hex
    return f"{_hash(principal.subject, key)}.{_hash(order.model_dump(mode='json'))}"


def was_retried(marks: Sequence[str], own: str, key: str | None) -> bool:
    """Return whether a run was retried by this call. Raises `idempotency_conflict`."""
    same_key = f"{own.partition('.')[0]}."
    if key is not None and own not in marks and any(each.startswith(same_key) for each in marks):
        raise idempotency.conflict(key)
    return own in marks


def marked(marks: Sequence[str], own: str) -> tuple[str, ...]:
    """Return the marks of a run with that of a retry. The oldest ones are dropped."""
    return (*marks, own)[-_MOST_MARKS:]


def _hash(*parts: object) -> str:
    return sha256([*parts]).removeprefix("sha256:")[:16]
