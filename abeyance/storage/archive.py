"""The archive: the audits of runs as files, which outlive Temporal's retention.

    <deployment>/<run>/<execution>.jsonl   an audit, by the first of the run's executions
    <deployment>/<run>/erased.jsonl        the tombstone of a run that was erased
    <deployment>/erased/<hash>             the id of a run that was erased a short time ago
    <deployment>/progress.json             how far the archiver is

A folder's name is that of `folder_of`. A deployment is a namespace and a task queue, so several can share
an archive and see nothing of each other. With keys, files are sealed for their runs.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from pydantic import AwareDatetime, TypeAdapter, ValidationError

from abeyance.keyring import Keyring, NotSealed, is_sealed, owner_of
from abeyance.settings import Settings
from abeyance.storage.backends import files_at
from abeyance.storage.blobs import Files, folder_of

_SUFFIX: Final = ".jsonl"
_TOMBSTONE: Final = "erased"
_PROGRESS: Final = "progress.json"
_logger = logging.getLogger("abeyance.archive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the archiver is: runs that had ended by `closed_until` are archived, and open runs were at
    `open_at`. None: never.
    """

    closed_until: AwareDatetime | None = None
    open_at: AwareDatetime | None = None


_PROGRESSES: Final = TypeAdapter(Progress)


class Archive:
    """The archive of one deployment. `is_required` refuses files that are not sealed.

    Methods raise Unavailable if the storage cannot be reached, and WrongKey.
    """

    def __init__(
        self, files: Files, deployment: str, keys: Keyring, *, is_required: bool = False
    ) -> None:
        self._files = files
        self._folder = folder_of(deployment)
        self._keys = keys
        self._is_required = is_required

    async def read(self, run_id: str, execution: str) -> bytes | None:
        """Return the audit of an execution, None if it is not archived."""
        name = self._name(run_id, execution)
        data = await self._files.read(name)
        return None if data is None else self._opened(name, data, run_id)

    async def write(self, run_id: str, execution: str, audit: bytes) -> None:
        """Write or replace the audit of an execution."""
        sealed = self._keys.seal(audit, run_id=run_id) if self._keys else audit
        await self._files.write(self._name(run_id, execution), sealed)

    async def executions(self, run_id: str) -> list[str]:
        """Return the first executions of the archived runs that had this id."""
        listed = await self._files.names(f"{self._folder}/{folder_of(run_id)}")
        names = [name.rpartition("/")[2].removesuffix(_SUFFIX) for name in listed]
        return [name for name in names if name != _TOMBSTONE]

    async def delete(self, run_id: str, execution: str) -> None:
        """Delete the audit of an execution, if it is archived."""
        await self._files.delete(self._name(run_id, execution))

    async def tombstone(self, run_id: str) -> bytes | None:
        """Return the tombstone of a run, None if none with this id was erased."""
        return await self.read(run_id, _TOMBSTONE)

    async def bury(self, run_id: str, tombstone: bytes) -> None:
        """Write the tombstone of a run, and that it is to be swept."""
        await self.write(run_id, _TOMBSTONE, tombstone)
        await self._files.write(self._mark(run_id), run_id.encode())

    async def to_sweep(self) -> list[str]:
        """Return the ids of the runs that were buried and not swept for the last time."""
        names = await self._files.names(f"{self._folder}/{_TOMBSTONE}")
        marks = [await self._files.read(name) for name in names]
        return [mark.decode() for mark in marks if mark is not None]

    async def swept(self, run_id: str) -> None:
        """Record that a run was swept for the last time."""
        await self._files.delete(self._mark(run_id))

    async def progress(self) -> Progress:
        """Return how far the archiver is: at the beginning, if its file is damaged."""
        data = await self._files.read(f"{self._folder}/{_PROGRESS}")
        try:
            return Progress() if data is None else _PROGRESSES.validate_json(data)
        except ValidationError:
            _logger.warning("%s is damaged: all runs are archived again", _PROGRESS)
            return Progress()

    async def record(self, progress: Progress) -> None:
        """Record how far the archiver is."""
        await self._files.write(f"{self._folder}/{_PROGRESS}", _PROGRESSES.dump_json(progress))

    def _mark(self, run_id: str) -> str:
        return f"{self._folder}/{_TOMBSTONE}/{folder_of(run_id).rpartition('.')[2]}"

    def _name(self, run_id: str, execution: str) -> str:
        return f"{self._folder}/{folder_of(run_id)}/{execution}{_SUFFIX}"

    def _opened(self, name: str, data: bytes, run_id: str) -> bytes:
        if not is_sealed(data):
            if self._is_required:
                raise NotSealed(
                    f"the archived file {name} is refused: it is not encrypted, and "
                    "ABEYANCE_ENCRYPTION_REQUIRED is set"
                )
            return data
        opened = self._keys.open(data)
        if owner_of(data) != run_id:
            raise NotSealed(f"the archived file {name} was sealed for {owner_of(data)!r}")
        return opened


def archive_of(settings: Settings, namespace: str) -> Archive | None:
    """Return the archive of a deployment, None if it has none. Raises SettingsError."""
    if settings.audit is None:
        return None
    return Archive(
        files_at(settings.audit),
        f"{namespace}/{settings.task_queue}",
        settings.keyring,
        is_required=settings.encryption_required,
    )
