"""`Notification` brings one moment of a run to its receivers; `Announcer` starts it for a run.

A run has moments announced by a local activity, which leaves one event in its history and starts a
workflow for each moment that a rule wants (docs/internals/adr/0016-notifications.md). That workflow is
not part of the run: whatever happens to its receivers, the run goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey, WorkflowIDReusePolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)

with workflow.unsafe.imports_passed_through():
    from abeyance import names, util, wire
    from abeyance.core.effects import Publish
    from abeyance.core.outcome import Finished, Interrupted
    from abeyance.core.state import RunState
    from abeyance.notifications import moments
    from abeyance.notifications.moments import Announcement, Moment, Receiver, Receivers
    from abeyance.workflows.activity_calls import LocalFailed, local_result

_ANNOUNCED_WITHIN: Final = timedelta(seconds=3)
_TWICE: Final = RetryPolicy(maximum_attempts=2)
_STEP: Final = timedelta(seconds=10)
_SOON: Final = RetryPolicy(maximum_interval=timedelta(seconds=10))
_FOR_A_DAY: Final = timedelta(days=1)
_DOUBLING: Final = RetryPolicy(
    initial_interval=timedelta(seconds=5),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(minutes=10),
)
_ATTEMPT: Final = timedelta(minutes=1)
_BEAT: Final = timedelta(seconds=6)
"""The longest silence of an attempt. After a kill -9 the next one follows this and its interval later."""
_GATHERED: Final = timedelta(seconds=10)
"""How long a notification holds the first failure back, to tell the run of several at once."""
_REPORTED_WITHIN: Final = timedelta(hours=1)
_FAILED: Final = SearchAttributeKey.for_keyword(names.STATUS).value_set("failed")


class Announcer:
    """Announces the moments of one run. `spawn` runs a task of the run."""

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        self._spawn = spawn
        self._under_way: set[asyncio.Task[None]] = set()
        self._has_ended = False

    @property
    def is_idle(self) -> bool:
        """Whether all moments so far are announced."""
        return not self._under_way

    def published(self, state: RunState, start: wire.StartRun, facts: Sequence[Publish]) -> None:
        """Announce facts of the run, and its end."""
        found = moments.of_facts(state, start, facts)
        if state.finished and not self._has_ended:
            self._has_ended = True
            found += moments.of_end(state, start, workflow.now())
        self._announce(found)

    def rewound(self, state: RunState, start: wire.StartRun, facts: Sequence[Publish]) -> None:
        """Announce the open questions of a rewound run, together with its facts."""
        self._announce(moments.of_rewound(state, start, facts, workflow.now()))

    def visited(
        self, state: RunState, start: wire.StartRun, address: str, report: wire.VisitReport
    ) -> wire.StartRun:
        """Announce the events that a visit's code emitted. Return the start with the worker's rules."""
        if report.notify not in (None, start.notify):
            start = start.model_copy(update={"notify": report.notify})
        match report.outcome:
            case Finished(emitted=emitted) | Interrupted(emitted=emitted) if emitted:
                self._announce(moments.of_emitted(state, start, address, emitted))
            case _:
                pass
        return start

    def _announce(self, found: list[Moment]) -> None:
        if found:
            task = self._spawn(self._announced(found))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _announced(self, found: list[Moment]) -> None:
        """Have a workflow started for each moment that a rule wants."""
        try:
            await local_result(
                workflow.start_local_activity(
                    names.ANNOUNCE_ACTIVITY,
                    Announcement(execution=workflow.info().run_id, moments=found),
                    start_to_close_timeout=_ANNOUNCED_WITHIN,
                    retry_policy=_TWICE,
                )
            )
        except LocalFailed:
            # Temporal takes the commands of this task, but now starts no workflow for a worker. It will
            # start a child for the run.
            workflow.logger.warning("run=%s | the run announces moments itself", found[0].run_id)
            for moment in found:
                await _start(moment)


async def _start(moment: Moment) -> None:
    """Start a notification as a child of the run."""
    info = workflow.info()
    # The failed activity may have started it.
    with contextlib.suppress(WorkflowAlreadyStartedError):
        await workflow.start_child_workflow(
            names.NOTIFICATION_WORKFLOW,
            moment,
            id=moment.workflow_id(info.run_id),
            task_queue=util.notification_queue(info.task_queue),
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            memo={names.MEMO_MOMENT: moment.summary},
        )


@workflow.defn(name=names.NOTIFICATION_WORKFLOW)
class Notification:
    """Delivers a moment to each of its receivers, for a day at most. Fails if it did not reach all."""

    def __init__(self) -> None:
        self._delivered: list[str] = []
        self._undelivered: list[wire.Undelivered] = []
        self._left = 0

    @workflow.run
    async def run(self, moment: Moment) -> list[str]:
        """Deliver the moment, and return the receivers that it reached."""
        receivers: Receivers = await workflow.execute_activity(
            names.RECEIVERS_ACTIVITY,
            moment,
            result_type=Receivers,
            start_to_close_timeout=_STEP,
            retry_policy=_SOON,
        )
        self._undelivered += receivers.unreachable
        self._left = len(receivers.found)
        tasks = [asyncio.create_task(self._deliver(moment, each)) for each in receivers.found]
        await self._report(moment)
        await asyncio.gather(*tasks)
        if self._undelivered:
            missed = ", ".join(each.receiver for each in self._undelivered)
            raise ApplicationError(
                f"{moment.event} of {moment.run_id} did not reach {missed}",
                *_rows(self._undelivered),
                type="undelivered",
                non_retryable=True,
            )
        return self._delivered

    async def _deliver(self, moment: Moment, receiver: Receiver) -> None:
        try:
            await workflow.execute_activity(
                names.DELIVER_ACTIVITY,
                args=[moment, receiver],
                start_to_close_timeout=_ATTEMPT,
                heartbeat_timeout=_BEAT,
                schedule_to_close_timeout=_FOR_A_DAY,
                retry_policy=_DOUBLING,
                summary=receiver.shown,
            )
        except ActivityError as error:
            self._undelivered.append(_undelivered(receiver, error))
        else:
            self._delivered.append(receiver.shown)
        finally:
            self._left -= 1

    async def _report(self, moment: Moment) -> None:
        """Report the receivers that the moment did not reach, as soon as that is certain of one."""
        reported = 0
        while self._left or reported < len(self._undelivered):
            known = reported
            await workflow.wait_condition(
                lambda: not self._left or len(self._undelivered) > known  # noqa: B023
            )
            if len(self._undelivered) == reported:
                continue
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(lambda: not self._left, timeout=_GATHERED)
            fresh, reported = self._undelivered[reported:], len(self._undelivered)
            workflow.upsert_memo({names.MEMO_UNDELIVERED: _rows(self._undelivered)})
            if self._left:
                # Other receivers may be away for a day, and operators have to find this failure now.
                workflow.upsert_search_attributes([_FAILED])
            await self._tell(moment, fresh)

    async def _tell(self, moment: Moment, fresh: Sequence[wire.Undelivered]) -> None:
        interrupt = moment.interrupt and moment.interrupt.get("id")
        failed = wire.NotificationFailed(
            about=moment.event, undelivered=tuple(fresh), interrupt=interrupt
        )
        try:
            await workflow.execute_activity(
                names.REPORT_ACTIVITY,
                args=[moment.run_id, failed],
                start_to_close_timeout=_STEP,
                schedule_to_close_timeout=_REPORTED_WITHIN,
                retry_policy=_SOON,
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            workflow.logger.warning("run=%s | the run was not told of it", moment.run_id)


def _rows(undelivered: Sequence[wire.Undelivered]) -> list[dict[str, Any]]:
    return [each.model_dump(mode="json") for each in undelivered]


def _undelivered(receiver: Receiver, error: ActivityError) -> wire.Undelivered:
    cause = error.__cause__
    # If the time is up, the error of the last attempt is the cause of the timeout.
    if not isinstance(cause, ApplicationError) and cause is not None:
        cause = cause.__cause__ or cause
    match cause:
        case ApplicationError(details=[int(attempts), *_]):
            return wire.Undelivered(
                receiver=receiver.shown, reason=cause.message, attempts=attempts
            )
        case _:
            reason = "the last attempt was lost with its worker"
            return wire.Undelivered(receiver=receiver.shown, reason=reason, attempts=1)
