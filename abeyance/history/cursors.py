"""Cursors of event feeds: a position as opaque text that is valid only there. Pure.

`Cursor` is that of the events of a run, `Positions` are those of all runs. A reader of these has every
event that was recorded until a moment, and of runs with later events those up to a position. The moment
stays `SPAN` behind the latest event that the reader has, because Temporal's visibility shows a run's
change only after it was recorded: what becomes known within that time is still new. So a cursor holds the
runs that had events within `SPAN`, or the `MOST` latest of them.
"""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from abeyance import views
from abeyance.util import unknown_cursor

_FORM: Final = re.compile(
    "(?P<birth>[0-9a-f]{14})(?P<event>[0-9a-f]{6})(?P<index>[0-9a-f]{4})"
    "(?P<execution>[0-9a-f]{32})(?P<check>[0-9a-f]{8})"
)
_PLACE: Final = 24
"""In characters: the part of a cursor that orders it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The position right after one event of a run.

    `birth` grows from each history of the run to the next, `event` counts a history's events from 1,
    `index` the feed's events that one of them makes from 0. `event` 0 is before the first.
    """

    run_id: str
    execution: str
    birth: int
    event: int
    index: int = 0

    def __str__(self) -> str:
        body = f"{self.birth:014x}{self.event:06x}{self.index:04x}{uuid.UUID(self.execution).hex:s}"
        return body + _check(self.run_id, body)

    @classmethod
    def parse(cls, run_id: str, text: str) -> Cursor:
        """Read a cursor of this run. Raises the refusal `invalid_body`, naming the text."""
        match = _FORM.fullmatch(text)
        if match is None or match["check"] != _check(run_id, text[: match.start("check")]):
            raise unknown_cursor(text, run_id)
        return cls(
            run_id=run_id,
            execution=str(uuid.UUID(hex=match["execution"])),
            birth=int(match["birth"], 16),
            event=int(match["event"], 16),
            index=int(match["index"], 16),
        )


def order(cursor: str) -> str:
    """The key by which cursors of one run are ordered; "" is before all.

    If a reset has copied a history, an event has a cursor in each of the two, and neither is later.
    """
    return cursor[:_PLACE]


def is_later(one: str, other: str) -> bool:
    """Return whether a cursor is after another of the same run."""
    return order(one) > order(other)


def _check(run_id: str, body: str) -> str:
    return sha256(f"{run_id} {body}".encode()).hexdigest()[:8]


