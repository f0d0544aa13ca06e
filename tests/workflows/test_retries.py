"""Retries on a real server: how often, how long, and what a pause between them leaves."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

from sample_graphs import State, alone
from temporal_site import Site, begun, eventually
from temporalio.client import Client as TemporalClient

from abeyance import Backoff, Context

QUICK = Backoff(first="100ms", factor=1, most="100ms")


async def test_a_timeout_takes_its_time_and_has_its_text_in_a_plain_function_too(
    temporal: TemporalClient,
) -> None:
    release = threading.Event()
    seen: list[bool] = []

    def plain(state: State, ctx: Context) -> None:
        release.wait(30)
        seen.append(ctx.cancelled)

    graph = alone(plain, timeout="1s", retries=0)
    async with begun(temporal, graph) as (site, run):
        ended = await site.ended(run.run_id)
        release.set()

        assert ended.error is not None
        assert ended.error.message == (
            "'work' took longer than its timeout of 1 s. No retries are left (retries=0)."
        )
        assert ended.ended_at is not None
        # The server would cut the attempt off after twelve seconds.
        assert ended.ended_at - ended.created_at < timedelta(seconds=10)
        await eventually(lambda: seen)
        assert seen == [True]


async def test_a_thread_that_outlives_its_timeout_holds_its_retry_back_until_it_ends(
    temporal: TemporalClient,
) -> None:
    told: list[str] = []

    def work(state: State, ctx: Context) -> dict[str, Any] | None:
        told.append(f"begins {ctx.attempt}")
        if ctx.attempt == 1:
            while not ctx.cancelled:
                time.sleep(0.02)
            time.sleep(0.3)
            told.append("ends 1")
        return {"log": ["done"]}

    site = Site(temporal, alone(work, timeout="1s", retries=1, backoff=QUICK))
    async with site.worker():
        ended = await site.ended(await site.start())

    assert told == ["begins 1", "ends 1", "begins 2"]
    assert ended.values["log"] == ["done"]


async def test_a_thread_that_does_not_end_holds_its_retry_back_for_its_timeout_once_more(
    temporal: TemporalClient,
) -> None:
    release = threading.Event()
    begun: list[float] = []

    def work(state: State) -> dict[str, Any] | None:
        begun.append(time.monotonic())
        if len(begun) == 1:
            release.wait(30)
        return {"log": ["done"]}

    site = Site(temporal, alone(work, timeout="1s", retries=1, backoff=QUICK))
    async with site.worker():
        ended = await site.ended(await site.start())
        release.set()

    assert ended.values["log"] == ["done"]
    # The thread itself takes thirty seconds.
    assert 2 <= begun[1] - begun[0] < 20
