"""A worker with the key retries at once what a worker without the key failed to read."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from blocked_graphs import exporting
from killable import worker_process
from killed_graphs import chained
from rpc_counter import counted
from scripted_agents import Script, desk, told
from stored import State, connected
from temporal_site import ANYBODY, Site, eventually
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionResponse,
    PauseActivityRequest,
    PollActivityTaskQueueRequest,
    PollWorkflowTaskQueueRequest,
)
from temporalio.client import Client as TemporalClient

from abeyance import START, Agent, Graph, tool
from abeyance.client.waking import PAUSED_TO_WAKE
from abeyance.filters import RunFilter
from abeyance.settings import Settings

_AT_ONCE = 5.0
_LONG = timedelta(seconds=8)
"""The time that both have to be away from their next attempt, at least."""


async def described(site: Site, run_id: str) -> DescribeWorkflowExecutionResponse:
    handle = site.temporal.get_workflow_handle(run_id)
    return (await handle.describe()).raw_description


def task_ends(raw: DescribeWorkflowExecutionResponse) -> datetime:
    """Return when the workflow task times out if nobody answers it."""
    task = raw.pending_workflow_task
    # A task times out after three seconds here. From the fourth attempt on, Temporal adds 5, 10, ... s.
    lasts = timedelta(seconds=3 + 5 * 2 ** max(0, task.attempt - 4) * (task.attempt > 3))
    return task.started_time.ToDatetime(UTC) + lasts


async def both_wait_long(site: Site, run_id: str) -> bool:
    """Return whether Temporal retries neither the activity nor the workflow task for long."""
    raw = await described(site, run_id)
    (activity,) = raw.pending_activities
    due = min(activity.next_attempt_schedule_time.ToDatetime(UTC), task_ends(raw))
    return due - datetime.now(UTC) > _LONG


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
        # The poor worker cannot read the activity, nor the workflow task with its report.
        await eventually(lambda: both_wait_long(site, run_id), seconds=60)
    variables = {"ABEYANCE_TASK_QUEUE": site.settings.task_queue, "ABEYANCE_ENCRYPTION_KEYS": keys}
    log = tmp_path / "worker.log"
    with worker_process(address, "blocked_graphs:graphs", log, variables=variables):
        await eventually(lambda: log.exists() and "serving" in log.read_text(), seconds=90)
        async with asyncio.timeout(_AT_ONCE):
            ended = await site.ended(run_id)
    assert ended.status == "completed", ended.error
    # The worker process sealed its records, and this process has no keys for them.
    result = await site.temporal.get_workflow_handle(run_id).result()
    assert result["values"]["exported"] == 10
    assert witness.read_text() == "collected\n"


@pytest.mark.slow
async def test_a_run_whose_first_task_was_lost_is_woken_too(
    temporal: TemporalClient, keys: str
) -> None:
    site = Site(connected(temporal, Settings(encryption_keys=keys)), working())
    other = Settings(encryption_keys=keys.replace("first", "other"))
    poor = Site(connected(temporal, other), working(), beside=site)
    run_id = await site.start()
    # Temporal records only how the first attempt ended: this poll takes that attempt and never answers.
    queue = TaskQueue(name=site.settings.task_queue)
    poll = PollWorkflowTaskQueueRequest(namespace=temporal.namespace, task_queue=queue)
    assert (await temporal.workflow_service.poll_workflow_task_queue(poll)).attempt == 1

    async def fails_for_long() -> bool:
        raw = await described(site, run_id)
        return raw.pending_workflow_task.attempt > 3 and task_ends(raw) - datetime.now(UTC) > _LONG

    async with poor.worker():
        await eventually(fails_for_long, seconds=60)
        (why,) = (await site.client.run(run_id).view()).blocked
        assert (why.code, "the log of a worker says why" in why.message) == ("cannot_replay", True)
    async with site.worker():
        await site.client.waking.wake()
        async with asyncio.timeout(_AT_ONCE):
            assert (await site.ended(run_id)).values["log"] == ["work"]


async def blocks(site: Site, run_id: str) -> list[str | None]:
    """Return where a key is missing; None is the run itself, which cannot read a worker's report."""
    blocked = (await site.client.run(run_id).view()).blocked
    assert {each.code for each in blocked} == {"key_missing"}
    return [each.address for each in blocked]


