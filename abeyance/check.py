"""`abeyance worker --check`: whether this process could serve, and whether open runs could go on.

An open run is read from Temporal alone. Replaying its history on the workflow of this process yields the
state of the run without a worker, and shows whether the history can still be replayed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

from temporalio import workflow
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHistory
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    Replayer,
    WorkflowInboundInterceptor,
    WorkflowInstance,
    WorkflowInstanceDetails,
    WorkflowInterceptorClassInput,
)

from abeyance import adapters, tracing
from abeyance.agents import model_request
from abeyance.agents.agent import Agent
from abeyance.agents.foreign import ForeignAgent
from abeyance.authoring.graph import Graph
from abeyance.client.listing import OPEN_RUNS, Listing
from abeyance.core.lifecycle import CANNOT_REPLAY_REMEDY
from abeyance.core.spec import Clips, GraphSpec, SubgraphNode
from abeyance.core.state import RunState, copied
from abeyance.core.terms import PLAIN
from abeyance.core.text import truncate
from abeyance.errors import BlockedCode, SettingsError, Unreadable
from abeyance.history.description import RunDescription
from abeyance.history.reading import events_of
from abeyance.notifications.config import load_notifications, unreachable_links
from abeyance.runtime.compatibility import Block, compare
from abeyance.settings import Settings
from abeyance.storage.backends import blobs_of, check_reach, storage_fault
from abeyance.temporal.retry import NotFound
from abeyance.temporal.workarounds.any_type import AnyTypeRunner
from abeyance.temporal.workarounds.in_order_runner import InOrderWorkflowInstance, telling
from abeyance.temporal.workarounds.payloads import lenient
from abeyance.temporal.workers import service
from abeyance.util import gather_limited
from abeyance.workflows.run import AgentRun

_SHOWN: Final = 300
_PATIENCE: Final = 30.0
"""Seconds for which a call of Temporal is retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReport:
    """What was checked of this process, and what it lacks but can start without."""

    checked: tuple[str, ...]
    warnings: tuple[str, ...]


async def check_process(settings: Settings, graphs: Mapping[str, Graph]) -> ProcessReport:
    """Check the needs of a worker with these settings, without a connection to Temporal.

    Raise SettingsError if this process lacks something that a graph or a setting needs. A model that
    cannot be used, because its key is missing, is only a warning: other graphs can be served. A storage
    that cannot be reached is a warning, too.
    """
    agents = [*agents_of(graphs.values())]
    for agent in agents:
        _check_extra(agent, "pydantic_ai")
        for server in agent.servers.values():
            _check_extra(agent, server.library)
    check_reach(settings)
    if agents:
        # Raises if agents have no place for their transcripts.
        blobs_of(settings)
    if settings.has_authentication:
        from abeyance.api.app import create_app  # noqa: PLC0415  (FastAPI takes long to load)

        # An API with these settings raises what is wrong with its tokens, issuers and hosts.
        create_app(settings, graphs)
    notifications = load_notifications(settings)
    exporters = tracing.check()
    models = {
        model_request.name_of(agent.model): agent.model
        for agent in agents
        # The framework of a foreign agent asks its model itself.
        if not isinstance(agent, ForeignAgent)
    }
    faults = [_fault_of(model) for model in models.values()]
    faults.append(unreachable_links(notifications, settings))
    if settings.storage is not None:
        fault = await storage_fault(settings)
        faults.append(None if fault is None else str(fault))
    specs = [*_specs(graph.build() for graph in graphs.values())]
    extras = {_extra_of(agent): True for agent in agents} | {
        "otel": any(name.startswith("otlp") for name in exporters),
        "people": any(map(_has_holidays, specs))
        or (notifications is not None and notifications.is_delivered),
        "rules": any(map(_has_clips, specs)),
        "s3": (settings.storage or "").startswith("s3:"),
    }
    checked = {
        "graphs": sorted(graphs),
        "extras": sorted(name for name, is_needed in extras.items() if is_needed)
        or ["none needed"],
        "models": sorted(models),
        "storage": [] if settings.storage is None else [settings.storage],
        "encryption": ["on" if settings.keyring else "off"],
        "notifications": [] if notifications is None else [str(settings.notifications)],
        "traces": exporters or ["off"],
    }
    return ProcessReport(
        checked=tuple(f"{what}: {', '.join(each)}" for what, each in checked.items() if each),
        warnings=tuple(fault for fault in faults if fault is not None),
    )


def agents_of(graphs: Collection[Graph]) -> Iterator[Agent]:
    """Yield the agents of graphs, and the agents that they call."""
    for graph in graphs:
        if graph.compiled_from is not None:
            yield graph.compiled_from
        yield from agents_of(graph.subgraphs.values())


def _specs(specs: Iterable[GraphSpec]) -> Iterator[GraphSpec]:
    """Yield graphs, and the graphs nested in them."""
    for spec in specs:
        yield spec
        yield from _specs(
            node.graph for node in spec.nodes.values() if isinstance(node, SubgraphNode)
        )


def _has_holidays(spec: GraphSpec) -> bool:
    terms = [question.terms or PLAIN for question in spec.own_questions]
    return any(each.calendar is not None and each.calendar.holidays for each in terms)


def _has_clips(spec: GraphSpec) -> bool:
    return any(isinstance(rule.condition, Clips) for rule in spec.rules)


def _extra_of(agent: Agent) -> str:
    """Return the extra that an agent needs. The extra of a framework has the name of its adapter."""
    if isinstance(agent, ForeignAgent):
        package, _, adapter = type(agent.framework).__module__.rpartition(".")
        if package == adapters.__name__:
            return adapter.replace("_", "-")
    return "agents"


