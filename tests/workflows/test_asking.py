"""Asking people from code: what ran is kept, and many items wait at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from asking_graphs import Log, spread
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import START, Context, Graph


async def test_a_step_after_a_sign_of_life_survives_a_failure(temporal: TemporalClient) -> None:
    graph = Graph("slow", state=Log)
    done: Counter[str] = Counter()

    @graph.node
    async def slow(state: Log, ctx: Context) -> dict[str, Any]:
        await ctx.step("first", lambda: done.update(["first"]))
        # Longer than the worker takes to send a heartbeat, with the journal as it is then.
        await asyncio.sleep(1.3)
        await ctx.step("second", lambda: done.update(["second"]))
        if ctx.attempt == 1:
            message = "once"
            raise ValueError(message)
        return {"log": ["done"]}

    graph.edge(START, "slow")
    site = Site(temporal, graph)
    async with site.worker():
        ended = await site.ended(await site.start())
        assert ended.status == "completed"
        assert done == {"first": 1, "second": 1}


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_five_hundred_items_ask_and_are_answered_in_one_call(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, spread(), patience=60)
    async with site.worker():
        run_id = await site.start({"count": 500})

        async def all_open() -> Any:
            view = await site.client.run(run_id).view()
            return view if len(view.interrupts) == 500 else None

        waiting = await eventually(all_open, seconds=90)
        answers = {entry.id: "y" for entry in waiting.interrupts}
        receipts = await site.client.run(run_id).respond(answers, principal=ANYBODY)
        ended = await site.ended(run_id, seconds=90)
        assert len(receipts) == 500
        assert ended.values["log"] == [f"{number}:y" for number in range(500)]
        assert ended.values["count"] == 500
