"""`gather_limited` does the same work for many items, a few at a time."""

from __future__ import annotations

import asyncio

import pytest

from abeyance.util import gather_limited


async def test_gather_limited_stops_everything_at_the_first_error() -> None:
    begun: list[int] = []

    async def work(number: int) -> int:
        begun.append(number)
        if number == 2:
            raise LookupError("two")
        await asyncio.sleep(5 if number > 2 else 0)
        return number * 10

    assert await gather_limited([0, 1], work) == [0, 10]
    assert await gather_limited([], work) == []
    with pytest.raises(LookupError, match="two"):
        await gather_limited(range(100), work, at_once=3)
    assert len(begun) < 10
