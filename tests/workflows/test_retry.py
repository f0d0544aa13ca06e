"""A run that ended badly goes on from where it ended, under its id: nothing is done twice or lost."""

from __future__ import annotations

from typing import Any

from changed_graphs import Payments
from temporal_site import Site, refused
from temporalio.client import Client as TemporalClient

from abeyance import Principal
from abeyance.errors import Code

OPERATOR = Principal(subject="olga", capabilities=("runs:control",))


async def failed(site: Site) -> str:
    """Start a run whose payment fails after the approval, and return its id."""
    run_id = await site.start({"amount": 3})
    await site.answer(run_id, True)
    assert (await site.ended(run_id)).status == "failed"
    return run_id


async def types(site: Site, run_id: str, **options: Any) -> list[str]:
    return [event.type async for event in site.client.run(run_id).events(**options)]


async def test_a_failed_run_goes_on_and_runs_no_finished_node_or_step_again(
    temporal: TemporalClient,
) -> None:
    payments = Payments(fails=1)
    site = Site(temporal, payments.graph(ends="notify"))
    async with site.worker():
        run_id = await failed(site)
        run = site.client.run(run_id)
        seen = [event async for event in run.events()]
        await run.retry(principal=OPERATOR)
        ended = await site.ended(run_id)
        more = [event async for event in run.events(after=seen[-1].id)]

        assert (ended.status, ended.values["log"]) == ("completed", ["check", "pay 3"])
        done = ["check", "reserve", "notify failed", "pay", "notify completed"]
        assert payments.done == done
        assert (seen[-1].type, more[0].type, more[-1].type) == (
            "run.failed",
            "run.retried",
            "run.completed",
        )
        assert (more[0].actor, more[0].data["outcome"]) == ("olga", "failed")
        assert await types(site, run_id) == [event.type for event in (*seen, *more)]
        await site.replays(run_id)


async def test_a_conversation_has_the_retried_run_again_or_refuses_it(
    temporal: TemporalClient,
) -> None:
    payments = Payments(fails=1)
    site = Site(temporal, payments.graph())
    talk = "order-7"
    async with site.worker():
        run_id = await site.start({"amount": 3}, conversation_id=talk)
        await site.answer(run_id, True)
        await site.ended(run_id)
        other = await site.start({"amount": 4}, conversation_id=talk)
        busy = await refused(site.client.run(run_id).retry())
        await site.client.run(other).cancel()
        await site.ended(other)
        payments.fails = 1
        await site.client.run(run_id).retry()
        await site.ended(run_id)

        assert busy.code is Code.CONVERSATION_BUSY
        assert await site.client.conversations.runs(talk) == []
        payments.fails = 0
        await site.client.run(run_id).retry()
        assert (await site.ended(run_id)).status == "completed"