def _check_extra(agent: Agent, module: str) -> None:
    if find_spec(module) is None:
        raise SettingsError(
            f"the agent {agent.name!r} needs the extra `agents`, which is not installed (there is no "
            f"module {module!r}): pip install 'abeyance[agents]'"
        )


def _fault_of(model: model_request.ModelLike) -> str | None:
    """Return the reason why a model cannot be used. Raises SettingsError if a package is missing."""
    fault = model_request.setup_fault(model)
    if fault is not None and isinstance(fault.__cause__, ImportError):
        raise SettingsError(str(fault)) from fault
    return None if fault is None else str(fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsReport:
    """The numbers of open and of replayed runs, and the ids of the runs that would block, by the reason.

    `faults` keep runs waiting whatever this code is, such as missing search attributes.
    """

    open: int
    replayed: int
    blocks: Mapping[Block, Sequence[str]]
    faults: tuple[str, ...] = ()


async def check_runs(
    temporal: TemporalClient,
    task_queue: str,
    graphs: Mapping[str, Graph],
    *,
    every: bool = False,
) -> RunsReport:
    """Compare `graphs` with the open runs of a deployment. No worker is needed.

    One run of each pinned graph is replayed, and an obstacle to it counts for all runs of this graph,
    wherever they are. With `every`, each run is replayed, and only obstacles ahead of it count. Raise
    Unavailable if Temporal does not answer.
    """
    listing = Listing(temporal, task_queue, patience=_PATIENCE)
    described = await gather_limited(await listing.all(OPEN_RUNS), listing.described)
    groups: dict[object, list[str]] = {}
    blocks: dict[Block, list[str]] = {}
    for run in described:
        if run.unreadable is not None:
            blocks.setdefault(_unreadable(run, run.unreadable), []).append(run.run_id)
            continue
        start = run.start
        pinned = run.run_id if every else (start.get("graph"), start.get("graph_version"))
        groups.setdefault(pinned, []).append(run.run_id)
    runs = OpenRuns(temporal, task_queue)
    compared = partial(runs.blocks, graphs=graphs, everywhere=not every)
    for run_ids, found in zip(
        groups.values(), await gather_limited(groups.values(), compared), strict=True
    ):
        for block in found:
            blocks.setdefault(block, []).extend(run_ids)
    served = await service(temporal, task_queue)
    # Before the first worker starts, a missing worker is not a fault.
    unserved = served.unserved if served.workers else ()
    return RunsReport(
        open=len(described),
        replayed=len(groups),
        blocks=blocks,
        faults=served.unregistered + unserved + served.orphaned,
    )


def _unreadable(run: RunDescription, why: Unreadable) -> Block:
    return Block(
        code=why.code,
        node=str(run.start.get("graph") or "(unknown graph)"),
        text=str(why),
        remedy="give this process the storage and the encryption keys of the deployment",
    )


class OpenRuns:
    """The open runs of a deployment, as their histories have them."""

    def __init__(self, temporal: TemporalClient, task_queue: str) -> None:
        self._events = partial(events_of, temporal, task_queue, patience=_PATIENCE)
        self._recorder = StateRecorder()
        self._replayer = Replayer(
            workflows=[AgentRun],
            workflow_runner=self._recorder,
            interceptors=[self._recorder],
            data_converter=lenient(temporal).data_converter,
            # Otherwise a task that takes two seconds counts as one that hangs.
            debug_mode=True,
        )

    async def blocks(
        self, run_ids: Sequence[str], *, graphs: Mapping[str, Graph], everywhere: bool
    ) -> tuple[Block, ...]:
        """Return the obstacles to these runs of one pinned graph, found by the first run that is still
        open.
        """
        for run_id in run_ids:
            try:
                history = WorkflowHistory(run_id, await self._events(run_id))
            except NotFound:
                continue
            result = await self._replayer.replay_workflow(history, raise_on_replay_failure=False)
            state = self._recorder.states.pop(run_id, None)
            if result.replay_failure is not None or state is None:
                return (_not_replayed(run_id, result.replay_failure),)
            if not state.finished:
                return compare(state, graphs, everywhere=everywhere)
        return ()


def _not_replayed(run_id: str, error: Exception | None) -> Block:
    return Block(
        code=BlockedCode.CANNOT_REPLAY,
        node=run_id,
        text=f"this code cannot replay its history: {truncate(str(error), _SHOWN)}",
        remedy=CANNOT_REPLAY_REMEDY,
    )


class StateRecorder(AnyTypeRunner, Interceptor):
    """Runs replayed workflows, and keeps the last state of each run in `states`, by run id."""

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, RunState] = {}
        self.runs: dict[str, AgentRun] = {}

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002 the SDK's own word
    ) -> type[WorkflowInboundInterceptor]:
        del input
        runs = self.runs

        class Remember(WorkflowInboundInterceptor):
            async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002
                runs[workflow.info().workflow_id] = workflow.instance()
                return await self.next.execute_workflow(input)

        return Remember

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        seeds: list[int] = []
        return _Recorded(super().create_instance(telling(seeds, det)), seeds, self)


class _Recorded(InOrderWorkflowInstance):
    def __init__(self, inner: WorkflowInstance, seeds: list[int], recorder: StateRecorder) -> None:
        super().__init__(inner, seeds)
        self._recorder = recorder

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        run_id = self.get_info().workflow_id
        if any(job.HasField("remove_from_cache") for job in act.jobs):
            # The eviction cancels the workflow, which changes its state.
            run = self._recorder.runs.pop(run_id, None)
            if run is not None:
                self._recorder.states[run_id] = copied(run.known)
        return super().activate(act)
