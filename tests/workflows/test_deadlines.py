"""Deadlines of days, by moving a run's time on; and the race of an answer with its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from sample_graphs import gated
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient
from temporalio.testing import WorkflowEnvironment

from abeyance import START, Context, Graph, Interrupt, Refusal, commands, views
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
    async with waiting(time_machine, timeout="P2D") as (site, view):
        await forward(time_machine, view.run_id, timedelta(days=1))
        assert (await site.client.run(view.run_id).view()).status == "awaiting-input"
        await forward(time_machine, view.run_id, timedelta(days=1, seconds=1))
        ended = await site.ended(view.run_id)
        with pytest.raises(Refusal) as late:
            await site.client.run(view.run_id).respond(
                {view.interrupts[0].id: {"approved": True}}, principal=ANYBODY
            )

        assert (ended.status, ended.reason) == ("halted", "interrupt-timeout")
        assert late.value.code is Code.EXPIRED


async def test_a_deadline_survives_every_hand_over(time_machine: WorkflowEnvironment) -> None:
    limits = Limits(continue_as_new_after=6)
    async with waiting(time_machine, limits, timeout="2d") as (site, view):
        deadline = view.interrupts[0].deadline
        for _ in range(4):
            await site.pause_and_resume(view.run_id)
        again = await site.client.run(view.run_id).view()
        await forward(time_machine, view.run_id, timedelta(days=2))
        ended = await site.ended(view.run_id)

        assert again.interrupts[0].deadline == deadline
        assert again.interrupts[0].id == view.interrupts[0].id
        assert (ended.status, ended.reason) == ("halted", "interrupt-timeout")


async def test_an_answer_handled_after_its_deadline_passed_in_an_outage_is_late(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated(timeout="1h", on_timeout={"default": {"approved": False}}))
    run_id = await site.start()
    async with site.worker():
        id_ = (await site.until(run_id, "awaiting-input")).interrupts[0].id
        # The last that the worker does: it has gone before that.
        soon = commands.EditDeadline(interrupt_id=id_, timeout=2, principal=ANYBODY)
        await site.client.run(run_id).edit(soon)
    # No worker is up. The timer fires; nobody sees it. Then somebody answers, and a worker comes.
    fired = asyncio.create_task(_fired(site, run_id))
    await asyncio.wait_for(fired, 30)
    answering = asyncio.create_task(
        site.client.run(run_id).respond({id_: {"approved": True}}, principal=ANYBODY)
    )
    async with site.worker():
        with pytest.raises(Refusal) as late:
            await answering
        ended = await site.ended(run_id)

    assert late.value.code is Code.ALREADY_ANSWERED
    assert late.value.details["answered_by"] == "timeout"
    assert ended.values["decision"] == {"approved": False}


async def _fired(site: Site, run_id: str) -> None:
    handle = site.temporal.get_workflow_handle(run_id)
    async for event in handle.fetch_history_events(wait_new_event=True):
        if event.HasField("timer_fired_event_attributes"):
            return


def unhurried() -> Graph:
    """Asks in code, in a nested graph: one that goes elsewhere in three days, one that defaults."""
    inner = Graph("inner")

    @inner.node(to=["late"])
    async def ask(state: dict[str, Any], ctx: Context) -> dict[str, Any]:
        answers = await ctx.interrupts(
            [
                Interrupt("slow", timeout="3d", on_timeout="goto:late"),
                Interrupt("default", timeout="2d", on_timeout={"default": "as usual"}),
                Interrupt("beside"),
            ]
        )
        return {"ask": answers}

    @inner.node
    async def late(state: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {"late": ctx.answers["default"]}

    inner.edge(START, "ask")
    graph = Graph("unhurried")
    graph.subgraph("inner", inner)
    graph.interrupt("other", prompt="Beside it?", timeout="30d")
    graph.edge(START, "inner")
    graph.edge(START, "other")
    return graph


async def test_deadlines_in_code_of_a_nested_graph_leave_only_their_own_visit(
    time_machine: WorkflowEnvironment,
) -> None:
    site = Site(time_machine.client, unhurried())
    async with site.worker():
        with time_machine.with_time_skipping_disabled():
            run_id = await site.start({})
            view = await site.until(run_id, "awaiting-input")
            by_name = {entry.name: entry for entry in view.interrupts}
            assert set(by_name) == {"slow", "default", "beside", "other"}
        await forward(time_machine, run_id, timedelta(days=2, seconds=1))
        two = await site.client.run(run_id).view()
        await forward(time_machine, run_id, timedelta(days=1))

        async def is_over() -> views.RunView | None:
            # It awaits input before the deadline and after it.
            now = await site.client.run(run_id).view()
            return now if "slow" not in {entry.name for entry in now.interrupts} else None

        three = await eventually(is_over)
        settled = {e.name: e for e in await site.client.run(run_id).interrupts(status="all")}
        with time_machine.with_time_skipping_disabled():
            await site.client.run(run_id).respond({by_name["other"].id: 1}, principal=ANYBODY)
            ended = await site.ended(run_id)

        assert {entry.name for entry in two.interrupts} == {"slow", "beside", "other"}
        assert [entry.name for entry in three.interrupts] == ["other"]
        assert three.interrupts[0].deadline == by_name["other"].deadline
        assert settled["slow"].status == "expired"
        assert settled["beside"].status == "cancelled"
        assert (settled["default"].status, settled["default"].answered_by) == (
            "answered",
            "timeout",
        )
        assert (ended.status, ended.values) == ("completed", {"late": "as usual"})
        await site.replays(run_id)
