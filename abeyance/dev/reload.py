"""Watch the files of an application, for `abeyance dev --reload`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Final

_POLL_SECONDS: Final = 0.3
_SUFFIXES: Final = (".py", ".yaml", ".yml")
_IGNORED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})


async def changes(directory: Path, *, ignored: Path) -> AsyncIterator[list[Path]]:
    """Yield the Python and YAML files below `directory` that changed, once they change no further.

    Skips hidden folders, virtual environments, and the folder `ignored`.
    """
    # Polled, because a few hundred files take milliseconds, and no library is needed for them.
    before = await asyncio.to_thread(_versions, directory, ignored)
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        after = await asyncio.to_thread(_versions, directory, ignored)
        if after == before:
            continue
        settled: Mapping[Path, int] = {}
        while settled != after:
            settled = after
            await asyncio.sleep(_POLL_SECONDS)
            after = await asyncio.to_thread(_versions, directory, ignored)
        changed = sorted(path for path, _ in before.items() ^ after.items())
        before = after
        if changed:
            yield list(dict.fromkeys(changed))


def _versions(directory: Path, ignored: Path) -> dict[Path, int]:
    return dict(_files(directory, ignored.resolve()))


def _files(directory: Path, ignored: Path) -> Iterator[tuple[Path, int]]:
    for folder, folders, names in os.walk(directory):
        here = Path(folder)
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _IGNORED
            and not (here / name / "pyvenv.cfg").exists()
            and (here / name).resolve() != ignored
        ]
        for name in names:
            path = here / name
            try:
                if path.suffix in _SUFFIXES:
                    yield path, path.stat().st_mtime_ns
            except OSError:
                # An editor replaced it just now, or it is not ours to read.
                continue
