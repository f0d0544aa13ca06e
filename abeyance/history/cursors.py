"""Cursors of lists and of event feeds: a position as opaque text that is valid only there.

The cursor of a list holds the position and a checksum over the position and the list's criteria, by which
the cursor of another list is refused. It is neither secret nor trusted: each page is authorised anew.
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

from abeyance.core.json import Json
from abeyance.core.text import truncate
from abeyance.errors import Code, Refusal

_CHECK_CHARS: Final = 16
_SHOWN: Final = 100
"""In characters: how much of an invalid cursor its refusal repeats."""


def write(criteria: Mapping[str, Json], place: Mapping[str, Json]) -> str:
    """Return the cursor of a position in the list with these criteria."""
    body = base64.urlsafe_b64encode(json.dumps(place, separators=(",", ":")).encode()).decode()
    return f"{body.rstrip('=')}.{_page_check(criteria, body.rstrip('='))}"


def read(criteria: Mapping[str, Json], text: str) -> Mapping[str, Json]:
    """Return the position of a cursor of this list. Raises `invalid_body`, naming the text."""
    body, _, check = text.rpartition(".")
    if check == _page_check(criteria, body):
        try:
            place = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (binascii.Error, ValueError):
            place = None
        if isinstance(place, dict):
            return place
    raise unusable(text)


def unusable(text: str) -> Refusal:
    """The refusal of a text that is no cursor of this list."""
    shown = truncate(text, _SHOWN)
    message = (
        f"{shown!r} is no cursor of this list: send the next_cursor of its last page, with the same "
        "filters, or none to begin anew"
    )
    return Refusal(
        Code.INVALID_BODY,
        f"The request is invalid: /cursor: {message}.",
        errors=[{"pointer": "/cursor", "message": message, "in": "query"}],
        cursor=shown,
    )


def _page_check(criteria: Mapping[str, Json], body: str) -> str:
    text = json.dumps([dict(criteria), body], sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:_CHECK_CHARS]


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
