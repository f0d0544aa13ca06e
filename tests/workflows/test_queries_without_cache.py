"""Questions to runs that no worker has in memory, while something else comes to them."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import timedelta
from typing import Any

import pytest
from mishaps import Mishaps
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
from temporalio.service import RPCError, RPCStatusCode

from abeyance import commands, views
from abeyance.client import Client, rpc
from abeyance.errors import Unavailable
from abeyance.temporal.retry import LOOKED_AHEAD

_RUNS = 8
_ROUNDS = 5


def _said(id_: str) -> commands.SteerMessage:
    return commands.SteerMessage(message_id=id_, text="hello")


async def _cold(site: Site) -> list[str]:
    """Runs that wait for an answer, and that no worker has in memory."""
    async with site.worker():
        run_ids = [await site.start() for _ in range(_RUNS)]
        for run_id in run_ids:
            await site.until(run_id, "awaiting-input")
    return run_ids


async def _asked_and_told(site: Site, run_ids: list[str]) -> list[views.RunView]:
    """Ask each run how it is; before a worker is there for that, leave it two messages."""
    temporal, counter = counted(site.temporal)
    client = Client(temporal, task_queue=site.settings.task_queue, patience=40)
    asked = [asyncio.create_task(client.run(run_id).view()) for run_id in run_ids]
    await eventually(lambda: counter.calls["query_workflow"] >= len(run_ids))
    for run_id in run_ids:
        await temporal.get_workflow_handle(run_id).signal("steer", _said("signalled"))
    sent = [
        asyncio.create_task(client.run(run_id).send_message(_said("sent"))) for run_id in run_ids
    ]
    await eventually(lambda: counter.calls["update_workflow_execution"] >= len(run_ids))
    async with site.worker():
        await asyncio.gather(*sent)
        return await asyncio.gather(*asked)


TOO_EARLY = RPCError(LOOKED_AHEAD, RPCStatusCode.INVALID_ARGUMENT, b"")


def hindered(temporal: TemporalClient, site: Site, **about: Any) -> tuple[Mishaps, Client]:
    """What may happen to the calls of a client, and this client."""
    mishaps = Mishaps(temporal)
    return mishaps, Client(mishaps.client, task_queue=site.settings.task_queue, **about)


async def test_a_question_that_came_too_early_is_asked_again(temporal: TemporalClient) -> None:
    site = Site(temporal, gates(2))
    mishaps, client = hindered(temporal, site)
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        mishaps.come("query_workflow", TOO_EARLY, TOO_EARLY)
        view = await client.run(run_id).view()
        mishaps.come("query_workflow", TOO_EARLY, None, TOO_EARLY)
        unread = await client.run(run_id).messages()

    assert (view.degraded, len(view.interrupts)) == (False, 2)
    assert unread == []


async def test_a_run_that_is_always_asked_too_early_is_shown_as_temporal_knows_it(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(2))
    mishaps, client = hindered(temporal, site, patience=0.3)
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        mishaps.come("query_workflow", *[TOO_EARLY] * 100)
        view = await client.run(run_id).view()
        with pytest.raises(Unavailable, match="repeat it"):
            await client.run(run_id).messages()

    assert (view.degraded, view.status) == (True, "awaiting-input")


async def test_an_audit_has_what_was_answered_though_the_run_cannot_be_asked(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(2))
    mishaps, client = hindered(temporal, site, patience=0.3)
    async with site.worker():
        run_id = await site.start()
        asked = (await site.until(run_id, "awaiting-input")).interrupts
        await site.client.run(run_id).respond({asked[0].id: 1}, principal=ANYBODY)
        mishaps.come("query_workflow", None, *[TOO_EARLY] * 100)
        last = json.loads((await client.run(run_id).audit()).splitlines()[-1])

    assert [(each["id"], each["status"]) for each in last["interrupts"]] == [
        (asked[0].id, "answered")
    ]


async def test_a_question_that_comes_before_what_came_after_it_leaves_a_history_that_replays(
    temporal: TemporalClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG, "abeyance.lookahead")
    # However long the worker takes to come: its answers are what this is about.
    monkeypatch.setattr(rpc, "_READ_PATIENCE", 30.0)
    failed = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    # Whether the question or the task comes to the worker first is the server's choice.
    for _ in range(_ROUNDS):
        site = Site(temporal, gates(2))
        run_ids = await _cold(site)
        shown = await _asked_and_told(site, run_ids)

        assert {(view.status, view.degraded) for view in shown} == {("awaiting-input", False)}
        for run_id in run_ids:
            await site.replays(run_id)
            assert failed not in [event.event_type for event in (await site.history(run_id)).events]
        if any("is dropped from memory" in record.getMessage() for record in caplog.records):
            break
    else:
        pytest.fail("no question came before its task, so nothing was tried")
    async with site.worker():
        for run_id in run_ids:
            unread = await site.client.run(run_id).messages()
            assert [message.message_id for message in unread] == ["signalled", "sent"]
            for entry in (await site.client.run(run_id).view()).interrupts:
                await site.client.run(run_id).respond({entry.id: 1}, principal=ANYBODY)
            assert (await site.ended(run_id)).status == "completed"


async def _begun_elsewhere(site: Site, run_id: str) -> bytes | None:
    """Ask the run how it is, leave it a message, and let a worker of another kind begin with that.

    Returns the token of its task, or None where the server gave it the question instead.
    """
    temporal, counter = counted(site.temporal)
    handle = temporal.get_workflow_handle(run_id)
    asking = asyncio.create_task(handle.query("view", rpc_timeout=timedelta(seconds=30)))
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
        # The other worker is lost, and this one has its task.
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
