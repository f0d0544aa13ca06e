"""Deadlines of days, by moving a run's time on; and the race of an answer with its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from sample_graphs import gated
from temporal_site import ANYBODY, Site, refused
from temporalio.client import Client as TemporalClient
from temporalio.testing import WorkflowEnvironment

from abeyance import commands, views
from abeyance.core.state import Limits
from abeyance.errors import Code


@asynccontextmanager
async def waiting(
    machine: WorkflowEnvironment, limits: Limits | None = None, **options: Any
) -> AsyncIterator[tuple[Site, views.RunView]]:
    site = Site(machine.client, gated(**options))
    async with site.worker():
        with machine.with_time_skipping_disabled():
            run_id = await site.start({"amount": 3}, limits=limits)
        yield site, await site.until(run_id, "awaiting-input")


async def forward(machine: WorkflowEnvironment, run_id: str, by: timedelta) -> None:
    await machine.fast_forward(machine.client.get_workflow_handle(run_id), by)


async def test_a_question_that_nobody_answers_in_two_days_halts_the_run(
    time_machine: WorkflowEnvironment,
) -> None:
    limits = Limits(continue_as_new_after=6)
    async with waiting(time_machine, limits, timeout="2d") as (site, view):
        (asked,) = view.interrupts
        for _ in range(4):
            await site.pause_and_resume(view.run_id)
        (again,) = (await site.client.run(view.run_id).view()).interrupts
        await forward(time_machine, view.run_id, timedelta(days=1))
        assert (await site.client.run(view.run_id).view()).status == "awaiting-input"
        await forward(time_machine, view.run_id, timedelta(days=1, seconds=1))
        ended = await site.ended(view.run_id)
        late = await refused(
            site.client.run(view.run_id).respond({asked.id: {"approved": True}}, principal=ANYBODY)
        )
        assert (again.id, again.deadline) == (asked.id, asked.deadline)
        assert (ended.status, ended.reason) == ("halted", "interrupt-timeout")
        assert late.code is Code.EXPIRED


async def test_an_answer_handled_after_its_deadline_passed_in_an_outage_is_late(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated(timeout="1h", on_timeout={"default": {"approved": False}}))
    run_id = await site.start()
    async with site.worker():
        id_ = (await site.until(run_id, "awaiting-input")).interrupts[0].id
        # This is the last act of the worker, which has gone before the deadline.
        soon = commands.EditDeadline(interrupt_id=id_, timeout=2, principal=ANYBODY)
        await site.client.run(run_id).edit(soon)
    # No worker is up. The timer fires; nobody sees it. Then somebody answers, and a worker comes.
    fired = asyncio.create_task(_fired(site, run_id))
    await asyncio.wait_for(fired, 30)
    answering = asyncio.create_task(
        site.client.run(run_id).respond({id_: {"approved": True}}, principal=ANYBODY)
    )
    async with site.worker():
        late = await refused(answering)
        ended = await site.ended(run_id)

    assert late.code is Code.ALREADY_ANSWERED
    assert late.details["answered_by"] == "timeout"
    assert ended.values["decision"] == {"approved": False}


async def _fired(site: Site, run_id: str) -> None:
    handle = site.temporal.get_workflow_handle(run_id)
    async for event in handle.fetch_history_events(wait_new_event=True):
        if event.HasField("timer_fired_event_attributes"):
            return
