"""The composition root: graphs, activities and the workflow, put together into a Temporal worker."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from temporalio.client import Client as TemporalClient
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from abeyance import tracing
from abeyance.activities.heartbeat import THROTTLE_SECONDS
from abeyance.activities.maintenance import ConversationActivities, EvictionActivities
from abeyance.activities.node import NodeActivities
from abeyance.activities.payloads import lenient
from abeyance.app import load_graphs
from abeyance.authoring.graph import Graph
from abeyance.cli.errors import leave
from abeyance.client import Client
from abeyance.dev.signals import stopped_by_signals
from abeyance.errors import AbeyanceError, GraphError, SettingsError
from abeyance.mcp.server import close_servers
from abeyance.settings import Settings, load_settings
from abeyance.storage.backends import ConfiguredBlobs
from abeyance.storage.blobs import Blobs
from abeyance.temporal.connection import connect_temporal
from abeyance.temporal.in_order_runner import InOrderWorkflowRunner
from abeyance.tracing import log_to_stderr
from abeyance.workflows.cleanup import Janitor
from abeyance.workflows.conversation import ConversationWorkflow
from abeyance.workflows.metrics import Unmetered
from abeyance.workflows.run import AgentRun

_LAST_SECONDS: Final = 5.0
"""What visits that have been cancelled get beyond the grace, to write down how far they came."""
_MOST_SECONDS: Final = 15.0
"""What a worker gets in all beyond the grace. One that does not listen by then is killed."""
_THREADS: Final = 64
"""How many plain functions of nodes run at once in one worker."""
_SHARED: Final = (
    # What is decoded outside the sandbox and matched inside has to be of the same classes in both.
    "abeyance.wire",
    "abeyance.core",
    "abeyance.duration",
    "abeyance.errors",
    "abeyance.authoring",
    "abeyance.wire",
    "abeyance.runtime",
    "abeyance.wire",
    "abeyance.wire",
    "abeyance.schemas",
    "abeyance.projections",
    "abeyance.wire",
    "annotated_types",
    "jsonschema_rs",
    "pydantic",
    "pydantic_core",
    "typing_extensions",
)
_logger = logging.getLogger("abeyance.worker")


def make_worker(
    temporal: TemporalClient,
    graphs: Mapping[str, Graph],
    settings: Settings,
    *,
    blobs: Blobs | None = None,
    strict_sandbox: bool = False,
) -> Worker:
    """A worker for these graphs, not yet running.

    `strict_sandbox` imports the workflow's own modules anew for every run and watches what they call,
    as tests do to find what is not deterministic; otherwise there is no sandbox
    (docs/concepts/adr/0007-no-sandbox-in-production.md).
    """
    client = Client(temporal, task_queue=settings.task_queue)
    nodes = NodeActivities(
        graphs,
        client,
        ConfiguredBlobs(settings) if blobs is None else blobs,
        default_timeout=settings.default_timeout,
        enable_metrics=settings.enable_metrics,
    )
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*_SHARED)
    return Worker(
        lenient(temporal),
        task_queue=settings.task_queue,
        workflows=[AgentRun, ConversationWorkflow, Janitor],
        activities=[
            nodes.run,
            ConversationActivities(client).release,
            EvictionActivities(client).evict,
        ],
        interceptors=[] if settings.enable_metrics else [Unmetered()],
        workflow_runner=InOrderWorkflowRunner(
            SandboxedWorkflowRunner(restrictions=restrictions)
            if strict_sandbox
            else UnsandboxedWorkflowRunner()
        ),
        # After a kill -9 the server waits this long for the dead worker before it asks another.
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        # A cancel reaches an activity on its heartbeat, so heartbeats may not be saved up for long.
        max_heartbeat_throttle_interval=timedelta(seconds=THROTTLE_SECONDS),
        default_heartbeat_throttle_interval=timedelta(seconds=THROTTLE_SECONDS),
        graceful_shutdown_timeout=timedelta(seconds=settings.shutdown_grace),
    )


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Run a worker until `stop` is set.

    What cannot be ended within the settings' grace and a few seconds more ends with the process, here:
    a function in a thread, or a visit that has something to write down for a Temporal that is away.
    """
    graphs = load_graphs(settings.app)
    tracing.begin("abeyance-worker")
    temporal = await connect_temporal(metrics_address=settings.metrics_address, settings=settings)
    asyncio.get_running_loop().set_default_executor(
        ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="node")
    )
    worker = make_worker(temporal, graphs, settings)
    running = asyncio.create_task(worker.run())
    told = asyncio.create_task(stop.wait())
    _logger.info("serving %s on the task queue %s", ", ".join(graphs), settings.task_queue)
    await asyncio.wait({running, told}, return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        stopping = asyncio.create_task(worker.shutdown())
        await asyncio.wait({running, stopping}, timeout=settings.shutdown_grace + _LAST_SECONDS)
    is_left = not running.done()
    if is_left:
        _logger.warning(
            "told to stop, and after %g s something still runs: it is started again by another worker",
            settings.shutdown_grace + _LAST_SECONDS,
        )
    if "abeyance.mcp.pool" in sys.modules:
        with suppress(TimeoutError):
            await asyncio.wait_for(close_servers(), _LAST_SECONDS)
    if is_left:
        leave(0)
    told.cancel()
    await running


def run(settings: Settings) -> None:
    """Run a worker until this process is told to stop, whatever the code of its nodes does."""
    _to_its_end(_serve_until_signalled(settings))


async def _serve_until_signalled(settings: Settings) -> None:
    with stopped_by_signals(within=settings.shutdown_grace + _MOST_SECONDS) as stop:
        await serve(settings, stop)


def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Run the work of this process, also if a node wants to end the process.

    A `SystemExit` in a task that a node has made (`asyncio.gather`, a task group) leaves the loop, past
    all that awaits the task. Nothing is lost by that: the loop goes on where it was, and whoever awaits
    the task gets the exception, so that the node fails like any other. Without this a worker neither
    served nor ended, and the next attempt did the same to the next worker (tried).
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        task = loop.create_task(work)
        while True:
            try:
                return loop.run_until_complete(task)
            except SystemExit as error:
                if task.done():
                    raise
                _logger.error(  # noqa: TRY400  (where the code was, is told with the visit that failed)
                    "the code of a node asked its process to exit (%r), and it goes on", error.code
                )


def main() -> None:
    """Run a worker as the environment says, until it is told to stop."""
    log_to_stderr()
    try:
        run(load_settings())
    except AbeyanceError as error:
        print(f"abeyance worker: {error}", file=sys.stderr)  # noqa: T201
        leave(2 if isinstance(error, SettingsError | GraphError) else 3)
    leave(0)
