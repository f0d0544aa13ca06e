"""The composition root: graphs, activities and the workflow, put together into a Temporal worker."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import Any, Final

from temporalio.client import Client as TemporalClient
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkerDeploymentConfig
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from abeyance import tracing
from abeyance.activities.attempt import LEAVES_WITHIN
from abeyance.activities.maintenance import (
    GraphActivities,
    read_journals,
    read_rewind,
)
from abeyance.activities.node import NodeActivities
from abeyance.activities.notification import AnnouncingActivities, NotificationActivities
from abeyance.activities.recording import HandOver, RecordingActivities
from abeyance.agents.model_request import setup_fault
from abeyance.agents.tool import close_servers
from abeyance.app import load_graphs
from abeyance.authoring.graph import Graph
from abeyance.check import agents_of
from abeyance.cli.errors import leave
from abeyance.client import Client
from abeyance.client.grants import GrantedCalls
from abeyance.client.records import shared_database
from abeyance.dev.signals import stopped_by_signals
from abeyance.errors import AbeyanceError, Code, GraphError, SettingsError, Unavailable
from abeyance.notifications.config import (
    Notifications,
    links_base,
    load_notifications,
    unreachable_links,
)
from abeyance.records.database import Database
from abeyance.records.writer import Writer
from abeyance.runtime import answering
from abeyance.settings import Settings, load_settings
from abeyance.storage.backends import ConfiguredBlobs, kept_blobs
from abeyance.storage.blobs import Blobs
from abeyance.temporal.connection import connect_temporal, missing_search_attributes
from abeyance.temporal.task_executor import TaskExecutor
from abeyance.temporal.workarounds.any_type import AnyTypeRunner
from abeyance.temporal.workarounds.heartbeat import THROTTLE_SECONDS
from abeyance.temporal.workarounds.in_order_runner import InOrderWorkflowRunner
from abeyance.temporal.workarounds.long_tasks import allow_long_tasks
from abeyance.temporal.workarounds.payloads import lenient
from abeyance.temporal.workers import event_loop, process_runtime
from abeyance.tracing import log_to_stderr
from abeyance.util import notification_queue
from abeyance.workflows import worker_functions
from abeyance.workflows.notification import Notification
from abeyance.workflows.recording import unless_replaying
from abeyance.workflows.run import AgentRun
from abeyance.workflows.worker_functions import WorkerFunctions

_LAST_SECONDS: Final = 5.0
"""Seconds after the grace in which cancelled visits may write their journals."""
_MOST_SECONDS: Final = 15.0
"""Seconds after the grace until a worker that does not stop is killed."""
_RECONNECT_SECONDS: Final = 1.0
_ROUND_SECONDS: Final = 60.0
_UNUSABLE: Final = "Worker validation failed"
_THREADS: Final = 64
"""Maximum number of synchronous node functions that run at the same time."""
_NEW_BEFORE_SEARCH: Final = 20_000
"""The surplus of new over freed objects that begins a search for garbage; Python's default is 700."""
_SEARCHES_BEFORE_WIDER: Final = 2
"""The number of searches of one generation before the next wider one; Python's default is 10. Only the
widest finds the garbage of a run that left the cache: with 10 of each, there is one in 11,000 runs.
"""
_SHARED: Final = (
    # Objects decoded outside the sandbox and matched inside must have the same classes in both.
    "abeyance.commands",
    "abeyance.names",
    "abeyance.wire",
    "abeyance.views",
    "abeyance.core",
    "abeyance.duration",
    "abeyance.errors",
    "abeyance.authoring",
    "abeyance.notifications",
    "abeyance.runtime",
    "abeyance.schemas",
    "abeyance.projections",
    "abeyance.records",
    "annotated_types",
    "jsonschema_rs",
    "pydantic",
    "pydantic_core",
    "typing_extensions",
)
_BEHAVIORS: Final = {
    "off": VersioningBehavior.UNSPECIFIED,
    "pinned": VersioningBehavior.PINNED,
    "auto-upgrade": VersioningBehavior.AUTO_UPGRADE,
}
_logger = logging.getLogger("abeyance.worker")
_TASKS_AT_ONCE: Final = 20
"""The most workflow tasks that a worker has under way. They share one processor: with the SDK's hundred,
each takes longer than the server waits once a thousand runs wake together, and all are done again.
"""


