"""The timer of a run: there is one at a time, and a task that may set it never cancels it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from abeyance.workflows.timers import DeadlineTimer


def at(minute: int) -> datetime:
    return datetime(2026, 3, 2, 9, 0, tzinfo=UTC) + timedelta(minutes=minute)


class Bells:
    """The timers that an alarm has set, and which of them still wait."""

    def __init__(self) -> None:
        self._tasks: list[tuple[int, asyncio.Task[None]]] = []
        self.alarm = DeadlineTimer(self._ring)

    def _ring(self, moment: datetime, summary: str) -> asyncio.Task[None]:
        async def waits() -> None:
            await asyncio.Event().wait()

        task = asyncio.create_task(waits(), name=summary)
        self._tasks.append(((moment - at(0)) // timedelta(minutes=1), task))
        return task

    def set(self, minute: int | None, *, tasks: int, is_local: bool = False) -> None:
        moment = None if minute is None else at(minute)
        self.alarm.set(moment, "a deadline", tasks=tasks, is_local=is_local)

    async def waiting(self) -> list[int]:
        await asyncio.sleep(0)
        return [minute for minute, task in self._tasks if not task.done()]

    async def ring(self) -> None:
        _, task = self._tasks[-1]
        task.cancel()
        await asyncio.wait([task])


async def test_the_timer_moves_with_the_deadline() -> None:
    bells = Bells()
    bells.set(5, tasks=0)
    bells.set(5, tasks=1)
    assert await bells.waiting() == [5]
    bells.set(3, tasks=2)
    assert await bells.waiting() == [3]
    bells.set(None, tasks=3)
    assert await bells.waiting() == []


async def test_a_timer_is_not_taken_back_by_a_local_result_of_the_same_task() -> None:
    bells = Bells()
    bells.set(5, tasks=0)
    bells.set(None, tasks=0, is_local=True)
    assert await bells.waiting() == [5]
    bells.set(None, tasks=1)
    assert await bells.waiting() == []


async def test_a_timer_set_by_a_local_result_stays_in_the_next_task() -> None:
    bells = Bells()
    bells.set(5, tasks=0, is_local=True)
    bells.set(None, tasks=1)
    assert await bells.waiting() == [5]
    bells.set(3, tasks=1, is_local=True)
    assert await bells.waiting() == [5, 3]
    bells.set(3, tasks=2)
    assert await bells.waiting() == [3]


async def test_a_fired_timer_is_not_waited_for() -> None:
    bells = Bells()
    bells.set(5, tasks=0)
    await bells.ring()
    bells.set(7, tasks=0, is_local=True)
    assert await bells.waiting() == [7]
