"""Carry out the effects of a run in memory: feed the core, run the code of visits, publish events.

What `workflows/run.py` does on Temporal. Visits run one after another, and time passes only when somebody
moves the clock, or while a failed visit waits for its next attempt.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping
from copy import deepcopy
from datetime import datetime
from typing import Final, assert_never

from pydantic import TypeAdapter

from abeyance import wire
from abeyance.authoring.context import Context, VisitRuntime
from abeyance.authoring.graph import Graph
from abeyance.authoring.journal import Journal
from abeyance.core import effects, events, machine
from abeyance.core import outcome as outcomes
from abeyance.core.approvals import Grant, Wanted
from abeyance.core.effects import VisitInput
from abeyance.core.events import Message
from abeyance.core.json import Json
from abeyance.core.outcome import Stopped, VisitOutcome
from abeyance.core.state import RunState
from abeyance.errors import Blocked
from abeyance.records import steps
from abeyance.records.audit_chain import content_of
from abeyance.records.steps import Step
from abeyance.runtime.node_runner import TimedOut, failed_attempt, graph_for, run_visit
from abeyance.storage.blobs import MemoryBlobs
from abeyance.views import Event

MAX_STEPS: Final = 100_000
"""Maximum number of steps until a run has to wait for something."""


class Driver:
    """The driver of one run: its state, its clock, and the events that it has published.

    `audit` has the contents of the audit's lines. `moved` is set, and replaced, with each published
    event.
    """

    def __init__(
        self,
        graph: Graph,
        state: RunState,
        start: wire.StartRun,
    ) -> None:
        self.state = state
        self.now = state.created_at
        self.events: list[Event] = []
        self.audit: list[Mapping[str, Json]] = []
        self.moved = asyncio.Event()
        self.blobs = MemoryBlobs()
        self._graph = graph
        self._start = start
        self._effects: deque[effects.Effect] = deque()
        # Blocked visits by address. The next event has them tried again.
        self._blocked: dict[str, effects.RunNode] = {}
        self._reasons: dict[str, Blocked] = {}
        self._has_begun = False
        # With the addresses of the calls that ran under each.
        self._granted: list[tuple[Grant, set[str]]] = []

    async def start(self) -> None:
        """Start the run, and continue until it has to wait. Raise Blocked if a visit is blocked then."""
        if self._has_begun:
            raise RuntimeError("the run has started already")
        self._has_begun = True
        self._note(steps.began(self._start, self.state.spec.name))
        await self.feed(events.Started(now=self.now))
        self.raise_blocked()

    def deploy(self, graph: Graph) -> None:
        """Run the code of another version of the graph from now on."""
        self._graph = graph

    def begin(self, start: wire.StartRun) -> None:
        """Change what the run's view says of its start."""
        self._start = start

    async def go_on(self, state: RunState) -> None:
        """Go on with a retried state, until it has to wait."""
        self._has_begun = True
        self.state = state
        self._effects.clear()
        self._blocked.clear()
        self._reasons.clear()
        await self.feed(events.Restored(now=self.now))

    async def feed(self, event: events.Event) -> None:
        """Change the run by an event, try blocked visits again, and carry out all that follows.

        Raise the Refusal of the core.
        """
        self._advance(event)
        again, self._reasons = list(self._blocked), {}
        for _ in range(MAX_STEPS):
            if self._effects:
                await self._perform(self._effects.popleft())
            elif (moment := self.state.next_deadline()) is not None and (
                moment <= self.now or moment == self.state.next_attempt()
            ):
                # The deadline passed while code ran, or before the interrupt was opened. A pause between
                # two attempts passes by itself.
                self.now = max(self.now, moment)
                self._advance(events.Ticked(now=self.now))
            elif again:
                if (effect := self._blocked.pop(again.pop(0), None)) is not None:
                    self._effects.append(effect)
            else:
                return
        raise RuntimeError(
            f"the run took {MAX_STEPS} steps without coming to rest: is there an endless loop?"
        )

    def raise_blocked(self) -> None:
        """Raise Blocked if a visit is blocked."""
        for address in self._blocked:
            raise self._reasons[address]

    async def reach_deadline(self, until: datetime) -> bool:
        """Move the clock to the next deadline or `until`; return True if a deadline came first.

        Blocked visits are tried again, and do not stop the clock.
        """
        moment = self.state.next_deadline()
        is_first = moment is not None and moment <= until
        self.now = max(self.now, moment) if moment is not None and is_first else until
        await self.feed(events.Ticked(now=self.now))
        return is_first

    def take_message(self, visit: str, number: int) -> Message | None:
        """Return the n-th message that a running visit takes, counted from 0; None if there is none."""
        self._advance(events.MessagesTaken(now=self.now, visit=visit, upto=number + 1))
        taken = self.state.visits[visit].inbox.taken
        return taken[number] if len(taken) > number else None

    def _advance(self, event: events.Event) -> None:
        if not self._has_begun:
            # Nothing is left to do in it, because nothing has been begun.
            raise RuntimeError("the run has not started: call `await run.start()` first")
        self._effects.extend(machine.advance(self.state, event))

    async def _perform(self, effect: effects.Effect) -> None:
        match effect:
            case effects.RunNode(input=visit_input) if visit_input.address in self._reasons:
                self._blocked[visit_input.address] = effect
            case effects.RunNode(input=visit_input):
                # A copy: code that changes its values must not change the run.
                await self._visit(deepcopy(visit_input))
            case effects.Publish():
                if effect.type == "approval.remembered" and effect.audit is not None:
                    made = TypeAdapter(Grant).validate_python(effect.audit["grant"])
                    self._granted.append((made, set()))
                self._publish(
                    effect.type, effect.address, effect.actor, effect.data, audit=effect.audit
                )
            case effects.Yield():
                self._advance(events.TaskBegan(now=self.now))
            case effects.Finish():
                if self.state.ending is not None:
                    self._note(steps.ended(self.state.ending))
            case effects.StopNode():
                # Visits run one after another here, so no other visit is running.
                if self._blocked.pop(effect.visit, None) is not None:
                    stopped = Stopped(begun=False)
                    self._advance(
                        events.VisitEnded(now=self.now, visit=effect.visit, outcome=stopped)
                    )
            case _:
                assert_never(effect)

    async def _visit(self, visit_input: VisitInput) -> None:
        visit = visit_input.address
        if visit_input.kind == "visit" and visit_input.blocked_by is None:
            self._note(steps.started(visit))
        clock = time.monotonic()
        outcome = await self._outcome(visit_input)
        worked = round(time.monotonic() - clock, 3) if visit_input.metered else 0.0
        if visit_input.kind == "visit":
            for step in steps.reported(visit, outcome):
                self._note(step)
        self._advance(events.VisitEnded(now=self.now, visit=visit, outcome=outcome, worked=worked))

    async def _outcome(self, visit_input: VisitInput) -> VisitOutcome:
        """Make one attempt at a visit, and return its outcome."""

        async def write(steps: Mapping[str, Json]) -> None:
            """Keep nothing: the outcome has the steps."""

        began = self.now
        limit = asyncio.timeout(visit_input.timeout)
        context = Context(
            input=visit_input,
            attempt=visit_input.attempts.count + 1,
            logger=logging.LoggerAdapter(logging.getLogger("abeyance.node")),
            is_cancelled=limit.expired,
            runtime=VisitRuntime(
                journal=Journal(
                    visit_input.journal or {},
                    None if visit_input.local else write,
                    lambda: self.now,
                ),
                channel=_MemoryChannel(self, visit_input.address),
                send_heartbeat=lambda: None,
                blobs=self.blobs,
                find_grant=self._find_grant,
                attempts=lambda: visit_input.attempts.with_failed(
                    (self.now - began).total_seconds()
                ),
            ),
        )
        journal = context.runtime.journal
        try:
            graph = graph_for(visit_input, {self._graph.name: self._graph})
            async with limit:
                outcome = await run_visit(graph, context)
        except Blocked as blocked:
            self._reasons[visit_input.address] = blocked
            return outcomes.Blocked(
                code=blocked.code,
                message=str(blocked),
                journal=journal.steps or None,
                patch=journal.partial_patch,
            )
        except Exception as error:  # noqa: BLE001 any exception of an author's code is a failed attempt
            fault = TimedOut(visit_input) if limit.expired() else error
            return failed_attempt(graph, context, fault, context.runtime.attempts())
        if limit.expired():
            # A thread has returned too late, or the code caught its cancellation.
            late = TimedOut(visit_input)
            return failed_attempt(graph, context, late, context.runtime.attempts())
        return outcome

    async def _find_grant(self, call: Wanted, *, takes: bool) -> Grant | None:
        for grant, used in self._granted:
            has_room = grant.uses is None or len({*used, call.call}) <= grant.uses
            if has_room and grant.covers(call) and grant.holds(self.now, None, is_known=False):
                used.update([call.call] if takes else [])
                return grant
        return None

    def _note(self, step: Step) -> None:
        self._publish(step.type, step.address, step.actor, step.data, audit=step.audit)

    def _publish(
        self,
        type_: str,
        address: str | None,
        actor: str | None = None,
        data: Mapping[str, Json] | None = None,
        *,
        audit: Mapping[str, Json] | None = None,
    ) -> None:
        self.events.append(
            Event(
                id=f"{len(self.events):09}",
                time=self.now,
                type=type_,
                run_id=self.state.run_id,
                address=address,
                actor=actor,
                data=dict(data or {}),
            )
        )
        self.audit.append(content_of(self.events[-1], audit))
        self.moved.set()
        self.moved = asyncio.Event()


class _MemoryChannel:
    """A visit's channel to a run in memory, in which nothing else happens meanwhile."""

    def __init__(self, driver: Driver, visit: str) -> None:
        self._driver = driver
        self._visit = visit

    async def take(self, number: int) -> Message | None:
        return self._driver.take_message(self._visit, number)

    async def wait_if_paused(self, timeout: float | None) -> bool:  # noqa: ARG002 the run is never paused meanwhile
        return True
