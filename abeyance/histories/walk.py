"""One reader's way through the histories of a run, from a cursor to the present."""

from __future__ import annotations

from abeyance import wire
from abeyance.errors import Code, Refusal
from abeyance.histories.cursor import Cursor, is_later
from abeyance.histories.pages import Histories, Place
from abeyance.temporal.retry import NotFound


class Walk:
    """Reads what happened after `after`, in order and each event once; None begins with the oldest.

    `seen` is the cursor of the last event that was read, "" before the first. Raises the refusal
    `invalid_body` if `after` is no cursor of this run.
    """

    def __init__(self, histories: Histories, run_id: str, after: str | None) -> None:
        self.run_id = run_id
        self.seen = after or ""
        self.has_ended = False
        self.is_at_present = False
        self._histories = histories
        self._place: Place | None = None
        if after is not None:
            self._place = Place.beginning(run_id, Cursor.parse(run_id, after).execution)

    @property
    def execution(self) -> str:
        """The execution whose history the walk is in, "" before its first step."""
        return "" if self._place is None else self._place.known.execution

    async def step(self) -> list[wire.Event]:
        """Read a page; it may hold nothing new.

        Afterwards `has_ended` says that the run has ended and all of it was read, `is_at_present` that
        there was nothing more at the time. Raises the refusals `unknown_run` and `gone`, and Unavailable.
        """
        if self._place is None:
            newest = await self._histories.newest(self.run_id)
            self._place = Place.beginning(self.run_id, newest.first)
        try:
            page = await self._histories.read(self._place)
        except NotFound:
            oldest = await self._histories.oldest(self.run_id)
            if self.seen:
                raise _gone(self.run_id, oldest) from None
            self._place = Place.beginning(self.run_id, oldest.execution)
            return []
        fresh = [event for event in page.events if is_later(event.id, self.seen)]
        if fresh:
            self.seen = fresh[-1].id
        self.is_at_present = page.is_last
        self.has_ended = page.then is None
        self._place = page.then or self._place
        return fresh


def _gone(run_id: str, oldest: Cursor) -> Refusal:
    return Refusal(
        Code.GONE,
        f"What came after this cursor in the run {run_id!r} is no longer kept: go on from the "
        "oldest cursor that is, and read the run to see what was missed.",
        oldest=str(oldest),
        run_id=run_id,
    )
