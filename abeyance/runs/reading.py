"""Reading runs over Temporal: as they are now, what they ask, how they ended, and waiting for them.

Every call is bounded in time. Where no worker can be asked, what Temporal knows by itself is told, and
said to be `degraded`.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Self

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient

from abeyance import wire
from abeyance.agents.transcriptitem import TranscriptItem
from abeyance.core.events import Message
from abeyance.errors import Code, Refusal, Unavailable, Unreadable
from abeyance.histories import transcripts
from abeyance.histories.closed import record_in
from abeyance.histories.described import PAUSED_NATIVELY, Described
from abeyance.histories.heads import heads
from abeyance.runs.inbox import Inbox, InboxFilter
from abeyance.runs.line import Line
from abeyance.runs.listing import Listing, RunFilter, listed_view
from abeyance.runs.vigil import signs
from abeyance.settings import Settings, load_settings
from abeyance.storage.blobs import Blobs, MemoryBlobs
from abeyance.storage.location import ConfiguredBlobs
from abeyance.temporal.connection import connect_temporal, pollers


class Reading:
    """The runs of one deployment, as one reads them.

    They are those of a Temporal namespace that are on `task_queue`, where its workers listen; the others
    are as if they were not there. `patience` is how many seconds an operation is tried before
    it is `Unavailable`. `blobs` are where workers keep what agents have said; without them no
    transcript is found.
    """

    def __init__(
        self,
        temporal: TemporalClient,
        *,
        task_queue: str = wire.TASK_QUEUE,
        patience: float = 10.0,
        blobs: Blobs | None = None,
    ) -> None:
        self.temporal = temporal
        self.blobs = MemoryBlobs() if blobs is None else blobs
        self.task_queue = task_queue
        self.patience = patience
        self._line = Line(temporal, task_queue, patience=patience)
        self._listing = Listing(temporal, task_queue, patience=patience)
        self._inbox = Inbox(self._listing, self.interrupts)

    @classmethod
    async def connect(
        cls,
        address: str | None = None,
        *,
        namespace: str | None = None,
        task_queue: str = wire.TASK_QUEUE,
        patience: float = 10.0,
        settings: Settings | None = None,
    ) -> Self:
        """A client for the Temporal at `address` (host:port), else where the environment says.

        What it has to know of storage and encryption is in `settings`, else in the environment.
        """
        temporal = await connect_temporal(address, namespace=namespace, settings=settings)
        blobs = ConfiguredBlobs(settings or load_settings())
        return cls(temporal, task_queue=task_queue, patience=patience, blobs=blobs)

    async def view(self, run_id: str) -> wire.RunView:
        """The run as it is now. Where no worker can be asked, what Temporal knows (`degraded`).

        Raises the refusal `unknown_run`.
        """
        described = await self._line.described(run_id)
        if not described.is_running:
            return await self._left(described)
        if described.status == PAUSED_NATIVELY:
            return described.degraded_view("paused through Temporal")
        try:
            view = await self._line.query(run_id, "view", wire.RunView)
        except Unavailable:
            return described.degraded_view()
        return view.model_copy(update={"blocked": described.blocked})

    async def guarded_by(self, run_id: str, *, anew: bool = False) -> tuple[str, ...]:
        """The capabilities that the run's graph can ask for: to change its course takes them all.

        They never change, and are remembered unless they are wanted `anew`. Temporal knows them without a
        worker. Raises the refusal `unknown_run`, and Unavailable for a run that was started around this
        client and cannot be asked now.
        """
        guards = (await self._line.known(run_id, anew=anew)).guarded_by
        if guards is not None:
            return guards
        view = await self.view(run_id)
        if view.degraded:
            raise Unavailable(f"nobody can tell now which capabilities guard the run {run_id!r}")
        return tuple(view.guarded_by)

    async def graph_of(self, run_id: str) -> str | None:
        """The name of the run's graph; None if that cannot be read. Raises the refusal `unknown_run`."""
        return (await self._line.known(run_id)).graph

    async def _seen(self, run_id: str) -> wire.RunView:
        """The view of a run that had not ended a moment ago: it is asked beside Temporal, to be quick."""
        view, described = await asyncio.gather(
            self._line.query(run_id, "view", wire.RunView),
            self._line.described(run_id),
            return_exceptions=True,
        )
        if isinstance(view, BaseException) or isinstance(described, BaseException):
            return await self.view(run_id)
        if not described.is_running:
            return await self._left(described)
        return view.model_copy(update={"blocked": described.blocked})

    async def _left(self, described: Described) -> wire.RunView:
        try:
            return (await self._line.record(described)).view
        except Unreadable as error:
            return listed_view(described, unreadable=str(error))

    async def runs(
        self, wanted: RunFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[wire.RunView], str | None]:
        """Runs, newest first, as far as Temporal tells without asking them (`degraded`), a moment late.

        Also returns the cursor of the next page, which is None after the last; a page may be short of
        `limit` and yet not be the last. Raises `invalid_body` for a cursor of another list.
        """
        return await self._listing.runs(wanted or RunFilter(), cursor=cursor, limit=limit)

    async def inbox(
        self, wanted: InboxFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[wire.InterruptView], str | None]:
        """What running runs ask, by windows of deadlines, without schemas and payloads, a moment late.

        The cursor is as that of `runs`.
        """
        return await self._inbox.page(wanted or InboxFilter(), cursor=cursor, limit=limit)

    async def interrupts(self, run_id: str, *, status: str = "open") -> list[wire.InterruptView]:
        """A run's interrupts of one status, or of `all`: the open ones first.

        Where much is open, the later ones are `abridged`; `interrupt` reads one of them whole.
        """
        described = await self._line.described(run_id)
        if not described.is_running and status == "open":
            found = []
        elif not described.is_running:
            found = (await self._line.record(described)).interrupts
        elif described.status == PAUSED_NATIVELY:
            found = described.degraded_view().interrupts
        else:
            try:
                found = await self._line.query(run_id, "interrupts", list[wire.InterruptView])
            except Unavailable:
                found = described.degraded_view().interrupts
        return [entry for entry in found if status in ("all", entry.status)]

    async def interrupt(self, run_id: str, interrupt_id: str) -> wire.InterruptView | None:
        """One of a run's interrupts, open or settled; None if it has no such one."""
        listed = await self.interrupts(run_id, status="all")
        found = next((entry for entry in listed if entry.id == interrupt_id), None)
        if found is None or not found.abridged:
            return found
        which = wire.WhichInterrupt(interrupt_id=interrupt_id)
        try:
            return await self._line.query(run_id, "interrupt", wire.InterruptView, which)
        except Unavailable:
            return found

    async def messages(self, run_id: str) -> list[Message]:
        """The unread messages, in the order of reading; none in an ended run, which reports them.

        Raises the refusals `unknown_run` and `natively_paused`, and Unavailable: messages are known to
        the run alone.
        """
        described = await self._line.described(run_id)
        if not described.is_running:
            return []
        try:
            return await self._line.query(run_id, "messages", list[Message])
        except Unavailable:
            await self._line.refuse_natively_paused(run_id)
            raise

    async def queue_depth(self, run_id: str) -> int:
        """How many messages are unread."""
        return (await self.view(run_id)).queue_depth

    async def has_queued_messages(self, run_id: str) -> bool:
        """Whether a message is unread."""
        return await self.queue_depth(run_id) > 0

    async def may_have_messages(self, run_id: str) -> bool:
        """Whether the run has told Temporal that a message is unread: wakes no worker.

        What was accepted is told in the same moment. Raises the refusal `unknown_run`, and Unavailable.
        """
        described = await self._line.described(run_id)
        summary = described.memo.get(wire.MEMO_SUMMARY) or {}
        return described.is_running and bool(summary.get("queue_depth"))

    async def transcript(
        self,
        run_id: str,
        address: str | None = None,
        *,
        cursor: str | None = None,
        limit: int = 100,
    ) -> tuple[list[TranscriptItem], str | None]:
        """What was said to an agent of a run, and by it, oldest first; and the cursor of what follows.

        The cursor stays good while the transcript grows, and is None once the run has ended and all
        was read: until then an empty page means that nothing was said yet. A page may be short of
        `limit`. Where no worker can be asked, the run's history tells where its transcripts are.

        Args:
            run_id: The run.
            address: That of the agent, or of something in it; None in a run with one transcript.
            cursor: Where to go on; None is from the beginning.
            limit: How many items at most, up to 1000.

        Raises:
            Refusal: `unknown_run`; `unknown_node` for an address without a transcript; `invalid_body`
                where several could be meant, and for a cursor of another one; `gone` where what was
                read up to the cursor was undone since.
            Unavailable: Temporal, or what was said, cannot be reached.
            SettingsError: The extra `agents` is not installed.
        """
        described = await self._line.described(run_id)
        return await transcripts.page(
            self.blobs,
            run_id,
            await self._transcripts(described),
            address=address,
            cursor=cursor,
            limit=limit,
            is_over=not described.is_running,
        )

    async def _transcripts(self, described: Described) -> dict[str, str]:
        """Where a run's transcripts are: as it says, as it said at its end, or as its history tells."""
        run_id = described.run_id
        if not described.is_running:
            if (left := (await self._line.record(described)).transcripts) is not None:
                return left
        elif described.status != PAUSED_NATIVELY:
            try:
                return await self._line.query(run_id, "transcripts", dict[str, str])
            except Unavailable:
                pass
        return await heads(self.temporal, self.task_queue, run_id, patience=self.patience)

    async def result(self, run_id: str) -> wire.ClosingRecord:
        """What an ended run left behind. Raises `unknown_run`, or `not_finished` while it runs."""
        described = await self._line.described(run_id)
        if described.is_running:
            status = described.shown_status
            raise Refusal(
                Code.NOT_FINISHED,
                f"The run {run_id!r} is {status} and has no result yet.",
                run_status=status,
            )
        return await self._line.record(described)

    async def wait(
        self, run_id: str, *, until: frozenset[str] = frozenset(), timeout: float = 30.0
    ) -> wire.RunView:
        """The view as soon as the run's status is one of `until`, or it has ended, or after
        `timeout` seconds, whichever is first.
        """
        try:
            async with asyncio.timeout(timeout), aclosing(signs(self._line, run_id, until)) as read:
                async for event in read:
                    record = event and await self._record_in(run_id, event)
                    view = record.view if record else await self._seen(run_id)
                    if view.status in until or view.ended_at is not None:
                        return view
        except TimeoutError:
            pass
        return await self.view(run_id)

    async def _record_in(self, run_id: str, event: HistoryEvent) -> wire.ClosingRecord | None:
        try:
            return await record_in(self.temporal, run_id, event)
        except Unreadable:
            return None

    async def count_of_others(self) -> int:
        """How many runs of other deployments this client's credentials let it see in the namespace."""
        return await self._listing.count_of_others()

    async def pollers(self) -> int:
        """How many workers ask for our work. Raises Unavailable, within two seconds."""
        return await pollers(self.temporal, self.task_queue)
