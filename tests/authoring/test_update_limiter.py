"""Order at the door of one run: a bound on updates, and reads that are shared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from abeyance.temporal.update_limiter import (
    MAX_CONCURRENT_UPDATES,
    SingleFlight,
    Turn,
    UpdateLimiter,
)


async def settled() -> None:
    """Let everything happen that can."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest_asyncio.fixture(autouse=True)
async def _everybody_leaves() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    left = {task for task in asyncio.all_tasks() - before if "Crowd.come" in repr(task)}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


class Crowd:
    """Callers at a turnstile, each of whom stays inside until it is let go."""

    def __init__(self) -> None:
        self.turnstile = UpdateLimiter()
        self.inside: list[str] = []
        self.entered: list[str] = []
        self.doors: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, name: str, turn: Turn = Turn.SEND_MESSAGE, run_id: str = "r") -> None:
        async def pass_through() -> None:
            async with self.turnstile.turn(run_id, turn):
                self.inside.append(name)
                self.entered.append(name)
                try:
                    await self.doors[name].wait()
                finally:
                    self.inside.remove(name)

        self.doors[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(pass_through())
        await settled()

    async def leave(self, *names: str) -> None:
        for name in names:
            self.doors[name].set()
            await settled()

    async def give_up(self, *names: str) -> None:
        for name in names:
            self.tasks[name].cancel()
        await settled()

    def is_forgotten(self) -> bool:
        return not (self.turnstile._inside or self.turnstile._waiting)


async def full() -> Crowd:
    crowd = Crowd()
    for number in range(MAX_CONCURRENT_UPDATES):
        await crowd.come(f"first{number}")
    return crowd


async def test_four_are_inside_at_once_and_the_next_when_one_has_left() -> None:
    crowd = await full()
    for number in range(3):
        await crowd.come(f"later{number}")
    before = list(crowd.inside)
    await crowd.leave("first1")

    assert before == [f"first{number}" for number in range(MAX_CONCURRENT_UPDATES)]
    assert crowd.inside == ["first0", "first2", "first3", "later0"]


async def test_answers_go_first_and_equals_in_the_order_in_which_they_came() -> None:
    crowd = await full()
    for name, turn in [
        ("message1", Turn.SEND_MESSAGE),
        ("take", Turn.TAKE_MESSAGES),
        ("answer1", Turn.RESPOND),
        ("message2", Turn.SEND_MESSAGE),
        ("answer2", Turn.RESPOND),
    ]:
        await crowd.come(name, turn)
    await crowd.leave(*(f"first{number}" for number in range(MAX_CONCURRENT_UPDATES)), "answer1")

    assert crowd.entered[MAX_CONCURRENT_UPDATES:] == [
        "answer1",
        "answer2",
        "take",
        "message1",
        "message2",
    ]


async def test_who_gives_up_while_waiting_takes_no_place() -> None:
    crowd = await full()
    await crowd.come("impatient", Turn.RESPOND)
    await crowd.come("patient")
    await crowd.give_up("impatient")
    await crowd.leave("first0")

    assert crowd.inside == ["first1", "first2", "first3", "patient"]


async def test_who_gives_up_in_the_moment_of_being_let_in_hands_the_place_on() -> None:
    crowd = await full()
    await crowd.come("unlucky", Turn.RESPOND)
    await crowd.come("next")
    crowd.doors["first0"].set()
    while "first0" in crowd.inside:
        await asyncio.sleep(0)
    # The place has been given away, and its new owner has not run yet.
    assert "unlucky" not in crowd.entered
    crowd.tasks["unlucky"].cancel()
    await settled()

    assert crowd.tasks["unlucky"].cancelled()
    assert crowd.inside == ["first1", "first2", "first3", "next"]


async def test_who_is_cancelled_or_fails_inside_leaves() -> None:
    crowd = await full()
    await crowd.come("next")
    await crowd.give_up("first2")

    assert crowd.inside == ["first0", "first1", "first3", "next"]
    with pytest.raises(ValueError, match="odd"):
        async with crowd.turnstile.turn("s", Turn.RESPOND):
            raise ValueError("odd")


async def test_when_all_have_left_nothing_is_remembered() -> None:
    crowd = await full()
    for number in range(10):
        await crowd.come(f"later{number}", Turn(number % 3))
    await crowd.give_up("later3", "later4", "first1", "later9")
    await crowd.leave(*crowd.doors)

    await asyncio.gather(*crowd.tasks.values(), return_exceptions=True)
    assert crowd.inside == []
    assert crowd.is_forgotten()


class Source:
    """Something that is read: every read is numbered, and ends when it is let go."""

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


async def test_no_read_is_older_than_the_call_that_gets_it() -> None:
    source = Source()
    first = await source.ask()
    second = await source.ask()
    await source.end(1)
    third = await source.ask()
    await source.end(2)
    await source.end(3)

    assert [await first, await second, await third] == [1, 2, 3]


async def test_one_run_is_read_once_at_a_time_whenever_callers_come() -> None:
    source = Source()
    tasks = [await source.ask(), await source.ask()]
    source.doors[1].set_result(None)
    for _ in range(10):
        # Callers who come in each moment between the end of one read and the beginning of the next.
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


def first_of(tasks: list[asyncio.Task[int]]) -> list[asyncio.Task[int]]:
    return tasks[:1]


def all_of(tasks: list[asyncio.Task[int]]) -> list[asyncio.Task[int]]:
    return tasks


@pytest.mark.parametrize("who", [first_of, all_of])
async def test_a_caller_who_gives_up_takes_nothing_from_the_others(
    who: Callable[[list[Any]], list[Any]],
) -> None:
    source = Source()
    tasks = [await source.ask() for _ in range(3)]
    gone = who(tasks)
    for task in gone:
        task.cancel()
    await settled()
    await source.end(1)
    await source.end(2)

    assert all(task.cancelled() for task in gone)
    assert [await task for task in tasks if task not in gone] == ([2, 2] if len(gone) == 1 else [])
    assert source.is_forgotten()


async def test_a_read_that_fails_when_nobody_waits_any_more_is_no_stray_error() -> None:
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
