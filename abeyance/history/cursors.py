"""Bookmarks: where a reader stands in a list, as a text that only means something in that list.

Inside it are the place and a check sum over the place and what was asked for, so that a bookmark of
another list, or a text that is none, is told apart. It is no secret, and nothing is trusted to it: what
a reader may see is decided anew for each page.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from abeyance.core.json import Json, truncate
from abeyance.errors import Code, Refusal

_CHECK_CHARS: Final = 16
"""In characters: how much of a wrong bookmark its refusal repeats."""


def write(asked: Mapping[str, Json], place: Mapping[str, Json]) -> str:
    """A bookmark at a place in the list of what was asked for."""
    body = base64.urlsafe_b64encode(json.dumps(place, separators=(",", ":")).encode()).decode()
    return f"{body.rstrip('=')}.{_page_check(asked, body.rstrip('='))}"


def read(asked: Mapping[str, Json], text: str) -> Mapping[str, Json]:
    """The place of a bookmark in this list. Raises the refusal `invalid_body`, naming the text."""
    body, _, check = text.rpartition(".")
    if check == _page_check(asked, body):
        try:
            place = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (binascii.Error, ValueError):
            place = None
        if isinstance(place, dict):
            return place
    raise unusable(text)


def unusable(text: str) -> Refusal:
    """The refusal of a text that is no bookmark of this list."""
    shown = truncate(text, _SHOWN)
    message = (
        f"{shown!r} is no cursor of this list: send the next_cursor of its last page, with the same "
        "filters, or none to begin anew"
    )
    return Refusal(
        Code.INVALID_BODY,
        f"The request cannot be used. /cursor: {message}.",
        errors=[{"pointer": "/cursor", "message": message, "in": "query"}],
        cursor=shown,
    )


def _page_check(asked: Mapping[str, Json], body: str) -> str:
    told = json.dumps([dict(asked), body], sort_keys=True, separators=(",", ":"))
    return sha256(told.encode()).hexdigest()[:_CHECK_CHARS]


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
            shown = truncate(text, _SHOWN)
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
