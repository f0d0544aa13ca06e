"""Queries of operators to runs that no worker has in memory, while something else comes to them."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import timedelta

import pytest
from rpc_counter import counted
from sample_graphs import gates
from temporal_site import ANYBODY, Site, eventually
from temporalio.api.enums.v1 import EventType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    PollWorkflowTaskQueueRequest,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowQueryFailedError

from abeyance import commands
from abeyance.client import Client

_RUNS = 8
_ROUNDS = 5


def _said(id_: str) -> commands.SteerMessage:
    return commands.SteerMessage(message_id=id_, text="hello")


async def _cold(site: Site) -> list[str]:
    """Start runs that wait for an answer and that no worker has in memory, and return their ids."""
    async with site.worker():
        run_ids = await asyncio.gather(*(site.start() for _ in range(_RUNS)))
        await asyncio.gather(*(site.until(run_id, "awaiting-input") for run_id in run_ids))
    return run_ids


async def _asked_and_told(site: Site, run_ids: list[str]) -> None:
    """Query each run, and leave it two messages before a worker is there to answer.

    The server may give a worker a query ahead of a pending workflow task: the worker refuses that query.
    """
    temporal, counter = counted(site.temporal)
    client = Client(temporal, task_queue=site.settings.task_queue, patience=40)

    async def ask(run_id: str) -> None:
        with suppress(WorkflowQueryFailedError):
            handle = temporal.get_workflow_handle(run_id)
            await handle.query("state", rpc_timeout=timedelta(seconds=30))

    asked = [asyncio.create_task(ask(run_id)) for run_id in run_ids]
    await eventually(lambda: counter.calls["query_workflow"] >= len(run_ids))
    for run_id in run_ids:
        await temporal.get_workflow_handle(run_id).signal("steer", _said("signalled"))
    sent = [
        asyncio.create_task(client.run(run_id).send_message(_said("sent"))) for run_id in run_ids
    ]
    await eventually(lambda: counter.calls["update_workflow_execution"] >= len(run_ids))
    async with site.worker():
        await asyncio.gather(*sent, *asked)


async def test_a_question_that_comes_before_what_came_after_it_leaves_a_history_that_replays(
    temporal: TemporalClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "abeyance.lookahead")
    failed = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    # The server chooses whether the query or the task comes to the worker first.
    for _ in range(_ROUNDS):
        site = Site(temporal, gates(2))
        run_ids = await _cold(site)
        await _asked_and_told(site, run_ids)

        for run_id in run_ids:
            await site.replays(run_id)
            assert failed not in [event.event_type for event in (await site.history(run_id)).events]
        if any("is dropped from memory" in record.getMessage() for record in caplog.records):
            break
    else:
        pytest.fail("no question came before its task, so nothing was tried")
    async with site.worker():
        await asyncio.gather(*(_goes_on(site, run_id) for run_id in run_ids))


async def _goes_on(site: Site, run_id: str) -> None:
    run = site.client.run(run_id)
    assert [message.message_id for message in await run.messages()] == ["signalled", "sent"]
    answers = {entry.id: 1 for entry in await run.interrupts()}
    await run.respond(answers, principal=ANYBODY)
    assert (await site.ended(run_id)).status == "completed"


async def _begun_elsewhere(site: Site, run_id: str) -> bytes | None:
    """Query the run, leave it a message, and let a worker of another kind begin the workflow task.

    Return the token of the task, or None if the server gave that worker the query instead.
    """
    temporal, counter = counted(site.temporal)
    handle = temporal.get_workflow_handle(run_id)
    asking = asyncio.create_task(handle.query("state", rpc_timeout=timedelta(seconds=30)))
    await eventually(lambda: counter.calls["query_workflow"] > 0)
    await handle.signal("steer", _said("first"))
    polled = await temporal.workflow_service.poll_workflow_task_queue(
        PollWorkflowTaskQueueRequest(
            namespace=temporal.namespace, task_queue=TaskQueue(name=site.settings.task_queue)
        )
    )
    if polled.HasField("query") or not polled.task_token:
        asking.cancel()
        return None
    async with site.worker():
        await asking
        await handle.signal("steer", _said("second"))
        # The other worker is lost: fail its task, so that the server gives the task to this worker.
        await temporal.workflow_service.respond_workflow_task_failed(
            RespondWorkflowTaskFailedRequest(
                task_token=polled.task_token, namespace=temporal.namespace
            )
        )

        async def is_read() -> bool:
            return len(await site.client.run(run_id).messages()) == 2

        await eventually(is_read, seconds=25)
    return polled.task_token


async def test_a_question_about_a_task_that_a_lost_worker_had_begun_leaves_a_history_that_replays(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(2))
    for _ in range(_ROUNDS * 2):
        async with site.worker():
            run_id = await site.start()
            await site.until(run_id, "awaiting-input")
        if await _begun_elsewhere(site, run_id) is not None:
            break
    else:
        pytest.fail("the server gave every question to the other worker, so nothing was tried")

    await site.replays(run_id)
