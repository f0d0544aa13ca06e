"""`abeyance reindex`: the records of the runs that Temporal still has, made anew from their histories.

When its history is replayed, a run hands over the same batches again, under the same numbers. So a lost
database gets the same records again, and beside working workers only missing records are added. No graph
and no worker is needed.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHistory
from temporalio.worker import (
    Interceptor,
    Replayer,
    StartActivityInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import ActivityHandle

from abeyance import names, views
from abeyance.client import Client
from abeyance.client.listing import EXECUTIONS, Listing, of_run
from abeyance.core.text import truncate
from abeyance.errors import Refusal, Unreadable
from abeyance.history import resets
from abeyance.history.description import decoded
from abeyance.history.reading import CLOSING_EVENTS, events_of
from abeyance.records import removing
from abeyance.records import runs as runs_
from abeyance.records.batch import Batch, Written
from abeyance.records.writing import fill, take_back
from abeyance.storage.converter import of_run as of_workflow
from abeyance.temporal.retry import NotFound
from abeyance.temporal.workarounds.any_type import AnyTypeRunner
from abeyance.temporal.workarounds.in_order_runner import InOrderWorkflowRunner
from abeyance.temporal.workarounds.payloads import lenient
from abeyance.util import checked_run_id
from abeyance.workflows.run import AgentRun
from abeyance.workflows.worker_functions import HAND_OVER, TELL, WorkerFunctions

_PATIENCE: Final = 30.0
"""Seconds for which a call of Temporal is retried."""
_SHOWN: Final = 300
_COMPLETED: Final = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
_CAME_TO_NOTHING: Final = CLOSING_EVENTS | {
    EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
}
"""The events after which a task that was under way has no effect any more."""
_OF_UPDATES: Final = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED,
)


@dataclass(slots=True)
class Reindexed:
    """The number of runs in Temporal, the number of lost runs, and the reasons why the records of some
    runs could not be made, by run id.
    """

    runs: int = 0
    lost: int = 0
    failures: dict[str, str] = field(default_factory=dict)


async def reindex(
    temporal: TemporalClient,
    client: Client,
    run_ids: Sequence[str] = (),
    *,
    is_restored: bool = False,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Reindexed:
    """Make the records of these runs, or of all, and call `progress` after each run.

    Without `run_ids`, open runs that Temporal does not have are ended in the records. If Temporal
    `is_restored` from a backup, only its histories count, so no worker may run meanwhile.

    Raises `invalid_run_id`, Unavailable, and RecordsUnavailable.
    """
    histories = Histories(temporal, client)
    listing = Listing(temporal, client.task_queue, patience=_PATIENCE)
    rows: dict[str, list[WorkflowExecutionInfo]] = {}
    for query in [
        f"{EXECUTIONS} AND {of_run(run_id)}" for run_id in map(checked_run_id, run_ids)
    ] or [EXECUTIONS]:
        for row in await listing.all(query):
            rows.setdefault(row.execution.workflow_id, []).append(row)
    found = Reindexed(runs=len(rows))
    found.failures |= {
        run_id: "Temporal lists no such run" for run_id in run_ids if run_id not in rows
    }
    for done, (run_id, executions) in enumerate(rows.items(), start=1):
        executions.sort(key=lambda row: row.start_time.ToNanoseconds())
        ids = [row.execution.run_id for row in executions]
        if (failure := await histories.reindex(run_id, ids)) is not None:
            found.failures[run_id] = failure
        else:
            await histories.take_back(ids, is_restored=is_restored)
        await client.janitor.begun(run_id)
        await client.janitor.settle(executions[-1])
        # A backup of Temporal may have brought back a run that was erased.
        began = executions[0].start_time.ToDatetime(tzinfo=UTC)
        await client.records.write(removing.resume, run_id, began)
        progress(done, len(rows))
    await client.erasures.round()
    if not run_ids:
        recorded = await client.records.read(runs_.open_ids)
        missing = [run_id for run_id in recorded if run_id not in rows]
        found.lost = await client.janitor.lose(among=missing, at=datetime.now(UTC))
    return found


class Histories:
    """The histories of runs, which `make` replays."""

    def __init__(
        self, temporal: TemporalClient, client: Client, *, make: Callable[..., Replayer] = Replayer
    ) -> None:
        self._records = client.records
        self._converter = temporal.data_converter
        self._events = partial(events_of, temporal, client.task_queue, patience=_PATIENCE)
        self._handed_over = _HandedOver()
        # The resets in each history.
        self._resets: dict[str, Sequence[HistoryEvent]] = {}
        self._replayer = make(
            workflows=[AgentRun],
            workflow_runner=InOrderWorkflowRunner(AnyTypeRunner()),
            interceptors=[
                WorkerFunctions({HAND_OVER: self._put, TELL: self._tell}),
                _Hearing(self._heard),
            ],
            data_converter=lenient(temporal).data_converter,
            # Otherwise a task that takes two seconds counts as one that hangs.
            debug_mode=True,
        )

    def _put(self, execution: str, batch: Batch) -> None:
        self._handed_over.put(execution, batch)

    def _tell(self, batch: Batch) -> None:
        # The last told batch includes the earlier ones.
        self._handed_over.told = batch

    def _heard(self, sent: Batch | int, written: Written) -> None:
        self._handed_over.heard(sent, written)

    async def reindex(self, run_id: str, executions: Sequence[str]) -> str | None:
        """Write the batches that the executions of a run have handed over, the oldest first. Return the
        fault of the last replay that failed.
        """
        fault: str | None = None
        held: list[Batch] = []
        for execution in executions:
            fault = await self._replay(run_id, execution) or fault
            batches = self._handed_over.batches()
            held = _with_numbers([*held, *(self._explained(each, execution) for each in batches)])
            # A later execution may hear under which number a rewind was recorded.
            if all(each.rewound is None or each.rewound.by is not None for each in held):
                await self._write(held)
                held = []
        await self._write(held)
        return fault

    async def _write(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            await self._records.write(fill, batch)

    async def _replay(self, run_id: str, execution: str) -> str | None:
        """Have one execution hand its batches over. Return the fault of a failed replay."""
        self._handed_over = _HandedOver()
        try:
            events = await self._events(run_id, execution)
        except (NotFound, Refusal):
            # The run is being deleted.
            return None
        history = WorkflowHistory(run_id, _committed(events))
        if not history.events:
            return None
        started = events[0].workflow_execution_started_event_attributes
        try:
            # The error of a replay would not name the key or the storage that this process lacks.
            for payload in started.input.payloads:
                await decoded(of_workflow(self._converter, run_id), payload)
        except Unreadable as error:
            return str(error)
        self._resets[execution] = [event for event in history.events if resets.is_reset(event)]
        self._handed_over.end = _end(events)
        self._handed_over.is_closed = events[-1].event_type in CLOSING_EVENTS
        result = await self._replayer.replay_workflow(history, raise_on_replay_failure=False)
        failure = result.replay_failure
        return None if failure is None else truncate(str(failure), _SHOWN)

    async def take_back(self, executions: Sequence[str], *, is_restored: bool) -> None:
        """Take back the records of the run that none of its histories has. The newest was read last."""
        handed_over = self._handed_over
        batches, end = handed_over.batches(), handed_over.end
        if batches and end is not None:
            latest, asked = batches[-1], [*handed_over.questions().values()]
            known = dict.fromkeys(executions, math.inf)
            if not handed_over.is_closed:
                known[executions[-1]] = end.event_id
            over = None if is_restored else known
            until = datetime.now(UTC) if is_restored else end.event_time.ToDatetime(tzinfo=UTC)
            await self._records.write(take_back, latest, asked, over=over, until=until)

    def _explained(self, batch: Batch, execution: str) -> Batch:
        """Return a batch with the facts that a replay lacks: its execution, and who reset the run."""
        facts = [
            fact.model_copy(update={"task": fact.task and resets.moved(fact.task, execution)})
            for fact in batch.facts
        ]
        rewound = batch.rewound
        if rewound is not None:
            # An earlier execution may have left the rewind to this one to record.
            is_own = rewound.execution == self._handed_over.execution
            told = self._resets.get(execution if is_own else rewound.execution, ())
            rewound = resets.explained(rewound, told) if told else rewound
        return batch.model_copy(update={"facts": facts, "rewound": rewound})


def _with_numbers(batches: Sequence[Batch]) -> list[Batch]:
    """Return batches with the numbers of their rewinds, where one of the batches has it."""
    rewinds = [each.rewound for each in batches if each.rewound is not None]
    numbers = {each.salt: each.by for each in rewinds if each.by is not None}
    return [
        batch
        if (rewound := batch.rewound) is None or rewound.salt not in numbers
        else batch.model_copy(
            update={"rewound": rewound.model_copy(update={"by": numbers[rewound.salt]})}
        )
        for batch in batches
    ]


def _committed(events: Sequence[HistoryEvent]) -> Sequence[HistoryEvent]:
    """Return the events up to the effects of the last completed task. With later events, a replay would
    also make the next task, which no worker has completed.
    """
    numbers = [n for n, each in enumerate(events) if each.event_type == _COMPLETED]
    if not numbers:
        return []
    task, rest = events[numbers[-1]], events[numbers[-1] + 1 :]
    done = itertools.takewhile(lambda each: _is_done_by(task, each), rest)
    return [*events[: numbers[-1] + 1], *done]


def _end(events: Sequence[HistoryEvent]) -> HistoryEvent:
    """Return the event up to which all effects of tasks are known: tasks that began by then are over."""
    for event in reversed(events):
        if event.event_type == _COMPLETED:
            began = event.workflow_task_completed_event_attributes.started_event_id
            event = events[began - 1]  # noqa: PLW2901
        elif event.event_type not in _CAME_TO_NOTHING or resets.is_reset(event):
            continue
        return event
    raise AssertionError("a history without a completed task")


def _is_done_by(task: HistoryEvent, event: HistoryEvent) -> bool:
    about = getattr(event, event.WhichOneof("attributes") or "", None)
    by = getattr(about, "workflow_task_completed_event_id", None)
    return by == task.event_id or event.event_type in _OF_UPDATES


class _HandedOver:
    """The batches that one execution has handed over in a replay."""

    def __init__(self) -> None:
        self.execution = ""
        self.told: Batch | None = None
        self.end: HistoryEvent | None = None
        """The event up to which the batches have all that the run has done; None without a task."""
        self.is_closed = False
        self._batches: dict[int, Batch] = {}

    def put(self, execution: str, batch: Batch) -> None:
        """Add a batch, which includes the news told before it."""
        self.execution, self.told = execution, None
        self._batches[batch.number] = batch

    def heard(self, sent: Batch | int, written: Written) -> None:
        """Note the outcome of a batch."""
        batch = self._batches[sent] if isinstance(sent, int) else sent
        if written.status == "outrun":
            # The run sends the batch again, with a larger number.
            self._batches.pop(batch.number, None)
            return
        rewound = batch.rewound
        if rewound is not None and written.shift:
            changes = {"rewound": rewound.model_copy(update={"by": rewound.at + written.shift})}
            batch = batch.model_copy(update=changes)
        self._batches[batch.number] = batch

    def batches(self) -> Sequence[Batch]:
        """Return all batches, in order."""
        told = [] if self.told is None else [self.told]
        return [*self._batches.values(), *told]

    def questions(self) -> Mapping[str, views.InterruptView]:
        """Return all questions that the execution knows of, as they are now."""
        return {view.id: view for batch in self.batches() for view in batch.questions}


class _Hearing(Interceptor):
    """Calls `heard` with each batch, or its number, and with the outcome that its run gets."""

    def __init__(self, heard: Callable[[Batch | int, Written], None]) -> None:
        self._heard = heard

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002 the SDK's own word
    ) -> type[WorkflowInboundInterceptor]:
        del input
        heard = self._heard

        class Inbound(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(_Recording(outbound, heard))

        return Inbound


class _Recording(WorkflowOutboundInterceptor):
    def __init__(
        self, following: WorkflowOutboundInterceptor, heard: Callable[[Batch | int, Written], None]
    ) -> None:
        super().__init__(following)
        self._heard = heard

    def start_activity(
        self,
        input: StartActivityInput,  # noqa: A002
    ) -> ActivityHandle[Any]:
        return self._noting(input, super().start_activity(input))

    def start_local_activity(
        self,
        input: StartLocalActivityInput,  # noqa: A002
    ) -> ActivityHandle[Any]:
        return self._noting(input, super().start_local_activity(input))

    def _noting(
        self, order: StartActivityInput | StartLocalActivityInput, handle: ActivityHandle[Any]
    ) -> ActivityHandle[Any]:
        if order.activity == names.RECORD_ACTIVITY:
            handle.add_done_callback(partial(self._ended, order.args[0]))
        return handle

    def _ended(self, sent: Batch | int, done: asyncio.Future[Any]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._heard(sent, done.result())
