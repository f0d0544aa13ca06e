"""What the acts of the demo have in common: how they speak, and how they wait for a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from abeyance.commands.remote import Remote
from abeyance.commands.terminal import Line, readable, show
from abeyance.errors import Unavailable

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


async def run_until(remote: Remote, run: str, *statuses: str) -> Mapping[str, Any]:
    """The view of a run that has one of these statuses, or has ended."""

    async def reached() -> Mapping[str, Any] | None:
        response = await remote.get(f"/runs/{run}", wait="PT5S", until=",".join(statuses))
        view: Mapping[str, Any] = response.json()
        return view if view["status"] in statuses or view.get("ended_at") else None

    return await wait_for(reached, f"the run to be {' or '.join(statuses)}")
