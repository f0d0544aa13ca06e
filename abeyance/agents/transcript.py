"""The conversation of an agent: a chain of immutable links outside the history, referred to by its last.

    link = {"format": 1, "previous": <reference>, "turns": 1, "row": 3}     one line of JSON
           <message>                                                        and one line for each message

Appending writes one link and changes none, so a reference always means the same conversation: an older
one stays readable at no cost.

A chain with one link per turn would be read one fetch at a time. So links fold, like the digits of a
number to the base `FOLD`: the `FOLD`th link of equal size in a row is written as one link with the
messages of all of them, whose `previous` is the link before. It is `FOLD` times as large, and folds in
the same way, up to `MAX_TURNS`. After n turns there are at most (FOLD - 1) links of each size below the
largest, and n / MAX_TURNS of the largest: up to 100 turns are read from at most 14 links. A message is
written once for each size, three times in all. One turn writes at most the messages of MAX_TURNS turns,
and reads at most the links that it folds. Links that would exceed `MAX_BYTES` are not folded: a
conversation of such turns has more links, and writes each message once.

The process caches recent links as bytes, so a worker that continues a conversation fetches nothing. They
are parsed at each read, because callers may change the messages.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from abeyance.errors import AbeyanceError
from abeyance.storage.blobs import Blobs

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

FOLD: Final = 8
MAX_TURNS: Final = 64
MAX_BYTES: Final = 1_000_000
_FORMAT: Final = 1
_CACHE_BYTES: Final = 64_000_000


class TranscriptError(AbeyanceError):
    """The data of a reference is not part of a conversation, or has a newer format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    """`lines` are the messages of `turns` calls of `append`. `row` is its position among the consecutive
    links of its size.
    """

    previous: str | None
    turns: int
    row: int
    lines: tuple[bytes, ...]

    @property
    def size(self) -> int:
        return sum(len(line) for line in self.lines)

    def encode(self) -> bytes:
        header = {
            "format": _FORMAT,
            "previous": self.previous,
            "turns": self.turns,
            "row": self.row,
        }
        return b"\n".join((json.dumps(header).encode(), *self.lines))


class _LinkCache:
    """LRU cache of links, bounded in bytes. Shared by all threads of the process."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
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
            while self._bytes > self._max:
                _, oldest = self._links.popitem(last=False)
                self._bytes -= oldest.size

    def forget(self) -> None:
        with self._lock:
            self._links.clear()
            self._bytes = 0


_cache: Final = _LinkCache(_CACHE_BYTES)


def forget() -> None:
    """Clear the cache of this process, after conversations were erased."""
    _cache.forget()


async def append(
    blobs: Blobs, run_id: str, head: str | None, messages: Sequence[ModelMessage]
) -> str:
    """Append the messages of one turn to a conversation, and return its new reference.

    Appending the same messages to the same head again returns the same reference.

    Args:
        blobs: The store of conversations.
        run_id: The run that owns the messages.
        head: The reference of the conversation so far; None starts a new one.
        messages: At least one message.

    Raises:
        BlobMissing: The conversation so far does not exist.
        TranscriptError: The conversation so far cannot be read.
        ValueError: `messages` is empty.
    """
    if not messages:
        raise ValueError("there is nothing to append: give at least one message")
    link = _Link(previous=head, turns=1, row=1, lines=tuple(_lines(messages)))
    while link.previous is not None:
        before = await _get_link(blobs, link.previous)
        if before.turns != link.turns or link.turns == MAX_TURNS:
            break
        folded = await _fold(blobs, before, link) if before.row >= FOLD - 1 else None
        if folded is None:
            # After a row that was too large to fold, a new row begins.
            link = replace(link, row=1 if before.row >= FOLD - 1 else before.row + 1)
            break
        link = folded
    ref = await blobs.put(run_id, link.encode())
    _cache.put(ref, link)
    return ref


async def read(blobs: Blobs, head: str | None) -> list[ModelMessage]:
    """Return the messages of a conversation, oldest first. The caller may change them.

    Raises:
        BlobMissing: A part of the conversation does not exist any more.
        TranscriptError: The data is not a conversation.
    """
    from pydantic import ValidationError
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    links = []
    ref = head
    while ref is not None:
        links.append(link := await _get_link(blobs, ref))
        ref = link.previous
    lines = [line for link in reversed(links) for line in link.lines]
    try:
        return ModelMessagesTypeAdapter.validate_json(b"[" + b",".join(lines) + b"]")
    except ValidationError as error:
        raise TranscriptError(
            f"the conversation {head!r} was written by a newer worker and cannot be read: {error}."
            " Upgrade this worker"
        ) from error


async def _get_link(blobs: Blobs, ref: str) -> _Link:
    if (cached := _cache.get(ref)) is not None:
        return cached
    link = _decode(ref, await blobs.get(ref))
    _cache.put(ref, link)
    return link


def _decode(ref: str, data: bytes) -> _Link:
    first, *lines = data.split(b"\n")
    try:
        header = json.loads(first)
        is_readable = header["format"] == _FORMAT
    except (ValueError, TypeError, KeyError):
        raise TranscriptError(
            f"the data of {ref!r} is not part of a conversation: use a conversation's reference"
        ) from None
    if not is_readable:
        raise TranscriptError(
            f"the conversation {ref!r} has the format {header['format']}, and this version reads"
            f" {_FORMAT}: upgrade this worker"
        )
    return _Link(
        previous=header["previous"],
        turns=header["turns"],
        row=header["row"],
        lines=tuple(lines),
    )


async def _fold(blobs: Blobs, before: _Link, last: _Link) -> _Link | None:
    links = [last, before]
    while len(links) < FOLD and links[-1].previous is not None:
        links.append(await _get_link(blobs, links[-1].previous))
    if sum(link.size for link in links) > MAX_BYTES:
        return None
    return _Link(
        previous=links[-1].previous,
        turns=last.turns * FOLD,
        row=1,
        lines=tuple(line for link in reversed(links) for line in link.lines),
    )


def _lines(messages: Sequence[ModelMessage]) -> Iterator[bytes]:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    for message in messages:
        # One line: JSON escapes line breaks in texts.
        yield ModelMessagesTypeAdapter.dump_json([message])[1:-1]
