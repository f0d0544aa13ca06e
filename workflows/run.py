"""`AgentRun`: the workflow of a run, of whatever graph. The core makes all decisions.

Three rules keep it correct. *One synchronous entry*: every handler makes an event and passes it to
`_feed` before its first await, so events cannot interleave. *Refusals leave only as an ApplicationError*
whose type is the code: any other exception fails the workflow task, which the server retries forever.
*Nothing is written per event*: the changes of a task are written once, after all its events are applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, assert_never

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from abeyance import commands, names, projections, views, wire
    from abeyance.commands import as_events
    from abeyance.core import effects, events, idempotency, lifecycle, machine
    from abeyance.core.spec import GraphSpec
    from abeyance.core.state import RunState, joined
    from abeyance.errors import Refusal
    from abeyance.runtime import graph_today
    from abeyance.temporal.workarounds.any_type import of_any_type
    from abeyance.workflows import (
        activity_calls,
        answers,
        continue_as_new,
        requests,
        visibility,
    )
    from abeyance.workflows.continue_as_new import History
    from abeyance.workflows.metrics import MeteredRun
    from abeyance.workflows.notification import Announcer
    from abeyance.workflows.recording import Recorder
    from abeyance.workflows.rewinding import Rewinds
    from abeyance.workflows.timers import DeadlineTimer
    from abeyance.workflows.updates import Updates
    from abeyance.workflows.visibility import VisibilityWriter

_SHORTEST_TIMER: Final = timedelta(milliseconds=1)
_READ_FIRST: Final[frozenset[effects.StopReason]] = frozenset({"pause", "rotation"})
"""The reasons to stop code that runs again later. The run reads the journal of such code first."""


@of_any_type
@workflow.defn
class AgentRun(Updates):
    """A run of a graph. `values` are by scope; `carried` is the snapshot of a continue-as-new."""

    @workflow.init
    def __init__(
        self,
        start: wire.StartRun,
        spec: GraphSpec,
        values: dict[str, dict[str, Any]],
        carried: RunState | None,
    ) -> None:
        # Handlers may be called before the first line of `run`, so initialize everything here.
        now = workflow.now()
        self._start = start
        self._stamps = requests.StampChecker(start)
        self._signals = requests.Signals(self._stamps)
        self._running: dict[str, activity_calls.RunningCode] = {}
        # The visits whose way a local activity chooses: that is quick, and never stopped.
        self._deciding: set[str] = set()
        self._stopping: list[activity_calls.RunningCode] = []
        # Code that is stopped to run again later waits here until its journal is read.
        self._pausing: list[activity_calls.RunningCode] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._facts: list[effects.Publish] = []
        self._is_dirty = True
        self._crash: BaseException | None = None
        self._has_ended = False
        self._changes = 0
        self._timer = DeadlineTimer(self._start_timer)
        self._announcer = Announcer(self._spawn)
        self._recorder = Recorder(self._spawn, start)
        self._rewinds = Rewinds(self._recorder)
        # True if only results of local activities have arrived since the last write.
        self._is_local = False
        self._tasks_begun = 0
        self._history = History()
        # A retry carries a state into a new execution.
        is_continued = workflow.info().continued_run_id is not None
        self._metered = MeteredRun(start, spec.name, is_carried=is_continued)
        event: events.Event
        if carried is None:
            # A refusal must end the run instead of failing this task forever.
            with requests.refusals_as_application_errors():
                self._state = machine.new_run(
                    run_id=start.run_id,
                    spec=spec,
                    limits=start.limits,
                    values=values[f"graph:{spec.name}"],
                    now=now,
                    salt=start.salt,
                    started_by=start.started_by,
                )
            self._visibility = VisibilityWriter(start, None)
            event = events.Started(now=now)
            self._recorder.began(start, spec.name, now)
        else:
            self._state = joined(carried, spec, values)
            self._visibility = VisibilityWriter(start, self._state if is_continued else None)
            event = events.Restored(now=now)
        self._is_reseeded = self._rewinds.begin(self._state)
        self._loop = asyncio.get_running_loop()
        workflow.register_random_seed_callback(self._reset)
        if self._is_reseeded and carried is None:
            self._is_reseeded = self._stamps.takes_updates = False
            self._rewinds.hold_start()
            self._spawn(self._start_again(now))
        else:
            self._advance(event)
        self._spawn(self._recorder.take_back(lambda: (self._state, self._start)))

    @workflow.query(
        description="The run as people see it, with the first of its open interrupts in short.",
    )
    def state(self) -> views.RunView:
        return projections.short_view(self._state, self._start)

    @property
    def known(self) -> RunState:
        """The state of the run, for code that replays its history."""
        return self._state

    @workflow.run
    async def run(
        self,
        start: wire.StartRun,
        spec: GraphSpec,
        values: dict[str, dict[str, Any]],
        carried: RunState | None,
    ) -> dict[str, Any]:
        """Wait for the end of the run, or continue as new. Return its outcome and its values."""
        del start, spec, values, carried
        while not self._state.finished or self._is_dirty:
            try:
                await workflow.wait_condition(self._has_to_act)
                await self._stop_visits()
            except asyncio.CancelledError:
                self._native_cancel()
                continue
            if self._crash is not None:
                # A bug of ours: fail the workflow task, which is retried until a worker has the fix.
                raise self._crash
            self._is_dirty = False
            facts, self._facts = self._facts, []
            if self._is_reseeded:
                self._is_reseeded = False
                self._rewinds.settle(self._state)
                self._announcer.rewound(self._state, self._start, facts)
            self._set_timer()
            self._visibility.write(self._state, self._start)
            self._metered.published(self._state, facts)
            self._announcer.published(self._state, self._start, facts)
            if self._state.finished or not self._recorder.is_quiet(self._state):
                self._record()
            elif not visibility.runs_only_local(self._state):
                self._recorder.tell(self._state, self._start)
            if self._may_continue_as_new:
                continue_as_new.hand_over(self._state, self._recorder.carried(self._start))
                # The state is too large: continue in this history, and retry later.
                self._history.keep()
                self._advance(events.Restored(now=workflow.now()))
        while self._is_dirty or not self._is_at_rest():
            if self._is_dirty:
                # Events that arrived after the end, while something was still under way.
                self._is_dirty = False
                self._facts.clear()
                self._visibility.write(self._state, self._start)
                self._record()
            # A cancellation comes too late.
            with suppress(asyncio.CancelledError):
                await workflow.wait_condition(lambda: self._is_dirty or self._is_at_rest())
        return visibility.result_of(self._state, self._recorder.left(self._state, self._start))

    @workflow.signal(description="Pause: start no new work. No argument is needed.")
    def pause(self, order: RawValue = requests.NOTHING) -> None:
        self._feed_signal("pause", order)

    @workflow.signal(description="Resume a paused run. No argument is needed.")
    def resume(self, order: RawValue = requests.NOTHING) -> None:
        self._feed_signal("resume", order)

    @workflow.signal(description="Cancel the run. No argument is needed.")
    def cancel(self, order: RawValue = requests.NOTHING) -> None:
        self._feed_signal("cancel", order)

    @workflow.signal(description='Send a message: {"message_id": ..., "text": ...}.')
    def steer(self, message: RawValue = requests.NOTHING) -> None:
        self._feed_signal("steer", message)

    @workflow.signal(description="Internal: a worker reports that a visit is blocked.")
    def visit_blocked(self, report: RawValue = requests.NOTHING) -> None:
        self._feed_internal(self._signals.visit_blocked, report)

    @workflow.signal(description="A worker has started: try blocked visits at once. No argument.")
    def worker_started(self, order: RawValue = requests.NOTHING) -> None:
        self._feed_internal(self._signals.worker_started, order)

    @workflow.signal(description="Internal: a notification did not reach somebody.")
    def notification_failed(self, report: RawValue = requests.NOTHING) -> None:
        self._feed_internal(self._signals.notification_failed, report)

    @workflow.update(description="Internal: halt the run if it is inactive.")
    async def evict(self, order: commands.Evict | None = None) -> None:
        order = order or commands.Evict()
        self._feed_update(as_events.event(events.Evicted, order, workflow.now()))

    @evict.validator
    def _check_evict(self, order: commands.Evict | None = None) -> None:
        self._check_sealed("evict", order)
        event = as_events.event(events.Evicted, order or commands.Evict(), workflow.now())
        if not lifecycle.may_evict(self._state, event):
            raise ApplicationError(
                "the run is not inactive: it was active, has a deadline, or is ending",
                type=names.STILL_ACTIVE,
                non_retryable=True,
            )

    @workflow.update(
        description='Set fields while the run waits: {"patch": {...}, "version": ...}.'
    )
    async def edit_values(self, order: commands.EditValues) -> None:
        given = as_events.edited(order, workflow.now())
        assert isinstance(given, events.ValuesEdited)  # noqa: S101 for this order
        with requests.refusals_as_application_errors():
            event = await answers.written_edit(self._state, given)
            if event is not given:
                # Other events may have come meanwhile.
                event = replace(event, now=max(event.now, self._state.updated_at))
                machine.check(self._state, event)
        self._feed_update(event, is_local=event is not given)
        await self._recorded()

    @edit_values.validator
    def _check_edit_values(self, order: commands.EditValues) -> None:
        self._check_edit("edit_values", order)
        with requests.refusals_as_application_errors():
            answers.refuse_edit(self._state, order.patch)

    @workflow.update(
        description='Migrate to the graph of today: {"patch": ..., "map": {"old": "new"}}.'
    )
    async def migrate(self, order: commands.Migrate | None = None) -> views.Migration:
        order = order or commands.Migrate()
        # The update has grown the history, even if it changes nothing.
        self._feed_update(events.Ticked(now=workflow.now()))
        with requests.refusals_as_application_errors():
            today = await activity_calls.read_graph(self._state, self._start, order)
            event = as_events.migrated(
                order,
                workflow.now(),
                spec=today.spec,
                patch=today.patch,
                versions=(self._start.graph_version, today.version),
            )
            if not order.dry_run and idempotency.earlier(self._state.keys, event) is not None:
                # The same call arrived twice at once, and another version may have been deployed since.
                return self._unmoved()
            outcome = graph_today.migration(
                self._state, self._start, today, event, dry_run=order.dry_run
            )
            if order.dry_run:
                return outcome
            self._feed(event)
        self._start = self._start.model_copy(update={"graph_version": today.version})
        await self._recorded()
        return outcome

    @migrate.validator
    def _check_migrate(self, order: commands.Migrate | None = None) -> None:
        order = order or commands.Migrate()
        # The worker's graph is read later, and checked then.
        event = as_events.migrated(order, workflow.now(), spec=self._state.spec, patch={})
        with requests.refusals_as_application_errors():
            self._stamps.check_update("migrate", order.stamp)
            called = None if order.dry_run else idempotency.earlier(self._state.keys, event)
        if called is not None:
            raise requests.replayed(self._unmoved())
        with requests.refusals_as_application_errors():
            machine.check(self._state, replace(event, renames={}, key=None))

    def _unmoved(self) -> views.Migration:
        version = self._start.graph_version
        return views.Migration(run_id=self._state.run_id, before=version, after=version)

    async def _start_again(self, now: datetime) -> None:
        """Start after a rewind to the start, with the values that were set with it."""
        edit = await activity_calls.read_rewind(self._rewinds.count, self._state, now)
        early = self._rewinds.release()
        self._stamps.takes_updates = self._is_reseeded = True
        self._advance(events.Started(now=now, edit=edit))
        for call in early:
            call()

    def _reset(self, seed: int) -> None:
        # The SDK calls this outside of the loop, and wakes nobody.
        del seed
        self._loop.call_soon(self._reseeded)

    def _reseeded(self) -> None:
        # Signals and updates that came with the reset have been applied, but nothing else.
        self._rewinds.notice(self._state)
        # A run that waits for the patch of its start knows of the reset already.
        if not self._rewinds.holds_start:
            self._changes += 1
            self._is_dirty = self._is_reseeded = True

    def _feed(self, event: events.Event, *, is_local: bool = False) -> None:
        self._rewinds.notice(self._state)
        self._is_local &= is_local
        if self._history.grew(is_local=is_local):
            self._tasks_begun += 1
            self._advance(events.TaskBegan(now=event.now))
        due = self._history.due(self._state.limits.continue_as_new_after)
        # Before the event, so that the work it makes ready waits for the continue-as-new.
        # A repeated task has to ask its question in this history: the next history would give the
        # question another id.
        if due is not None and due != self._state.rotation and not self._rewinds.is_redone:
            self._advance(events.RotationDue(now=event.now, hard=due == "hard"))
        rejected = self._state.mailbox.rejected
        self._advance(event)
        self._metered.carried_out(event, rejected, self._state.mailbox.rejected)

    def _feed_update(self, event: events.Event, *, is_local: bool = False) -> None:
        # Temporal has accepted an update that the run refuses here, too.
        self._history.updates += 1
        with requests.refusals_as_application_errors():
            self._feed(event, is_local=is_local)

    def _check_sealed(self, name: str, order: wire.Request | None) -> None:
        with requests.refusals_as_application_errors():
            self._stamps.check_update(name, None if order is None else order.stamp)

    def _feed_signal(self, name: events.Signal, argument: RawValue) -> None:
        if self._rewinds.put_off(partial(self._feed_signal, name, argument)):
            return
        try:
            if (event := self._signals.event_of(name, argument)) is not None:
                self._feed(event)
        except Refusal as refusal:
            # A signal has no response, and an exception here would end the run.
            workflow.logger.warning("code=%s | signal refused: %s", refusal.code, refusal)
            self._feed(requests.refused(name, refusal))

    def _feed_internal(self, read: requests.Read, argument: RawValue) -> None:
        if self._rewinds.put_off(partial(self._feed_internal, read, argument)):
            return
        try:
            for event in read(argument):
                self._feed(event)
        except Refusal as refusal:
            workflow.logger.warning("code=%s | signal ignored: %s", refusal.code, refusal)
            # The ignored signal has grown the history, too.
            self._feed(events.Ticked(now=workflow.now()))

    def _native_cancel(self) -> None:
        if self._rewinds.put_off(self._native_cancel):
            return
        reason = workflow.cancellation_reason() or "cancelled through Temporal"
        self._feed(
            events.CancelRequested(now=workflow.now(), actor="temporal", reason=reason, native=True)
        )

    def _advance(self, event: events.Event) -> None:
        new_effects = machine.advance(self._state, event)
        self._changes += 1
        self._is_dirty = True
        for effect in new_effects:
            self._perform(effect, event.now)
        if not isinstance(event, events.VisitBlocked):
            # A worker has logged the blockages that it reports.
            visibility.log_blocked(self._state.run_id, new_effects)

    def _perform(self, effect: effects.Effect, now: datetime) -> None:
        match effect:
            case effects.RunNode(input=visit_input):
                running = activity_calls.start(effect, origin=self._start.origin)
                if visit_input.kind == "visit" and visit_input.blocked_by is None:
                    self._recorder.started(visit_input.address, now)
                if visit_input.kind == "visit" or not visit_input.local:
                    self._running[visit_input.address] = running
                else:
                    self._deciding.add(visit_input.address)
                self._spawn(self._follow(running, now))
            case effects.StopNode(visit=visit):
                if (stopped := self._running.get(visit)) is not None:
                    is_read = effect.reason in _READ_FIRST and not stopped.input.local
                    (self._pausing if is_read else self._stopping).append(stopped)
            case effects.Publish():
                self._facts.append(effect)
                self._recorder.published(effect, self._state)
            case effects.Yield():
                self._spawn(
                    self._tick_at(now, "more work is ready than one workflow task may start")
                )
            case effects.Finish():
                # `run` checks the state after all events of this task are applied.
                pass
            case _:
                assert_never(effect)

    def _record(self) -> None:
        if self._state.finished and not self._has_ended:
            self._has_ended = True
            self._recorder.ended(self._state)
        self._recorder.changed(self._state, self._start, at=self._changes)

    async def _recorded(self) -> None:
        self._record()
        await self._recorder.caught_up()

    def _has_to_act(self) -> bool:
        return self._is_dirty or self._crash is not None or self._may_continue_as_new

    @property
    def _may_continue_as_new(self) -> bool:
        # Code of a visit that the run has left may still run, and a new history would not get its end.
        is_now = continue_as_new.is_now(self._state, self._history)
        is_under_way = self._running or self._deciding
        return is_now and not is_under_way and self._is_at_rest()

    def _is_at_rest(self) -> bool:
        return (
            self._announcer.is_idle and self._recorder.is_idle and workflow.all_handlers_finished()
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._despawn)
        return task

    def _despawn(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._crash = error

    async def _follow(self, running: activity_calls.RunningCode, ordered: datetime) -> None:
        report = await activity_calls.report_of(running, self._stamps)
        visit = running.input.address
        self._running.pop(visit, None)
        self._deciding.discard(visit)
        latest = self._state.updated_at
        now = activity_calls.ended_at(report, now=workflow.now(), ordered=ordered, latest=latest)
        if running.input.kind == "visit" and not self._has_ended:
            self._recorder.reported(visit, report, now)
        ended = events.VisitEnded(
            now=now, visit=visit, outcome=report.outcome, worked=report.worked or 0.0
        )
        self._feed(ended, is_local=running.input.local)
        self._start = self._announcer.visited(self._state, self._start, visit, report)

    async def _stop_visits(self) -> None:
        """Stop the visits that have to stop, after all events of this task are applied: it may bring the
        outcome of such a visit, which would be lost.
        """
        if self._pausing:
            pausing, self._pausing = self._pausing, []
            self._spawn(self._stop_for_now(pausing))
        if self._stopping:
            while self._stopping:
                self._stopping.pop(0).handle.cancel()
            await workflow.wait_condition(lambda: True)

    async def _stop_for_now(self, pausing: list[activity_calls.RunningCode]) -> None:
        await activity_calls.read_journals(pausing)
        self._stopping += pausing
        self._is_dirty = True

    async def _tick_at(self, moment: datetime, summary: str) -> None:
        await workflow.sleep(max(moment - workflow.now(), _SHORTEST_TIMER), summary=summary)
        # A replay may bring the end before a timer of the same task.
        if not self._state.finished:
            self._feed(events.Ticked(now=workflow.now()))

    def _start_timer(self, moment: datetime, summary: str) -> asyncio.Task[None]:
        return self._spawn(self._tick_at(moment, summary))

    def _set_timer(self) -> None:
        moment = None if self._state.finished else self._state.next_deadline()
        tasks, is_local, self._is_local = self._tasks_begun, self._is_local, True
        self._timer.set(
            moment, visibility.timer_summary(self._state), tasks=tasks, is_local=is_local
        )
