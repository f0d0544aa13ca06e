"""The text of a YAML document, read into plain JSON values that remember their lines.

What is written is what is meant: scalars as in YAML 1.2 and in every editor, so `no` and `12:30` are
texts and a date is one too. Nothing is ever constructed: a tag that would make an object is a fault,
like a key that stands twice, a key that is no text, and a document that is nested or multiplied by its
anchors beyond all reason.
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

Place = tuple[str | int, ...]
"""Where in a document something is: keys of mappings and indexes of lists, outermost first."""

_LARGEST: Final = 1_000_000
_MOST_VALUES: Final = 100_000
_DEEPEST: Final = 60
_TAG: Final = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """What is wrong, and in which line, counted from 1."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


@dataclass(slots=True, kw_only=True)
class Document:
    """The values of a document. `faults` is what was wrong with its text; the rest was read."""

    data: Json = None
    faults: list[Fault] = field(default_factory=list)
    lines: dict[Place, int] = field(default_factory=dict)

    def line(self, place: Sequence[str | int]) -> int:
        """The line of a place, or of the innermost thing around it that is in the document."""
        known = (tuple(place[:length]) for length in range(len(place), -1, -1))
        return next((self.lines[part] for part in known if part in self.lines), 1)

    def found(self, steps: Sequence[str | int]) -> Place:
        """The place to which steps lead; what names nothing in the document is passed over."""
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
    """Read a document. A text that is no YAML at all has one fault, and no values."""
    document = Document()
    if len(text) > _LARGEST:
        told = f"the document has {len(text)} characters, and may have {_LARGEST}"
        document.faults.append(Fault(1, told))
        return document
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        told = " ".join(filter(None, ["no YAML:", error.context, error.problem]))
        if told.endswith("got '?'"):
            told += "; within { } and [ ] a text with a question mark has to stand in quotes"
        document.faults.append(Fault(1 if mark is None else mark.line + 1, told))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        document.faults.append(Fault(line, f"no YAML: {error.reason} (U+{error.character:04X})"))
    except _TooMuch as error:
        document.faults.append(error.fault)
    else:
        if node is None:
            document.faults.append(Fault(1, "the document is empty; a graph has at least `nodes`"))
        else:
            try:
                document.data = _Reader(document).value(node, ())
            except _TooMuch as error:
                document.faults.append(error.fault)
    return document


class _TooMuch(Exception):
    """A document that is not worth reading on."""

    def __init__(self, mark: yaml.Mark, told: str) -> None:
        self.fault = Fault(mark.line + 1, told)
        super().__init__(told)


class _Loader(yaml.SafeLoader):
    """Composes nodes, with the scalars of YAML 1.2, and not too deep."""

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
    """Turns nodes into values, and writes down their lines."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._count = 0

    def value(self, node: yaml.Node, place: Place) -> Json:
        """The value of a node, which may stand at several places."""
        self._count += 1
        if self._count > _MOST_VALUES:
            raise _TooMuch(
                node.start_mark,
                f"the document has more than {_MOST_VALUES} values: its anchors multiply",
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
                self._note(key_node, f"a key is a text, and {shown} is none: put it in quotes")
            elif key == "<<" and key_node.style is None:
                self._note(key_node, "a merge key (<<) is no YAML 1.2: write the keys out")
            elif key in seen:
                self._note(key_node, f"the key {key!r} stands twice, first in line {seen[key]}")
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
                case "float" if math.isfinite(number := float(_pointless(text))):
                    return number
                case "float":
                    self._note(node, f"{text} is no number that JSON has")
                    return None
                case _:
                    return self._tagged(node)
        except ValueError:
            self._note(node, f"{text[:40]!r} is no {node.tag.removeprefix(_TAG)}")
            return None

    def _tagged(self, node: yaml.Node) -> None:
        tag = node.tag.replace(_TAG, "!!")
        self._note(node, f"the tag {tag} has no meaning here: write plain values")

    def _note(self, node: yaml.Node, told: str) -> None:
        self._document.faults.append(Fault(node.start_mark.line + 1, told))


def _pointless(number: str) -> str:
    return re.sub(r"\.(inf|nan)", r"\1", number.lower())


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
                return f"{_named(place)} {told}, not {_shown(given)}"
            return f"{_named(place)}: {told}"


def _named(place: Sequence[str | int]) -> str:
    """The last key of a place, with the indexes behind it."""
    key = max(number for number, part in enumerate(place) if isinstance(part, str))
    indexes = "".join(f"[{part}]" for part in place[key + 1 :])
    return f"{place[key]}{indexes}" if indexes else repr(place[key])


def _shown(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
