"""Reading one run: from its worker, from Temporal, and from the records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final

from temporalio.api.history.v1 import HistoryEvent

from abeyance import commands, views
from abeyance.agents.tool_results import load
from abeyance.agents.transcript_view import TranscriptItem
from abeyance.client.deployment import Deployment
from abeyance.client.listing import listed_view
from abeyance.client.waiting import watch_status
from abeyance.core.events import Message
from abeyance.core.json import Json
from abeyance.core.policy import Principal
from abeyance.core.state import Status
from abeyance.errors import AbeyanceError, Code, Refusal, Unavailable, Unreadable
from abeyance.history import transcripts
from abeyance.history.closing_record import closing_record_in
from abeyance.history.deleted_runs import DELETED
from abeyance.history.description import RunDescription
from abeyance.history.hindrance import hindered
from abeyance.history.transcripts import MAX_ITEMS, heads
from abeyance.orders import CommandedRun, awaited, order_of
from abeyance.records import audit, audit_chain, questions, runs
from abeyance.storage import run_files
from abeyance.storage.run_files import RunFile
from abeyance.temporal.workarounds.calls import PAUSED_NATIVELY

_PAGE: Final = 1_000


class RunReader(CommandedRun):
    """The reading half of a run's handle."""

    def __init__(self, deployment: Deployment, run_id: str) -> None:
        self._deployment = deployment
        self._line = deployment.line
        self._run_id = run_id

    @property
    def run_id(self) -> str:
        return self._run_id

    async def view(self) -> views.RunView:
        """Return the run as it is now; without a worker, as it was recorded last (`degraded`); after
        Temporal has deleted it, as it ended.

        Raises the refusals `unknown_run` and `erased`, and RecordsUnavailable.
        """
        try:
            described = await self._line.described(self.run_id)
        except Refusal as refusal:
            return await self._kept(refusal)
        if not described.is_running:
            return await self._left(described)
        if described.status == PAUSED_NATIVELY:
            return await self._as_recorded(described, "paused through Temporal")
        try:
            view = await self._line.query(self.run_id, "view", views.RunView)
        except Unavailable:
            return await self._as_recorded(described)
        return described.with_attempts(view)

    async def _as_recorded(
        self, described: RunDescription, reason: str | None = None
    ) -> views.RunView:
        """The view of an open run that cannot be asked, with what hinders it."""
        recorded = await self._deployment.records.read(runs.run, self.run_id)
        return await hindered(
            self._line.temporal, described, described.with_what_blocks(recorded, reason)
        )

    async def labels(self) -> Mapping[str, str]:
        """Return the labels of the run, also of one that Temporal has deleted.

        No worker has to be up, and no key is needed. Raises the refusals `unknown_run` and `erased`, and
        RecordsUnavailable.
        """
        try:
            described = await self._line.described(self.run_id)
        except Refusal as refusal:
            return (await self._kept(refusal)).labels
        if described.unreadable is None:
            return described.labels
        recorded = await self._deployment.records.read(runs.run, self.run_id)
        return {} if recorded is None else recorded.labels

    async def _kept(self, refusal: Refusal) -> views.RunView:
        """The view of a run that Temporal has deleted, as it was recorded; raises any other refusal."""
        if refusal.code is not Code.GONE:
            raise refusal
        view = await self._deployment.records.read(runs.run, self.run_id)
        if view is None:
            # It was erased meanwhile.
            raise await self._line.deleted.refusal(self.run_id)
        return view

    async def guarded_by(self, *, anew: bool = False) -> tuple[str, ...]:
        """Return the capabilities that the run's graph can ask for: changing its course takes them all.

        They never change and are cached, unless `anew`. Temporal has them without a worker. Raises the
        refusal `unknown_run`, and Unavailable for a run that was started without this client and that no
        worker can read now.
        """
        guards = (await self._line.cached_run(self.run_id, anew=anew)).guarded_by
        if guards is not None:
            return guards
        view = await self.view()
        if view.degraded:
            raise Unavailable(
                f"the capabilities that guard the run {self.run_id!r} cannot be read without a worker"
            )
        return tuple(view.guarded_by)

    async def graph_of(self) -> str | None:
        """Return the name of the run's graph, None if it is unreadable. Raises `unknown_run`."""
        return (await self._line.cached_run(self.run_id)).graph

    async def _seen(self) -> views.RunView:
        """The view of a run that had not ended a moment ago."""
        try:
            view = await self._line.query(self.run_id, "view", views.RunView)
        except AbeyanceError:
            return await self.view()
        if view.status == Status.AWAITING_INPUT:
            # None of its code runs, so no attempt of it is known to Temporal alone.
            return view
        described = await self._line.described(self.run_id)
        if not described.is_running:
            return await self._left(described)
        return described.with_attempts(view)

    async def _left(self, described: RunDescription) -> views.RunView:
        try:
            return (await self._line.record(described)).view
        except Unreadable as error:
            view = listed_view(described, unreadable=error)
        recorded = await self._deployment.records.read(runs.run, self.run_id)
        if described.unreadable is None or recorded is None:
            return view
        # No key is needed for these.
        found_by = {"labels": recorded.labels, "conversation_id": recorded.conversation_id}
        return view.model_copy(update=found_by)

    async def interrupts(self, *, status: str = "open") -> list[views.InterruptView]:
        """Return a run's interrupts of one status, or of `all`, the open ones first.

        If many are open, the later ones are `abridged`; `interrupt` reads one of them in full. Without a
        worker they are as they were recorded last. Raises as `view`.
        """
        order_of(commands.Interrupts, {"status": status})
        return await self._interrupts(status)

    async def _interrupts(self, status: str) -> list[views.InterruptView]:
        try:
            described = await self._line.described(self.run_id)
        except Refusal as refusal:
            await self._kept(refusal)
            return await self._deployment.records.read(questions.of_run, self.run_id, status=status)
        if not described.is_running and status == "open":
            return []
        if not described.is_running:
            shown = await self._settled(described)
        elif described.status == PAUSED_NATIVELY:
            shown = await self._recorded_interrupts()
        else:
            try:
                shown = await self._line.query(self.run_id, "interrupts", list[views.InterruptView])
            except Unavailable:
                shown = await self._recorded_interrupts()
        return [entry for entry in shown if status in ("all", entry.status)]

    async def _settled(self, described: RunDescription) -> list[views.InterruptView]:
        record = await self._line.record(described)
        if record.outcome not in views.ENDED_OUTSIDE:
            return record.interrupts
        # Such a run leaves no record of its own.
        await self._deployment.janitor.found(described)
        return await self._recorded_interrupts()

    async def _recorded_interrupts(self) -> list[views.InterruptView]:
        return await self._deployment.records.read(questions.of_run, self.run_id, status="all")

    async def discarded(self, *, status: str = "open") -> list[views.InterruptView]:
        """Return the interrupts of one status, or of `all`, that a rewind has discarded.

        Raises the refusal `unknown_run`, and RecordsUnavailable.
        """
        order_of(commands.Interrupts, {"status": status})
        await self._line.admit(self.run_id)
        return await self._deployment.records.read(
            questions.of_run, self.run_id, status=status, discarded=True
        )

    async def interrupt(self, interrupt_id: str) -> views.InterruptView | None:
        which = order_of(commands.WhichInterrupt, {"interrupt_id": interrupt_id})
        listed = await self._interrupts("all")
        view = next((entry for entry in listed if entry.id == interrupt_id), None)
        if view is None:
            # The run does not know what was discarded.
            found = await self._deployment.records.read(
                questions.question, self.run_id, interrupt_id
            )
            return None if found is None or found.rewound_by is None else found
        if not view.abridged:
            return view
        try:
            return await self._line.query(self.run_id, "interrupt", views.InterruptView, which)
        except (Refusal, Unavailable):
            # Its worker has gone.
            return view

    async def events(
        self, *, after: str | None = None, follow: bool = True
    ) -> AsyncGenerator[views.Event, None]:
        """Yield the events after the one with the id `after`, in order.

        With `follow` also new ones, until the run has ended. Raises `unknown_run`, `erased`,
        `invalid_body` for an id that is none, `gone` for one that the records do not have, and
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

    async def run_file(self, file: Mapping[str, str] | str) -> RunFile:
        """Return a file that the run has stored (`ctx.file`), by its reference or its id.

        Raises `unknown_file`, `unknown_run`, `erased`, and Unavailable.
        """
        try:
            await self._line.described(self.run_id)
        except Refusal as refusal:
            await self._kept(refusal)
        return await run_files.load(self._deployment.blobs, self.run_id, file)

    async def file(self, file: Mapping[str, str] | str) -> bytes:
        """Return the bytes of a file that the run has stored. Raises as `run_file`."""
        return (await self.run_file(file)).data

    async def audit(self, *, reader: Principal | None = None) -> bytes:
        """Return the audit of the run so far: who did what and when, and what they were shown.

        It is a text of JSON lines, each with the hash of the one before, and signed if the client has a
        key (`abeyance.records.audit_chain`). Answers to questions whose capability the `reader` lacks are
        left out, unless the reader has `admin`; None reads all. No worker has to be up, and Temporal need
        not have the run any more. Raises the refusals `unknown_run` and `erased`, and Unavailable.
        """
        contents = await self._deployment.records.read(audit.contents, self.run_id)
        if not contents:
            await self._line.described(self.run_id)
            raise Unavailable(f"nothing is recorded of the run {self.run_id!r} yet")
        key = self._deployment.signing_key
        # A long one takes seconds.
        return await asyncio.to_thread(audit_chain.written, contents, reader=reader, key=key)

    async def messages(self) -> list[views.MessageView]:
        """Return the unread messages, in the order of reading; none of an ended run, which reports them.

        Raises the refusals `unknown_run` and `natively_paused`, and Unavailable: only the run has the
        messages.
        """
        described = await self._line.described(self.run_id)
        if not described.is_running:
            return []
        try:
            unread = await self._line.query(self.run_id, "messages", list[Message])
        except Unavailable:
            await self._line.refuse_natively_paused(self.run_id)
            raise
        return [views.MessageView.of(message) for message in unread]

    async def queue_depth(self) -> int:
        """How many messages are unread."""
        return (await self.view()).queue_depth

    async def has_queued_messages(self) -> bool:
        """Return whether a message is unread."""
        return await self.queue_depth() > 0

    async def may_have_messages(self) -> bool:
        """Return whether a message is unread by the run's memo, without a worker.

        The memo changes as soon as a message is accepted. Raises the refusal `unknown_run`, and
        Unavailable.
        """
        described = await self._line.described(self.run_id)
        return described.is_running and bool(described.summary.get("queue_depth"))

    async def transcript_page(
        self,
        address: str | None = None,
        *,
        cursor: str | None = None,
        limit: int = 100,
    ) -> tuple[list[TranscriptItem], str | None]:
        """Return a page of an agent's transcript, oldest first, and the cursor of the next page.

        The cursor stays valid while the transcript grows, and is None once the run has ended and all
        was read: until then an empty page means that there is nothing new yet. A page may be shorter
        than `limit` (at most 1000). Without a worker, the transcripts are found by the run's history.

        `address` is that of the agent, or of something in it; None in a run with one transcript. Raises
        `unknown_run`, `unknown_node` for an address without a transcript, `invalid_body` if several match
        and for a cursor of another one, `gone` if what was read up to the cursor was replaced since,
        Unavailable, and SettingsError if the extra `agents` is not installed.
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
        """Return an agent's whole transcript, oldest first. Raises as `transcript_page`."""
        transcript: list[TranscriptItem] = []
        cursor: str | None = None
        while True:
            items, cursor = await self.transcript_page(address, cursor=cursor, limit=MAX_ITEMS)
            transcript += items
            if cursor is None or not items:
                return transcript

    async def transcripts(self) -> dict[str, list[TranscriptItem]]:
        """Return the transcripts of all agents of the run, by their addresses. Raises as
        `transcript_page`.
        """
        found = await self._transcripts(await self._line.described(self.run_id))
        blobs = self._deployment.blobs
        return {
            address: await transcripts.read_items(blobs, head) for address, head in found.items()
        }

    async def call_results(self) -> dict[str, dict[str, dict[str, Json]]]:
        """Return the results of tool calls that are in no transcript yet, by agent and call: no turn has
        ended that has read them.

        Raises the refusals `unknown_run` and `natively_paused`, and Unavailable: only the run has them.
        """
        found = await self._line.query(
            self.run_id, "call_results", dict[str, dict[str, dict[str, Json]]]
        )
        blobs = self._deployment.blobs
        return {
            agent: {call_id: await load(blobs, result) for call_id, result in results.items()}
            for agent, results in found.items()
        }

    async def _transcripts(self, described: RunDescription) -> dict[str, str]:
        """The references of a run's transcripts, by the run, its closing record, or its history."""
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

    async def result(self) -> views.ClosingRecord:
        """Return the closing record of an ended run, also after Temporal has deleted it.

        Raises `unknown_run`, `erased`, `not_finished`, and `gone` if Temporal has deleted the run before
        its end was recorded.
        """
        try:
            described = await self._line.described(self.run_id)
        except Refusal as refusal:
            view = await self._kept(refusal)
            if view.ended_at is None:
                raise
            return views.ClosingRecord(
                outcome=view.status,
                reason=view.reason,
                values=view.values,
                undelivered=view.undelivered,
                view=view,
                interrupts=await self.interrupts(status="all"),
            )
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
    ) -> views.RunView:
        """Return the view once its status is in `until`, it has ended, or `timeout` seconds are over.

        `blocked` in `until` stands for a blocked run of any status.
        """
        until, timeout = awaited(until, timeout)
        try:
            async with (
                asyncio.timeout(timeout),
                aclosing(watch_status(self._line, self.run_id, until)) as read,
            ):
                async for event in read:
                    if event is None:
                        view = await self._seen()
                    else:
                        await self._line.deleted.refuse_erased(self.run_id)
                        # A terminated run has no record, and its worker still answers queries.
                        record = await self._record_in(event)
                        view = await self.view() if record is None else record.view
                    if view.is_awaited(until):
                        return view
        except TimeoutError:
            pass
        except Refusal as refusal:
            # The records may have it.
            if refusal.code not in DELETED:
                raise
        return await self.view()

    async def _record_in(self, event: HistoryEvent) -> views.ClosingRecord | None:
        try:
            return await closing_record_in(self._line.temporal, self.run_id, event)
        except Unreadable:
            return None
