"""Reading the events of a run, from a cursor through all its histories to the present."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient

from abeyance import views
from abeyance.errors import Code, Refusal
from abeyance.history.client import Execution, HistoryClient, unknown_run
from abeyance.history.cursors import Cursor, is_later
from abeyance.history.entries import CLOSING_EVENTS
from abeyance.history.event_translation import (
    HistoryState,
    failures,
    released,
    sources,
    translate,
)
from abeyance.storage.converter import decode_message
from abeyance.temporal.retry import NotFound


class HistoryWalk:
    """Reads the events after a cursor, in order and each once; None begins with the oldest.

    `execution` is where to begin instead of the cursor's: a later history, if those before it were read
    to their ends. `seen` is the cursor of the last event that was read, "" before the first. Raises the
    refusal `invalid_body` if `after` is no cursor of this run.
    """

    def __init__(
        self, histories: Histories, run_id: str, after: str | None, *, execution: str = ""
    ) -> None:
        self.run_id = run_id
        self.seen = after or ""
        self.has_ended = False
        self.is_at_present = False
        self._histories = histories
        self._place: Place | None = None
        if after is not None:
            begin = Cursor.parse(run_id, after).execution
            self._place = Place.beginning(run_id, execution or begin)

    @property
    def execution(self) -> str:
        """The execution whose history the walk is in, "" before its first step."""
        return "" if self._place is None else self._place.state.execution

    async def step(self) -> list[views.Event]:
        """Read a page; it may hold nothing new.

        Afterwards `has_ended` is true if the run has ended and all of it was read, `is_at_present` if
        there was nothing more at the time. Raises the refusals `unknown_run` and `gone`, and Unavailable.
        """
        if self._place is None:
            newest = await self._histories.newest(self.run_id)
            self._place = Place.beginning(self.run_id, newest.origin)
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
        f"The events after this cursor in the run {run_id!r} are no longer kept: continue from the "
        "oldest cursor, and read the run to see what was missed.",
        oldest=str(oldest),
        run_id=run_id,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A position in a history, and the state of its translation up to there."""

    state: HistoryState
    token: bytes = b""

    @classmethod
    def beginning(cls, run_id: str, execution: str) -> Place:
        """The place before the first event of a history."""
        return cls(state=HistoryState(run_id=run_id, execution=execution))


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some events and the next place; `then` None: the run has ended.

    With `is_last` there was nothing more at the time, and `then` is the beginning of the history.
    `state` is that of the translation at the end of the page.
    """

    events: tuple[views.Event, ...]
    then: Place | None
    state: HistoryState
    is_last: bool = False


class Histories:
    """The histories of the runs of a task queue.

    `patience` is how many seconds an unreachable Temporal is retried.
    """

    def __init__(self, temporal: TemporalClient, task_queue: str, *, patience: float) -> None:
        self._source = HistoryClient(temporal, task_queue, patience=patience)

    async def newest(self, run_id: str) -> Execution:
        """The run's newest execution. Raises the refusal `unknown_run`, and Unavailable."""
        try:
            return await self._source.execution(run_id)
        except NotFound:
            raise unknown_run(run_id) from None

    async def oldest(self, run_id: str) -> Cursor:
        """The cursor before the first event of the oldest history that leads to the newest.

        Raises the refusal `unknown_run`, and Unavailable.
        """
        newest = await self.newest(run_id)
        oldest: HistoryState | None = None
        try:
            async for begun in self._backwards(run_id, newest.id):
                oldest = begun
        except NotFound:
            # Earlier histories are deleted.
            pass
        if oldest is None:
            raise unknown_run(run_id)
        return Cursor(run_id=run_id, execution=oldest.execution, birth=oldest.birth, event=0)

    async def read(self, place: Place) -> Page:
        """Read the page at a place. Raises NotFound and Unavailable."""
        state = place.state
        response = await self._source.history(state.run_id, state.execution, place.token)
        events: list[views.Event] = []
        for event in response.history.events:
            translated, state = await self._translated(event, state)
            events += translated
            if event.event_type in CLOSING_EVENTS:
                return await self._ended(event, events, state)
        token = response.next_page_token
        if token:
            return Page(events=tuple(events), then=Place(state=state, token=token), state=state)
        translated, state = released(state)
        then = Place.beginning(state.run_id, state.execution)
        return Page(events=(*events, *translated), then=then, state=state, is_last=True)

    async def _ended(
        self, event: HistoryEvent, events: list[views.Event], state: HistoryState
    ) -> Page:
        successor, is_retry = await self._successor(event, state)
        if successor is None:
            return Page(events=tuple(events), then=None, state=state)
        if not is_retry and events and events[-1].type in views.TERMINAL_EVENTS:
            # It was not the end of the run.
            events.pop()
        then = Place.beginning(state.run_id, successor)
        return Page(events=tuple(events), then=then, state=state)

    async def _successor(self, event: HistoryEvent, state: HistoryState) -> tuple[str | None, bool]:
        """Return the execution that goes on after this one, if any, and whether it is a retry."""
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
            attributes = event.workflow_execution_continued_as_new_event_attributes
            return attributes.new_execution_run_id, False
        try:
            ended = await self._source.execution(state.run_id, state.execution)
            newest = await self._source.execution(state.run_id)
        except NotFound:
            return None, False
        if ended.reset_to:
            return ended.reset_to, False
        if newest.origin != ended.origin or newest.id == ended.id:
            return None, False
        # A retry names this one. A reset of an older execution has ended this one without a trace in it:
        # its successor was copied from an earlier history, so it is the first whose beginning is not
        # later than the end here.
        execution = newest.id
        async for begun in self._backwards(state.run_id, newest.id):
            execution = begun.execution
            if begun.previous == state.execution:
                return execution, True
            if begun.birth <= state.birth:
                break
        return execution, False

    async def _backwards(self, run_id: str, execution: str) -> AsyncIterator[HistoryState]:
        """Yield the state after the first event of each history, back to the oldest of the chain."""
        while execution:
            response = await self._source.history(run_id, execution, most=1)
            (event, *_) = response.history.events
            _, state = await self._translated(
                event, HistoryState(run_id=run_id, execution=execution)
            )
            yield state
            execution = state.previous

    async def _translated(
        self, event: HistoryEvent, state: HistoryState
    ) -> tuple[list[views.Event], HistoryState]:
        converter = self._source.converter(state.run_id)
        for failure in failures(event):
            await decode_message(converter, failure)
        payloads = sources(event)
        values: list[Any] = []
        if payloads:
            values = await converter.decode(payloads)
        return translate(event, values, state)
