"""Marks that the code of a node leaves in files, so that a driver knows what it has come to, and when.

Nothing that is measured is asked about it: neither the run nor the server is disturbed.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

_LOOK_EVERY: Final = 0.002
_SECONDS: Final = 60.0


def leave(folder: str, name: str) -> None:
    """Leave a mark with the time."""
    made = Path(folder) / f"{name}.part"
    made.write_text(repr(time.time()), encoding="utf-8")
    made.replace(Path(folder) / name)


def is_there(folder: str, name: str) -> bool:
    """Whether the mark was left."""
    return (Path(folder) / name).exists()


async def until_there(folder: str, name: str) -> float:
    """Wait for a mark; returns the time that it has. Raises TimeoutError after a minute."""
    path = Path(folder) / name
    async with asyncio.timeout(_SECONDS):
        while not path.exists():
            await asyncio.sleep(_LOOK_EVERY)
    return float(path.read_text(encoding="utf-8"))
