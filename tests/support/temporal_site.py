"""A place to run graphs in tests: a real Temporal server, a worker, a client, and replay afterwards."""

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
"""How long a server may take to come up: on a machine that is busy, far longer than the SDK waits."""

_DYNAMIC = (
    "history.transferProcessorMaxPollRPS=5000",
    # A timer fires up to a second late, and a history that continues another one begins a second after
    # it, unless set otherwise.
    "history.timerProcessorMaxPollRPS=5000",
    'history.timerProcessorMaxTimeShift="10ms"',
    'history.workflowIdReuseMinimalInterval="100ms"',
    # A history is deleted only after this: half a minute, unless set otherwise.
    'history.transferProcessorUpdateAckInterval="100ms"',
    # What a store over SQL holds, so that every test has ids that fit it.
    "limit.maxIDLength=255",
    "frontend.WorkflowTimeSkippingEnabled=true",
    "frontend.WorkflowPauseEnabled=true",
    "system.forceSearchAttributesCacheRefreshOnRead=false",
)


def search_attributes() -> list[SearchAttributeKey[Any]]:
    """Our search attributes, as the test environment wants them."""
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
    """Temporal's development server, with time as it is."""
    async with await _started(WorkflowEnvironment.start_local) as environment:
        yield environment.client


@asynccontextmanager
async def skipping_server() -> AsyncIterator[WorkflowEnvironment]:
    """The same server, on which a run's time can be moved on by days."""
    async with await _started(WorkflowEnvironment.start_time_skipping_v2) as environment:
        yield environment


async def _started(start: Callable[..., Awaitable[WorkflowEnvironment]]) -> WorkflowEnvironment:
    with pytest.MonkeyPatch.context() as patch:
        # Go looks for garbage only when there is a gigabyte: a seventh less processor time. With half of
        # that, a server whose many runs fill a third of it would do little else than look.
        patch.setenv("GOGC", "off")
        patch.setenv("GOMEMLIMIT", "1GiB")
        return await start(**_server_options())


class Site:
    """A deployment: a task queue of its own, or that of another site `beside` it, with a client for it
    and a worker that can come and go.
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
        # Of the site and not of a worker: workers come and go.
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
        """A worker for the site's graphs, or for others in their place."""
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
        """What brings the site's notifications to their receivers, beside a worker or without one."""
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
        """The view once the run has one of these statuses; fails loudly if it never gets there."""
        view = await self.client.run(run_id).wait(until=frozenset(statuses), timeout=seconds)
        assert view.status in statuses, f"the run is {view.status}: {view}"
        return view

    async def until_blocked(self, run_id: str, attempt: int = 1) -> views.RunView:
        """The view once a visit is blocked, and was tried so often."""

        async def found() -> views.RunView | None:
            view = await self.client.run(run_id).view()
            return view if any((why.attempt or 0) >= attempt for why in view.blocked) else None

        view: views.RunView = await eventually(found)
        return view

    async def ended(self, run_id: str, *, seconds: float = 60) -> views.RunView:
        """The view of the ended run."""
        view = await self.client.run(run_id).wait(timeout=seconds)
        assert view.ended_at is not None, f"the run is {view.status}: {view}"
        return view

    async def asked(self, run_id: str) -> views.InterruptView:
        """The only question that the run waits for."""
        (question,) = (await self.until(run_id, "awaiting-input")).interrupts
        return question

    async def answer(self, run_id: str, response: Any) -> views.InterruptView:
        """Answer the only question that the run waits for, and return it as it was."""
        question = await self.asked(run_id)
        await self.client.run(run_id).respond(question.id, response, principal=ANYBODY)
        return question

    async def pause_and_resume(self, run_id: str) -> None:
        """Pause the run and resume it, each seen in its view before the next."""
        run = self.client.run(run_id)
        await run.pause()
        await self.until(run_id, "paused")
        await run.resume()
        await self.until(run_id, "running", "awaiting-input")

    async def recorded(self, run_id: str, **options: Any) -> list[views.Event]:
        """The events of the run, as they are recorded."""
        found: list[views.Event] = await self.client.records.read(of_run, run_id, **options)
        return found

    async def events(self, run_id: str, type_: str) -> list[dict[str, Any]]:
        """What the run's events of a type say, as far as it has written them down."""
        return [event.data for event in await self.published(run_id, type_)]

    async def published(self, run_id: str, *types: str) -> list[views.Event]:
        """The run's events, those of some types or all, as far as it has written them down."""
        page, _ = await self.client.feed.page(run_id, None, 10_000)
        return [event for event in page if not types or event.type in types]

    async def make_current(self, build: str, *, allow_no_pollers: bool = False) -> None:
        """Make a build the one that new runs go to, as soon as Temporal knows its worker."""
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
        """The run's newest history."""
        return await self.temporal.get_workflow_handle(run_id).fetch_history()

    async def executions(self, run_id: str) -> int:
        """How many histories the run has filled so far."""
        return len(await histories(self.temporal, run_id))

    async def replays(self, run_id: str) -> None:
        """Replay the run's newest history on today's code; raises if the code would do otherwise."""
        await replay(await self.history(run_id))


@asynccontextmanager
async def begun(
    temporal: TemporalClient, graph: Graph, input: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[tuple[Site, TemporalRun]]:
    """A run of a graph on a site of its own, whose worker is there as long as this lasts."""
    site = Site(temporal, graph)
    async with site.worker():
        yield site, site.client.run(await site.start(input, **options))


async def deleted(temporal: TemporalClient, run_id: str, execution: str = "") -> None:
    """Have Temporal delete an execution of a run, the newest unless said, and wait until it has."""
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
    """All histories of a run, the oldest first, by following it back from the newest."""
    found: list[WorkflowHistory] = []
    execution: str | None = None
    while execution != "":
        handle = temporal.get_workflow_handle(run_id, run_id=execution)
        found.insert(0, await handle.fetch_history())
        started = found[0].events[0].workflow_execution_started_event_attributes
        execution = started.continued_execution_run_id
    return found


async def refused(call: Awaitable[object]) -> Refusal:
    """Why a call is refused."""
    with pytest.raises(Refusal) as refusal:
        await call
    return refusal.value


def replayer(*interceptors: Interceptor, sealed: TemporalClient | None = None) -> Replayer:
    """Replay histories on today's code, those that are `sealed` with the keys of a connection."""
    restrictions = SandboxRestrictions.default.with_passthrough_all_modules()
    sandbox = SandboxedWorkflowRunner(restrictions=restrictions, runner_class=AnyTypeRunner)
    return Replayer(
        workflows=[AgentRun, Notification],
        workflow_runner=InOrderWorkflowRunner(sandbox),
        interceptors=interceptors,
        data_converter=data_converter() if sealed is None else lenient(sealed).data_converter,
        # What is sealed takes longer to read, and a replay is not tried again if a busy machine takes
        # more than two seconds for a step.
        debug_mode=sealed is not None,
    )


async def replay(history: WorkflowHistory, sealed: TemporalClient | None = None) -> None:
    """Replay one history; raises if the code would do otherwise than what was recorded."""
    await replayer(sealed=sealed).replay_workflow(history)


async def eventually(condition: Callable[[], Any], *, seconds: float = 60) -> Any:
    """What the condition gives as soon as it is truthy; it may be a coroutine function."""
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
        # A condition may be a call of the server: what takes long is asked for less often.
        pause = min(pause * 1.5, 0.15)
