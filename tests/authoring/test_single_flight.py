"""Callers who read at the same time share a read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from abeyance.temporal.single_flight import SingleFlight


async def settled() -> None:
    """Let every task go on as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


class Source:
    """A source that numbers its reads; each read ends when the test lets it."""

    def __init__(self) -> None:
        self.reads: SingleFlight[int] = SingleFlight()
        self.begun = 0
        self.at_once = 0
        self.most_at_once = 0
        self.doors: dict[int, asyncio.Future[None]] = {}

    async def fetch(self) -> int:
        self.begun += 1
        number = self.begun
        self.doors[number] = asyncio.get_running_loop().create_future()
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.doors[number]
        finally:
            self.at_once -= 1
        return number

    async def ask(self, run_id: str = "r") -> asyncio.Task[int]:
        task = asyncio.create_task(self.reads.read(run_id, self.fetch))
        await settled()
        return task

    async def end(self, number: int, error: Exception | None = None) -> None:
        if error is None:
            self.doors[number].set_result(None)
        else:
            self.doors[number].set_exception(error)
        await settled()

    def is_forgotten(self) -> bool:
        return not (self.reads._current or self.reads._next)


async def test_callers_during_a_read_share_the_next_one() -> None:
    source = Source()
    first = await source.ask()
    later = [await source.ask() for _ in range(5)]
    begun_before = source.begun
    await source.end(1)
    await source.end(2)

    assert begun_before == 1
    assert await first == 1
    assert [await task for task in later] == [2] * 5
    assert source.begun == 2
    assert source.is_forgotten()


async def test_a_caller_never_gets_a_read_begun_before_its_call() -> None:
    source = Source()
    first = await source.ask()
    second = await source.ask()
    await source.end(1)
    third = await source.ask()
    await source.end(2)
    await source.end(3)

    assert [await first, await second, await third] == [1, 2, 3]


async def test_concurrent_callers_share_one_read() -> None:
    source = Source()
    tasks = [await source.ask(), await source.ask()]
    source.doors[1].set_result(None)
    for _ in range(10):
        # These callers come at each moment between the end of one read and the beginning of the next.
        tasks.append(asyncio.create_task(source.reads.read("r", source.fetch)))
        await asyncio.sleep(0)
    for number in (2, 3):
        if number in source.doors:
            await source.end(number)
    await settled()

    assert len(await asyncio.gather(*tasks)) == 12
    assert source.most_at_once == 1
    assert source.is_forgotten()


@pytest.mark.parametrize("number", [1, 2])
async def test_an_error_reaches_every_caller_and_the_next_read_is_unharmed(number: int) -> None:
    source = Source()
    tasks = [await source.ask() for _ in range(4)]
    for each in (1, 2):
        await source.end(each, ValueError("odd") if each == number else None)
    found = await asyncio.gather(*tasks, return_exceptions=True)
    after = await source.ask()
    await source.end(3)

    failed = [isinstance(each, ValueError) for each in found]
    assert failed == ([True, False, False, False] if number == 1 else [False, True, True, True])
    assert await after == 3
    assert source.is_forgotten()


@pytest.mark.parametrize("count", [1, 3])
async def test_a_caller_who_gives_up_takes_nothing_from_the_others(count: int) -> None:
    source = Source()
    tasks = [await source.ask() for _ in range(3)]
    gone = tasks[:count]
    for task in gone:
        task.cancel()
    await settled()
    await source.end(1)
    await source.end(2)

    assert all(task.cancelled() for task in gone)
    assert [await task for task in tasks if task not in gone] == ([2, 2] if len(gone) == 1 else [])
    assert source.is_forgotten()


async def test_a_failed_read_without_callers_leaves_no_stray_error() -> None:
    stray: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, about: stray.append(about))
    source = Source()
    task = await source.ask()
    task.cancel()
    await settled()
    await source.end(1, ValueError("odd"))
    del task

    assert stray == []
    assert source.is_forgotten()
