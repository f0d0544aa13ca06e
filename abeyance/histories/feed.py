"""The feed of a run: what has happened in it, and what happens.

A run's history is its event log, so the feed is made by reading it (`translate` says how). A reader of
what is long past comes nearer page by page, at their own pace, and from then on shares the run's one tail
with all others. Nobody who reads leaves a trace in the run, and no worker has to be up.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, cast

from temporalio.client import Client as TemporalClient

from abeyance import wire
from abeyance.errors import Code, Refusal
from abeyance.histories.pages import Histories
from abeyance.histories.source import Execution
from abeyance.histories.tail import Follower, Tail
from abeyance.histories.walk import Walk
from abeyance.temporal.turnstile import SharedReads

_PAGE_PATIENCE: Final = 10.0


class Feed:
    """The feeds of the runs of one deployment: of a Temporal namespace, those of `task_queue`.

    At most `most_tails` runs are followed at a time, each by any number of followers, of whom one who
    falls more than `kept` events behind is dropped. `patience` is how many seconds a Temporal that has
    gone away is waited for.
    """

    def __init__(
        self,
        temporal: TemporalClient,
        task_queue: str,
        *,
        most_tails: int = 500,
        kept: int = 1_000,
        patience: float = 60.0,
    ) -> None:
        self._histories = Histories(temporal, task_queue, patience=patience)
        self._at_once = Histories(temporal, task_queue, patience=min(patience, _PAGE_PATIENCE))
        self._most_tails = most_tails
        self._kept = kept
        self._tails: dict[str, Tail] = {}
        self._newest: SharedReads[Execution] = SharedReads()

    @property
    def tails(self) -> int:
        """How many runs are being followed."""
        return len(self._tails)

    async def page(
        self, run_id: str, after: str | None, limit: int
    ) -> tuple[list[wire.Event], str | None]:
        """At most `limit` events that came after the cursor `after`, as far as there are any now.

        None as a cursor is before the oldest that is kept. Also returns the cursor to go on from, which
        is None once the run has ended and all was told. Raises the refusals `unknown_run`,
        `invalid_body` for what is no cursor of this run, and `gone`, with the `oldest` cursor, for one
        whose history is no longer kept; and Unavailable.
        """
        if limit < 1:
            raise ValueError(f"limit={limit}: a page holds at least one event")
        walk = Walk(self._at_once, run_id, after)
        events: list[wire.Event] = []
        while len(events) < limit and not (walk.has_ended or walk.is_at_present):
            events += await walk.step()
        if walk.has_ended and len(events) <= limit:
            return events, None
        if events:
            return events[:limit], events[:limit][-1].id
        return [], after or str(await self._at_once.oldest(run_id))

    async def follow(self, run_id: str, after: str | None) -> AsyncGenerator[wire.Event, None]:
        """Everything after the cursor `after`, then what happens, until the run has ended.

        Raises what `opened` raises; and Unavailable for a follower who has fallen too far behind,
        or when Temporal has gone away. Whoever goes on from the last id misses nothing.
        """
        async with aclosing(await self.opened(run_id, after)) as events:
            async for event in events:
                yield event

    async def opened(self, run_id: str, after: str | None) -> AsyncGenerator[wire.Event, None]:
        """The same, for whoever has to know of a refusal before the first event comes.

        Raises the refusals of `page`, `too_many_runs` if as many runs are followed as may be, and
        Unavailable. The generator has to be closed, or read to its end.
        """
        events = self._events(run_id, after)
        # Its first item is None and says that nothing refuses; the others are events.
        await anext(events)
        return cast("AsyncGenerator[wire.Event, None]", events)

    async def _events(
        self, run_id: str, after: str | None
    ) -> AsyncGenerator[wire.Event | None, None]:
        walk = Walk(self._histories, run_id, after)
        is_open = False
        follower = await self._seat(run_id)
        try:
            if follower is not None:
                await follower.tail.is_level.wait()
                follower.tail.raise_error()
            while follower is None or not follower.join(walk):
                # From before the step, so that nothing that comes during it is waited for again.
                moved = None if follower is None else follower.tail.moved
                fresh = await walk.step()
                if not is_open:
                    is_open = True
                    yield None
                for event in fresh:
                    yield event
                if walk.has_ended:
                    return
                if not walk.is_at_present:
                    continue
                if follower is None or moved is None or follower.tail.is_over:
                    follower = await self._seat(run_id)
                elif not follower.join(walk):
                    # The tail is a moment behind this reader.
                    await moved.wait()
            if not is_open:
                yield None
            while (latest := await follower.next()) is not None:
                yield latest
        finally:
            if follower is not None:
                follower.leave()

    async def _seat(self, run_id: str) -> Follower | None:
        """A place at the run's tail; None if the run has ended and needs none."""
        tail = self._tails.get(run_id)
        if tail is not None:
            return tail.seat()
        newest = await self._newest.read(run_id, lambda: self._histories.newest(run_id))
        if not newest.is_running:
            return None
        tail = self._tails.get(run_id)
        if tail is None:
            if len(self._tails) >= self._most_tails:
                raise Refusal(
                    Code.TOO_MANY_RUNS,
                    f"{self._most_tails} runs are followed through this process, and no more may be: "
                    f"try another one or later, or read the events of {run_id!r} page by page.",
                    limit=self._most_tails,
                    run_id=run_id,
                )
            tail = Tail(self._histories, run_id, newest, kept=self._kept, on_over=self._forget)
            self._tails[run_id] = tail
        return tail.seat()

    def _forget(self, tail: Tail) -> None:
        if self._tails.get(tail.run_id) is tail:
            del self._tails[tail.run_id]
