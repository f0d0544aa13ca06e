"""What the acts of the demo have in common: how they speak, and how they wait for a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from abeyance.commands.terminal import Line, readable, show
from abeyance.errors import Unavailable
from abeyance.handle import RunHandle
from abeyance.wire import RunView

T = TypeVar("T")

_PATIENCE: Final = 60.0


def say(label: str, text: str, *, gap: bool = False) -> None:
    """Tell one thing; a `gap` is an empty line after it."""
    show([Line(label, text)])
    if gap:
        print(flush=True)


def quote(text: str) -> None:
    """Show what somebody else wrote."""
    print()
    for line in readable(text).splitlines():
        print(f"    {line}")
    print(flush=True)


def short(path: Path) -> str:
    """A path as it is read from here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


async def wait_for(look: Callable[[], Awaitable[T | None]], what: str) -> T:
    """What `look` finds, as soon as it does. Raises Unavailable if that takes a minute."""
    try:
        async with asyncio.timeout(_PATIENCE):
            while True:
                if (found := await look()) is not None:
                    return found
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise Unavailable(f"{_PATIENCE:g} s were not enough for {what}") from error


async def run_until(run: RunHandle, *statuses: str) -> RunView:
    """The view of a run that has one of these statuses, or has ended."""
    view = await run.wait(until=frozenset(statuses), timeout=_PATIENCE)
    if view.status in statuses or view.ended_at is not None:
        return view
    wanted = " or ".join(statuses)
    raise Unavailable(f"{_PATIENCE:g} s were not enough for the run to be {wanted}")
