"""The workers of a task queue, as Temporal knows them: by their heartbeats, or else by their polls."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.deployment.v1 import WorkerDeploymentInfo
from temporalio.api.enums.v1 import (
    TaskQueueType,
    WorkerDeploymentVersionStatus,
    WorkerStatus,
    WorkerVersioningMode,
)
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    DescribeTaskQueueRequest,
    DescribeWorkerDeploymentRequest,
    ListWorkersRequest,
)
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

from abeyance import names
from abeyance.errors import SettingsError, Unavailable
from abeyance.metrics import METRICS
from abeyance.temporal.connection import missing_search_attributes
from abeyance.temporal.retry import no_namespace

# The loop of a worker or an API. Each step of a run passes it several times: with uvloop, a run of local
# nodes takes a twentieth less processor time.
if sys.platform == "win32":
    from asyncio import new_event_loop as event_loop
else:
    from uvloop import new_event_loop as event_loop

__all__ = [
    "LiveWorker",
    "Service",
    "event_loop",
    "live_workers",
    "process_runtime",
    "service",
    "use_process_runtime",
]

_QUICKLY: Final = timedelta(seconds=2)
_HEARTBEAT: Final = timedelta(seconds=5)
_MISSED_BEATS: Final = 4
"""Beats after which a worker counts as dead. Clocks of workers and APIs may differ by as much."""
_POLL_INTERVAL: Final = timedelta(seconds=70)
"""A worker polls at least once a minute."""
_PAGE: Final = 1_000
_MOST_PAGES: Final = 10
_UNVERSIONED: Final = WorkerVersioningMode.WORKER_VERSIONING_MODE_UNVERSIONED
_DRAINING: Final = WorkerDeploymentVersionStatus.WORKER_DEPLOYMENT_VERSION_STATUS_DRAINING
_ALIVE: Final = frozenset({WorkerStatus.WORKER_STATUS_RUNNING})
_WITHOUT_HEARTBEATS: Final = frozenset(
    {RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.INVALID_ARGUMENT}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWorker:
    """A worker that is up: its identity (`pid@host`), its build, and the time of its last sign of life.

    `is_versioned`: Temporal gives it only the runs of its build (`ABEYANCE_VERSIONING`).
    """

    identity: str
    build_id: str
    seen_at: datetime
    is_versioned: bool = False


async def live_workers(temporal: TemporalClient, task_queue: str) -> list[LiveWorker]:
    """Return the workers of a task queue, by their identities.

    A worker tells the server every few seconds that it is up; a killed worker counts for 20 more seconds.
    A server without heartbeats only remembers polls: there a killed worker counts for 70 more seconds.
    Raises Unavailable if Temporal does not answer within two seconds.
    """
    return (await _served(temporal, task_queue))[0]


async def _served(
    temporal: TemporalClient, task_queue: str
) -> tuple[list[LiveWorker], WorkerDeploymentInfo]:
    """Return the workers that are up, and the deployment by which Temporal routes runs to versions."""
    try:
        polled, beats, deployment = await asyncio.gather(
            _pollers(temporal, task_queue),
            _heartbeats(temporal, task_queue),
            _deployment(temporal, task_queue),
        )
    except RPCError as error:
        text = no_namespace(error) or f"Temporal does not answer ({error.message})"
        raise Unavailable(text) from error
    now = datetime.now(UTC)
    versions = {each.deployment_version.build_id for each in deployment.version_summaries}
    modes = {
        (poller.identity, poller.deployment_options.build_id): (
            poller.deployment_options.worker_versioning_mode
        )
        for poller in sorted(polled, key=lambda poller: poller.last_access_time.ToNanoseconds())
    }

    def is_versioned(identity: str, build_id: str) -> bool:
        # A heartbeat lacks the mode, and Temporal does not list pollers of a build that is not current.
        mode = modes.get((identity, build_id))
        return build_id in versions and mode != _UNVERSIONED

    alive = [
        LiveWorker(
            identity=beat.worker_identity,
            build_id=beat.deployment_version.build_id,
            seen_at=beat.heartbeat_time.ToDatetime(tzinfo=UTC),
            is_versioned=is_versioned(beat.worker_identity, beat.deployment_version.build_id),
        )
        for beat in beats
        if beat.status in _ALIVE and now - beat.heartbeat_time.ToDatetime(tzinfo=UTC) < _lease(beat)
    ]

    def has_told(poller: PollerInfo) -> bool:
        # After a container's restart, its worker has the identity of the worker before, which has left.
        return any(
            beat.worker_identity == poller.identity
            and (
                beat.status in _ALIVE
                or beat.heartbeat_time.ToNanoseconds() > poller.last_access_time.ToNanoseconds()
            )
            for beat in beats
        )

    # A worker that has just started has polled, but sent no heartbeat yet.
    alive += [
        LiveWorker(
            identity=poller.identity,
            build_id=poller.worker_version_capabilities.build_id,
            seen_at=poller.last_access_time.ToDatetime(tzinfo=UTC),
            is_versioned=is_versioned(poller.identity, poller.worker_version_capabilities.build_id),
        )
        for poller in polled
        if not has_told(poller)
        and now - poller.last_access_time.ToDatetime(tzinfo=UTC) < _POLL_INTERVAL
    ]
    return sorted(alive, key=lambda worker: (worker.identity, worker.seen_at)), deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The workers of a task queue, and the reasons why it does not serve all runs.

    `unregistered` and `unserved` say why a run that starts now would not be served: the namespace lacks
    something, or workers are missing. `orphaned` and `failing` say why other runs wait: for the build
    that began them, or for code that can replay them. Each reason says what to do.
    """

    workers: tuple[LiveWorker, ...]
    unregistered: tuple[str, ...]
    unserved: tuple[str, ...]
    orphaned: tuple[str, ...]
    failing: tuple[str, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """The reasons why a run that starts now would not be served; empty if it would."""
        return self.unregistered + self.unserved

    @property
    def warnings(self) -> tuple[str, ...]:
        """The reasons why other runs wait."""
        return self.orphaned + self.failing


async def service(temporal: TemporalClient, task_queue: str) -> Service:
    """Return the service of a task queue. Raises Unavailable, within some seconds."""
    (workers, deployment), unregistered, failing = await asyncio.gather(
        _served(temporal, task_queue),
        _unregistered(temporal),
        _count(temporal, task_queue, f"{names.REPORTED_PROBLEMS} IS NOT NULL"),
    )
    orphaned = []
    builds = {worker.build_id for worker in workers if worker.is_versioned}
    for version in deployment.version_summaries:
        build = version.deployment_version.build_id
        if build in builds or version.status != _DRAINING:
            continue
        named = f"{task_queue}:{build}".replace("'", "''")
        pinned = await _count(
            temporal,
            task_queue,
            "TemporalWorkflowVersioningBehavior = 'Pinned' AND "
            f"TemporalWorkerDeploymentVersion = '{named}'",
        )
        if pinned:
            orphaned.append(
                f"{_runs(pinned)} cannot go on: the build {build!r} began them, and no worker has it: "
                "start one until they have ended, or move them to another build (`temporal workflow "
                "update-options`)"
            )
    text = f"{_runs(failing)} cannot be read or replayed: see `abeyance list --blocked`"
    return Service(
        workers=tuple(workers),
        unregistered=tuple(unregistered),
        unserved=tuple(_unserved(task_queue, workers, _routed(deployment))),
        orphaned=tuple(orphaned),
        failing=(text,) if failing else (),
    )


def _routed(deployment: WorkerDeploymentInfo) -> list[str]:
    """Return the builds to which new runs go; "" stands for workers without versions."""
    routing = deployment.routing_config
    routed = [routing.current_deployment_version.build_id]
    if routing.ramping_version_percentage:
        routed.append(routing.ramping_deployment_version.build_id)
    return routed


def _unserved(
    task_queue: str, workers: Sequence[LiveWorker], routed: Sequence[str]
) -> Iterator[str]:
    """Yield the reasons why new runs of a task queue find no worker."""
    if not workers:
        yield f"no worker polls the task queue {task_queue!r}: start one with `abeyance worker`"
        return
    builds = {worker.build_id if worker.is_versioned else "" for worker in workers}
    has = ", ".join(sorted(build or "none" for build in builds))
    target = (
        f"--build-id {has if len(builds) == 1 else 'BUILD'}" if any(builds) else "--unversioned"
    )
    remedy = (
        f"`temporal worker deployment set-current-version --deployment-name {task_queue} {target}`"
    )
    for build in routed:
        if build in builds:
            continue
        if build:
            yield (
                f"new runs go to the build {build!r}, which no worker has (builds of the workers: "
                f"{has}): start one, or make another build current: {remedy}"
            )
        else:
            yield f"no build of the workers ({has}) is current, so new runs wait: {remedy}"


async def _unregistered(temporal: TemporalClient) -> list[str]:
    """Return the reasons why a run's search attributes cannot be written; none if that is unknown."""
    try:
        missing = await missing_search_attributes(temporal)
    except SettingsError as error:
        # Credentials that cannot list them may still run workflows.
        return [] if isinstance(error.__cause__, RPCError) else [str(error)]
    if not missing:
        return []
    listed = ", ".join(missing)
    return [
        f"the namespace {temporal.namespace!r} lacks the search attributes {listed}: run `abeyance setup`"
    ]


async def _count(temporal: TemporalClient, task_queue: str, condition: str) -> int:
    """Count the open runs that meet a condition; 0 if the server cannot search by it."""
    quoted = task_queue.replace("'", "''")
    request = CountWorkflowExecutionsRequest(
        namespace=temporal.namespace,
        query=(
            f"TaskQueue = '{quoted}' AND {names.STATUS} IS NOT NULL AND CloseTime IS NULL "
            f"AND {condition}"
        ),
    )
    try:
        found = await temporal.workflow_service.count_workflow_executions(request, timeout=_QUICKLY)
    except RPCError:
        # An older server has no such attribute. Other calls show whether the server answers at all.
        return 0
    return found.count


def _runs(count: int) -> str:
    return "1 open run" if count == 1 else f"{count} open runs"


def use_process_runtime() -> None:
    """Make `process_runtime` the default of all later connections. Call it before the first one."""
    Runtime.set_default(process_runtime(), error_if_already_set=False)


def process_runtime(metrics_address: str | None = None) -> Runtime:
    """Return the SDK's runtime for one of our processes.

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
    # The SDK's own log on stderr has another form, and escape sequences for colours.
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
    """Return the time for which a worker counts after a heartbeat, by the distance of its last two."""
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


async def _deployment(temporal: TemporalClient, task_queue: str) -> WorkerDeploymentInfo:
    """Return the versions of a task queue's workers as Temporal knows them; empty without versions."""
    question = DescribeWorkerDeploymentRequest(
        namespace=temporal.namespace, deployment_name=task_queue
    )
    try:
        found = await temporal.workflow_service.describe_worker_deployment(
            question, timeout=_QUICKLY
        )
    except RPCError as error:
        is_unknown = error.status == RPCStatusCode.NOT_FOUND and no_namespace(error) is None
        if is_unknown or error.status in _WITHOUT_HEARTBEATS:
            return WorkerDeploymentInfo()
        raise
    return found.worker_deployment_info


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
