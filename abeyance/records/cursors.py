"""Pages and cursors of lists. A cursor is a position as opaque text, valid only in its list. Pure.

A cursor holds the position and a checksum over the position and the list's criteria, by which the cursor
of another list is refused. It is neither secret nor trusted: each page is authorised anew.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from abeyance.core.json import Json
from abeyance.core.text import truncate
from abeyance.errors import Code, Refusal

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

_CHECK_CHARS: Final = 16
_SHOWN: Final = 100
"""In characters: how much of an invalid cursor its refusal repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """A page of a list, the cursor of the next one, and how many entries the whole list has."""

    items: list[T]
    next_cursor: str | None
    total: int


def criteria(filters: DataclassInstance, **beside: Json) -> Mapping[str, Any]:
    """Return the criteria for which a cursor is valid. `beside` replaces filters of the same name."""
    return {**asdict(filters), **beside}


def write(criteria: Mapping[str, Any], place: Mapping[str, Json]) -> str:
    """Return the cursor of a position in the list with these criteria."""
    body = base64.urlsafe_b64encode(json.dumps(place, separators=(",", ":")).encode()).decode()
    return f"{body.rstrip('=')}.{_page_check(criteria, body.rstrip('='))}"


def read(criteria: Mapping[str, Any], text: str) -> Mapping[str, Json]:
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
    """Return the refusal of a text that is not a cursor of this list."""
    shown = truncate(text, _SHOWN)
    message = (
        f"{shown!r} is not a cursor of this list: send the next_cursor of its last page, with the same "
        "filters, or none to begin anew"
    )
    return Refusal(
        Code.INVALID_BODY,
        f"The request is invalid: /cursor: {message}.",
        errors=[{"pointer": "/cursor", "message": message, "in": "query"}],
        cursor=shown,
    )


def _page_check(criteria: Mapping[str, Any], body: str) -> str:
    told = [dict(criteria), body]
    text = json.dumps(told, sort_keys=True, separators=(",", ":"), default=_plain)
    return sha256(text.encode()).hexdigest()[:_CHECK_CHARS]


def _plain(value: Any) -> Json:
    return sorted(value) if isinstance(value, AbstractSet) else value.isoformat()
