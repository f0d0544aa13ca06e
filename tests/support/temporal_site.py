"""The site on which tests run graphs: a real Temporal server, a worker, a client, and replays."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    DeleteWorkflowExecutionRequest,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHistory
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Interceptor, Replayer
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from abeyance import Graph, Principal, Refusal, names, views
from abeyance.client import Client
from abeyance.client.run import TemporalRun
from abeyance.core.state import Limits
from abeyance.notifications.config import Notifications
from abeyance.records.events import of_run
from abeyance.settings import Settings
from abeyance.storage.blobs import Blobs, MemoryBlobs
from abeyance.temporal.connection import data_converter
from abeyance.temporal.workarounds.any_type import AnyTypeRunner
from abeyance.temporal.workarounds.in_order_runner import InOrderWorkflowRunner
from abeyance.temporal.workarounds.payloads import lenient
from abeyance.worker import make_notifier, make_worker
from abeyance.workflows.notification import Notification
from abeyance.workflows.run import AgentRun

BINARY = str(Path(sys.executable).parent / "temporal")
ANYBODY = Principal(subject="ada", capabilities=("*",))
UP_WITHIN = timedelta(seconds=60)
"""How long a server may take to start: on a busy machine, far longer than the SDK waits."""

_DYNAMIC = (
    "history.transferProcessorMaxPollRPS=5000",
    # By default a timer fires up to a second late, and a history that continues another one begins a
    # second after it.
    "history.timerProcessorMaxPollRPS=5000",
    'history.timerProcessorMaxTimeShift="10ms"',
    'history.workflowIdReuseMinimalInterval="100ms"',
    # A history is deleted only after this interval, which is half a minute by default.
    'history.transferProcessorUpdateAckInterval="100ms"',
    # The longest id in an SQL store, so that every test has ids that fit.
    "limit.maxIDLength=255",
    "frontend.WorkflowTimeSkippingEnabled=true",
    "frontend.WorkflowPauseEnabled=true",
    "system.forceSearchAttributesCacheRefreshOnRead=false",
)


def search_attributes() -> list[SearchAttributeKey[Any]]:
    """Return our search attributes in the form that the test environment takes."""
    return [SearchAttributeKey.for_keyword(name) for name in names.SEARCH_ATTRIBUTES]


def _server_options() -> dict[str, Any]:
    return {
        "data_converter": data_converter(),
        "dev_server_existing_path": BINARY,
        "dev_server_startup_timeout": UP_WITHIN,
        "dev_server_log_level": "never",
        "search_attributes": search_attributes(),
        "dev_server_extra_args": [
            part for value in _DYNAMIC for part in ("--dynamic-config-value", value)
        ],
    }


@asynccontextmanager
async def real_server() -> AsyncIterator[TemporalClient]:
    """Start Temporal's development server, in real time."""
    async with await _started(WorkflowEnvironment.start_local) as environment:
        yield environment.client


@asynccontextmanager
async def skipping_server() -> AsyncIterator[WorkflowEnvironment]:
    """Start the same server with time skipping: a test can skip days of a run's time."""
    async with await _started(WorkflowEnvironment.start_time_skipping_v2) as environment:
        yield environment


async def _started(start: Callable[..., Awaitable[WorkflowEnvironment]]) -> WorkflowEnvironment:
    with pytest.MonkeyPatch.context() as patch:
        # Go collects garbage only at a gigabyte, which saves a seventh of the processor time. With half a
        # gigabyte, a server whose runs fill a third of it would spend most of its time on collection.
        patch.setenv("GOGC", "off")
        patch.setenv("GOMEMLIMIT", "1GiB")
        return await start(**_server_options())


