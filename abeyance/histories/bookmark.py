"""Bookmarks: where a reader stands in a list, as a text that only means something in that list.

Inside it are the place and a check sum over the place and what was asked for, so that a bookmark of
another list, or a text that is none, is told apart. It is no secret, and nothing is trusted to it: what
a reader may see is decided anew for each page.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from abeyance.core.canonical import Json
from abeyance.errors import Code, Refusal

_CHECK_CHARS: Final = 16
_SHOWN: Final = 100
"""In characters: how much of a wrong bookmark its refusal repeats."""


def write(asked: Mapping[str, Json], place: Mapping[str, Json]) -> str:
    """A bookmark at a place in the list of what was asked for."""
    body = base64.urlsafe_b64encode(json.dumps(place, separators=(",", ":")).encode()).decode()
    return f"{body.rstrip('=')}.{_check(asked, body.rstrip('='))}"


def read(asked: Mapping[str, Json], text: str) -> Mapping[str, Json]:
    """The place of a bookmark in this list. Raises the refusal `invalid_body`, naming the text."""
    body, _, check = text.rpartition(".")
    if check == _check(asked, body):
        try:
            place = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (binascii.Error, ValueError):
            place = None
        if isinstance(place, dict):
            return place
    raise unusable(text)


def unusable(text: str) -> Refusal:
    """The refusal of a text that is no bookmark of this list."""
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
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


def _check(asked: Mapping[str, Json], body: str) -> str:
    told = json.dumps([dict(asked), body], sort_keys=True, separators=(",", ":"))
    return sha256(told.encode()).hexdigest()[:_CHECK_CHARS]
