"""Run a graph in memory to its end, with answers that are given beforehand."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel

from abeyance import projections
from abeyance.authoring.graph import Graph
from abeyance.core.policy import Principal
from abeyance.core.state import Limits
from abeyance.testing.control import ANYBODY
from abeyance.testing.driver import MAX_STEPS
from abeyance.testing.in_memory_run import EPOCH, InMemoryRun
from abeyance.views import InterruptView


async def run(
    graph: Graph,
    input: Mapping[str, Any] | BaseModel | None = None,  # noqa: A002
    *,
    answers: Mapping[str, Any | Callable[[InterruptView], Any]] | None = None,
    principal: Principal = ANYBODY,
    limits: Limits | None = None,
    skip_time: bool = True,
    run_id: str = "test",
    now: datetime = EPOCH,
    interrupt_before: str | Sequence[str] = (),
    interrupt_after: str | Sequence[str] = (),
    on_error: str | None = None,
) -> InMemoryRun:
    """Run a graph until it ends or waits for an answer that `answers` does not have.

    `answers` maps the name or id of an interrupt to a value, or to a function of the interrupt, which
    may be async. The clock moves to the deadline of an interrupt without an answer, unless `skip_time`
    is False. The other parameters are those of a start. Raise the Refusal if the run refuses an answer.
    """
    trial = InMemoryRun(
        graph,
        input,
        run_id=run_id,
        limits=limits,
        now=now,
        interrupt_before=interrupt_before,
        interrupt_after=interrupt_after,
        on_error=on_error,
    )
    await trial.start()
    for _ in range(MAX_STEPS):
        if trial.state.finished:
            break
        if not await _answer_one(trial, answers or {}, principal):
            moment = trial.state.next_deadline()
            if moment is None or not skip_time:
                break
            await trial.advance(max(moment - trial.now, timedelta()))
    return trial


async def _answer_one(
    trial: InMemoryRun,
    answers: Mapping[str, Any | Callable[[InterruptView], Any]],
    principal: Principal,
) -> bool:
    for entry in trial.state.ledger.open.values():
        key = entry.id if entry.id in answers else entry.name
        if key not in answers:
            continue
        answer = answers[key]
        if callable(answer):
            answer = answer(projections.interrupt(trial.state, entry.id))
            if inspect.isawaitable(answer):
                answer = await answer
        await trial.respond(entry.id, answer, principal=principal)
        return True
    return False
