"""The audits of runs: made of their histories, and kept in the archive past Temporal's retention."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio.api.workflow.v1 import WorkflowExecutionInfo

from abeyance import views
from abeyance.client.listing import OPEN_RUNS, RUNS, Listing, written
from abeyance.client.rpc import WorkflowRpc
from abeyance.core.json import Json
from abeyance.core.policy import Principal
from abeyance.errors import Code, Refusal, SettingsError, Unavailable
from abeyance.history.audit import (
    ADMIN,
    AuditHistories,
    capability_of,
    closing,
    contents,
    redacted,
)
from abeyance.history.audit_chain import END, Chain, are_signed, content_of, verify
from abeyance.history.deleted_runs import DELETED, erased_executions, tombstone_of
from abeyance.keyring import SigningKey, VerifyingKey
from abeyance.storage.archive import Archive, Progress
from abeyance.storage.blobs import in_thread
from abeyance.util import gather_limited

_LATE: Final = timedelta(minutes=2)
"""How late visibility may list the end of a run for the next round to find it."""
_ANEW: Final = timedelta(days=2)
"""How far back the first round of a day looks again."""
_GIVEN_UP: Final = timedelta(days=1)
"""How long runs that cannot be archived are tried in every round."""
_logger = logging.getLogger("abeyance.archive")

Shown = Callable[[], Awaitable[tuple[views.RunView, list[views.InterruptView]]]]
"""Reads a run: its view, and its settled interrupts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """An audit: the lines that are archived, without their last, and the contents of those after them.

    `last` is the archived last line, if the run had ended and nothing has happened since. `is_new`: the
    archive lacks something of it.
    """

    execution: str
    lines: Sequence[bytes]
    contents: Sequence[Mapping[str, Json]]
    last: bytes | None = None
    is_new: bool = False


class Audits:
    """The audits of one deployment. Without an archive they are kept as long as Temporal keeps runs."""

    def __init__(self, line: WorkflowRpc, signing_key: SigningKey | None) -> None:
        self.archive = line.deleted.archive
        self._line = line
        self._deleted = line.deleted
        self._key = signing_key

    async def read(self, run_id: str, shown: Shown, *, reader: Principal | None = None) -> bytes:
        """Return the audit of a run as lines of JSON; `shown` reads the run.

        Answers to questions whose capability the reader lacks are left out, unless the reader has
        `admin`; None reads all. Raises the refusals `unknown_run` and `erased`, and Unavailable.
        """
        try:
            document = await self._document(run_id, shown)
        except Refusal as refusal:
            if refusal.code is not Code.GONE:
                raise
            document = await self._archived(run_id, refusal)
        # A long one takes seconds.
        return await in_thread(lambda: self._read_by(reader, document))

    def _read_by(self, reader: Principal | None, document: Document) -> bytes:
        if reader is None or reader.may(ADMIN):
            return self._written(document)
        # Redacted lines have other hashes, so the whole chain is made anew: signed only if this key has
        # signed what was archived, for anybody who can write the archive could have made it.
        chain = Chain(self._key if self._has_signed(document) else None)
        hidden = (redacted(content, reader) for content in _contents(document))
        return _joined(chain.add(content) for content in hidden)

    def _has_signed(self, document: Document) -> bool:
        last = [] if document.last is None else [document.last]
        public = None if self._key is None else VerifyingKey.parse(self._key.public)
        return public is not None and are_signed([*document.lines, *last], public)

    async def record(self, run_id: str, unknown: Refusal) -> views.ClosingRecord:
        """Return what the archive has of a run that Temporal has deleted; its last view, if it was open.

        Raises the refusal `unknown` if it is not archived.
        """
        document = await self._archived(run_id, unknown)
        *_, last = _contents(document)
        view = views.RunView.model_validate(last["run"]).model_copy(update={"archived": True})
        settled = map(views.InterruptView.model_validate, last["interrupts"])
        return views.ClosingRecord(
            outcome=view.status,
            reason=view.reason,
            values=view.values,
            undelivered=view.undelivered,
            view=view,
            interrupts=[*view.interrupts, *settled],
        )

    async def archive_run(self, run_id: str, shown: Shown) -> bool:
        """Write the audit of a run into the archive, and return whether there was anything new.

        Raises as `read`.
        """
        archive = self.required_archive()
        document = await self._document(run_id, shown)
        if not document.is_new:
            return False
        audit = await in_thread(lambda: self._written(document))
        await archive.write(run_id, document.execution, audit)
        # An erasure writes its tombstone before it deletes, so one of the two sees the other.
        if document.execution in await erased_executions(archive, run_id):
            await archive.delete(run_id, document.execution)
        return True

    async def _document(self, run_id: str, shown: Shown) -> Document:
        described = await self._line.described(run_id)
        execution = described.first
        *lines, last = await self._kept(run_id, execution) or [b""]
        earlier = await in_thread(lambda: [content_of(line) for line in lines])
        histories = AuditHistories(
            self._line.temporal,
            self._line.task_queue,
            patience=self._line.patience,
            capabilities=_capabilities(earlier),
        )
        after = next((line["id"] for line in reversed(earlier) if "id" in line), None)
        before = content_of(last) if last else {}
        reached = before.get("execution", "")
        fresh = [content async for content in contents(histories, run_id, after, execution=reached)]
        is_new = bool(fresh) or histories.execution != reached
        if not is_new and before["type"] == END:
            return Document(execution=execution, lines=lines, contents=(), last=last)
        newest = next(reversed([*earlier, *fresh]))["type"]
        view, settled = await shown()
        now = datetime.now(UTC)
        fresh.append(closing(newest, view, settled, execution=histories.execution, now=now))
        return Document(execution=execution, lines=lines, contents=fresh, is_new=is_new)

    async def _archived(self, run_id: str, unknown: Refusal) -> Document:
        """The newest archived audit of an id. Raises the refusal `unknown`."""
        kept = [
            (each, await self._kept(run_id, each)) for each in await self._deleted.archived(run_id)
        ]
        found = [
            (content_of(lines[0])["time"], execution, lines) for execution, lines in kept if lines
        ]
        if not found:
            raise unknown
        _, execution, (*lines, last) = max(found)
        return Document(execution=execution, lines=lines, contents=(), last=last)

    async def _kept(self, run_id: str, execution: str) -> list[bytes]:
        """The archived lines of an execution, none if it is not archived. Raises Unavailable for a
        damaged file, so that nothing is made of it or in its place.
        """
        data = None if self.archive is None else await self.archive.read(run_id, execution)
        if data is None:
            return []
        if faults := (await in_thread(lambda: verify(data))).faults:
            raise Unavailable(
                f"the archived audit of the run {run_id!r}, execution {execution}, is damaged "
                f"({faults[0]}): restore it from a backup, or move it away"
            )
        return data.splitlines()

    def _written(self, document: Document) -> bytes:
        chain = Chain(self._key, document.lines)
        last = [] if document.last is None else [document.last]
        added = [chain.add(content) for content in document.contents]
        return _joined([*document.lines, *added, *last])

    def required_archive(self) -> Archive:
        """Return the archive. Raises SettingsError without one."""
        if self.archive is None:
            raise SettingsError(
                "ABEYANCE_AUDIT is not set for this worker, and `abeyance setup` has scheduled the "
                "archiver: set it for all workers and APIs, or run setup without it"
            )
        return self.archive


