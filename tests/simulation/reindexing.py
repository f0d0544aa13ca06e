"""Reindexing: `reindex` rebuilds the records of a run from the histories of the simulated server."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from temporalio.client import WorkflowHistory
from temporalio.worker import Interceptor

from abeyance.client import Client
from abeyance.reindex import Histories
from tests.simulation.records import Records
from tests.simulation.runner import QUEUE
from tests.simulation.server import Server
from tests.simulation.service import connected
from tests.simulation.worker import Worker


class _Replayer:
    """Replays the executions of a server in a worker."""

    def __init__(
        self, server: Server, worker: Worker, *, interceptors: Sequence[Interceptor], **_: Any
    ) -> None:
        self._server, self._worker = server, worker
        self._interceptors = interceptors

    async def replay_workflow(self, history: WorkflowHistory, **_: Any) -> Any:
        begun = history.events[0].workflow_execution_started_event_attributes
        execution = self._server.execution(history.workflow_id, begun.original_execution_run_id)
        assert execution is not None
        self._worker.replay(execution, self._interceptors)
        return SimpleNamespace(replay_failure=None)


async def reindex(server: Server, worker: Worker, run_id: str, records: Records) -> None:
    """Complete the records of a run from its histories."""
    temporal, _ = connected(server)
    client = Client(temporal, task_queue=QUEUE, patience=30, records=cast("Any", records))
    client.records._writer = cast("Any", records)
    make: Any = partial(_Replayer, server, worker)
    histories = Histories(temporal, client, make=make)
    ids = [each.run_id for each in server.chains[run_id]]
    assert await histories.reindex(run_id, ids) is None
    await histories.take_back(ids, is_restored=False)
    described = await temporal.get_workflow_handle(run_id).describe()
    await client.janitor.settle(described.raw_description.workflow_execution_info)
