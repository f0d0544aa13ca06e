"""Activities that do not run nodes: questions of a run to its worker's graphs, and to Temporal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from temporalio import activity
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from abeyance import names, wire
from abeyance.activities.heartbeat import journal_in
from abeyance.authoring.graph import Graph
from abeyance.history.description import described_by_server
from abeyance.history.reading import start_patch
from abeyance.runtime import answering, graph_today
from abeyance.storage.converter import of_run, storage_code

_WAITING: Final = (
    PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED,
    PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED,
)
"""States of an activity whose next attempt has not begun."""


class GraphActivities:
    """Activities that need the graphs of a worker: for migrations, and for the types of answers."""

    def __init__(self, graphs: Mapping[str, Graph]) -> None:
        self._graphs = graphs

    @activity.defn(name=names.READ_GRAPH_ACTIVITY)
    async def read(self, order: wire.ReadGraph) -> wire.GraphToday:
        """Return today's graph, compared with the values of a run."""
        graph = self._graphs.get(order.graph)
        if graph is None:
            raise ApplicationError(f"this worker has no graph {order.graph!r}", type=names.NO_GRAPH)
        return graph_today.read_graph(graph, order)

    @activity.defn(name=names.WRITE_ANSWERS_ACTIVITY)
    async def write(self, given: list[wire.GivenAnswer]) -> list[wire.TakenAnswer]:
        """Return answers as their types write them, or the reasons why the types reject them."""
        return [answering.take(self._graphs, each) for each in given]


@activity.defn(name=names.READ_JOURNALS_ACTIVITY)
async def read_journals(order: wire.ReadJournals) -> dict[str, wire.LostAttempts]:
    """Return the lost attempts of the visits whose next attempt has not begun, by address."""
    info, temporal = activity.info(), activity.client()
    description = await described_by_server(
        temporal, info.workflow_id or "", info.workflow_run_id or ""
    )
    return {
        pending.activity_id: await _lost_attempts(pending, order)
        for pending in description.pending_activities
        if pending.activity_id in order.visits and pending.state in _WAITING and _was_tried(pending)
    }


@activity.defn(name=names.READ_REWIND_ACTIVITY)
async def read_rewind(count: int) -> wire.StartPatch | None:
    """Return the values that were set as a run was rewound to its start, by the number of its reset."""
    info = activity.info()
    run_id, execution = info.workflow_id or "", info.workflow_run_id or ""
    return await start_patch(activity.client(), run_id, execution, count)


def _was_tried(pending: PendingActivityInfo) -> bool:
    # If an operator resets an activity, its count begins anew, and its heartbeat details may stay.
    return pending.attempt > 1 or bool(pending.heartbeat_details.payloads)


async def _lost_attempts(
    pending: PendingActivityInfo, order: wire.ReadJournals
) -> wire.LostAttempts:
    converter = of_run(activity.client().data_converter, activity.info().workflow_id or "")
    (written,) = await converter.decode(pending.heartbeat_details.payloads)
    if written.fault is not None:
        raise ApplicationError(
            f"this worker cannot read the journal of {pending.activity_id}: {written.fault}",
            type=storage_code(written.fault),
            category=ApplicationErrorCategory.BENIGN,
        )
    visit = pending.activity_id
    journal = journal_in(written, wire.Journal.owner(order.execution, visit))
    return wire.LostAttempts(count=max(0, pending.attempt - 1 - journal.excused), journal=journal)
