"""The refusals of calls."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest

from abeyance import Refusal


async def refused(call: Awaitable[object]) -> str:
    """Check that a call is refused, and return the code."""
    with pytest.raises(Refusal) as caught:
        await call
    return caught.value.code


async def faults(call: Awaitable[object]) -> tuple[str, str, list[str]]:
    """Check that a call is refused. Return the code, the message, and the names of the details."""
    with pytest.raises(Refusal) as caught:
        await call
    refusal = caught.value
    return refusal.code, refusal.message, sorted(refusal.details)
