"""Waiting for a run to get somewhere: a long poll on its history, which costs no worker anything.

The memo that a run writes into its history says where it is, and the last event how it ended. So whoever
waits for the end alone asks for that event and for nothing else, and everybody else reads along. A server
that has no room for one more long poll is asked from time to time instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from abeyance import wire
from abeyance.agents.transcript_view import TranscriptItem
from abeyance.client.listing import Listing, listed_view
from abeyance.client.rpc import WorkflowRpc
from abeyance.core.events import Message
from abeyance.errors import Code, Refusal, Unavailable, Unreadable
from abeyance.history import transcripts
from abeyance.history.closing_record import closing_record_in
from abeyance.history.description import ENDINGS, PAUSED_NATIVELY, RunDescription, decoded
from abeyance.history.event_translation import CLOSING_EVENTS
from abeyance.history.feed import Feed
from abeyance.history.transcripts import MAX_ITEMS, heads
from abeyance.storage.blobs import Blobs
from abeyance.storage.converter import of_run

_LOOK_EVERY: Final = 0.5
"""In seconds, where no long poll can be had."""
_LONG: Final = 100
"""In events. A history can only be read from its beginning, so from a longer one it is asked first
whether the run is there already.
"""
_HANDED_OVER: Final = "workflow_execution_continued_as_new_event_attributes"
"""What has not ended the run, but begun another history of it."""


async def watch_status(
    line: WorkflowRpc, run_id: str, wanted: frozenset[str]
) -> AsyncGenerator[HistoryEvent | None, None]:
    """Yields whenever the run may have one of the wanted statuses, or has ended.

    What it yields is the event that ended the run, or None; the reader then looks at the run, and reads
    on to wait for the next sign. Raises the refusal `unknown_run`, and Unavailable.
    """
    only_the_end = wanted <= ENDINGS
    is_beginning, token = True, b""
    while True:
        page = await line.poll(run_id, token, only_the_end=only_the_end)
        if page is None:
            is_beginning, token = True, b""
            await asyncio.sleep(_LOOK_EVERY)
            if await _is_there(line, run_id, wanted):
                yield None
            continue
        events = page.history.events
        if is_beginning and len(events) > _LONG and await _is_there(line, run_id, wanted):
            yield None
        statuses = [found for event in events if (found := await _status(line, run_id, event))]
        is_beginning, token = False, page.next_page_token
        if events and events[-1].event_type in CLOSING_EVENTS:
            is_beginning, token = True, b""
            if not events[-1].HasField(_HANDED_OVER):
                yield events[-1]
        elif statuses and statuses[-1] in wanted:
            yield None


async def _is_there(line: WorkflowRpc, run_id: str, wanted: frozenset[str]) -> bool:
    described = await line.described(run_id)
    return not described.is_running or described.shown_status in wanted


async def _status(line: WorkflowRpc, run_id: str, event: HistoryEvent) -> str | None:
    """What an event says that the run's status is from here on, if anything."""
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            memo = event.workflow_execution_started_event_attributes.memo
        case EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED:
            memo = event.workflow_properties_modified_event_attributes.upserted_memo
        case _:
            return None
    if wire.MEMO_SUMMARY not in memo.fields:
        return None
    converter = of_run(line.temporal.data_converter, run_id)
    try:
        summary = await decoded(converter, memo.fields[wire.MEMO_SUMMARY])
    except Unreadable:
        # Whoever waits sees at the end of their time where the run is.
        return None
    return str(summary["status"])


