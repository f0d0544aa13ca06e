"""A run in memory: the effects of the core, carried out by the code of nodes, on a clock that is told.

Nothing in it runs at once with anything else, so what happens, happens in one order. `testing` has what a
test does to such a run.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, Final, assert_never

from pydantic import BaseModel

from abeyance import wire
from abeyance.agents.callerror import described
from abeyance.core import effects, events, machine
from abeyance.core.canonical import Json
from abeyance.core.effects import VisitInput
from abeyance.core.outcome import Failed
from abeyance.core.state import Limits
from abeyance.errors import Blocked, FailureCode
from abeyance.graphs.graph import Graph
from abeyance.histories import visitlog
from abeyance.nodes.context import Context
from abeyance.nodes.notebook import Notebook
from abeyance.storage.blobs import MemoryBlobs
from abeyance.values import limits as limits_
from abeyance.views import run_view
from abeyance.visit import graph_for, run_visit

BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)
MOST_STEPS: Final = 100_000
_LONGEST_BACKOFF: Final = 60.0


class Rehearsal:
    """A run that goes on until nothing can happen in it without an answer or the passing of time."""

    def __init__(
        self,
        graph: Graph,
        input: Mapping[str, Any] | BaseModel | None = None,  # noqa: A002
        *,
        run_id: str = "test",
        limits: Limits | None = None,
        now: datetime = BEGINNING,
        interrupt_before: str | Sequence[str] = (),
        interrupt_after: str | Sequence[str] = (),
        on_error: str | None = None,
    ) -> None:
        self._events: list[wire.Event] = []
        self._moved = asyncio.Event()
        self._graph = graph
        self._now = now
        self._wanted: deque[effects.Effect] = deque()
        self._sent = 0
        self._blobs = MemoryBlobs()
        self._state = machine.new_run(
            run_id=run_id,
            spec=graph.build_for(
                interrupt_before=interrupt_before,
                interrupt_after=interrupt_after,
                on_error=on_error,
            ),
            limits=limits_.checked(limits or Limits()),
            values=graph.states.initial(input or {}),
            now=now,
        )
        self._start = wire.StartRun(run_id=run_id, graph_version=graph.build().version)

    def take(self, visit: str, number: int) -> events.Message | None:
        """The n-th message that a running visit takes, counted from 0; None if there is none."""
        self._apply(events.MessagesTaken(now=self._now, visit=visit, upto=number + 1))
        taken = self._state.visits[visit].taken
        return taken[number] if len(taken) > number else None

    async def _feed(self, event: events.Event) -> None:
        self._apply(event)
        for _ in range(MOST_STEPS):
            if self._wanted:
                await self._perform(self._wanted.popleft())
            elif (moment := self._state.next_deadline()) is not None and moment <= self._now:
                # It has passed while code ran, or before it was asked.
                self._apply(events.Ticked(now=self._now))
            else:
                return
        message = (
            f"the run did {MOST_STEPS} things without coming to rest: a loop without a way out"
        )
        raise RuntimeError(message)

    def _apply(self, event: events.Event) -> None:
        self._state, wanted = machine.advance(self._state, event)
        self._wanted.extend(wanted)

    async def _perform(self, effect: effects.Effect) -> None:
        match effect:
            case effects.RunNode(input=visit_input):
                # Code that changes what it is given must not change the run.
                await self._visit(deepcopy(visit_input))
            case effects.Publish():
                self._tell(effect.type, effect.address, effect.actor, effect.data)
            case effects.Yield():
                self._apply(events.TaskBegan(now=self._now))
            case effects.Finish():
                self._tell_end()
            case effects.StopNode():
                # Visits run one after another here, so none is under way when something else happens.
                pass
            case _:
                assert_never(effect)

    async def _visit(self, visit_input: VisitInput) -> None:
        if visit_input.kind == "visit":
            self._tell(visitlog.started(visit_input.address).type, visit_input.address)
        steps: dict[str, Json] = dict(visit_input.journal or {})

        async def write(finished: Mapping[str, Json]) -> None:
            steps.update(finished)

        for attempt in range(1, visit_input.retries + 2):
            book = Notebook(steps, None if visit_input.local else write, lambda: self._now)
            context = Context(
                input=visit_input,
                notebook=book,
                mail=_MemoryMail(self, visit_input.address),
                attempt=attempt,
                logger=logging.LoggerAdapter(logging.getLogger("abeyance.node")),
                is_cancelled=lambda: False,
                beat=lambda: None,
                blobs=self._blobs,
            )
            try:
                graph = graph_for(visit_input, {self._graph.name: self._graph})
                outcome = await run_visit(graph, context)
            except Blocked:
                raise
            except Exception as error:  # noqa: BLE001 whatever an author's code raises is a failed attempt
                outcome = Failed(
                    code=FailureCode.NODE_FAILED,
                    message=described(error),
                    journal=steps or None,
                    patch=book.partial,
                )
                if attempt <= visit_input.retries:
                    self._now += timedelta(seconds=min(2.0 ** (attempt - 1), _LONGEST_BACKOFF))
                    continue
            break
        if visit_input.kind == "visit":
            for told in visitlog.reported(visit_input.address, {"outcome": asdict(outcome)}):
                self._tell(told.type, told.address, data=told.data)
        self._apply(events.VisitEnded(now=self._now, visit=visit_input.address, outcome=outcome))

    def _tell_beginning(self) -> None:
        told = {
            "graph": self._state.spec.name,
            "graph_version": self._graph.build().version,
            "conversation_id": None,
            "session_type": "agent",
        }
        self._tell("run.started", None, "tester", told)

    def _tell_end(self) -> None:
        view = run_view(self._state, self._start)
        told: dict[str, Json] = {"reason": view.reason}
        if view.error is not None:
            told |= {"code": view.error.code, "message": view.error.message}
        address = None if view.error is None else view.error.address
        self._tell(f"run.{view.status}", address, view.cancelled_by, told)

    def _tell(
        self,
        type_: str,
        address: str | None,
        actor: str | None = None,
        data: Mapping[str, Json] | None = None,
    ) -> None:
        self._events.append(
            wire.Event(
                id=f"{len(self._events):09}",
                time=self._now,
                type=type_,
                run_id=self._state.run_id,
                address=address,
                actor=actor,
                data=data or {},
            )
        )
        self._moved.set()
        self._moved = asyncio.Event()


class _MemoryMail:
    """The mail of a visit in memory, where nothing else happens while it runs."""

    def __init__(self, trial: Rehearsal, visit: str) -> None:
        self._trial = trial
        self._visit = visit

    async def take(self, number: int) -> events.Message | None:
        return self._trial.take(self._visit, number)

    async def wait_if_paused(self, timeout: float | None) -> bool:  # noqa: ARG002 nobody waits
        return True