class Site:
    """A deployment: its own task queue, or that of the site `beside` it, with a client and a worker that
    can come and go.
    """

    settings: Settings

    def __init__(
        self,
        temporal: TemporalClient,
        *graphs: Graph,
        patience: float = 30.0,
        blobs: Blobs | None = None,
        beside: Site | None = None,
        strict_sandbox: bool = False,
        notifications: Notifications | None = None,
    ) -> None:
        self.temporal = temporal
        self.notifications = notifications
        self.strict_sandbox = strict_sandbox
        # The site owns the blobs, because workers come and go.
        self.blobs = MemoryBlobs() if blobs is None else blobs
        self.graphs = {graph.name: graph for graph in graphs}
        queue = f"test-{uuid.uuid4().hex[:12]}" if beside is None else beside.settings.task_queue
        self.settings = Settings(task_queue=queue, shutdown_grace=0.2)
        self.client = Client(
            temporal,
            task_queue=self.settings.task_queue,
            patience=patience,
            blobs=self.blobs,
            notifications=notifications,
        )

    @asynccontextmanager
    async def worker(self, *graphs: Graph) -> AsyncIterator[None]:
        """Run a worker for the site's graphs, or for other graphs instead."""
        served = {graph.name: graph for graph in graphs} or self.graphs
        async with make_worker(
            self.temporal,
            served,
            self.settings,
            blobs=self.blobs,
            notifications=self.notifications,
            strict_sandbox=self.strict_sandbox,
        ):
            yield

    @asynccontextmanager
    async def notifier(self) -> AsyncIterator[None]:
        """Run the notifier, which delivers the site's notifications, with or without a worker."""
        assert self.notifications is not None
        async with make_notifier(self.temporal, self.settings, self.notifications):
            yield

    async def start(
        self, input: dict[str, Any] | None = None, *, limits: Limits | None = None, **options: Any
    ) -> str:
        """Start a run of the site's first graph under a new id."""
        run_id = options.pop("run_id", f"run-{uuid.uuid4().hex[:12]}")
        graph = options.pop("graph", next(iter(self.graphs.values())))
        await self.client.runs.start(graph, input or {}, run_id=run_id, limits=limits, **options)
        return str(run_id)

    async def until(self, run_id: str, *statuses: str, seconds: float = 60) -> views.RunView:
        """Wait until the run has one of these statuses, and return its view, or fail after `seconds`."""
        view = await self.client.run(run_id).wait(until=frozenset(statuses), timeout=seconds)
        assert view.status in statuses, f"the run is {view.status}: {view}"
        return view

    async def until_blocked(self, run_id: str, attempt: int = 1) -> views.RunView:
        """Wait until a visit is blocked after `attempt` attempts, and return the run's view."""

        async def found() -> views.RunView | None:
            view = await self.client.run(run_id).view()
            return view if any((why.attempt or 0) >= attempt for why in view.blocked) else None

        view: views.RunView = await eventually(found)
        return view

    async def ended(self, run_id: str, *, seconds: float = 60) -> views.RunView:
        """Wait until the run has ended, and return its view."""
        view = await self.client.run(run_id).wait(timeout=seconds)
        assert view.ended_at is not None, f"the run is {view.status}: {view}"
        return view

    async def asked(self, run_id: str) -> views.InterruptView:
        """Wait for the run's only open question, and return it."""
        (question,) = (await self.until(run_id, "awaiting-input")).interrupts
        return question

    async def answer(self, run_id: str, response: Any) -> views.InterruptView:
        """Answer the run's only open question, and return it as it was before."""
        question = await self.asked(run_id)
        await self.client.run(run_id).respond(question.id, response, principal=ANYBODY)
        return question

    async def pause_and_resume(self, run_id: str) -> None:
        """Pause the run and resume it, and wait until its view shows each."""
        run = self.client.run(run_id)
        await run.pause()
        await self.until(run_id, "paused")
        await run.resume()
        await self.until(run_id, "running", "awaiting-input")

    async def recorded(self, run_id: str, **options: Any) -> list[views.Event]:
        """Return the run's events from the records."""
        found: list[views.Event] = await self.client.records.read(of_run, run_id, **options)
        return found

    async def events(self, run_id: str, type_: str) -> list[dict[str, Any]]:
        """Return the data of the run's recorded events of a type."""
        return [event.data for event in await self.published(run_id, type_)]

    async def published(self, run_id: str, *types: str) -> list[views.Event]:
        """Return the run's recorded events, of some types or all."""
        page, _ = await self.client.feed.page(run_id, None, 10_000)
        return [event for event in page if not types or event.type in types]

    async def make_current(self, build: str, *, allow_no_pollers: bool = False) -> None:
        """Send new runs to the workers of a build, as soon as Temporal knows one."""
        request = SetWorkerDeploymentCurrentVersionRequest(
            namespace=self.temporal.namespace,
            deployment_name=self.settings.task_queue,
            build_id=build,
            allow_no_pollers=allow_no_pollers,
        )

        async def is_made() -> bool:
            try:
                await self.temporal.workflow_service.set_worker_deployment_current_version(request)
            except RPCError:
                return False
            return True

        await eventually(is_made, seconds=90)

    async def history(self, run_id: str) -> WorkflowHistory:
        """Return the run's newest history."""
        return await self.temporal.get_workflow_handle(run_id).fetch_history()

    async def executions(self, run_id: str) -> int:
        """Return how many histories the run has so far."""
        return len(await histories(self.temporal, run_id))

    async def replays(self, run_id: str) -> None:
        """Replay the run's newest history on today's code. Raises if the code does something else."""
        await replay(await self.history(run_id))


