"""Text that people and models read: cut to a limit, with what cannot be seen in it shown."""

from __future__ import annotations

import json
import re
from typing import Final

LONGEST_ID: Final = 200
"""The bytes of an id that a caller chooses: with what is added to it, stores over SQL hold it."""

HALVES: Final = re.compile("[\ud800-\udfff]")
"""Halves of characters, which JSON can hold, and no message over a network nor text of a database."""
UNSEEN: Final = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, but for the tab and the end of a line
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u2800"
    "\u3164\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"  # no width, or no glyph
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # change the direction of writing
    "\u2028\u2029"  # line ends that some readers ignore
    "\ud800-\udfff"  # halves of characters
    "]"
)
"""Characters that are invisible or mislead readers of a text. The inbox page has the same table."""


def truncate(text: str, limit: int) -> str:
    """Return the text cut to `limit` characters, the last three of which are then dots.

    Halves of characters become question marks, so that the text can be sent.
    """
    return beginning(text, limit if len(text) <= limit else limit - 3)


def beginning(text: str, length: int) -> str:
    """Return the first `length` characters of the text, and then dots if there are more."""
    shown = text if len(text) <= length else f"{text[:length]}..."
    return shown.encode(errors="replace").decode()


def visible(text: str) -> str:
    """Return the text with those characters as code points, such as `<U+202E>`."""
    return UNSEEN.sub(lambda match: f"<U+{ord(match[0]):04X}>", text.replace("\r\n", "\n"))


def escaped(text: str) -> str:
    """Return JSON with those characters as escapes, which does not change its meaning."""
    return UNSEEN.sub(lambda match: json.dumps(match[0])[1:-1], text)
