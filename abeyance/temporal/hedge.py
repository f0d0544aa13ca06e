"""A question that is asked again while the first one may still be answered.

Temporal's server keeps a query back while a workflow task is on its way, to be answered with it. Where
that task comes to nothing, because all that it brought was an update which the run turned away, the
query stays until some other task comes by, though the worker has nothing to do; another query in its
place is answered at once. Who waits for a slow worker loses nothing: the first is not given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from temporalio.service import RPCError

T = TypeVar("T")

EVERY: Final = 0.3
"""Seconds until it is asked again. A worker that has the run answers in a tenth of that."""
AT_MOST: Final = 4


async def hedged(ask: Callable[[], Awaitable[T]]) -> T:
    """The first thing that a worker says, and be it an error; what the server says only if all fail.

    `ask` has to be free of effects: it is called up to `AT_MOST` times, and what is still under way when
    there is an answer is cancelled.
    """
    asked: list[asyncio.Future[T]] = []
    try:
        while True:
            asked.append(asyncio.ensure_future(ask()))
            settled = await _settled(asked, EVERY if len(asked) < AT_MOST else None)
            if settled is not None:
                return settled.result()
    finally:
        for each in asked:
            each.cancel()


async def _settled(
    asked: list[asyncio.Future[T]], seconds: float | None
) -> asyncio.Future[T] | None:
    """One that a worker answered, or the last if none can be; None if neither is known in time."""
    waiting = {each for each in asked if not each.done()}
    while waiting:
        done, waiting = await asyncio.wait(
            waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if not done:
            return None
        for each in done:
            if not isinstance(each.exception(), RPCError):
                return each
    return asked[-1]
