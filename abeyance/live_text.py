"""The text of a model's turn while the model speaks: the part that a worker sends, and the part that a
watcher lacks.

A worker sends the tail of the text with each heartbeat, in parts. A watcher reads the tail now and then,
and passes the new part on. A reader keeps the text up to `offset`, and puts the new part there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveText:
    """Text of the turn `turn`. `offset` is its position in the whole text of the turn, in characters."""

    turn: int
    text: str
    offset: int = 0

    @property
    def end(self) -> int:
        """The position of its end in the whole text of the turn."""
        return self.offset + len(self.text)


def tail(turn: int, said: str, limit: int) -> LiveText:
    """Return the last characters of a text that fit into `limit` bytes."""
    # A character has at least one byte.
    last = said[-limit:].encode(errors="replace")[-limit:].decode(errors="ignore")
    return LiveText(turn=turn, text=last, offset=len(said) - len(last))


def parts(whole: LiveText, size: int) -> list[LiveText]:
    """Return a text in parts of at most `size` characters; no parts for an empty text."""
    return [
        replace(whole, text=whole.text[at : at + size], offset=whole.offset + at)
        for at in range(0, len(whole.text), size)
    ]


def joined(parts: Sequence[LiveText]) -> LiveText | None:
    """Return the text made of these parts, in order; None without any."""
    if not parts:
        return None
    return replace(parts[0], text="".join(part.text for part in parts))


def news(seen: LiveText | None, now: LiveText | None) -> LiveText | None:
    """Return the part of the tail `now` that a reader lacks who has `seen` an earlier tail.

    An empty text at 0 takes the text back, because the turn begins anew. None if nothing is new.
    """
    if now is None:
        return None if seen is None else LiveText(turn=seen.turn, text="")
    if seen is None or not _continues(seen, now):
        return now
    if now.end == seen.end:
        return None
    return replace(now, text=now.text[seen.end - now.offset :], offset=seen.end)


def _continues(seen: LiveText, now: LiveText) -> bool:
    if now.turn != seen.turn or not seen.offset <= now.offset <= seen.end <= now.end:
        return False
    return seen.text[now.offset - seen.offset :] == now.text[: seen.end - now.offset]


def merged(text: str, new: str, offset: int) -> str:
    """Return a reader's text with the new text at `offset`. Dots mark the part that the reader has
    missed.
    """
    gap = "…" if offset > len(text) else ""
    return f"{text[:offset]}{gap}{new}"
