"""What calls are refused with."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest

from abeyance import Refusal


async def refused(call: Awaitable[object]) -> str:
    """The code of the refusal."""
    with pytest.raises(Refusal) as caught:
        await call
    return caught.value.code


async def faults(call: Awaitable[object]) -> tuple[str, str, list[str]]:
    """The code and the words of the refusal, and the names of its details."""
    with pytest.raises(Refusal) as caught:
        await call
    refusal = caught.value
    return refusal.code, refusal.message, sorted(refusal.details)
