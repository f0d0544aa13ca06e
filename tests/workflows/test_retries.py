"""Retries on a real server: how often, how long, and what a pause between them leaves."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from sample_graphs import State
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import START, Backoff, Context, Graph

QUICK = Backoff(first="100ms", factor=1, most="100ms")


def alone(function: Any, **options: Any) -> Graph:
    """A graph of the one node `work`."""
    graph = Graph("alone", state=State)
    graph.node(name="work", **options)(function)
    graph.edge(START, "work")
    return graph


class Away:
    """A service that is away for so many calls, after a step that must not be done twice."""

    def __init__(self, calls: int) -> None:
        self.left = calls
        self.calls: list[float] = []
        self.steps: list[str] = []
        self.keys: set[str] = set()
        self.may_go = asyncio.Event()
        self.may_go.set()

    async def work(self, state: State, ctx: Context) -> dict[str, Any]:
        await ctx.step("once", self.steps.append, "once")
        self.calls.append(time.monotonic())
        self.keys.add(ctx.idempotency_key)
        await self.may_go.wait()
        if len(self.calls) <= self.left:
            raise ConnectionError("away")
        return {"log": [f"attempt {ctx.attempt}"]}

    @property
    def pauses(self) -> list[float]:
        return [round(b - a, 1) for a, b in zip(self.calls, self.calls[1:], strict=False)]


@pytest.mark.slow
async def test_the_pauses_grow_by_the_factor_up_to_the_longest(temporal: TemporalClient) -> None:
    away = Away(4)
    backoff = Backoff(first="200ms", factor=2, most="600ms")
    site = Site(temporal, alone(away.work, retries=4, backoff=backoff))
    async with site.worker():
        run_id = await site.start()
        ended = await site.ended(run_id)
        await site.replays(run_id)

        assert ended.values["log"] == ["attempt 5"]
        assert (away.steps, len(away.keys)) == (["once"], 1)
        assert all(
            wanted <= pause < wanted + 2
            for pause, wanted in zip(away.pauses, [0.2, 0.4, 0.6, 0.6], strict=True)
        )
        told = await site.events(run_id, "node.retrying")
        assert [(each["attempt"], each["pause"]) for each in told] == [
            (1, 0.2),
            (2, 0.4),
            (3, 0.6),
            (4, 0.6),
        ]
        assert {each["message"] for each in told} == {"ConnectionError: away"}
        assert len(await site.events(run_id, "node.started")) == 5


@pytest.mark.slow
async def test_attempts_go_on_for_as_long_as_retry_for_says_and_no_longer(
    temporal: TemporalClient,
) -> None:
    away = Away(1_000)
    site = Site(temporal, alone(away.work, backoff=QUICK, retry_for="2s"))
    async with site.worker():
        await site.ended(await site.start())

    # More than the three retries of a node that says nothing. A busy server begins an attempt late,
    # and so makes fewer of them: their number is what bounds the time.
    assert 5 <= len(away.calls) <= 21


async def test_an_exception_that_is_not_named_fails_at_once(temporal: TemporalClient) -> None:
    calls: list[int] = []

    async def work(state: State) -> None:
        calls.append(1)
        raise ConnectionResetError if len(calls) == 1 else ValueError("no such account")

    site = Site(temporal, alone(work, backoff=QUICK, retry_on=ConnectionError))
    async with site.worker():
        ended = await site.ended(await site.start())

    assert len(calls) == 2
    assert ended.error is not None
    assert ended.error.message == "ValueError: no such account"


@pytest.mark.parametrize("is_plain", [False, True])
async def test_a_timeout_has_one_text_and_takes_its_time_in_a_plain_function_too(
    temporal: TemporalClient, is_plain: bool
) -> None:
    release = threading.Event()
    seen: list[bool] = []

    def plain(state: State, ctx: Context) -> None:
        release.wait(30)
        seen.append(ctx.cancelled)

    async def waiting(state: State) -> None:
        await asyncio.sleep(30)

    site = Site(temporal, alone(plain if is_plain else waiting, timeout="1s", retries=0))
    async with site.worker():
        run_id = await site.start()
        ended = await site.ended(run_id)
        release.set()

        assert ended.error is not None
        assert ended.error.message == (
            "'work' took longer than its timeout of 1 s. No retries are left (retries=0)."
        )
        assert ended.ended_at is not None
        # A server that cuts the attempt off does so after eleven seconds.
        assert ended.ended_at - ended.created_at < timedelta(seconds=10)
        if is_plain:
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