def make_worker(
    temporal: TemporalClient,
    graphs: Mapping[str, Graph],
    settings: Settings,
    *,
    blobs: Blobs | None = None,
    records: Database | None = None,
    notifications: Notifications | None = None,
    strict_sandbox: bool = False,
    leaving: asyncio.Event | None = None,
) -> Worker:
    """Make a worker for these graphs, without starting it.

    `notifications` has the rules for what its runs announce; `make_notifier` makes the worker that
    delivers. A caller that ends the process while nodes run sets `leaving` at most LEAVES_WITHIN seconds
    before.

    `strict_sandbox` is for tests: production has no sandbox
    (docs/internals/adr/0007-no-sandbox-in-production.md).
    """
    client = Client(
        temporal,
        task_queue=settings.task_queue,
        blobs=kept_blobs(settings) if blobs is None else blobs,
        records=records,
    )
    records = shared_database(settings) if records is None else records
    handed_over = HandOver()
    recording = RecordingActivities(temporal, settings.task_queue, Writer(records), handed_over)
    recording.open()
    graph_activities = GraphActivities(graphs)
    nodes = NodeActivities(
        graphs,
        client,
        ConfiguredBlobs(settings) if blobs is None else blobs,
        default_timeout=settings.default_timeout,
        enable_metrics=settings.enable_metrics,
        notifications=notifications,
        links_base=links_base(notifications, settings),
        leaving=leaving,
        find_grant=GrantedCalls(client.records, settings.tokens_file).find,
    )
    functions: dict[str, Callable[..., Any]] = {
        worker_functions.TAKE_ANSWER: partial(answering.take, graphs),
        worker_functions.HAND_OVER: handed_over.put,
        worker_functions.TELL: unless_replaying(recording.tell),
    }
    if not settings.enable_metrics:
        functions[worker_functions.UNMETERED] = lambda: None
    deployment = _deployment_config(settings)
    worker = Worker(
        lenient(temporal),
        task_queue=settings.task_queue,
        workflows=[AgentRun],
        activities=[
            nodes.run,
            graph_activities.read,
            graph_activities.write,
            read_journals,
            read_rewind,
            recording.record,
            AnnouncingActivities(temporal, settings.task_queue, notifications).announce,
        ],
        interceptors=[WorkerFunctions(functions)],
        workflow_runner=InOrderWorkflowRunner(
            strict_runner() if strict_sandbox else AnyTypeRunner()
        ),
        workflow_task_executor=TaskExecutor(),
        max_concurrent_workflow_tasks=_TASKS_AT_ONCE,
        # After a kill -9 the server waits this long for the dead worker before it tries another.
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        # A heartbeat delivers the cancellation of an activity, so do not throttle it for long.
        max_heartbeat_throttle_interval=timedelta(seconds=THROTTLE_SECONDS),
        default_heartbeat_throttle_interval=timedelta(seconds=THROTTLE_SECONDS),
        graceful_shutdown_timeout=timedelta(seconds=settings.shutdown_grace),
        deployment_config=deployment,
        # Else the SDK hashes all modules that are loaded, which takes a second of each start.
        build_id=_own_build() if deployment is None else None,
    )
    return allow_long_tasks(worker)


def strict_runner() -> SandboxedWorkflowRunner:
    """Make a runner that reimports the workflow modules for every run and detects calls that are not
    deterministic. It is for tests.
    """
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*_SHARED)
    return SandboxedWorkflowRunner(restrictions=restrictions, runner_class=AnyTypeRunner)


def make_notifier(
    temporal: TemporalClient, settings: Settings, notifications: Notifications
) -> Worker:
    """Make the worker that brings notifications to their receivers, without starting it."""
    activities = NotificationActivities(
        Client(temporal, task_queue=settings.task_queue),
        notifications,
        base=links_base(notifications, settings),
        enable_metrics=settings.enable_metrics,
    )
    return Worker(
        temporal,
        task_queue=notification_queue(settings.task_queue),
        workflows=[Notification],
        activities=[activities.find_receivers, activities.deliver, activities.report],
        workflow_runner=UnsandboxedWorkflowRunner(),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        # The next worker tries calls that are under way again, with the same id.
        graceful_shutdown_timeout=timedelta(seconds=0),
        build_id=_own_build(),
    )


