"""Cursors: where in a run's events a reader stands.

To its holder a cursor is a text, and later ones sort after earlier ones. Inside it are the birth of
a history, the event in it and the index within that event, which order it; the Temporal execution,
by which the history is found again; and a check sum over all of it and the run's id, by which the
cursor of another run, or a text that is no cursor, is told apart.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from abeyance.errors import Code, Refusal

_FORM: Final = re.compile(
    "(?P<birth>[0-9a-f]{14})(?P<event>[0-9a-f]{6})(?P<index>[0-9a-f]{4})"
    "(?P<execution>[0-9a-f]{32})(?P<check>[0-9a-f]{8})"
)
_PLACE: Final = 24
"""In characters: the part of a cursor that orders it."""
_SHOWN: Final = 100
"""In characters: how much of a wrong cursor its refusal repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The place right after one event of a run.

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
        found = _FORM.fullmatch(text)
        if found is None or found["check"] != _check(run_id, text[: found.start("check")]):
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
            raise Refusal(
                Code.INVALID_BODY,
                f"{shown!r} is no cursor of the run {run_id!r}: send the id of one of its events as "
                "it was received, or none to begin with the oldest.",
                cursor=shown,
                run_id=run_id,
            )
        return cls(
            run_id=run_id,
            execution=str(uuid.UUID(hex=found["execution"])),
            birth=int(found["birth"], 16),
            event=int(found["event"], 16),
            index=int(found["index"], 16),
        )


def order(cursor: str) -> str:
    """What cursors of one run are ordered by, "" being before all.

    Where a reset has copied a history, an event has a cursor in each of the two, and neither is later.
    """
    return cursor[:_PLACE]


def is_later(one: str, other: str) -> bool:
    """Whether a cursor is after another of the same run."""
    return order(one) > order(other)


def _check(run_id: str, body: str) -> str:
    return sha256(f"{run_id} {body}".encode()).hexdigest()[:8]
