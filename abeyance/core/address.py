"""Addresses in a run: typed segments, outermost first.

`graph:refund;node:review:2;agent:clerk;tool:delete_files:call_1` means: in the graph `refund`, the
second visit of the node `review`, in it the agent `clerk`, in it the call `call_1` of a tool. The same
text is in the history, the inbox, the log and the hash of an interrupt's id, so text and value must
round-trip exactly: `:` `;` `%` inside an id are percent-encoded, and any other spelling is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, TypeAlias

_ESCAPES = {"%": "%25", ":": "%3A", ";": "%3B"}
_ESCAPED = {escape: char for char, escape in _ESCAPES.items()}
_MOST_PARTS = 3


class Means(StrEnum):
    """What a text in the state of a run refers to, by which a migration gives it a new name."""

    ADDRESS = "address"
    NODE = "node"
    VISITED = "visit"
    TARGET = "goto"
    APPROVED = "approval"
    EDGE = "join"
    QUESTION = "question"
    ANSWER = "answer"
    BARRING = "barring"


AddressText: TypeAlias = Annotated[str, Means.ADDRESS]
NodeName: TypeAlias = Annotated[str, Means.NODE]
"""A node of the graph around it, which may be gone from another version of the graph."""
VisitedNode: TypeAlias = Annotated[str, Means.VISITED]
TargetNode: TypeAlias = Annotated[str, Means.TARGET]
ApprovedNode: TypeAlias = Annotated[str, Means.APPROVED]
EdgeKey: TypeAlias = Annotated[str, Means.EDGE]
QuestionKey: TypeAlias = Annotated[str, Means.QUESTION]
"""A question of the visit around it."""
AnswerName: TypeAlias = Annotated[str, Means.ANSWER]
"""A question of the graph around it."""
BarringName: TypeAlias = Annotated[str, Means.BARRING]
"""A question of the graph around it, or of one around that, whose answerers are barred."""


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """One step of an address: type, id, and an ordinal if the id occurs repeatedly."""

    type: str
    id: str
    ordinal: str | None = None

    def __post_init__(self) -> None:
        if not self.type or not self.id or self.ordinal == "":
            needed = "an address segment needs a type and an id, and its ordinal may not be empty"
            message = f"{needed}: {self!r}"
            raise ValueError(message)

    def __str__(self) -> str:
        parts = [self.type, self.id] if self.ordinal is None else [self.type, self.id, self.ordinal]
        return ":".join(map(_encode, parts))


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """A path of segments. `str()` and `Address.parse` are exact inverses."""

    segments: tuple[Segment, ...]

    def __str__(self) -> str:
        return ";".join(map(str, self.segments))

    @property
    def is_call(self) -> bool:
        return self.segments[-1].type == "tool"

    @property
    def label(self) -> str:
        """Short name of a visit: `<graph>.<node>`, within an agent `<run's graph>.<agent>.<tool>`."""
        last = self.segments[-1].id
        for segment in reversed(self.segments[:-1]):
            if segment.type == "agent":
                return f"{self.segments[0].id}.{segment.id}.{last}"
            if segment.type == "graph":
                return f"{segment.id}.{last}"
        return last

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse an address. Raises ValueError naming the invalid segment."""
        return cls(tuple(_parse_segment(part, text) for part in text.split(";")))


def below(address: str, type: str, id: str, ordinal: int | str = 1) -> str:  # noqa: A002
    """Return the address of the n-th `id` directly below `address`; the first has no ordinal."""
    return f"{address};{Segment(type, id, None if ordinal == 1 else str(ordinal))}"


def _parse_segment(part: str, text: str) -> Segment:
    parts = part.split(":")
    if not 1 < len(parts) <= _MOST_PARTS or not all(parts):
        message = f"{part!r} in the address {text!r} is not of the form type:id or type:id:ordinal"
        raise ValueError(message)
    segment = Segment(*map(_decode, parts))
    if str(segment) != part:
        raise ValueError(f"{part!r} in the address {text!r} has to be written {str(segment)!r}")
    return segment


def _encode(text: str) -> str:
    return re.sub("[%:;]", lambda match: _ESCAPES[match[0]], text)


def _decode(text: str) -> str:
    return re.sub("%3A|%3B|%25", lambda match: _ESCAPED[match[0]], text)
