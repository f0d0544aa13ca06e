"""Everything that is wrong with a YAML document, each fault in its line.

Faults come from three sides: from the text, from the form (a key that is unknown, a list where a name
should be), and from the graph, which speaks of nodes and edges. What the graph says is put into the line
of the thing that it speaks of. A fault that may only follow from another is not told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from abeyance.core.json import truncate
from abeyance.yaml.source import Document, Fault, Place

_FOLLOWS: Final = re.compile(
    r"cannot be reached from START$|^nothing starts|^there are no nodes|"
    r"is the `else` of no other condition$"
)
"""What may be said of a graph because one of its ways could not be read."""

_FOLLOWS_HERE: Final = re.compile(r"has no prompt|says on_timeout, but has no timeout")
"""What may be said of a thing because one of its own keys could not be read."""

_SHOWN: Final = 60

_ASPECTS: Final[Mapping[str, str]] = {
    "answers to": "answer_to",
    "asks for the capability": "requested_capability",
    "gets no value for": "input",
    "has a default answer": "on_timeout",
    "has a heartbeat": "heartbeat",
    "has a timeout": "timeout",
    "is local and has a timeout": "timeout",
    "looks at": "when",
    "says on_timeout": "on_timeout",
}
"""What a graph says of a thing, and the key that it speaks of."""


class Faults:
    """What has been found so far."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._found = dict.fromkeys(document.faults)
        self._subjects: dict[str, Place] = {}
        self._spoilt: set[str] = set()
        self._has_lost_ways = False
        self._has_lost_nodes = False

    def note(self, place: Place, text: str) -> None:
        """Note a fault at a place."""
        self._found[Fault(self._document.line(place), text)] = None

    def misfits(self, error: ValidationError, around: Place) -> None:
        """Note what does not have the form that it should have."""
        for entry in error.errors(include_url=False, include_context=False):
            place = self._document.found([*around, *entry["loc"]])
            self.note(place, _said(entry, place))

    def lost(self, *, node: bool) -> None:
        """Something could not be read, so the graph has a way less, or even a node."""
        self._has_lost_ways = True
        self._has_lost_nodes = self._has_lost_nodes or node

    def subject(self, told: str, place: Place) -> None:
        """Where the thing stands of which a graph speaks so."""
        self._subjects.setdefault(told, place)

    def repeated(self, told: str, place: Place) -> None:
        """The same for what is said of a thing when there is another of its name: the later counts."""
        self._subjects[told] = place

    def spoilt(self, told: str) -> None:
        """This thing was not read as it stands, but without some of its keys."""
        self._spoilt.add(told)

    def keys(self, told: str, place: Place, keys: Iterable[str]) -> None:
        """The same for the keys below it."""
        for key in keys:
            self._subjects.setdefault(f"{told}, {key}", (*place, key))
            for aspect, about in _ASPECTS.items():
                if about == key:
                    self._subjects.setdefault(f"{told} {aspect}", (*place, key))

    def of_graph(self, texts: Sequence[str]) -> None:
        """Note what the graph says of itself, but for what may follow from other faults."""
        is_cut = self._has_lost_ways or any(map(_loses_a_rule, texts))
        for text in texts:
            told = max(
                (told for told in self._subjects if text.startswith(told)), key=len, default=""
            )
            is_spoilt = any(text.startswith(spoilt) for spoilt in self._spoilt)
            follows = is_cut and _FOLLOWS.search(text)
            follows_here = is_spoilt and _FOLLOWS_HERE.search(text)
            misses = self._has_lost_nodes and "unknown node" in text
            if not (follows or follows_here or misses):
                self.note(self._subjects.get(told, ()), text)

    def listed(self) -> list[str]:
        """All faults, in the order of their lines."""
        return [str(fault) for fault in sorted(self._found, key=lambda fault: fault.line)]


def _loses_a_rule(text: str) -> bool:
    return re.match(r"the rule .*, (when|then)", text) is not None


def _said(entry: ErrorDetails, place: Place) -> str:
    told, given = entry["msg"], entry["input"]
    match entry["type"]:
        case "missing":
            return f"{_named((*place, entry['loc'][-1]))} is missing"
        case "extra_forbidden":
            return f"{entry['loc'][-1]!r} {told}"
        case "unknown_kind" if isinstance(given, Mapping):
            return f"the kind {given.get('kind')!r} {told}"
        case _:
            told = told.removeprefix("Value error, ").removeprefix("Input ")
            if told.startswith("should"):
                return f"{_named(place)} {told}, not {truncate(repr(given), _SHOWN)}"
            return f"{_named(place)}: {told}"


def _named(place: Sequence[str | int]) -> str:
    """The last key of a place, with the indexes behind it."""
    key = max(number for number, part in enumerate(place) if isinstance(part, str))
    indexes = "".join(f"[{part}]" for part in place[key + 1 :])
    return f"{place[key]}{indexes}" if indexes else repr(place[key])
