"""Waiting for a run on behalf of a caller: how long, and no longer than the caller is there."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Coroutine
from contextlib import suppress
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from fastapi import Query, Request
from pydantic import BeforeValidator

from abeyance.duration import seconds

T = TypeVar("T")

_GONE_AFTER: Final = 1.0
"""Seconds between two looks at whether the caller is still there."""


def _length(given: Any) -> float:
    # In a query everything is text, also a plain number of seconds.
    text = str(given).strip()
    length = float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else seconds(text)
    if not 0 <= length < math.inf:
        message = f"{text[:100]!r} is not a duration: write 30s, 2m or PT30S"
        raise ValueError(message)
    return length


Length: TypeAlias = Annotated[float, BeforeValidator(_length, json_schema_input_type=str)]
"""How many seconds to wait, as a query says it."""


Wait: TypeAlias = Annotated[
    Length | None,
    Query(
        description="How long to wait for the effect: ISO 8601, `30s`, or seconds. The service caps it "
        "at its `default_timeout`.",
        examples=["PT30S"],
    ),
]


class Leaving(Exception):
    """This process was told to stop while somebody waited."""


async def long_poll(
    request: Request, work: Coroutine[Any, Any, T], *, leaving: asyncio.Event | None = None
) -> T | None:
    """What the work gives; None if its caller has gone before. Raises Leaving once that event is set."""
    task = asyncio.create_task(work)
    told = asyncio.create_task((leaving or asyncio.Event()).wait())
    try:
        while not task.done():
            await asyncio.wait(
                {task, told}, timeout=_GONE_AFTER, return_when=asyncio.FIRST_COMPLETED
            )
            if not task.done() and told.done():
                raise Leaving
            if not task.done() and await request.is_disconnected():
                return None
        return task.result()
    finally:
        for each in (task, told):
            each.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task, told})


async def sleep_unless(leaving: asyncio.Event, length: float) -> None:
    """Sleep so many seconds, or until the event is set."""
    with suppress(TimeoutError):
        await asyncio.wait_for(leaving.wait(), length)