SPAN: Final = 60_000_000
"""In microseconds: how late a change may become known, and still be delivered after a reconnect."""
MOST: Final = 80
"""How many runs a cursor holds: it has to fit into a header."""
_KEPT: Final = 600_000_000
"""In microseconds: the same as `SPAN` for a reader that stays."""
_VERSION: Final = 1
_HEAD: Final = 9
"""In bytes: the version and a moment."""
_KEY_BYTES: Final = 6
_CHECK_BYTES: Final = 4
_ENTRY: Final = 5
"""The numbers of a run in a cursor."""
_HIGH: Final = 128
_LATEST: Final = 2**52
"""In microseconds: in more than a hundred years."""
_HEX: Final = 16
_PARTS: Final = ((0, 14), (14, 20), (20, 24))
"""The numbers within the part of an event's id that orders it, in hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class _Position:
    at: int
    order: str


class Positions:
    """The events that a reader has: those until a moment, in microseconds, and later ones by run."""

    def __init__(self, until: int = 0) -> None:
        self.until = until
        self._newest = until
        self._latest: dict[bytes, _Position] = {}
        self._by_time: list[tuple[int, bytes]] = []

    def copy(self) -> Positions:
        """Positions of another reader that has the same events."""
        copied = Positions(self.until)
        copied._newest = self._newest
        copied._latest = dict(self._latest)
        copied._by_time = list(self._by_time)
        return copied

    @property
    def newest(self) -> int:
        """When the latest event that the reader has was recorded, in microseconds."""
        return self._newest

    def is_new(self, event: views.Event) -> bool:
        """Return whether the reader does not have an event."""
        recording = recording_of(event)
        position = self._latest.get(_key(recording.origin))
        if position is None:
            return recording.at > self.until
        return order(event.id) > position.order

    def birth(self, origin: str) -> int | None:
        """The birth of the history that has a run's latest event; None of a run without a position."""
        position = self._latest.get(_key(origin))
        return None if position is None else _numbers(position.order)[0]

    def add(self, event: views.Event) -> None:
        """The reader has this event, and all earlier ones of its run."""
        recording = recording_of(event)
        self._put(_key(recording.origin), _Position(recording.at, order(event.id)))
        if self._by_time[0][0] <= self._newest - _KEPT:
            self.advance(self._newest - _KEPT)

    def _put(self, key: bytes, position: _Position) -> None:
        if (before := self._latest.get(key)) is not None:
            del self._by_time[bisect_left(self._by_time, (before.at, key))]
        self._latest[key] = position
        insort(self._by_time, (position.at, key))
        self._newest = max(self._newest, position.at)

    def advance(self, moment: int) -> None:
        """The reader has all events until a moment."""
        self.until = max(self.until, moment)
        self._newest = max(self._newest, moment)
        passed = bisect_left(self._by_time, (self.until + 1,))
        for _, key in self._by_time[:passed]:
            del self._latest[key]
        del self._by_time[:passed]

    def cursor(self, deployment: str) -> str:
        """The cursor of these positions in the stream of a deployment."""
        until = max(self.until, self._newest - SPAN)
        if len(self._by_time) > MOST:
            until = max(until, self._by_time[-MOST - 1][0])
        body = bytes([_VERSION]) + until.to_bytes(_HEAD - 1, "big")
        for at, key in self._by_time[bisect_left(self._by_time, (until + 1,)) :]:
            place = _numbers(self._latest[key].order)
            body += b"".join(map(_varint, (int.from_bytes(key, "big"), *place, at - until)))
        return base64.urlsafe_b64encode(body + _check_bytes(deployment, body)).decode().rstrip("=")

    @classmethod
    def read(cls, deployment: str, cursor: str) -> Positions:
        """Read a cursor. Raises the refusal `invalid_body`, naming the text."""
        try:
            text = base64.b64decode(
                cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True
            )
        except (binascii.Error, ValueError):
            raise unknown_cursor(cursor) from None
        body, check = text[:-_CHECK_BYTES], text[-_CHECK_BYTES:]
        if body[:1] != bytes([_VERSION]) or check != _check_bytes(deployment, body):
            raise unknown_cursor(cursor)
        positions = cls(int.from_bytes(body[1:_HEAD], "big"))
        numbers = _numbers_in(body[_HEAD:])
        try:
            for key, *place, later in zip(*[numbers] * _ENTRY, strict=True):
                position = _Position(positions.until + later, _ordering(place))
                positions._put(key.to_bytes(_KEY_BYTES, "big"), position)
        except (OverflowError, ValueError):
            raise unknown_cursor(cursor) from None
        if positions.newest > _LATEST:
            raise unknown_cursor(cursor)
        return positions


def recording_of(event: views.Event) -> views.Recording:
    """Where an event was recorded. Raises ValueError for one that was not read from a history."""
    if event.recording is None:
        message = f"the event {event.id!r} was not read from a history"
        raise ValueError(message)
    return event.recording


def _key(origin: str) -> bytes:
    return sha256(origin.encode()).digest()[:_KEY_BYTES]


def _check_bytes(deployment: str, body: bytes) -> bytes:
    return sha256(deployment.encode() + b" " + body).digest()[:_CHECK_BYTES]


def _numbers(text: str) -> list[int]:
    return [int(text[begin:end], _HEX) for begin, end in _PARTS]


def _ordering(place: Sequence[int]) -> str:
    digits = [
        f"{number:0{end - begin}x}" for number, (begin, end) in zip(place, _PARTS, strict=True)
    ]
    if any(len(text) > end - begin for text, (begin, end) in zip(digits, _PARTS, strict=True)):
        message = "no place in a history"
        raise ValueError(message)
    return "".join(digits)


def _varint(number: int) -> bytes:
    """A number in groups of seven bits, the lowest first; all but the last have the high bit."""
    written = bytearray()
    while number >= _HIGH:
        written.append(number % _HIGH + _HIGH)
        number //= _HIGH
    return bytes([*written, number])


def _numbers_in(text: bytes) -> Iterator[int]:
    number, scale = 0, 1
    for byte in text:
        number += byte % _HIGH * scale
        scale *= _HIGH
        if byte < _HIGH:
            yield number
            number, scale = 0, 1
