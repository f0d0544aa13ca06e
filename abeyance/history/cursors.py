"""Cursors of the events of a history: a position as opaque text that is valid only there. Pure."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

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
