"""The workers of a task queue, as Temporal knows them: by their heartbeats, or else by their polls."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.enums.v1 import TaskQueueType, WorkerStatus
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, ListWorkersRequest
from temporalio.client import Client as TemporalClient
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)
from temporalio.service import RPCError, RPCStatusCode

from abeyance.errors import Unavailable
from abeyance.metrics import METRICS

# The loop of a worker or an API. Each step of a run passes it several times: with uvloop, a run of local
# nodes takes a twentieth less processor time.
if sys.platform == "win32":
    from asyncio import new_event_loop as event_loop
else:
    from uvloop import new_event_loop as event_loop

__all__ = ["LiveWorker", "event_loop", "live_workers", "process_runtime", "use_process_runtime"]

_QUICKLY: Final = timedelta(seconds=2)
_HEARTBEAT: Final = timedelta(seconds=5)
_MISSED_BEATS: Final = 4
"""Beats after which a worker counts as dead. Clocks of workers and APIs may differ by as much."""
_POLL_INTERVAL: Final = timedelta(seconds=70)
"""A worker polls at least once a minute."""
_PAGE: Final = 1_000
_MOST_PAGES: Final = 10
_ALIVE: Final = frozenset({WorkerStatus.WORKER_STATUS_RUNNING})
_WITHOUT_HEARTBEATS: Final = frozenset(
    {RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.INVALID_ARGUMENT}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWorker:
    """A worker that is up: its identity (`pid@host`), its build, and when it was last heard of."""

    identity: str
    build_id: str
    seen_at: datetime


async def live_workers(temporal: TemporalClient, task_queue: str) -> list[LiveWorker]:
    """Return the workers of a task queue, by their identities.

    A worker tells the server every few seconds that it is up; one that is killed counts for 20 more
    seconds. A server without heartbeats remembers polls only: there it counts for 70 more seconds.
    Raises Unavailable if Temporal does not answer within two seconds.
    """
    try:
        polled, beats = await asyncio.gather(
            _pollers(temporal, task_queue), _heartbeats(temporal, task_queue)
        )
    except RPCError as error:
        what = "Temporal does not answer"
        if error.status == RPCStatusCode.NOT_FOUND:
            what = "Temporal has no such namespace: create it, or set TEMPORAL_NAMESPACE"
        raise Unavailable(f"{what} ({error.message})") from error
    now = datetime.now(UTC)
    alive = [
        LiveWorker(
            identity=beat.worker_identity,
            build_id=beat.deployment_version.build_id,
            seen_at=beat.heartbeat_time.ToDatetime(tzinfo=UTC),
        )
        for beat in beats
        if beat.status in _ALIVE and now - beat.heartbeat_time.ToDatetime(tzinfo=UTC) < _lease(beat)
    ]
    # A worker that has just started has polled, and not told anything yet.
    heard = {beat.worker_identity for beat in beats}
    alive += [
        LiveWorker(
            identity=poller.identity,
            build_id=poller.worker_version_capabilities.build_id,
            seen_at=poller.last_access_time.ToDatetime(tzinfo=UTC),
        )
        for poller in polled
        if poller.identity not in heard
        and now - poller.last_access_time.ToDatetime(tzinfo=UTC) < _POLL_INTERVAL
    ]
    return sorted(alive, key=lambda worker: (worker.identity, worker.seen_at))


def use_process_runtime() -> None:
    """Make `process_runtime` that of all connections of this process, before the first one."""
    Runtime.set_default(process_runtime(), error_if_already_set=False)


def process_runtime(metrics_address: str | None = None) -> Runtime:
    """Return the runtime of the SDK for a process of ours.

    Its workers send heartbeats, its log goes to the log of the process, and its metrics are served at
    `metrics_address` (host:port), if that is given.
    """
    metrics = None
    if metrics_address is not None:
        metrics = PrometheusConfig(
            bind_address=metrics_address,
            durations_as_seconds=True,
            histogram_bucket_overrides={m.exposed: m.buckets for m in METRICS if m.buckets},
        )
    # Its own log on stderr has another form, and escape sequences for colours.
    forwarded = LoggingConfig(
        filter=TelemetryFilter(core_level="WARN", other_level="ERROR"),
        forwarding=LogForwardingConfig(
            logging.getLogger("temporalio.sdk"),
            append_target_to_name=False,
        ),
    )
    return Runtime(
        telemetry=TelemetryConfig(logging=forwarded, metrics=metrics),
        worker_heartbeat_interval=_HEARTBEAT,
    )


def _lease(beat: WorkerHeartbeat) -> timedelta:
    """Return how long a worker counts after a heartbeat, by the distance of its last two."""
    interval = beat.elapsed_since_last_heartbeat.ToTimedelta()
    return _MISSED_BEATS * max(interval, _HEARTBEAT) if interval else _POLL_INTERVAL


async def _pollers(temporal: TemporalClient, task_queue: str) -> Sequence[PollerInfo]:
    question = DescribeTaskQueueRequest(
        namespace=temporal.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    response = await temporal.workflow_service.describe_task_queue(question, timeout=_QUICKLY)
    return list(response.pollers)


async def _heartbeats(temporal: TemporalClient, task_queue: str) -> list[WorkerHeartbeat]:
    """Return the last heartbeat of each worker, also of those that have ended; none from old servers."""
    beats: list[WorkerHeartbeat] = []
    question = ListWorkersRequest(namespace=temporal.namespace, page_size=_PAGE)
    for _ in range(_MOST_PAGES):
        try:
            page = await temporal.workflow_service.list_workers(question, timeout=_QUICKLY)
        except RPCError as error:
            if error.status in _WITHOUT_HEARTBEATS:
                return []
            raise
        beats += [entry.worker_heartbeat for entry in page.workers_info]
        if not page.next_page_token:
            break
        question.next_page_token = page.next_page_token
    return [beat for beat in beats if beat.task_queue == task_queue]
