"""Blobs: bytes that are kept beside Temporal, whose histories are no place for what is large.

A blob belongs to a run and never changes. Its reference holds the hash of its bytes: to put the same
bytes twice is to put them once, and what is read is held against the reference. A reference says nothing
of where the blobs are kept, so they may be moved.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol, TypeVar

from abeyance.errors import Unavailable

T = TypeVar("T")

_LONGEST_NAME: Final = 40
_REFERENCE: Final = re.compile(r"[a-z0-9-]{1,40}\.[0-9a-f]{16}/[0-9a-f]{64}", re.ASCII)
# Not the loop's own threads: those run the plain functions of nodes, and may all be held up.
_THREADS: Final = ThreadPoolExecutor(max_workers=16, thread_name_prefix="blobs")


class BlobMissing(Unavailable):
    """A blob is not where this process looks for it, or is not what it was when it was put there."""


class Blobs(Protocol):
    """Where blobs are kept."""

    async def put(self, run_id: str, data: bytes) -> str:
        """Keep bytes for a run. Returns their reference. Raises Unavailable if they cannot be kept."""
        ...

    async def get(self, ref: str) -> bytes:
        """The bytes that a reference stands for. Raises BlobMissing, and Unavailable."""
        ...

    async def delete_run(self, run_id: str) -> int:
        """Delete all blobs of a run, and return how many there were: nobody can read them any more."""
        ...


def folder_of(run_id: str) -> str:
    """What the blobs of a run are kept under: its id as far as any file system can have it, and a hash.

    The hash keeps apart what differs in case only, or in what was left out.
    """
    name = re.sub("[^a-z0-9-]", "-", run_id.lower())[:_LONGEST_NAME] or "-"
    return f"{name}.{hashlib.sha256(run_id.encode()).hexdigest()[:16]}"


def reference(run_id: str, data: bytes) -> str:
    """The reference of these bytes of this run."""
    return f"{folder_of(run_id)}/{hashlib.sha256(data).hexdigest()}"


def checked_reference(ref: str) -> str:
    """The reference, if it is one. Raises BlobMissing: whatever else it is, it leads to no blob."""
    if _REFERENCE.fullmatch(ref):
        return ref
    raise BlobMissing(f"{ref[:200]!r} is no reference of a blob, so there is nothing to read")


def checked_data(ref: str, data: bytes, where: object) -> bytes:
    """The bytes, if they are those that the reference stands for. Raises BlobMissing."""
    if hashlib.sha256(data).hexdigest() == ref.rpartition("/")[2]:
        return data
    raise BlobMissing(
        f"the blob {ref} in {where} is damaged: its {len(data)} bytes are not those that were put there. "
        "Restore it from a backup"
    )


def missing(ref: str, where: object) -> BlobMissing:
    """The error for a blob that is not there."""
    return BlobMissing(
        f"the blob {ref} is not in {where}: it was deleted, or the process that put it there keeps its "
        "blobs elsewhere. Set ABEYANCE_STORAGE to the same place for all of them"
    )


async def in_thread(work: Callable[[], T]) -> T:
    """Do what blocks without holding up the loop."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)


class MemoryBlobs:
    """Blobs that are gone with the process."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    async def put(self, run_id: str, data: bytes) -> str:
        ref = reference(run_id, data)
        self._kept[ref] = bytes(data)
        return ref

    async def get(self, ref: str) -> bytes:
        try:
            return self._kept[checked_reference(ref)]
        except KeyError:
            raise missing(ref, "memory") from None

    async def delete_run(self, run_id: str) -> int:
        prefix = f"{folder_of(run_id)}/"
        found = [ref for ref in self._kept if ref.startswith(prefix)]
        for ref in found:
            del self._kept[ref]
        return len(found)


class FolderBlobs:
    """Blobs in a folder, which is made when it is first written to, for its owner alone.

    A file is there as a whole or not at all, also after a power cut.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        # Looked at once: where a relative path leads must not change with the current directory.
        self.folder: Final = Path(folder).absolute()

    async def put(self, run_id: str, data: bytes) -> str:
        ref = reference(run_id, data)
        await in_thread(lambda: self._write(ref, data))
        return ref

    async def get(self, ref: str) -> bytes:
        data = await in_thread(lambda: self._read(checked_reference(ref)))
        return checked_data(ref, data, self.folder)

    async def delete_run(self, run_id: str) -> int:
        return await in_thread(lambda: self._delete(self.folder / folder_of(run_id)))

    def _write(self, ref: str, data: bytes) -> None:
        path = self.folder / ref
        try:
            if self._holds(path, data):
                return
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.mkdir(exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".half")
            half = Path(name)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                # A folder that is shared is shared by its own rights, which those of a file follow.
                half.chmod(path.parent.stat().st_mode & 0o666)
                half.replace(path)
            except BaseException:
                half.unlink(missing_ok=True)
                raise
            _sync(path.parent)
        except OSError as error:
            raise _failed("written to", self.folder, error) from error

    def _read(self, ref: str) -> bytes:
        path = self.folder / ref
        try:
            if not path.resolve().is_relative_to(self.folder.resolve()):
                raise BlobMissing(f"the blob {ref} is a link that leads out of {self.folder}")
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise missing(ref, self.folder) from None
        except OSError as error:
            raise _failed("read from", self.folder, error) from error

    def _holds(self, path: Path, data: bytes) -> bool:
        # Its name is not enough: a damaged file is mended by whoever puts the same bytes again.
        try:
            return path.stat().st_size == len(data) and path.read_bytes() == data
        except FileNotFoundError:
            return False

    def _delete(self, path: Path) -> int:
        try:
            # What begins with a dot is a half that somebody has not finished writing.
            found = sum(not entry.name.startswith(".") for entry in path.iterdir())
            shutil.rmtree(path)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise _failed("deleted from", self.folder, error) from error
        return found


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failed(done: str, folder: Path, error: OSError) -> Unavailable:
    return Unavailable(f"a blob could not be {done} {folder}: {error.strerror or error}")
