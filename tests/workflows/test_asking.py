"""Asking people from code: what ran is kept, and many items wait at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any

from pydantic import BaseModel
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance import START, Context, Graph, append


class State(BaseModel):
    count: int = 0
    log: Annotated[list[str], append] = []


async def test_a_step_after_a_sign_of_life_survives_a_failure(temporal: TemporalClient) -> None:
    graph = Graph("slow", state=State)
    done: Counter[str] = Counter()

    @graph.node
    async def slow(state: State, ctx: Context) -> dict[str, Any]:
        await ctx.step("first", lambda: done.update(["first"]))
        # Longer than it takes until the visit says that it lives, with the journal as it is then.
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
