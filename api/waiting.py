"""Waiting for a run on behalf of a caller: how long, and no longer than the caller is there."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Coroutine
from contextlib import suppress
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from fastapi import Request
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
        message = f"{text[:100]!r} is no time to wait"
        raise ValueError(message)
    return length


Length: TypeAlias = Annotated[float, BeforeValidator(_length, json_schema_input_type=str)]
"""How many seconds to wait, as a query says it."""


async def while_asked(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """What the work gives; None if its caller has gone before."""
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait({task}, timeout=_GONE_AFTER))[0]:
            if await request.is_disconnected():
                return None
        return task.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