def _own_build() -> str:
    """Return the build that Temporal shows for a worker whose application names none."""
    return f"abeyance {version('abeyance')}"


def _deployment_config(settings: Settings) -> WorkerDeploymentConfig | None:
    """Return the worker's version for Temporal; None if it has no build id.

    The worker deployment is named after the task queue. Without versioning, Temporal only shows the build
    id, and gives the worker tasks of every run.
    """
    if settings.build_id is None:
        return None
    deployed = WorkerDeploymentVersion(
        deployment_name=settings.task_queue, build_id=settings.build_id
    )
    behavior = _BEHAVIORS[settings.versioning]
    return WorkerDeploymentConfig(
        version=deployed,
        use_worker_versioning=behavior is not VersioningBehavior.UNSPECIFIED,
        default_versioning_behavior=behavior,
    )


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Run a worker until `stop` is set.

    If something still runs a few seconds after the grace, this ends the process: a function in a thread,
    or a visit whose journal cannot be written because Temporal is unavailable. The worker first tells
    Temporal that it leaves: then its code does not count as a failed attempt, and another worker begins
    it once this process is gone. Nobody tells Temporal of a killed process.
    """
    graphs = load_graphs(settings.app)
    load_models(graphs)
    notifications = load_notifications(settings)
    tracing.begin("abeyance-worker")
    temporal = await _connected(settings, stop)
    if temporal is None:
        return
    await _warn_without_setup(temporal)
    asyncio.get_running_loop().set_default_executor(
        ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="node")
    )
    if (warning := unreachable_links(notifications, settings)) is not None:
        _logger.warning(warning)
    leaving = asyncio.Event()
    worker = make_worker(temporal, graphs, settings, notifications=notifications, leaving=leaving)
    _spare_what_stays()
    running = asyncio.create_task(worker.run())
    notifying = asyncio.create_task(_notify(temporal, settings, notifications))
    stop_signal = asyncio.create_task(stop.wait())
    _logger.info("serving %s on the task queue %s", ", ".join(graphs), settings.task_queue)
    client = Client(
        temporal,
        task_queue=settings.task_queue,
        blobs=kept_blobs(settings),
        records=shared_database(settings),
    )
    tending = asyncio.create_task(_tend(client, settings))
    await asyncio.wait({running, stop_signal}, return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        stopping = asyncio.create_task(worker.shutdown())
        await asyncio.wait({running, stopping}, timeout=settings.shutdown_grace + _LAST_SECONDS)
    is_unfinished = not running.done()
    if is_unfinished:
        _logger.warning(
            "stopping: work still runs after %g s; another worker will retry it",
            settings.shutdown_grace + _LAST_SECONDS,
        )
        # Before the servers close, so that a tool call that fails by that does not count as failed.
        leaving.set()
    closing = asyncio.create_task(close_servers())
    if is_unfinished:
        await asyncio.wait({running, closing}, timeout=LEAVES_WITHIN)
        leave(0)
    with suppress(TimeoutError):
        async with asyncio.timeout(_LAST_SECONDS):
            await closing
    stop_signal.cancel()
    tending.cancel()
    notifying.cancel()
    await asyncio.wait({tending, notifying})
    try:
        await running
    except RuntimeError as error:
        if not str(error).startswith(_UNUSABLE):
            raise
        raise SettingsError(
            f"Temporal does not let a worker serve the namespace {temporal.namespace!r}: create it, or "
            f"set TEMPORAL_NAMESPACE ({str(error).partition(': Status')[0]})"
        ) from error


def load_models(graphs: Mapping[str, Graph]) -> None:
    """Import the libraries that the models of these graphs need.

    An import in the first turn would hold up the event loop for seconds, and with it the heartbeats of
    all visits. A model that cannot be used blocks its own turns only.
    """
    for agent in agents_of(graphs.values()):
        setup_fault(agent.model)


def _spare_what_stays() -> None:
    """Leave objects that live as long as the process (modules, graphs, types) out of garbage collection.

    A collection would mostly walk through these, and runs in the cache leave little garbage.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_BEFORE_SEARCH, _SEARCHES_BEFORE_WIDER, _SEARCHES_BEFORE_WIDER)


