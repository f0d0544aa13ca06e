from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says more of the machine than of what is tried.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

_BEFORE_THE_HARD_END = 10.0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # What pytest-timeout raises may hit any task of a loop that many tests share, and leaves the test
    # that hangs running beside all that follow. So a test is cancelled in its own loop before that.
    hard = float(config.getini("timeout"))
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            marker = item.get_closest_marker("timeout")
            seconds = hard if marker is None else float(marker.args[0])
            item.obj = _ended_after(seconds - _BEFORE_THE_HARD_END, item.obj)


def _ended_after(
    seconds: float, test: Callable[..., Awaitable[None]]
) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def ended(*args: Any, **named: Any) -> None:
        async with asyncio.timeout(seconds):
            await test(*args, **named)

    return ended
