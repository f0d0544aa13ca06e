"""A worker with the key has tried again at once what one without it failed to read."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from blocked_graphs import exporting
from killable import worker_process
from stored import State, connected
from temporal_site import Site, eventually
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionResponse,
    PauseActivityRequest,
)
from temporalio.client import Client as TemporalClient

from abeyance import START, Graph
from abeyance.client.waking import PAUSED_TO_WAKE
from abeyance.handle import RunFilter
from abeyance.settings import Settings

_AT_ONCE = 5.0
_LONG = timedelta(seconds=8)
"""How long both would still have to wait, at least."""


async def described(site: Site, run_id: str) -> DescribeWorkflowExecutionResponse:
    handle = site.temporal.get_workflow_handle(run_id)
    return (await handle.describe()).raw_description


async def both_wait_long(site: Site, run_id: str) -> bool:
    """Whether neither the activity nor the workflow task will be tried again for long."""
    raw = await described(site, run_id)
    (activity,) = raw.pending_activities
    task = raw.pending_workflow_task
    # Tasks time out after three seconds here. From the fourth attempt on Temporal adds five, ten, ...
    lasts = timedelta(seconds=3 + 5 * 2 ** max(0, task.attempt - 4) * (task.attempt > 3))
    now = datetime.now(UTC)
    ends = task.started_time.ToDatetime(UTC) + lasts
    return min(activity.next_attempt_schedule_time.ToDatetime(UTC), ends) - now > _LONG


@pytest.mark.slow
async def test_a_worker_with_the_key_that_starts_waits_for_no_retry_of_temporal(
    temporal: TemporalClient,
    address: str,
    tmp_path: Path,
    keys: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    witness = tmp_path / "witness"
    site = Site(connected(temporal, Settings(encryption_keys=keys)), exporting())
    poor = Site(
        connected(temporal, Settings(encryption_keys=keys.replace("first", "other"))),
        exporting(),
        beside=site,
    )
    async with site.worker():
        run_id = await site.start({"witness": str(witness)})
        await site.until_blocked(run_id)
    async with poor.worker():
        # What it cannot read are the activity, and the workflow task of its report.
        await eventually(lambda: both_wait_long(site, run_id), seconds=60)
    variables = {"ABEYANCE_TASK_QUEUE": site.settings.task_queue, "ABEYANCE_ENCRYPTION_KEYS": keys}
    log = tmp_path / "worker.log"
    with worker_process(address, "blocked_graphs:graphs", log, variables=variables):
        await eventually(lambda: log.exists() and "serving" in log.read_text())
        async with asyncio.timeout(_AT_ONCE):
            ended = await site.ended(run_id)
    assert ended.status == "completed", ended.error
    assert ended.values["exported"] == 10
    assert witness.read_text() == "collected\n"


async def test_an_activity_that_a_worker_paused_to_wake_it_is_resumed_by_the_next(
    temporal: TemporalClient, keys: str
) -> None:
    begun: list[str] = []
    graph = Graph("pausing", state=State)

    @graph.node(retries=0)
    async def work(state: State) -> dict[str, Any]:
        begun.append("work")
        if len(begun) == 1:
            await asyncio.Event().wait()  # until its worker stops
        return {"log": ["worked"]}

    graph.edge(START, "work")
    site = Site(connected(temporal, Settings(encryption_keys=keys)), graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: begun)
    activity = (await described(site, run_id)).pending_activities[0].activity_id
    # As a worker leaves it that is killed between its two calls.
    request = PauseActivityRequest(
        namespace=temporal.namespace,
        execution=WorkflowExecution(workflow_id=run_id),
        id=activity,
        reason=PAUSED_TO_WAKE,
    )
    await temporal.workflow_service.pause_activity(request)
    async with site.worker():
        await eventually(lambda: is_listed(site, run_id))
        await site.client.waking.wake()
        ended = await site.ended(run_id)
    assert (ended.values["log"], begun) == (["worked"], ["work", "work"])


async def is_listed(site: Site, run_id: str) -> bool:
    rows, _ = await site.client.runs.list(RunFilter(statuses=frozenset({"running"})))
    return [row.run_id for row in rows] == [run_id]
