"""Parsing of YAML text into JSON values with lines, and the faults of a document.

Scalars are those of YAML 1.2, so `no`, `12:30` and dates are strings. A tag that constructs an object is
a fault, like a duplicate key, a key that is not a string, and extreme nesting or anchor expansion.

Faults come from the text, from the form (an unknown key, a list in place of a name) and from the graph. A
fault of the graph gets the line of its subject; a fault that may only follow from another is left out.

PyYAML's nodes have the lines. With ruamel.yaml, which reads YAML 1.2, only the scalar patterns could go.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from abeyance.core.json import Json
from abeyance.core.text import truncate
from abeyance.schemas.forms import INSIDE, in_words
from abeyance.util import is_exact

Place = tuple[str | int, ...]
"""A path in a document: keys of mappings and indexes of lists, outermost first."""

_LARGEST: Final = 1_000_000
_MOST_VALUES: Final = 100_000
_DEEPEST: Final = 60
_TAG: Final = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """A fault and its line, counted from 1."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


@dataclass(slots=True, kw_only=True)
class Document:
    """The values of a document, and the faults of its text."""

    data: Json = None
    faults: list[Fault] = field(default_factory=list)
    lines: dict[Place, int] = field(default_factory=dict)

    def line(self, place: Sequence[str | int]) -> int:
        """Return the line of a place, or of the innermost part around it that exists."""
        outward = (tuple(place[:length]) for length in range(len(place), -1, -1))
        return next((self.lines[part] for part in outward if part in self.lines), 1)

    def existing(self, steps: Sequence[str | int]) -> Place:
        """Return the place to which steps lead; steps that do not exist are skipped."""
        place: Place = ()
        here = self.data
        for step in steps:
            match here:
                case dict() if step in here:
                    here = here[step]
                case list() if isinstance(step, int) and step < len(here):
                    here = here[step]
                case _:
                    continue
            place = (*place, step)
        return place


def read(text: str) -> Document:
    """Parse a document. Invalid YAML gives one fault and no values."""
    document = Document()
    if len(text) > _LARGEST:
        fault = f"the document has {len(text)} characters, and the limit is {_LARGEST}"
        document.faults.append(Fault(1, fault))
        return document
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        text = " ".join(filter(None, ["invalid YAML:", error.context, error.problem]))
        if text.endswith("got '?'"):
            text += ": quote a text with a question mark within { } and [ ]"
        document.faults.append(Fault(1 if mark is None else mark.line + 1, text))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        document.faults.append(
            Fault(line, f"invalid YAML: {error.reason} (U+{error.character:04X})")
        )
    except _TooMuch as error:
        document.faults.append(error.fault)
    else:
        try:
            document.data = None if node is None else _Reader(document).value(node, ())
        except _TooMuch as error:
            document.faults.append(error.fault)
    return document


class _TooMuch(Exception):
    """Parsing of the document stops here."""

    def __init__(self, mark: yaml.Mark, label: str) -> None:
        self.fault = Fault(mark.line + 1, label)
        super().__init__(label)


class _Loader(yaml.SafeLoader):
    """Composes nodes with the scalars of YAML 1.2, to a limited depth."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.depth > _DEEPEST:
            raise _TooMuch(self.get_mark(), f"nested deeper than {_DEEPEST} levels")
        self.depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_tag}", re.compile(f"({_pattern})\\Z", re.ASCII), _first)


class _Reader:
    """Converts nodes to values, and records their lines."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._count = 0

    def value(self, node: yaml.Node, place: Place) -> Json:
        """Return the value of a node; an anchored node has several places."""
        self._count += 1
        if self._count > _MOST_VALUES:
            raise _TooMuch(
                node.start_mark,
                f"the document has more than {_MOST_VALUES} values: use fewer anchors",
            )
        if len(place) > _DEEPEST:
            raise _TooMuch(
                node.start_mark, f"nested deeper than {_DEEPEST} levels, or an anchor within itself"
            )
        self._document.lines.setdefault(place, node.start_mark.line + 1)
        match node:
            case yaml.MappingNode() if node.tag == f"{_TAG}map":
                return dict(self._items(node, place))
            case yaml.SequenceNode() if node.tag == f"{_TAG}seq":
                return [self.value(item, (*place, n)) for n, item in enumerate(node.value)]
            case yaml.ScalarNode():
                return self._scalar(node)
            case _:
                return self._tagged(node)

    def _items(self, node: yaml.MappingNode, place: Place) -> Iterator[tuple[str, Json]]:
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != f"{_TAG}str":
                shown = repr(key) if isinstance(key, str) else "a list or mapping"
                self._note(key_node, f"{shown} cannot be a key: write a string, in quotes")
            elif key == "<<" and key_node.style is None:
                self._note(key_node, "a merge key (<<) is not YAML 1.2: write out the keys")
            elif key in seen:
                self._note(
                    key_node, f"the key {key!r} is repeated, first in line {seen[key]}: remove one"
                )
            else:
                seen[key] = line
                self._document.lines[*place, key] = line
                yield key, self.value(value_node, (*place, key))

    def _scalar(self, node: yaml.ScalarNode) -> Json:
        text = node.value
        try:
            match node.tag.removeprefix(_TAG):
                case "str":
                    return text
                case "null":
                    return None
                case "bool":
                    return text.lower() == "true"
                case "int":
                    return int(text, 0) if text[:2] in {"0o", "0x"} else int(text)
                case "float":
                    return self._number(node, text)
                case _:
                    return self._tagged(node)
        except ValueError:
            self._note(node, f"{truncate(text, 40)!r} is not a valid {node.tag.removeprefix(_TAG)}")
            return None

    def _number(self, node: yaml.Node, text: str) -> float | None:
        number = float(_pointless(text))
        if not math.isfinite(number):
            self._note(node, f"{text} is not a JSON number")
            return None
        if not is_exact(number, text):
            shown = truncate(text, 40)
            self._note(
                node, f'{shown} has too many digits: write fewer, or "{shown}" for a Decimal'
            )
        return number

    def _tagged(self, node: yaml.Node) -> None:
        tag = node.tag.replace(_TAG, "!!")
        self._note(node, f"the tag {tag} is not supported: write plain values")

    def _note(self, node: yaml.Node, label: str) -> None:
        self._document.faults.append(Fault(node.start_mark.line + 1, label))


