"""The live text of a run's models, read from the description of its pending activities."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client as TemporalClient
from temporalio.converter import DataConverter
from temporalio.service import RPCError

from abeyance import live_text, views, wire
from abeyance.agents.agent import is_turn
from abeyance.errors import Unreadable
from abeyance.history.description import decoded, described_by_server
from abeyance.live_text import LiveText
from abeyance.storage.converter import of_run
from abeyance.storage.encryption import is_reference

_PAUSE: Final = 0.35
_SHARE: Final = 3
_LONGEST_PAUSE: Final = 3.0
"""A description is followed by a pause of `_SHARE` times the length of its call, within these bounds in
seconds: with the half second between two heartbeats, a text is there within a second."""
_MISSED: Final = 20
"""So many times in a row a turn is not pending before it is over, or waits for people: that it begins may
be recorded before Temporal has its activity."""
TURN_ENDS: Final = frozenset({"node.finished", "node.retrying", "node.failed", "node.stopped"})
"""The events with which the code of a visit ends, until it starts again."""


class LiveTexts:
    """The live texts of one run, for all who watch it in this process.

    `latest` has them by the address of the turn. `turns` are the turns that go on: each with the id of
    the event that began it, because the same address may have one after another. Nothing is asked while
    nobody watches, or while no turn of a model is under way.
    """

    def __init__(self, temporal: TemporalClient, run_id: str) -> None:
        self.latest: dict[str, LiveText] = {}
        self.turns: dict[str, str] = {}
        self._temporal = temporal
        self._run_id = run_id
        self._missed: dict[tuple[str, str], int] = {}
        self._heeded = ""
        self._watchers: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def is_watched(self) -> bool:
        """Whether there is a watcher."""
        return bool(self._watchers)

    def begin(self, running: Iterable[str], latest: str) -> None:
        """Take note of the visits that run as of the event with the id `latest`."""
        if latest > self._heeded:
            self._heeded = latest
            self.turns = {address: latest for address in running if is_turn(address)}
            self._start_or_stop()

    def heed(self, event: views.Event) -> None:
        """Take note of a turn that begins or ends, unless a watcher has read of it before."""
        if event.id <= self._heeded:
            return
        self._heeded = event.id
        if event.address is None or not is_turn(event.address):
            return
        if event.type == "node.started":
            self.turns[event.address] = event.id
        elif event.type in TURN_ENDS:
            self.turns.pop(event.address, None)
        self.latest.pop(event.address, None)
        self._start_or_stop()

    @contextmanager
    def watched(self, on_change: Callable[[], None]) -> Iterator[None]:
        """Read for a watcher, and call it when a text changes."""
        self._watchers.append(on_change)
        self._start_or_stop()
        try:
            yield
        finally:
            self._watchers.remove(on_change)
            self._start_or_stop()

    def _start_or_stop(self) -> None:
        is_needed = bool(self._watchers and self.turns)
        if is_needed and self._task is None:
            self._task = asyncio.create_task(self._poll())
        elif not is_needed and self._task is not None:
            self._task.cancel()
            self._task = None
            self.latest.clear()

    async def _poll(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            began, asked = clock(), dict(self.turns)
            try:
                said = await _texts_of_turns(self._temporal, self._run_id, asked.keys())
            except RPCError:
                # There is no text to see until Temporal is back.
                said = None
            if said is not None:
                self._keep(said, asked)
            await asyncio.sleep(min(max(_PAUSE, _SHARE * (clock() - began)), _LONGEST_PAUSE))

    def _keep(self, said: Mapping[str, LiveText | None], asked: Mapping[str, str]) -> None:
        before = dict(self.latest)
        for address, begun in asked.items():
            if self.turns.get(address) != begun:
                # Over since, so that this may be the text of a turn before.
                continue
            if (text := said.get(address)) is not None:
                self.latest[address] = text
            else:
                self.latest.pop(address, None)
            missed = 0 if address in said else self._missed.get((address, begun), 0) + 1
            self._missed[address, begun] = missed
            if missed >= _MISSED:
                del self.turns[address]
        self._missed = {key: n for key, n in self._missed.items() if key in self.turns.items()}
        if self.latest != before:
            for on_change in self._watchers:
                on_change()
        self._start_or_stop()


async def _texts_of_turns(
    temporal: TemporalClient, run_id: str, addresses: Collection[str]
) -> Mapping[str, LiveText | None]:
    """The texts of the models in those of these turns that are at work. Raises RPCError."""
    converter = of_run(temporal.data_converter, run_id)
    described = await described_by_server(temporal, run_id)
    return {
        pending.activity_id: await _text_of(converter, pending)
        for pending in described.pending_activities
        if pending.activity_id in addresses
    }


async def _text_of(converter: DataConverter, pending: PendingActivityInfo) -> LiveText | None:
    """The text in the heartbeat of a turn: its last payloads."""
    found: list[LiveText] = []
    for payload in reversed(pending.heartbeat_details.payloads):
        if is_reference(payload):
            break
        try:
            live = wire.Journal.model_validate(await decoded(converter, payload)).live
        except Unreadable:
            break
        if live is None:
            break
        found.append(live)
    return live_text.joined(found[::-1])
