"""The records of a run whose database is away: the run goes on, and they are written later."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sample_graphs import asking, gated
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowFailureError

from abeyance import views
from abeyance.core.state import Limits
from abeyance.errors import RecordsUnavailable
from abeyance.filters import InboxFilter, RunFilter
from abeyance.reindex import reindex

YES = {"approved": True}


async def shown(site: Site, run_id: str, status: str = "awaiting-input") -> views.RunView:
    """Return what an operator sees of a run that cannot be recorded, once it has this status."""
    handle = site.temporal.get_workflow_handle(run_id)

    async def found() -> views.RunView | None:
        view = await handle.query("state", result_type=views.RunView)
        return view if view.status == status else None

    view: views.RunView = await eventually(found)
    return view


@pytest.fixture
def foreign(tmp_path: Path) -> str:
    """Return the URL of a database that has tables of something else."""
    file = tmp_path / "foreign.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE other (id INTEGER)")
    connection.close()
    return f"sqlite:///{file}"


async def test_a_database_that_is_away_stops_no_run_and_what_it_missed_is_recorded_later(
    temporal: TemporalClient, foreign: str
) -> None:
    site = Site(temporal, gated())
    site.settings = site.settings.model_copy(update={"database_url": foreign})
    own = RunFilter(graph="gated", q=site.settings.task_queue)
    async with site.worker():
        run_id = await site.start(
            limits=Limits(continue_as_new_after=6), labels={"of": site.settings.task_queue}
        )
        run = site.client.run(run_id)
        (asked,) = (await shown(site, run_id)).interrupts
        await run.pause()
        await shown(site, run_id, "paused")
        await run.resume()
        await shown(site, run_id)
        await run.respond(asked.id, YES, principal=ANYBODY)
        ended = await temporal.get_workflow_handle(run_id).result()

        assert (ended["outcome"], await site.executions(run_id) > 1) == ("completed", True)
        (before,) = (await site.client.runs.page(own)).items
        assert before.status == "running"

    assert await eventually(site.client.janitor.round) == 1

    (after,) = (await site.client.runs.page(own)).items
    assert (after.status, after.ended_at is None) == ("completed", False)
    assert (await site.client.inbox.page(InboxFilter(graph="gated"))).items == []
    told = [event.type async for event in run.events(follow=False)]
    assert [each for each in told if not each.startswith("node.")] == [
        *("run.started", "interrupt.opened", "run.awaiting_input", "run.paused", "run.resumed"),
        *("run.awaiting_input", "interrupt.answered", "run.completed"),
    ]
    (again,) = await run.respond(asked.id, YES, principal=ANYBODY)
    assert again.replayed
    assert not (await run.view()).degraded
    assert (await run.result()).values == ended["values"]
    await site.replays(run_id)


@pytest.mark.parametrize("way", ["failed", "cancelled"])
async def test_a_run_that_ends_without_a_result_while_the_database_is_away_can_be_retried(
    temporal: TemporalClient, foreign: str, way: str
) -> None:
    graph, runs = asking(), list[str]()

    @graph.node(retries=0)
    async def work(state: dict[str, Any]) -> None:
        runs.append("work")
        if len(runs) == 1:
            raise RuntimeError("once")

    graph.edge("ask", "work")
    site = Site(temporal, graph)
    away = site.settings.model_copy(update={"database_url": foreign})
    site.settings, there = away, site.settings
    async with site.worker():
        # A memo has room for these values only if they are deflated.
        run_id = await site.start({"text": "x" * 20_000})
        handle = temporal.get_workflow_handle(run_id)
        run = site.client.run(run_id)
        (question,) = (await shown(site, run_id)).interrupts
        if way == "cancelled":
            await handle.cancel()
        else:
            await run.respond(question.id, True, principal=ANYBODY)
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    site.settings = there
    async with site.worker():
        # The first caller that asks has the end recorded.
        await run.retry(principal=ANYBODY)
        if way == "cancelled":
            runs.append("cancelled")
            await site.answer(run_id, True)
        await site.ended(run_id)
        told = [event.type async for event in run.events(follow=False)]

    assert (await run.result()).outcome == "completed"
    assert [each for each in told if each.startswith("run.") and "await" not in each] == [
        *("run.started", f"run.{way}", "run.retried", "run.completed")
    ]
    await site.replays(run_id)


async def test_an_end_for_which_temporal_has_no_room_is_made_from_the_history(
    temporal: TemporalClient, foreign: str
) -> None:
    site = Site(temporal, asking())
    away = site.settings.model_copy(update={"database_url": foreign})
    site.settings, there = away, site.settings
    text = random.Random(1).randbytes(15_000).hex()
    async with site.worker():
        # The memo of a cancelled workflow takes less, even deflated.
        run_id = await site.start({"text": text})
        handle = temporal.get_workflow_handle(run_id)
        await shown(site, run_id)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    site.settings, run = there, site.client.run(run_id)
    with pytest.raises(RecordsUnavailable, match="`abeyance reindex` makes them anew"):
        await run.retry(principal=ANYBODY)
    assert (await reindex(temporal, site.client, [run_id])).failures == {}

    told = [event.type async for event in run.events(follow=False)]
    assert told == [
        *("run.started", "interrupt.opened", "run.awaiting_input"),
        *("interrupt.cancelled", "run.cancelled"),
    ]
    assert (await run.result()).values["text"] == text
    async with site.worker():
        await run.retry(principal=ANYBODY)
        await site.until(run_id, "awaiting-input")
