"""Reading a run in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from datetime import datetime, timedelta
from typing import Final

from abeyance import commands, projections, wire
from abeyance.agents import transcript
from abeyance.agents.transcript_pages import choose_address
from abeyance.agents.transcript_view import TranscriptItem, transcript_items
from abeyance.core import items
from abeyance.core.policy import Principal
from abeyance.core.state import RunState
from abeyance.errors import Code, Refusal
from abeyance.orders import CommandedRun, awaited, order_of
from abeyance.records import audit_chain
from abeyance.storage import run_files
from abeyance.testing.driver import Driver
from abeyance.util import unknown_cursor
from abeyance.views import (
    TERMINAL_EVENTS,
    ClosingRecord,
    Event,
    InterruptView,
    RunView,
    closing_record,
)

_LONGEST_WAIT: Final = 100 * 365 * 86_400.0
"""In seconds of the run's clock, which cannot be moved without end."""


class InMemoryReader(CommandedRun):
    """The reading half of a run in memory."""

    _driver: Driver
    _start: wire.StartRun

    @property
    def now(self) -> datetime:
        """The run's own clock."""
        return self._driver.now

    @property
    def status(self) -> str:
        """The status that callers see."""
        return str(self.state.status)

    @property
    def run_id(self) -> str:
        return self.state.run_id

    @property
    def state(self) -> RunState:
        """The core's state of the run."""
        return self._driver.state

    async def view(self) -> RunView:
        return projections.run_view(self.state, self._start)

    async def interrupts(self, *, status: str = "open") -> list[InterruptView]:
        order_of(commands.Interrupts, {"status": status})
        entries = [
            *projections.open_interrupts(self.state),
            *projections.settled_interrupts(self.state),
        ]
        return [entry for entry in entries if status in ("all", entry.status)]

    async def interrupt(self, interrupt_id: str) -> InterruptView | None:
        order_of(commands.WhichInterrupt, {"interrupt_id": interrupt_id})
        try:
            return projections.interrupt(self.state, self._id_of(interrupt_id))
        except KeyError:
            return None

    async def events(
        self, *, after: str | None = None, follow: bool = True
    ) -> AsyncGenerator[Event, None]:
        place = 0 if after is None else self._place_after(after)
        while True:
            moved = self._driver.moved
            for event in self._driver.events[place:]:
                yield event
                place += 1
                is_last = place == len(self._driver.events)
                if is_last and event.type in TERMINAL_EVENTS:
                    return
            if not follow:
                return
            if place == len(self._driver.events):
                await moved.wait()

    def _place_after(self, after: str) -> int:
        ids = [event.id for event in self._driver.events]
        if after not in ids:
            raise unknown_cursor(after, self.run_id)
        return ids.index(after) + 1

    async def wait(self, *, until: frozenset[str] = frozenset(), timeout: float = 30.0) -> RunView:
        """Return the view once the status is in `until`, the run has ended, or `timeout` has passed.

        `timeout` is in seconds of the run's own clock, which moves at once. Raise Blocked if it has
        passed and a visit is blocked; with `blocked` in `until` the view is returned instead.
        """
        until, timeout = awaited(until, timeout)
        end = self.now + timedelta(seconds=min(timeout, _LONGEST_WAIT))
        is_left = True
        while not (view := await self.view()).is_awaited(until):
            if not is_left:
                self._driver.raise_blocked()
                break
            # Other tasks act first.
            await asyncio.sleep(0)
            is_left = await self._driver.reach_deadline(end)
        return view

    async def result(self) -> ClosingRecord:
        if not self.state.finished:
            raise Refusal(
                Code.NOT_FINISHED,
                f"The run {self.run_id!r} is {self.status} and has no result yet.",
                run_status=self.status,
            )
        return self._record()

    def _record(self) -> ClosingRecord:
        view = projections.run_view(self.state, self._start)
        settled = projections.settled_interrupts(self.state)
        return closing_record(view, settled, items.transcripts(self.state))

    async def audit(self, *, reader: Principal | None = None) -> bytes:
        """Return the audit of the run so far, as JSON lines that `abeyance audit --verify` verifies.

        It is not signed. Answers to questions whose capability the `reader` lacks are left out, unless
        the reader has `admin`; None reads all.
        """
        settled = projections.settled_interrupts(self.state)
        last = audit_chain.closing(await self.view(), settled, execution="", now=self.now)
        return audit_chain.written([*self._driver.audit, last], reader=reader)

    async def file(self, file: Mapping[str, str] | str) -> bytes:
        found = await run_files.load(self._driver.blobs, self.state.run_id, file)
        return found.data

    async def transcript(self, address: str | None = None) -> list[TranscriptItem]:
        heads = items.transcripts(self.state)
        agent = choose_address(self.state.run_id, heads, address)
        return transcript_items(await transcript.read(self._driver.blobs, heads[agent]))

    def _id_of(self, id_or_name: str) -> str:
        """Return the id of the open interrupt with this name, else of the one settled last."""
        opened = self.state.ledger.open.values()
        named = [entry.id for entry in opened if entry.name == id_or_name]
        if len(named) > 1:
            raise Refusal(
                Code.AMBIGUOUS_INTERRUPT,
                f"{len(named)} open interrupts are named {id_or_name!r}; name one by its id: "
                f"{', '.join(named)}.",
                interrupts=named,
            )
        settled = self.state.ledger.settled.values()
        named = named or [entry.id for entry in settled if entry.name == id_or_name]
        return named[-1] if named else id_or_name