_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What the parts of one client share.

    The runs are those of a Temporal namespace that are on one task queue. `blobs` are where workers keep
    what agents have said.
    """

    line: WorkflowRpc
    listing: Listing
    blobs: Blobs
    feed: Feed


class RunReader:
    """One run, to be read."""

    def __init__(self, deployment: Deployment, run_id: str) -> None:
        self._deployment = deployment
        self._line = deployment.line
        self._run_id = run_id

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._run_id

    async def view(self) -> wire.RunView:
        """The run as it is now. Where no worker can be asked, what Temporal knows (`degraded`).

        Raises the refusal `unknown_run`.
        """
        described = await self._line.described(self.run_id)
        if not described.is_running:
            return await self._left(described)
        if described.status == PAUSED_NATIVELY:
            return described.degraded_view("paused through Temporal")
        try:
            view = await self._line.query(self.run_id, "view", wire.RunView)
        except Unavailable:
            return described.degraded_view()
        return view.model_copy(update={"blocked": described.blocked})

    async def guarded_by(self, *, anew: bool = False) -> tuple[str, ...]:
        """The capabilities that the run's graph can ask for: to change its course takes them all.

        They never change, and are remembered unless they are wanted `anew`. Temporal knows them without a
        worker. Raises the refusal `unknown_run`, and Unavailable for a run that was started around this
        client and cannot be asked now.
        """
        guards = (await self._line.known(self.run_id, anew=anew)).guarded_by
        if guards is not None:
            return guards
        view = await self.view()
        if view.degraded:
            raise Unavailable(
                f"nobody can tell now which capabilities guard the run {self.run_id!r}"
            )
        return tuple(view.guarded_by)

    async def graph_of(self) -> str | None:
        """The name of the run's graph; None if that cannot be read. Raises the refusal `unknown_run`."""
        return (await self._line.known(self.run_id)).graph

    async def _seen(self) -> wire.RunView:
        """The view of a run that had not ended a moment ago: it is asked beside Temporal, to be quick."""
        view, described = await asyncio.gather(
            self._line.query(self.run_id, "view", wire.RunView),
            self._line.described(self.run_id),
            return_exceptions=True,
        )
        if isinstance(view, BaseException) or isinstance(described, BaseException):
            return await self.view()
        if not described.is_running:
            return await self._left(described)
        return view.model_copy(update={"blocked": described.blocked})

    async def _left(self, described: RunDescription) -> wire.RunView:
        try:
            return (await self._line.record(described)).view
        except Unreadable as error:
            return listed_view(described, unreadable=str(error))

    async def interrupts(self, *, status: str = "open") -> list[wire.InterruptView]:
        """A run's interrupts of one status, or of `all`: the open ones first.

        Where much is open, the later ones are `abridged`; `interrupt` reads one of them whole.
        """
        described = await self._line.described(self.run_id)
        if not described.is_running and status == "open":
            found = []
        elif not described.is_running:
            found = (await self._line.record(described)).interrupts
        elif described.status == PAUSED_NATIVELY:
            found = described.degraded_view().interrupts
        else:
            try:
                found = await self._line.query(self.run_id, "interrupts", list[wire.InterruptView])
            except Unavailable:
                found = described.degraded_view().interrupts
        return [entry for entry in found if status in ("all", entry.status)]

    async def interrupt(self, interrupt_id: str) -> wire.InterruptView | None:
        """One of a run's interrupts, open or settled; None if it has no such one."""
        listed = await self.interrupts(status="all")
        found = next((entry for entry in listed if entry.id == interrupt_id), None)
        if found is None or not found.abridged:
            return found
        which = wire.WhichInterrupt(interrupt_id=interrupt_id)
        try:
            return await self._line.query(self.run_id, "interrupt", wire.InterruptView, which)
        except Unavailable:
            return found

    async def events(
        self, *, after: str | None = None, follow: bool = True
    ) -> AsyncGenerator[wire.Event, None]:
        """Yield what has happened, in order, after the event with the id `after`.

        With `follow` also what happens from then on, until the run has ended. Raises `unknown_run`,
        `invalid_body` for what is no id of an event, `gone` for one that is no longer kept, and
        Unavailable. No worker has to be up.
        """
        feed = self._deployment.feed
        if follow:
            async with aclosing(feed.follow(self.run_id, after)) as events:
                async for event in events:
                    yield event
            return
        while True:
            page, after = await feed.page(self.run_id, after, _PAGE)
            for event in page:
                yield event
            if after is None or not page:
                return

    async def messages(self) -> list[wire.MessageView]:
        """The unread messages, in the order of reading; none in an ended run, which reports them.

        Raises the refusals `unknown_run` and `natively_paused`, and Unavailable: messages are known to
        the run alone.
        """
        described = await self._line.described(self.run_id)
        if not described.is_running:
            return []
        try:
            unread = await self._line.query(self.run_id, "messages", list[Message])
        except Unavailable:
            await self._line.refuse_natively_paused(self.run_id)
            raise
        return [wire.MessageView.of(message) for message in unread]

    async def queue_depth(self) -> int:
        """How many messages are unread."""
        return (await self.view()).queue_depth

    async def has_queued_messages(self) -> bool:
        """Whether a message is unread."""
        return await self.queue_depth() > 0

    async def may_have_messages(self) -> bool:
        """Whether the run has told Temporal that a message is unread: wakes no worker.

        What was accepted is told in the same moment. Raises the refusal `unknown_run`, and Unavailable.
        """
        described = await self._line.described(self.run_id)
        summary = described.memo.get(wire.MEMO_SUMMARY) or {}
        return described.is_running and bool(summary.get("queue_depth"))

    async def transcript_page(
        self,
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
        described = await self._line.described(self.run_id)
        return await transcripts.page(
            self._deployment.blobs,
            self.run_id,
            await self._transcripts(described),
            address=address,
            cursor=cursor,
            limit=limit,
            is_over=not described.is_running,
        )

    async def transcript(self, address: str | None = None) -> list[TranscriptItem]:
        """Return what was said to an agent of the run, and by it, oldest first. Raises as
        `transcript_page`.
        """
        found: list[TranscriptItem] = []
        cursor: str | None = None
        while True:
            items, cursor = await self.transcript_page(address, cursor=cursor, limit=MAX_ITEMS)
            found += items
            if cursor is None or not items:
                return found

    async def _transcripts(self, described: RunDescription) -> dict[str, str]:
        """Where a run's transcripts are: as it says, as it said at its end, or as its history tells."""
        if not described.is_running:
            if (left := (await self._line.record(described)).transcripts) is not None:
                return left
        elif described.status != PAUSED_NATIVELY:
            try:
                return await self._line.query(self.run_id, "transcripts", dict[str, str])
            except Unavailable:
                pass
        return await heads(
            self._line.temporal, self._line.task_queue, self.run_id, patience=self._line.patience
        )

    async def result(self) -> wire.ClosingRecord:
        """What an ended run left behind. Raises `unknown_run`, or `not_finished` while it runs."""
        described = await self._line.described(self.run_id)
        if described.is_running:
            status = described.shown_status
            raise Refusal(
                Code.NOT_FINISHED,
                f"The run {self.run_id!r} is {status} and has no result yet.",
                run_status=status,
            )
        return await self._line.record(described)

    async def wait(
        self, *, until: frozenset[str] = frozenset(), timeout: float = 30.0
    ) -> wire.RunView:
        """The view as soon as the run's status is one of `until`, or it has ended, or after
        `timeout` seconds, whichever is first.
        """
        try:
            async with (
                asyncio.timeout(timeout),
                aclosing(watch_status(self._line, self.run_id, until)) as read,
            ):
                async for event in read:
                    record = event and await self._record_in(event)
                    view = record.view if record else await self._seen()
                    if view.status in until or view.ended_at is not None:
                        return view
        except TimeoutError:
            pass
        return await self.view()

    async def _record_in(self, event: HistoryEvent) -> wire.ClosingRecord | None:
        try:
            return await closing_record_in(self._line.temporal, self.run_id, event)
        except Unreadable:
            return None
