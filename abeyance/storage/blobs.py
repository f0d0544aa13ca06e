"""Blobs: large values stored outside Temporal's histories.

A blob belongs to a run and never changes. Its reference contains the hash of its bytes: putting the same
bytes again stores nothing new, and reads are verified. A reference is independent of the storage, so
blobs can be moved.
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

from abeyance.core.text import truncate
from abeyance.errors import Unavailable

T = TypeVar("T")

_LONGEST_NAME: Final = 40
_REFERENCE: Final = re.compile(r"[a-z0-9-]{1,40}\.[0-9a-f]{16}/[0-9a-f]{64}", re.ASCII)
# Not the loop's default threads: those run synchronous nodes and may all be busy.
_THREADS: Final = ThreadPoolExecutor(max_workers=16, thread_name_prefix="blobs")


class BlobMissing(Unavailable):
    """A blob is missing in this storage, or damaged."""


class Blobs(Protocol):
    """A storage of blobs."""

    async def put(self, run_id: str, data: bytes) -> str:
        """Store bytes for a run, and return their reference. Raises Unavailable."""
        ...

    async def get(self, ref: str) -> bytes:
        """Return the bytes of a reference. Raises BlobMissing and Unavailable."""
        ...

    async def delete(self, ref: str) -> None:
        """Delete one blob, if it is there. Raises Unavailable."""
        ...

    async def delete_run(self, run_id: str) -> int:
        """Delete all blobs of a run, and return their number."""
        ...


def folder_of(run_id: str) -> str:
    """Return the folder of a run: the part of its id that every file system allows, and a hash.

    The hash distinguishes ids that differ in case or in removed characters.
    """
    name = re.sub("[^a-z0-9-]", "-", run_id.lower())[:_LONGEST_NAME] or "-"
    return f"{name}.{hashlib.sha256(run_id.encode()).hexdigest()[:16]}"


def reference(run_id: str, data: bytes) -> str:
    """Return the reference of these bytes of a run."""
    return f"{folder_of(run_id)}/{hashlib.sha256(data).hexdigest()}"


def checked_reference(ref: str) -> str:
    """Return a valid reference. Raises BlobMissing for anything else."""
    if _REFERENCE.fullmatch(ref):
        return ref
    raise BlobMissing(f"{truncate(ref, 200)!r} is not a blob reference")


def checked_data(ref: str, data: bytes, where: object) -> bytes:
    """Return the bytes if they match the reference. Raises BlobMissing."""
    if hashlib.sha256(data).hexdigest() == ref.rpartition("/")[2]:
        return data
    raise BlobMissing(
        f"the blob {ref} in {where} is damaged: its {len(data)} bytes do not match its hash. Restore it "
        "from a backup"
    )


def missing(ref: str, where: object) -> BlobMissing:
    """Return the error for a missing blob."""
    return BlobMissing(
        f"the blob {ref} is not in {where}: it was deleted, or another process stores its blobs "
        "elsewhere. Set ABEYANCE_STORAGE to the same storage for all processes"
    )


async def in_thread(work: Callable[[], T]) -> T:
    """Run a blocking function in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)


class MemoryBlobs:
    """Blobs in the memory of this process."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    async def put(self, run_id: str, data: bytes) -> str:
        ref = reference(run_id, data)
        self._blobs[ref] = bytes(data)
        return ref

    async def get(self, ref: str) -> bytes:
        try:
            return self._blobs[checked_reference(ref)]
        except KeyError:
            raise missing(ref, "memory") from None

    async def delete(self, ref: str) -> None:
        self._blobs.pop(ref, None)

    async def delete_run(self, run_id: str) -> int:
        prefix = f"{folder_of(run_id)}/"
        refs = [ref for ref in self._blobs if ref.startswith(prefix)]
        for ref in refs:
            del self._blobs[ref]
        return len(refs)


class FolderBlobs:
    """Blobs in a folder, created on the first write and readable by its owner only.

    Files are written atomically, even across a power cut.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        # Resolved now, so that it does not change with the current directory.
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

    async def delete(self, name: str) -> None:
        await in_thread(lambda: self._unlink(name))

    def _write(self, ref: str, data: bytes) -> None:
        path = self.folder / ref
        try:
            if self._holds(path, data):
                return
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".partial")
            partial = Path(name)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                # The permissions of a shared folder apply to its files.
                partial.chmod(path.parent.stat().st_mode & 0o666)
                partial.replace(path)
            except BaseException:
                partial.unlink(missing_ok=True)
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
        # Compare the bytes too: putting them again repairs a damaged file.
        try:
            return path.stat().st_size == len(data) and path.read_bytes() == data
        except FileNotFoundError:
            return False

    def _unlink(self, name: str) -> None:
        try:
            (self.folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise _failed("deleted from", self.folder, error) from error

    def _delete(self, path: Path) -> int:
        try:
            # Names with a dot are unfinished files.
            count = sum(not entry.name.startswith(".") for entry in path.iterdir())
            shutil.rmtree(path)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise _failed("deleted from", self.folder, error) from error
        return count


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failed(done: str, folder: Path, error: OSError) -> Unavailable:
    return Unavailable(f"a blob could not be {done} {folder}: {error.strerror or error}")