async def _notify(
    temporal: TemporalClient, settings: Settings, notifications: Notifications | None
) -> None:
    """Bring notifications to their receivers until this is cancelled."""
    if notifications is None:
        return
    async with make_notifier(temporal, settings, notifications):
        await asyncio.Event().wait()


async def _tend(client: Client, settings: Settings) -> None:
    """Make runs try blocked visits again at once, because this worker may have what the visits need. Then
    tend the deployment once a minute, until this is cancelled.
    """
    try:
        await client.waking.wake()
    except AbeyanceError as error:
        _logger.warning("blocked runs are tried again within minutes, not at once: %s", error)
    while True:
        await tend(client, settings)
        await asyncio.sleep(_ROUND_SECONDS)


async def tend(client: Client, settings: Settings) -> None:
    """Record runs that ended outside, delete runs that are to be erased or were kept long enough, and
    evict inactive runs. Several workers may do so at once.
    """

    async def evict() -> None:
        if inactive_for := settings.session_inactive_timeout:
            await client.runs.evict(inactive_for=inactive_for, actor="janitor")

    for unless, work in (
        ("what ended outside is not recorded yet", client.janitor.round),
        ("what is to be deleted is not deleted yet", partial(client.erasures.round, settings.keep)),
        ("inactive runs are not evicted yet", evict),
    ):
        try:
            await work()
        except (AbeyanceError, RPCError) as error:
            _logger.warning("%s: %s", unless, error)


async def _connected(settings: Settings, stop: asyncio.Event) -> TemporalClient | None:
    """Connect to Temporal as soon as it answers, as an API does; None if `stop` is set before."""
    try:
        runtime = process_runtime(settings.metrics_address)
    except ValueError as error:
        raise SettingsError(
            f"ABEYANCE_METRICS_ADDRESS={settings.metrics_address!r} cannot be used: {error}"
        ) from error
    told = ""
    while not stop.is_set():
        try:
            return await connect_temporal(settings=settings, runtime=runtime)
        except Unavailable as error:
            if told != str(error):
                _logger.warning("code=%s | %s; the worker keeps trying", Code.UNAVAILABLE, error)
            told = str(error)
        with suppress(TimeoutError):
            async with asyncio.timeout(_RECONNECT_SECONDS):
                await stop.wait()
    return None


async def _warn_without_setup(temporal: TemporalClient) -> None:
    """Warn if search attributes are missing, without which the worker cannot serve runs."""
    try:
        missing = await missing_search_attributes(temporal)
    except (SettingsError, Unavailable) as error:
        # Credentials that cannot list them may still run workflows.
        _logger.warning("namespace=%s | %s", temporal.namespace, error)
        return
    if missing:
        _logger.warning(
            "namespace=%s | the search attributes %s are missing, so no run can be served: run "
            "`abeyance setup`",
            temporal.namespace,
            ", ".join(missing),
        )


def run(settings: Settings) -> None:
    """Run a worker until a signal stops the process, even if node code raises SystemExit."""
    _to_its_end(_serve_until_signalled(settings))


async def _serve_until_signalled(settings: Settings) -> None:
    with stopped_by_signals(within=settings.shutdown_grace + _MOST_SECONDS) as stop:
        await serve(settings, stop)


def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, even if node code raises SystemExit.

    A `SystemExit` in a task of a node (`asyncio.gather`, a task group) stops the event loop. Running the
    loop again continues where it was, and the task's awaiter gets the exception, so the node fails like
    any other. Otherwise the worker would neither serve nor end, and the next attempt would do the same to
    the next worker (tested).
    """
    with asyncio.Runner(loop_factory=event_loop) as runner:
        loop = runner.get_loop()
        task = loop.create_task(work)
        while True:
            try:
                return loop.run_until_complete(task)
            except SystemExit as error:
                if task.done():
                    raise
                _logger.error(  # noqa: TRY400  (the failed visit has the traceback)
                    "a node raised SystemExit (%r); the worker keeps running", error.code
                )


def main() -> None:
    """Run a worker with the settings of the environment, until a signal stops it."""
    log_to_stderr()
    try:
        run(load_settings())
    except AbeyanceError as error:
        print(f"abeyance worker: {error}", file=sys.stderr)  # noqa: T201
        leave(2 if isinstance(error, SettingsError | GraphError) else 3)
    leave(0)