@asynccontextmanager
async def begun(
    temporal: TemporalClient, graph: Graph, input: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[tuple[Site, TemporalRun]]:
    """Start a run of a graph on a new site, with a worker until the block ends."""
    site = Site(temporal, graph)
    async with site.worker():
        yield site, site.client.run(await site.start(input, **options))


async def deleted(temporal: TemporalClient, run_id: str, execution: str = "") -> None:
    """Delete an execution of a run in Temporal, by default the newest, and wait until it is gone."""
    which = WorkflowExecution(workflow_id=run_id, run_id=execution)
    await temporal.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(namespace=temporal.namespace, workflow_execution=which)
    )

    async def is_deleted() -> bool:
        try:
            await temporal.get_workflow_handle(run_id, run_id=execution or None).describe()
        except RPCError:
            return True
        return False

    await eventually(is_deleted)


async def histories(temporal: TemporalClient, run_id: str) -> list[WorkflowHistory]:
    """Return all histories of a run, oldest first, by following the chain back from the newest."""
    found: list[WorkflowHistory] = []
    execution: str | None = None
    while execution != "":
        handle = temporal.get_workflow_handle(run_id, run_id=execution)
        found.insert(0, await handle.fetch_history())
        started = found[0].events[0].workflow_execution_started_event_attributes
        execution = started.continued_execution_run_id
    return found


async def refused(call: Awaitable[object]) -> Refusal:
    """Check that a call is refused, and return the refusal."""
    with pytest.raises(Refusal) as refusal:
        await call
    return refusal.value


def replayer(*interceptors: Interceptor, sealed: TemporalClient | None = None) -> Replayer:
    """Return a replayer with today's code. For `sealed` histories it has the keys of a connection."""
    restrictions = SandboxRestrictions.default.with_passthrough_all_modules()
    sandbox = SandboxedWorkflowRunner(restrictions=restrictions, runner_class=AnyTypeRunner)
    return Replayer(
        workflows=[AgentRun, Notification],
        workflow_runner=InOrderWorkflowRunner(sandbox),
        interceptors=interceptors,
        data_converter=data_converter() if sealed is None else lenient(sealed).data_converter,
        # Sealed payloads take longer to read. On a busy machine a step may exceed the SDK's limit of two
        # seconds, and a replay has no retry; debug mode has no limit.
        debug_mode=sealed is not None,
    )


async def replay(history: WorkflowHistory, sealed: TemporalClient | None = None) -> None:
    """Replay one history. Raises if today's code does something else than the recorded code."""
    await replayer(sealed=sealed).replay_workflow(history)


async def eventually(condition: Callable[[], Any], *, seconds: float = 60) -> Any:
    """Wait until the condition, a function or coroutine function, returns a true value; return it."""
    deadline = asyncio.get_running_loop().time() + seconds
    pause = 0.02
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert asyncio.get_running_loop().time() < deadline, f"not within {seconds} s: {condition}"
        await asyncio.sleep(pause)
        # A condition may be a call of the server, so the pauses grow.
        pause = min(pause * 1.5, 0.15)