@pytest.mark.slow
async def test_a_visit_whose_blocker_temporal_forgot_is_woken_too(
    temporal: TemporalClient, address: str, tmp_path: Path, keys: str
) -> None:
    site = Site(connected(temporal, Settings(encryption_keys=keys)), chained)
    other = Settings(encryption_keys=keys.replace("first", "other"))
    poor = Site(connected(temporal, other), chained, beside=site)
    dies_at = tmp_path / "point"
    dies_at.write_text("after one", encoding="utf-8")
    files = {"journal": str(tmp_path / "journal"), "dies_at": str(dies_at)}
    variables = {"ABEYANCE_TASK_QUEUE": site.settings.task_queue, "ABEYANCE_ENCRYPTION_KEYS": keys}
    log = tmp_path / "worker.log"
    with worker_process(address, "killed_graphs:graphs", log, variables=variables):
        run_id = await site.start(files)
        await eventually(lambda: not dies_at.exists(), seconds=60)
    async with poor.worker():
        await eventually(lambda: waits_long(site, run_id), seconds=60)
        assert await blocks(site, run_id) == [None, "graph:chained;node:one"]
    # The next attempt is lost with its worker: this poll takes it and never answers.
    queue = TaskQueue(name=site.settings.task_queue)
    poll = PollActivityTaskQueueRequest(namespace=temporal.namespace, task_queue=queue)
    await temporal.workflow_service.poll_activity_task_queue(poll)
    await eventually(lambda: waits_long(site, run_id), seconds=60)
    assert await blocks(site, run_id) == [None]
    async with site.worker():
        await site.client.waking.wake()
        async with asyncio.timeout(_AT_ONCE):
            assert (await site.ended(run_id)).values["log"] == ["one", "two", "three"]


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
    # A worker that is killed between its two calls leaves the activity like this.
    request = PauseActivityRequest(
        namespace=temporal.namespace,
        execution=WorkflowExecution(workflow_id=run_id),
        id=activity,
        reason=PAUSED_TO_WAKE,
    )
    await temporal.workflow_service.pause_activity(request)
    (why,) = (await site.client.run(run_id).view()).blocked
    assert why.code == "natively_paused"
    assert PAUSED_TO_WAKE in why.message
    async with site.worker():
        await eventually(lambda: is_listed(site, run_id))
        await site.client.waking.wake()
        ended = await site.ended(run_id)
    assert (ended.values["log"], begun) == (["worked"], ["work", "work"])


def working(name: str = "work", *, last: str | None = None) -> Graph:
    """Return a graph with a node of this name, and with a `finally` node `last` if it has a name."""
    graph = Graph("working" if last is None else "closing", state=State)
    graph.node(name=name)(lambda state: {"log": [name]})
    graph.edge(START, name)
    if last is not None:
        graph.node(name=last)(lambda state: {"log": [last]})
        graph.finally_(last)
    return graph


def paying(*, has_tool: bool = True) -> Graph:
    """Return an agent with one tool, which needs an approval. A worker may lack the tool."""

    @tool(approve=True)
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    model = Script([("pay", {"amount": 3})], told)
    return desk(Agent("clerk", model=model, tools=[pay] if has_tool else []))


async def waits_long(site: Site, run_id: str) -> bool:
    """Return whether Temporal does not retry the run's only activity for several seconds."""
    pending = (await described(site, run_id)).pending_activities
    soon = datetime.now(UTC) + timedelta(seconds=6)
    return len(pending) == 1 and pending[0].next_attempt_schedule_time.ToDatetime(UTC) > soon


@pytest.mark.slow
async def test_all_that_is_blocked_is_tried_again_at_once_and_without_the_calls_what_may_be_stopped(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, working(), working(last="archive"), paying())
    client, counter = counted(temporal)
    denied = Site(client, *site.graphs.values(), beside=site)
    counter.denied = {"pause_activity"}
    async with site.worker():
        paid = await site.start(graph=site.graphs["desk"])
        asked = await site.until(paid, "awaiting-input")
    async with site.worker(working("old"), working(last="old"), paying(has_tool=False)):
        answer = {asked.interrupts[0].id: {"approved": True}}
        await site.client.run(paid).respond(answer, principal=ANYBODY)
        worked, closed = [await site.start(graph=site.graphs[n]) for n in ("working", "closing")]

        async def all_wait() -> bool:
            each = [await waits_long(site, run_id) for run_id in (worked, closed, paid)]
            return all(each) and await is_listed(site, worked, closed, paid)

        await eventually(all_wait)
    async with site.worker(), asyncio.timeout(_AT_ONCE):
        await denied.client.waking.wake()
        assert (await site.ended(worked)).values["log"] == ["work"]
        assert (await site.client.run(closed).view()).blocked
        await site.client.waking.wake()
        assert (await site.ended(closed)).values["log"] == ["work", "archive"]
        assert (await site.ended(paid)).values["report"] == "pay: success: paid 3"


async def is_listed(site: Site, *run_ids: str) -> bool:
    rows, _ = await site.client.runs.list(RunFilter(statuses=frozenset({"running", "ending"})))
    return {*run_ids} <= {row.run_id for row in rows}
