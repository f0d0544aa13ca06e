"""Activities of notifications: announcing moments, finding receivers, and one attempt to reach one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from temporalio import activity
from temporalio.client import Client as TemporalClient
from temporalio.common import MetricMeter, WorkflowIDReusePolicy
from temporalio.exceptions import (
    ApplicationError,
    ApplicationErrorCategory,
    WorkflowAlreadyStartedError,
)

from abeyance import metrics, names, wire
from abeyance.client import Client
from abeyance.core.text import truncate
from abeyance.errors import Refusal
from abeyance.notifications import matching
from abeyance.notifications.config import Notifications
from abeyance.notifications.moments import Announcement, Moment, Receiver, Receivers
from abeyance.notifications.notifier import NotDelivered, notifier
from abeyance.util import notification_queue

_BEAT_SECONDS: Final = 2.0
_REASON_CHARS: Final = 500
_logger = logging.getLogger("abeyance.notifications")


class AnnouncingActivities:
    """The activity that announces moments of runs: all of them without the rules of a `file`."""

    def __init__(
        self, temporal: TemporalClient, task_queue: str, file: Notifications | None
    ) -> None:
        self._temporal = temporal
        self._task_queue = task_queue
        self._file = file

    @activity.defn(name=names.ANNOUNCE_ACTIVITY)
    async def announce(self, announcement: Announcement) -> None:
        """Start a workflow for each moment that a rule wants, unless it was started before."""
        for moment in announcement.moments:
            file = self._file
            if file is None or any(matching.fits(rule.when, moment) for rule in file.rules):
                await self._start(moment, announcement.execution)

    async def _start(self, moment: Moment, execution: str) -> None:
        with suppress(WorkflowAlreadyStartedError):
            await self._temporal.start_workflow(
                names.NOTIFICATION_WORKFLOW,
                moment,
                id=moment.workflow_id(execution),
                task_queue=notification_queue(self._task_queue),
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                memo={names.MEMO_MOMENT: moment.summary},
            )


class NotificationActivities:
    """The activities of `Notification`. `base` is the address at which people reach the API."""

    def __init__(
        self, client: Client, file: Notifications, *, base: str, enable_metrics: bool
    ) -> None:
        self._client = client
        self._file = file
        self._notifier = notifier()(file, base=base)
        self._enable_metrics = enable_metrics

    @activity.defn(name=names.RECEIVERS_ACTIVITY)
    async def find_receivers(self, moment: Moment) -> Receivers:
        """Return the receivers of a moment's notification."""
        return matching.receivers(self._file, moment)

    @activity.defn(name=names.DELIVER_ACTIVITY)
    async def deliver(self, moment: Moment, receiver: Receiver) -> None:
        """Make one attempt to reach a receiver. Temporal makes the next one, unless none would help."""
        info = activity.info()
        try:
            async with _beating():
                await self._attempt(moment, receiver, info.workflow_id or "")
        except NotDelivered as error:
            reason = truncate(str(error), _REASON_CHARS)
            if not error.final:
                self._count("retried")
            _logger.warning(
                "run=%s event=%s receiver=%s attempt=%d | %s",
                moment.run_id,
                moment.event,
                receiver.shown,
                info.attempt,
                reason,
            )
            raise ApplicationError(
                reason,
                info.attempt,
                type="not-delivered",
                non_retryable=error.final,
                next_retry_delay=error.retry_after,
                category=ApplicationErrorCategory.BENIGN,
            ) from None
        self._count("success")

    async def _attempt(self, moment: Moment, receiver: Receiver, notification: str) -> None:
        try:
            await self._notifier.send(moment, receiver, notification=notification)
        except NotDelivered:
            raise
        except Exception as error:
            # A library that reaches the receiver may raise anything.
            _logger.exception("run=%s receiver=%s", moment.run_id, receiver.shown)
            raise NotDelivered(f"{type(error).__name__}: {error}") from error

    @activity.defn(name=names.REPORT_ACTIVITY)
    async def report(self, run_id: str, failed: wire.NotificationFailed) -> None:
        """Tell the run which receivers a moment did not reach, or record that if the run has ended."""
        self._count("failed", len(failed.undelivered))
        try:
            # This time is the same in each attempt.
            at = activity.info().scheduled_time
            await self._client.run(run_id).notification_failed(failed, at)
        except Refusal as refusal:
            # The run was erased, or Temporal no longer has it.
            _logger.info("run=%s code=%s | the run is over", run_id, refusal.code)

    def _count(self, status: str, count: int = 1) -> None:
        meter = activity.metric_meter() if self._enable_metrics else MetricMeter.noop
        counter = metrics.NOTIFICATIONS
        meter.create_counter(counter.exposed, counter.says).add(count, {"status": status})


@asynccontextmanager
async def _beating() -> AsyncIterator[None]:
    """Send heartbeats, so that Temporal soon notices that a worker was killed."""

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(_BEAT_SECONDS)

    beats = asyncio.create_task(beat())
    try:
        yield
    finally:
        beats.cancel()
