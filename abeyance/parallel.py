"""Doing the same to many, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def each(
    items: Iterable[T], work: Callable[[T], Awaitable[R]], *, at_once: int = 10
) -> list[R]:
    """What `work` gives for each item, in their order, with at most `at_once` under way.

    The first error stops the rest, and is raised as it is.
    """
    numbered = list(enumerate(items))
    found: dict[int, R] = {}
    waiting = iter(numbered)

    async def one_after_the_other() -> None:
        for number, item in waiting:
            found[number] = await work(item)

    workers = [
        asyncio.create_task(one_after_the_other()) for _ in range(min(at_once, len(numbered)))
    ]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [found[number] for number, _ in numbered]
