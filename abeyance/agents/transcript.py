"""The conversation of an agent: kept outside of the history as a chain of immutable links, read through a
reference to the last one.

    link = {"format": 1, "previous": <reference>, "turns": 1, "row": 3}     one line of JSON
           <message>                                                        and one line for each message

Appending writes one link and changes none, so every reference ever given out goes on to mean the same
conversation: an older one is a fork, or a rewind, at no cost.

A chain of one link for each turn would have to be fetched one by one. So links fold, like the digits of
a number to the base `FOLD`: the link that would be the `FOLD`th of equal size in a row is not written; in
its place stands one that holds the messages of all of them, and its `previous` is the one before them.
Such a link is `FOLD` times as large, and folds the same way, up to `MOST_TURNS`. After n turns there are
thus at most (FOLD - 1) links of each size below the largest, and n / MOST_TURNS of that: up to 100 turns
are read from at most 14 links. A message is written once for each size, three times in all. One turn
never writes more than the messages of MOST_TURNS turns, and reads no more than the links that it folds.
What would be larger than `MOST_BYTES` is not folded: a conversation of such turns has more links, and
writes each message once.

Links that a process has written or read lately are remembered, as bytes: a worker that goes on with a
conversation fetches nothing. They are parsed anew at each reading, because whoever gets the messages may
change them.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from abeyance.errors import AbeyanceError
from abeyance.storage.blobs import Blobs

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

FOLD: Final = 8
MAX_TURNS: Final = 64
MAX_BYTES: Final = 1_000_000
_FORMAT: Final = 1
_REMEMBERED_BYTES: Final = 64_000_000


class TranscriptError(AbeyanceError):
    """What is kept under a reference is no part of a conversation, or of one too new to be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    """`turns` is of how many calls of `append` it holds the messages, `lines`. `row` counts the links of
    its size that follow each other, up to it.
    """

    previous: str | None
    turns: int
    row: int
    lines: tuple[bytes, ...]

    @property
    def size(self) -> int:
        return sum(len(line) for line in self.lines)

    def written(self) -> bytes:
        header = {
            "format": _FORMAT,
            "previous": self.previous,
            "turns": self.turns,
            "row": self.row,
        }
        return b"\n".join((json.dumps(header).encode(), *self.lines))


class _Remembered:
    """The links used last, up to a number of bytes. Shared by all threads of the process."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._links: OrderedDict[str, _Link] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, ref: str) -> _Link | None:
        with self._lock:
            if (link := self._links.get(ref)) is not None:
                self._links.move_to_end(ref)
            return link

    def put(self, ref: str, link: _Link) -> None:
        with self._lock:
            if ref not in self._links:
                self._links[ref] = link
                self._bytes += link.size
            while self._bytes > self._most:
                _, oldest = self._links.popitem(last=False)
                self._bytes -= oldest.size

    def forget(self) -> None:
        with self._lock:
            self._links.clear()
            self._bytes = 0


_remembered: Final = _Remembered(_REMEMBERED_BYTES)


def forget() -> None:
    """Drop what this process remembers of all conversations, after some of them were erased."""
    _remembered.forget()


async def append(
    blobs: Blobs, run_id: str, head: str | None, messages: Sequence[ModelMessage]
) -> str:
    """Add the messages of one turn to a conversation, and return the reference of what it is now.

    The same messages appended to the same head give the same reference, so a turn that is repeated adds
    nothing twice.

    Args:
        blobs: Where conversations are kept.
        run_id: The run that the messages belong to.
        head: The conversation so far; None is a new one.
        messages: At least one.

    Raises:
        BlobMissing: The conversation so far is not there.
        TranscriptError: It is, and cannot be read.
        ValueError: No messages.
    """
    if not messages:
        raise ValueError("there is nothing to append: give at least one message")
    link = _Link(previous=head, turns=1, row=1, lines=tuple(_lines(messages)))
    while link.previous is not None:
        before = await _link(blobs, link.previous)
        if before.turns != link.turns or link.turns == MAX_TURNS:
            break
        folded = await _folded(blobs, before, link) if before.row >= FOLD - 1 else None
        if folded is None:
            # After a row that was too large to be folded, another one begins.
            link = _row(link, 1 if before.row >= FOLD - 1 else before.row + 1)
            break
        link = folded
    ref = await blobs.put(run_id, link.written())
    _remembered.put(ref, link)
    return ref


async def read(blobs: Blobs, head: str | None) -> list[ModelMessage]:
    """The messages of a conversation, oldest first; of None, none. They are the caller's to change.

    Raises:
        BlobMissing: A part of it is not there any more.
        TranscriptError: What is there is no conversation.
    """
    from pydantic import ValidationError
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    links = []
    ref = head
    while ref is not None:
        links.append(link := await _link(blobs, ref))
        ref = link.previous
    lines = [line for link in reversed(links) for line in link.lines]
    try:
        return ModelMessagesTypeAdapter.validate_json(b"[" + b",".join(lines) + b"]")
    except ValidationError as error:
        message = (
            f"the conversation {head!r} holds what this version cannot read: {error}. It was written by"
            " a newer worker: bring this one up to date"
        )
        raise TranscriptError(message) from error


async def _link(blobs: Blobs, ref: str) -> _Link:
    if (known := _remembered.get(ref)) is not None:
        return known
    link = _parsed(ref, await blobs.get(ref))
    _remembered.put(ref, link)
    return link


def _parsed(ref: str, data: bytes) -> _Link:
    first, *lines = data.split(b"\n")
    try:
        header = json.loads(first)
        is_known = header["format"] == _FORMAT
    except (ValueError, TypeError, KeyError):
        message = (
            f"what is kept under {ref!r} is no part of a conversation: give its reference instead"
        )
        raise TranscriptError(message) from None
    if not is_known:
        message = (
            f"the conversation {ref!r} has the format {header['format']}, and this version reads"
            f" {_FORMAT}: bring this worker up to date"
        )
        raise TranscriptError(message)
    return _Link(
        previous=header["previous"],
        turns=header["turns"],
        row=header["row"],
        lines=tuple(lines),
    )


async def _folded(blobs: Blobs, before: _Link, last: _Link) -> _Link | None:
    links = [last, before]
    while len(links) < FOLD and links[-1].previous is not None:
        links.append(await _link(blobs, links[-1].previous))
    if sum(link.size for link in links) > MAX_BYTES:
        return None
    return _Link(
        previous=links[-1].previous,
        turns=last.turns * FOLD,
        row=1,
        lines=tuple(line for link in reversed(links) for line in link.lines),
    )


def _row(link: _Link, row: int) -> _Link:
    return _Link(previous=link.previous, turns=link.turns, row=row, lines=link.lines)


def _lines(messages: Sequence[ModelMessage]) -> Iterator[bytes]:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    for message in messages:
        # One line: JSON writes a line end in a text as an escape.
        yield ModelMessagesTypeAdapter.dump_json([message])[1:-1]
