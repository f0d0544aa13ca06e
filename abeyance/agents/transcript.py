"""The conversation of an agent: a chain of immutable links outside the history, named by its last link.

    link = {"format": 1, "previous": <reference>}     one line of JSON
           <message>                                  and one line for each message

Appending writes one link and changes none, so a reference always means the same conversation, and an
older reference stays readable at no cost. If a turn and the turns of the last link take at most
`MAX_BYTES`, the new link repeats those turns. So a turn reads one link and writes at most that beside
itself, however long the conversation is; and few links hold a whole conversation.

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

MAX_BYTES: Final = 32_000
"""The largest size of a link of several turns."""
_FORMAT: Final = 1
_CACHE_BYTES: Final = 64_000_000


class TranscriptError(AbeyanceError):
    """The data of a reference is not part of a conversation, or has a newer format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    """`lines` are the messages of one or more turns."""

    previous: str | None
    lines: tuple[bytes, ...]

    @property
    def size(self) -> int:
        return sum(len(line) for line in self.lines)

    def encode(self) -> bytes:
        header = {"format": _FORMAT, "previous": self.previous}
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
    link = _Link(previous=head, lines=tuple(_lines(messages)))
    if head is not None:
        last = await _get_link(blobs, head)
        if last.size + link.size <= MAX_BYTES:
            link = replace(last, lines=(*last.lines, *link.lines))
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
    return _Link(previous=header["previous"], lines=tuple(lines))


def _lines(messages: Sequence[ModelMessage]) -> Iterator[bytes]:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    for message in messages:
        # One line: JSON escapes line breaks in texts.
        yield ModelMessagesTypeAdapter.dump_json([message])[1:-1]