def _pointless(number: str) -> str:
    return re.sub(r"\.(inf|nan)", r"\1", number.lower())


_ASPECTS: Final[Mapping[str, str]] = {
    "has answer_to=": "answer_to",
    "has answers that": "answer_to",
    "requests the capability": "requested_capability",
    "gets no value for": "input",
    "has a default answer": "on_timeout",
    "has a heartbeat": "heartbeat",
    "has a timeout": "timeout",
    "is local and has a timeout": "timeout",
    "looks at": "when",
    "has on_timeout": "on_timeout",
}
"""The keys that faults are about, by the words with which a fault's problem begins."""


_FOLLOWS: Final = re.compile(
    r"is unreachable from START|^nothing starts|^there are no nodes|has `else`, but no other condition"
)
"""Faults that may only follow from a part that was left out anywhere."""
_FOLLOWS_HERE: Final = re.compile(
    r"has no prompt|but no timeout|the question has none|needs calendar=|is not a yes or no|"
    r"is for nobody|gets no value for"
)
"""Faults that may only follow from a key that was left out of the same part."""


class Faults:
    """The faults of one document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._found = dict.fromkeys(document.faults)
        self._subjects: dict[str, Place] = {}
        self._incomplete: set[Place] = set()
        self._lost: set[Place] = set()
        self._has_lost_a_node = False

    def note(self, place: Place, text: str) -> None:
        """Record a fault at a place."""
        self._found[Fault(self._document.line(place), text)] = None

    def misfits(self, error: ValidationError) -> None:
        """Record validation errors of the document."""
        for entry in error.errors(include_url=False, include_context=False):
            place = self._document.existing(entry["loc"])
            self.note(place, _in_words(entry, place))

    def existing(self, steps: Sequence[str | int]) -> Place:
        """Return the place in the document to which steps lead."""
        return self._document.existing(steps)

    def left_out(self, place: Place) -> None:
        """Record that a key is left out of the form."""
        self._incomplete.add(place[:2])

    def lost(self, place: Place, *, named: bool) -> None:
        """Record that an item is left out of the form. `named` says whether its name is known."""
        self._incomplete.add(place)
        self._lost.add(place)
        self._has_lost_a_node = self._has_lost_a_node or (place[0] == "nodes" and not named)

    def is_lost(self, place: Place) -> bool:
        """Return True if an item is left out of the form, and a placeholder takes its place."""
        return place in self._lost

    def subject(self, label: str, place: Place) -> None:
        """Record the place of the subject that the graph's faults call `label`."""
        self._subjects.setdefault(label, place)

    def repeated(self, label: str, place: Place) -> None:
        """Record the place of a repeated name: the last one counts."""
        self._subjects[label] = place

    def keys(self, label: str, place: Place, keys: Iterable[str]) -> None:
        """Record the places of a subject's keys."""
        for key in keys:
            self._subjects.setdefault(f"{label}, {key}", (*place, key))
            for aspect, about in _ASPECTS.items():
                if about == key:
                    self._subjects.setdefault(f"{label} {aspect}", (*place, key))

    def of_graph(self, texts: Sequence[str]) -> None:
        """Record the faults of the graph, except those that may follow from a part that was left out."""
        for text in texts:
            label = max(filter(text.startswith, self._subjects), key=len, default="")
            place = self._subjects.get(label, ())
            follows = self._incomplete and _FOLLOWS.search(text)
            follows_here = place[:2] in self._incomplete and _FOLLOWS_HERE.search(text)
            misses = self._has_lost_a_node and "unknown node" in text
            if not (follows or follows_here or misses):
                self.note(place, text)

    def listed(self) -> list[str]:
        """Return all faults in the order of their lines."""
        return [str(fault) for fault in sorted(self._found, key=lambda fault: fault.line)]


def _in_words(entry: ErrorDetails, place: Place) -> str:
    if entry["type"] == "missing":
        return in_words(entry, _named((*place, entry["loc"][-1])))
    # An unknown key may stand at the top, which has no name.
    return in_words(entry, "" if entry["type"] in INSIDE else _named(place))


def _named(place: Sequence[str | int]) -> str:
    """Return the last key of a place, with the indexes after it."""
    key = max(number for number, part in enumerate(place) if isinstance(part, str))
    indexes = "".join(f"[{part}]" for part in place[key + 1 :])
    return f"{place[key]}{indexes}" if indexes else repr(place[key])
