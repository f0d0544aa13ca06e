"""Reading one run: from the records, and from Temporal for the facts that only Temporal knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Final

from abeyance import commands, views
from abeyance.agents import transcript_pages
from abeyance.agents.tool_results import load
from abeyance.agents.transcript_pages import MAX_ITEMS
from abeyance.agents.transcript_view import TranscriptItem
from abeyance.core.json import Json
from abeyance.core.policy import Principal
from abeyance.core.state import Status
from abeyance.errors import Code, RecordsUnavailable, Refusal, Unavailable
from abeyance.history.description import ENDINGS, RunDescription, Standing
from abeyance.history.hindrance import hindered
from abeyance.orders import CommandedRun, awaited, order_of
from abeyance.records import audit, audit_chain, questions, runs
from abeyance.records.batch import Extras
from abeyance.records.runs import EndedRun
from abeyance.snapshot import Snapshot
from abeyance.storage import run_files
from abeyance.storage.run_files import RunFile

if TYPE_CHECKING:
    from abeyance.client.client import Client

_PAGE: Final = 1_000
_LOOK_AGAIN: Final = 1.0
"""In seconds: a caller that waits also polls, because a status without an event wakes nobody."""
_ASK_TEMPORAL: Final = 5.0


class RunReader(CommandedRun):
    """The reading half of a run's handle."""

    def __init__(self, client: Client, run_id: str) -> None:
        self._client = client
        self._line = client.line
        self._run_id = run_id

    @property
    def run_id(self) -> str:
        return self._run_id

    async def view(self) -> views.RunView:
        """Return the run as it is now; after Temporal has deleted it, as it ended.

        No worker has to be up. Raises the refusals `unknown_run` and `erased`, and RecordsUnavailable.
        """
        try:
            described, is_current = await self._line.processed(self.run_id)
        except Refusal as refusal:
            return await self._kept(refusal)
        return await self._view(described, is_current=is_current)

    async def as_recorded(self) -> views.RunView:
        """Return the run as `view` does, but do not wait for a worker to process what was sent to it."""
        try:
            described = await self._line.described(self.run_id)
        except Refusal as refusal:
            return await self._kept(refusal)
        return await self._view(described, is_current=described.task is None)

    async def _view(self, described: RunDescription, *, is_current: bool) -> views.RunView:
        if not described.is_running:
            await self._client.janitor.settle(described.info)
        recorded = await self._client.records.read(runs.run, self.run_id, origin=described.origin)
        shown = _shown(described, recorded)
        if not is_current or described.is_being_recorded:
            shown = shown.model_copy(update={"degraded": True})
        if shown.ended_at is not None and described.is_running:
            await self._line.closed(self.run_id)
        return await hindered(self._line.temporal, described, shown)

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
        recorded = await self._client.records.read(runs.run, self.run_id)
        return {} if recorded is None else recorded.labels

    async def _kept(self, refusal: Refusal) -> views.RunView:
        """Return the recorded view of a run that Temporal has deleted; raise any other refusal."""
        if refusal.code is not Code.GONE:
            raise refusal
        view = await self._client.records.read(runs.run, self.run_id)
        if view is None:
            # The run was erased meanwhile.
            raise await self._line.refusal(self.run_id)
        return view

    async def guarded_by(self, *, anew: bool = False) -> tuple[str, ...]:
        """Return the capabilities that the run's graph can ask for: changing its course takes them all.

        They never change, and are cached, unless `anew`. Temporal has them without a worker. Raises the
        refusal `unknown_run`, and Unavailable for a run that was started without this client, until a
        worker has begun it.
        """
        guards = (await self._line.cached_run(self.run_id, anew=anew)).guarded_by
        if guards is not None:
            return guards
        view = await self.view()
        if view.degraded:
            raise Unavailable(
                f"no worker has begun the run {self.run_id!r}, so its `guarded_by` is not known yet"
            )
        return tuple(view.guarded_by)

    async def graph_of(self) -> str | None:
        """Return the name of the run's graph, None if it is unreadable. Raises `unknown_run`."""
        return (await self._line.cached_run(self.run_id)).graph

    async def interrupts(self, *, status: str = "open") -> list[views.InterruptView]:
        """Return a run's interrupts of one status, or of `all`, the open ones first. Raises as `view`."""
        order_of(commands.Interrupts, {"status": status})
        origin = await self._origin()
        return await self._client.records.read(
            questions.of_run, self.run_id, status=status, origin=origin
        )

    async def _origin(self) -> str | None:
        """Return the first execution of the run, once the records have everything sent to it before.

        None if Temporal has deleted it. Raises as `view`.
        """
        try:
            described = await self._line.caught_up(self.run_id)
        except Refusal as refusal:
            await self._kept(refusal)
            return None
        if not described.is_running:
            await self._client.janitor.settle(described.info)
        return described.origin

    async def discarded(self, *, status: str = "open") -> list[views.InterruptView]:
        """Return the interrupts of one status, or of `all`, that a rewind has discarded.

        Raises the refusal `unknown_run`, and RecordsUnavailable.
        """
        order_of(commands.Interrupts, {"status": status})
        await self._line.admit(self.run_id)
        return await self._client.records.read(
            questions.of_run, self.run_id, status=status, discarded=True
        )

    async def interrupt(self, interrupt_id: str) -> views.InterruptView | None:
        order_of(commands.WhichInterrupt, {"interrupt_id": interrupt_id})
        origin = await self._origin()
        return await self._client.records.read(
            questions.question, self.run_id, interrupt_id, origin=origin
        )

    async def events(
        self, *, after: str | None = None, follow: bool = True
    ) -> AsyncGenerator[views.Event, None]:
        """Yield the events after the one with the id `after`, in order.

        With `follow` also new ones, until the run has ended. Raises `unknown_run`, `erased`,
        `invalid_body` for a text that is not an id, `gone` for one that the records do not have, and
        Unavailable. No worker has to be up.
        """
        feed = self._client.feed
        if follow:
            async with aclosing(await feed.opened(self.run_id, after)) as events:
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

        Raises `not_found`, `unknown_run`, `erased`, and Unavailable.
        """
        try:
            await self._line.described(self.run_id)
        except Refusal as refusal:
            await self._kept(refusal)
        return await run_files.load(self._client.blobs, self.run_id, file)

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
        contents = await self._client.records.read(audit.contents, self.run_id)
        if not contents:
            await self._line.described(self.run_id)
            raise Unavailable(f"nothing is recorded of the run {self.run_id!r} yet")
        key = self._client.signing_key
        # A long audit takes seconds.
        return await asyncio.to_thread(audit_chain.written, contents, reader=reader, key=key)

    async def messages(self) -> list[views.MessageView]:
        """Return the unread messages, in the order of reading; none of an ended run, which reports them.

        Raises as `view`.
        """
        described = await self._line.caught_up(self.run_id)
        return (await self._extras(described)).messages if described.is_running else []

    async def _extras(self, described: RunDescription) -> Extras:
        return await self._client.records.read(runs.extras, self.run_id, origin=described.origin)

    async def _ended(self, described: RunDescription) -> EndedRun:
        """Return the record of an ended run. Raises RecordsUnavailable if its end is not recorded."""
        await self._client.janitor.settle(described.info)
        found = await self._client.records.read(
            runs.ended, self.run_id, execution=described.execution, origin=described.origin
        )
        if found is None:
            raise RecordsUnavailable(
                f"the records do not have the end of the run {self.run_id!r}: `abeyance reindex` makes "
                "them anew"
            )
        return found

    async def _snapshot(self, ended: EndedRun) -> Snapshot:
        """Return the snapshot of an ended run. Raises `gone` if Temporal ended it, and Unavailable."""
        if ended.record.outcome in views.ENDED_OUTSIDE:
            raise Refusal(
                Code.GONE,
                f"The run {self.run_id!r} was ended by Temporal ({ended.record.outcome}) and not by "
                "itself, so there is nothing to go on from: start a new one.",
                run_id=self.run_id,
            )
        snapshot = None if ended.snapshot is None else Snapshot.model_validate(ended.snapshot)
        # The snapshot of an earlier end would repeat the work that a retry has done since.
        if snapshot is None or snapshot.joined().updated_at != ended.record.view.ended_at:
            raise Unavailable(
                f"the records do not have what a retry of the run {self.run_id!r} needs: `abeyance "
                "reindex` makes it anew"
            )
        batch, latest = await self._client.records.read(runs.latest_numbers, self.run_id)
        recorded = {"batch": batch, "facts": latest, "told": 0, "unrecorded": (), "rewound": None}
        return snapshot.model_copy(update={"start": snapshot.start.model_copy(update=recorded)})

    async def queue_depth(self) -> int:
        """Return the number of unread messages."""
        return (await self.view()).queue_depth

    async def standing(self, *, caught_up: bool = False) -> Standing:
        """Return the standing of the run that Temporal shows, which changes as soon as the run does.

        With `caught_up` the run has processed everything sent before. The records are not needed. Raises
        the refusal `unknown_run`, and Unavailable.
        """
        describe = self._line.caught_up if caught_up else self._line.described
        return (await describe(self.run_id)).standing

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
        than `limit` (at most 1000).

        `address` is that of the agent, or of something in it; None in a run with one transcript. Raises
        `unknown_run`, `unknown_node` for an address without a transcript, `invalid_body` if several match
        and for a cursor of another one, `gone` if what was read up to the cursor was replaced since,
        Unavailable, and SettingsError if the extra `agents` is not installed.
        """
        described = await self._line.caught_up(self.run_id)
        return await transcript_pages.page(
            self._client.blobs,
            self.run_id,
            (await self._extras(described)).transcripts,
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
        """Return the transcripts of all agents, by their addresses. Raises as `transcript_page`."""
        found = await self._extras(await self._line.caught_up(self.run_id))
        blobs = self._client.blobs
        return {
            address: await transcript_pages.read_items(blobs, head)
            for address, head in found.transcripts.items()
        }

    async def call_results(self) -> dict[str, dict[str, dict[str, Json]]]:
        """Return the results of tool calls that are in no transcript yet, by agent and call, because no
        turn that read them has ended.

        Raises as `view`.
        """
        found = await self._extras(await self._line.caught_up(self.run_id))
        blobs = self._client.blobs
        return {
            agent: {call_id: await load(blobs, result) for call_id, result in results.items()}
            for agent, results in found.results.items()
        }

    async def result(self) -> views.ClosingRecord:
        """Return the closing record of an ended run, also after Temporal has deleted it.

        Raises `unknown_run`, `erased`, `not_finished`, and `gone` if Temporal has deleted the run before
        its end was recorded.
        """
        try:
            described = await self._line.described(self.run_id)
        except Refusal as refusal:
            await self._kept(refusal)
            kept = await self._client.records.read(runs.ended, self.run_id)
            if kept is None:
                raise
            return kept.record
        if described.is_running:
            status = described.shown_status
            raise Refusal(
                Code.NOT_FINISHED,
                f"The run {self.run_id!r} is {status} and has no result yet.",
                run_status=status,
            )
        return (await self._ended(described)).record

    async def wait(
        self,
        *,
        until: frozenset[str] = frozenset(),
        timeout: float = 30.0,
        is_new: bool = False,
    ) -> views.RunView:
        """Return the view once its status is in `until`, it has ended, or `timeout` seconds are over.

        `blocked` in `until` means a blocked run of any status. `is_new` says that nobody has sent
        anything to the run yet that it had to process first.
        """
        until, timeout = awaited(until, timeout)
        clock = asyncio.get_running_loop().time
        end, looked = clock() + timeout, clock()
        following = self._client.records.following
        ends = until | ENDINGS
        with suppress(Refusal), following.changes(self.run_id, until=ends) as changes:
            await self._line.admit(self.run_id)
            while (left := end - clock()) > 0:
                statuses = await changes.next(min(left, _LOOK_AGAIN))
                if not statuses:
                    statuses = await self._client.records.read(runs.statuses, self.run_id)
                # Only Temporal may know yet that the run was ended from outside.
                if not statuses or statuses & ends or clock() - looked > _ASK_TEMPORAL:
                    looked, view = clock(), await self._looked_at(is_new=is_new)
                    # Temporal knows that a run waits for people, but not what it asks them.
                    is_told = statuses or view.status != Status.AWAITING_INPUT
                    if is_told and view.is_awaited(until):
                        return view
        # If Temporal has deleted the run, the records may have it.
        return await self.view()

    async def _looked_at(self, *, is_new: bool) -> views.RunView:
        if not is_new:
            return await self.view()
        return await self._view(await self._line.described(self.run_id), is_current=True)


def _shown(described: RunDescription, recorded: views.RunView | None) -> views.RunView:
    """Return a run as it was recorded last, unless Temporal knows better."""
    if recorded is None:
        return described.degraded_view()
    if recorded.ended_at is None and described.is_running:
        return described.with_what_blocks(recorded)
    if recorded.ended_at is not None and recorded.ended_at >= described.started_at:
        return recorded
    # Either the run was retried and no worker has begun it yet, or this process cannot read its end.
    found_by = {"labels": recorded.labels, "conversation_id": recorded.conversation_id}
    return described.degraded_view().model_copy(update=found_by)
