"""Where what is too large for a history is kept: immutable bytes, found again by a reference."""

from __future__ import annotations

import hashlib
from typing import Protocol

from abeyance.errors import AbeyanceError


class BlobMissing(AbeyanceError):
    """Nothing is kept under a reference, or not any more."""

    def __init__(self, ref: str) -> None:
        self.ref = ref
        super().__init__(
            f"nothing is kept under the reference {ref!r}: it was erased, or this process looks in"
            " another place than the one that wrote it; give all workers the same blob store"
        )


class Blobs(Protocol):
    """A store of immutable bytes. The same bytes put twice have the same reference."""

    async def put(self, run_id: str, data: bytes) -> str:
        """Keep bytes that belong to a run, and return their reference."""
        ...

    async def get(self, ref: str) -> bytes:
        """The bytes of a reference. Raises BlobMissing if there are none."""
        ...


class MemoryBlobs:
    """Blobs of one process, gone when it ends."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    async def put(self, run_id: str, data: bytes) -> str:
        ref = f"{run_id}/{hashlib.sha256(data).hexdigest()}"
        self._kept[ref] = data
        return ref

    async def get(self, ref: str) -> bytes:
        try:
            return self._kept[ref]
        except KeyError:
            raise BlobMissing(ref) from None
