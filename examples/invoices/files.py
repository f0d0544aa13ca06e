"""Writing into the output folder so that a crash leaves either the old file or the new one."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder if it is not there, and let one writer in at a time, over all processes.

    Two payment runs that finish together must not both find an invoice unpaid. The system drops
    the lock when its holder dies, so that no crash leaves it behind. It is not reentrant.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def replace(path: Path, content: bytes) -> None:
    """Write a whole file at once: readers see the old content or the new, never a part.

    The caller holds the folder's lock, since the temporary file has a fixed name.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)  # otherwise a power cut could undo the renaming
    finally:
        os.close(directory)


def write_once(path: Path, content: bytes) -> None:
    """Write a file that may never change: the same content again is left alone.

    Raises:
        FileExistsError: the file is there with another content.
    """
    if not path.exists():
        replace(path, content)
    elif path.read_bytes() != content:
        raise FileExistsError(
            f"{path} is there already with another content; it was changed after it was written. "
            f"Compare it with the ledger and move it away"
        )
