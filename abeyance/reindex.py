"""`abeyance reindex`: the records of the runs that Temporal still has, made anew from their histories.

What a run has handed over it hands over again when its history is replayed: the same batches, under the
same numbers. So the records of a lost database are what they were, and beside workers that go on only
what is missing is added. No graph and no worker is needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from abeyance.client import Client
from abeyance.client.listing import EXECUTIONS, Listing, of_run
from abeyance.core.text import truncate
from abeyance.errors import Refusal
from abeyance.history import resets
from abeyance.history.client import HistoryClient
from abeyance.records.batch import Batch
from abeyance.records.writing import fill
from abeyance.temporal.retry import NotFound
from abeyance.temporal.workarounds.any_type import AnyTypeRunner
from abeyance.temporal.workarounds.in_order_runner import InOrderWorkflowRunner
from abeyance.temporal.workarounds.payloads import lenient
from abeyance.workflows.recording import HandingOver
from abeyance.workflows.run import AgentRun

_PATIENCE: Final = 30.0
"""Seconds for which a call of Temporal is retried."""
_SHOWN: Final = 300
_COMPLETED: Final = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
_OF_UPDATES: Final = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED,
)


@dataclass(slots=True)
class Reindexed:
    """How many runs Temporal has, and why the records of some of them could not be made, by run id."""

    runs: int = 0
    failures: dict[str, str] = field(default_factory=dict)


async def reindex(
    temporal: TemporalClient,
    client: Client,
    run_ids: Sequence[str] = (),
    *,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Reindexed:
    """Make the records of these runs, or of all, and call `progress` after each run.

    Raises Unavailable, and RecordsUnavailable.
    """
    histories = _Histories(temporal, client)
    listing = Listing(temporal, client.task_queue, patience=_PATIENCE)
    rows: dict[str, list[WorkflowExecutionInfo]] = {}
    for query in [f"{EXECUTIONS} AND {of_run(run_id)}" for run_id in run_ids] or [EXECUTIONS]:
        for row in await listing.all(query):
            rows.setdefault(row.execution.workflow_id, []).append(row)
    found = Reindexed(runs=len(rows))
    for done, (run_id, executions) in enumerate(rows.items(), start=1):
        executions.sort(key=lambda row: row.start_time.ToNanoseconds())
        for row in executions:
            if (failure := await histories.reindex(run_id, row.execution.run_id)) is not None:
                found.failures[run_id] = failure
        await client.janitor.begun(run_id)
        await client.janitor.settle(run_id)
        progress(done, len(rows))
    return found


class _Histories:
    def __init__(self, temporal: TemporalClient, client: Client) -> None:
        self._records = client.records
        self._read = HistoryClient(temporal, client.task_queue, patience=_PATIENCE)
        self._batches: list[Batch] = []
        self._told: Batch | None = None
        self._replayer = Replayer(
            workflows=[AgentRun],
            workflow_runner=InOrderWorkflowRunner(AnyTypeRunner()),
            interceptors=[HandingOver(self._put, self._tell, in_replays=True)],
            data_converter=lenient(temporal).data_converter,
            # Without it a task that takes two seconds counts as one that hangs.
            debug_mode=True,
        )

    def _put(self, execution: str, batch: Batch) -> None:
        del execution
        self._batches.append(batch)
        self._told = None

    def _tell(self, batch: Batch) -> None:
        # The last one has what those before it had.
        self._told = batch

    async def reindex(self, run_id: str, execution: str) -> str | None:
        """Write what one execution has handed over. Return why that is not known, if it is not."""
        self._batches, self._told = [], None
        try:
            history = await self._history(run_id, execution)
        except (NotFound, Refusal):
            # It is being deleted.
            return None
        if not history.events:
            return None
        result = await self._replayer.replay_workflow(history, raise_on_replay_failure=False)
        told: list[Batch | None] = [*self._batches, self._told]
        for batch in filter(None, told):
            await self._records.write(fill, _explained(batch, execution, history))
        failure = result.replay_failure
        return None if failure is None else truncate(str(failure), _SHOWN)

    async def _history(self, run_id: str, execution: str) -> WorkflowHistory:
        events: list[HistoryEvent] = []
        token = b""
        while True:
            page = await self._read.history(run_id, execution, token)
            events += page.history.events
            token = page.next_page_token
            if not token:
                return WorkflowHistory(run_id, _committed(events))


def _committed(events: Sequence[HistoryEvent]) -> Sequence[HistoryEvent]:
    """Return the events up to what the last completed task has done: a replay would also do what comes
    next, which no worker has done yet.
    """
    numbers = [n for n, each in enumerate(events) if each.event_type == _COMPLETED]
    if not numbers:
        return []
    task, rest = events[numbers[-1]], events[numbers[-1] + 1 :]
    done = itertools.takewhile(lambda each: _is_done_by(task, each), rest)
    return [*events[: numbers[-1] + 1], *done]


def _is_done_by(task: HistoryEvent, event: HistoryEvent) -> bool:
    about = getattr(event, event.WhichOneof("attributes") or "", None)
    by = getattr(about, "workflow_task_completed_event_id", None)
    return by == task.event_id or event.event_type in _OF_UPDATES


def _explained(batch: Batch, execution: str, history: WorkflowHistory) -> Batch:
    """Return a batch with what a replay does not know: its execution, and who has reset the run."""
    facts = [
        fact.model_copy(update={"task": fact.task and resets.moved(fact.task, execution)})
        for fact in batch.facts
    ]
    rewound = batch.rewound and resets.explained(batch.rewound, history.events)
    return batch.model_copy(update={"facts": facts, "rewound": rewound})