def _contents(document: Document) -> Iterator[Mapping[str, Json]]:
    yield from map(content_of, document.lines)
    yield from document.contents
    if document.last is not None:
        yield content_of(document.last)


def _capabilities(earlier: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """What archived questions take, by their ids."""
    return {
        line["data"]["id"]: capability_of(line["data"], line["shown"])
        for line in earlier
        if "shown" in line
    }


def _joined(lines: Iterable[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


class Archiver:
    """Writes the audits of runs that have ended into the archive, and once a day those of open runs."""

    def __init__(
        self,
        audits: Audits,
        listing: Listing,
        shown_of: Callable[[str], Awaitable[tuple[views.RunView, list[views.InterruptView]]]],
    ) -> None:
        self._audits = audits
        self._listing = listing
        self._shown_of = shown_of

    async def round(self, alive: Callable[[], None] = lambda: None) -> int:
        """Archive what is due, and return how many audits were written; `alive` is called for each run.

        A run that cannot be read now is tried again by the next rounds. Raises SettingsError without an
        archive, and Unavailable.
        """
        archive = self._audits.required_archive()
        now = datetime.now(UTC)
        progress = await archive.progress()
        is_first_of_day = progress.open_at is None or progress.open_at.date() != now.date()
        closed = f"{RUNS} AND CloseTime IS NOT NULL"
        if progress.closed_until is not None:
            since = progress.closed_until - (_ANEW if is_first_of_day else _LATE)
            closed += f" AND CloseTime >= '{written(since)}'"
        rows = await self._listing.all(closed)
        if is_first_of_day:
            rows += await self._listing.all(OPEN_RUNS)
            await self._sweep(archive, now)
        written_: list[str] = []
        left: list[datetime] = []

        async def one(row: WorkflowExecutionInfo) -> None:
            alive()
            run_id = row.execution.workflow_id
            try:
                if await self._audits.archive_run(run_id, lambda: self._shown_of(run_id)):
                    written_.append(run_id)
            except (Refusal, Unavailable) as error:
                # Temporal has deleted it since, perhaps because it is being erased.
                if isinstance(error, Refusal) and error.code in DELETED:
                    return
                _logger.warning("run=%s | not archived: %s", run_id, error)
                if row.HasField("close_time"):
                    left.append(row.close_time.ToDatetime(tzinfo=UTC))

        await gather_limited(rows, one)
        until = max(min([now, *left]), now - _GIVEN_UP)
        await archive.record(
            Progress(closed_until=until, open_at=now if is_first_of_day else progress.open_at)
        )
        return len(written_)

    async def _sweep(self, archive: Archive, now: datetime) -> None:
        """Delete what an archiver that was killed has written of runs that were erased meanwhile."""
        for run_id in await archive.to_sweep():
            buried = await tombstone_of(archive, run_id)
            for execution in {*buried.get("executions", ())} & {*await archive.executions(run_id)}:
                await archive.delete(run_id, execution)
            if not buried or now - datetime.fromisoformat(buried["time"]) > _ANEW:
                # No archiver has tried for so long to write what it has read before.
                await archive.swept(run_id)
