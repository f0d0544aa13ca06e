"""The places of a JSON Schema: its parts, counted as if each reference were written out.

A short schema can be expensive: if each of thirty definitions refers twice to the next, it expands to a
billion places. So its places are counted before it is compiled, and the work of validating an answer is
at most the number of places for each value, and the cost of all patterns for each byte of text.

Patterns are matched in one go through a text, at a cost for each byte that grows with the pattern:
`(?:x{1,100}){1,100}y` has ten thousand states, and each byte may have to check all of them. Lookaround
and backreferences have no such bound, and are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Final
from urllib.parse import unquote

import jsonschema_rs

from abeyance.core.json import Json
from abeyance.core.text import truncate

MAX_PLACES: Final = 10_000
"""The maximum number of places of a schema, with its references written out."""
MAX_WORK: Final = 20_000_000
"""The maximum work for one request, in units of about 25 ns: half a second."""
_DEEPEST: Final = 200
"""The validator recurses for each level of a schema, and its stack is limited."""
_MOST_PATTERNS: Final = 160_000
"""The maximum cost of all patterns of a schema: they take about 16 MB when compiled."""
_UNEVALUATED_AGAIN: Final = 3
"""How often parts with an `unevaluatedProperties` or `unevaluatedItems` are evaluated."""

_LARGEST: Final = 1_000_000
_SIZES: Final[Sequence[int]] = (*(2**power for power in range(9, 20)), _LARGEST)
"""In bytes. How large a pattern is when compiled shows in the least of these that it can do with."""
_PER_UNIT: Final = 100
"""A state of a pattern takes about as many bytes, and at each byte of a text a unit of work."""
PATTERN_OPTIONS: Final = jsonschema_rs.RegexOptions(size_limit=_LARGEST)

_ONE: Final = (
    *("not", "if", "then", "else", "items", "additionalItems", "contains", "unevaluatedItems"),
    *("additionalProperties", "unevaluatedProperties", "propertyNames"),
)
_SEVERAL: Final = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED: Final = ("properties", "patternProperties", "dependentSchemas", "dependencies")
_LISTED: Final = ("enum", "const", "required", "dependentRequired", "dependencies")
_UNEVALUATED: Final = frozenset({"unevaluatedProperties", "unevaluatedItems"})


@lru_cache(maxsize=10_000)
def work_of(pattern: str) -> int | None:
    """Return the work of a pattern for each byte of a text; None if it cannot be used: it is invalid, too
    large, or looks around.
    """
    for size in _SIZES:
        try:
            jsonschema_rs.Draft202012Validator(
                {"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions(size_limit=size)
            )
        except jsonschema_rs.ValidationError:
            continue
        return 1 + size // _PER_UNIT
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The places of a schema.

    `loops` are the parts whose reference leads back to them: what follows there is not counted, and has
    to be left out before the schema validates anything.
    """

    count: int
    per_byte: int
    loops: Sequence[dict[str, Json]]

    def work(self, answer: Json, most: int = MAX_WORK) -> int:
        """Return a bound of the work of validating an answer. Raise ValueError if it exceeds `most`."""
        values, chars = measured(answer)
        if (work := self.count * values + self.per_byte * chars) > most:
            message = (
                f"it is too large to be validated against its schema: it has {values:,} values and "
                f"{chars:,} bytes of text, and the schema {self.count:,} places"
            )
            raise ValueError(message)
        return work


def places_of(schema: Json, *, around: int = 0) -> Places:
    """Return the places of a schema and `around`, the number that a question adds around them.

    Raise ValueError if there are too many, or for an invalid reference or pattern.
    """
    return _Reader(schema).read(around)


@dataclass(slots=True)
class _Reader:
    """Reads a schema: its parts by their ids, and those to which each leads."""

    root: Json
    known: dict[int, dict[str, Json]] = field(default_factory=dict)
    parts: dict[int, list[Json]] = field(default_factory=dict)
    count: int = 0
    per_byte: int = 0

    def read(self, around: int) -> Places:
        left = [self.root]
        while left:
            place = left.pop()
            if isinstance(place, dict) and id(place) not in self.known:
                self.known[id(place)] = place
                self.parts[id(place)] = [*_parts(place), *self._targets(place)]
                left += self.parts[id(place)]
        looping = _looping(self._inner())
        loops = [
            self.known[each]
            for each in looping
            if "$ref" in self.known[each] and id(self.parts[each][-1]) in looping
        ]
        for place in loops:
            self.parts[id(place)].pop()
        self.count = around
        self._add(self.root, 1, 0)
        return Places(
            count=self.count,
            per_byte=self.per_byte,
            loops=loops,
        )

    def _inner(self) -> dict[int, set[int]]:
        return {
            place: {id(part) for part in parts if isinstance(part, dict)}
            for place, parts in self.parts.items()
        }

    def _add(self, place: Json, times: int, depth: int) -> None:
        """Count a place and its parts."""
        self.count += times
        if isinstance(place, dict):
            self.count += times * sum(measured(place[key])[0] for key in _LISTED if key in place)
            self._add_patterns(place, times)
            if not _UNEVALUATED.isdisjoint(place):
                times *= _UNEVALUATED_AGAIN
        if self.count > MAX_PLACES:
            message = f"it has more than {MAX_PLACES:,} places with its references written out"
            raise ValueError(message)
        if depth == _DEEPEST:
            message = f"its parts and references are nested more than {_DEEPEST} deep"
            raise ValueError(message)
        for part in self.parts.get(id(place), ()):
            self._add(part, times, depth + 1)

    def _add_patterns(self, schema: Mapping[str, Json], times: int) -> None:
        texts = [*_map(schema.get("patternProperties")), schema.get("pattern")]
        for text in texts:
            if not isinstance(text, str):
                continue
            if (work := work_of(text)) is None:
                message = (
                    f"the pattern {truncate(text, 200)!r} is not a regular expression without lookaround "
                    "and backreferences, or is too large"
                )
                raise ValueError(message)
            self.per_byte += times * work
        if self.per_byte > _MOST_PATTERNS:
            message = "its patterns are too large: use maxLength instead of '{...}'"
            raise ValueError(message)

    def _targets(self, schema: Mapping[str, Json]) -> list[Json]:
        """Return the target of the reference. The validator must find it in the same place."""
        self._refuse_names(schema)
        if "$ref" not in schema:
            return []
        reference = schema["$ref"]
        text = reference if isinstance(reference, str) else ""
        if not text.startswith("#"):
            message = (
                f"it refers to {reference!r}, outside of the schema: begin references with '#'"
            )
            raise ValueError(message)
        found = self.root if text[1:2] in ("", "/") else None
        for part in unquote(text).split("/")[1:]:
            found = _map(found).get(part.replace("~1", "/").replace("~0", "~"))
            self._refuse_names(_map(found))
        if found is None or not isinstance(found, dict | bool):
            message = (
                f"the reference {reference!r} leads to no schema: write it as '#/$defs/<name>'"
            )
            raise ValueError(message)
        return [found]

    def _refuse_names(self, schema: Mapping[str, Json]) -> None:
        """Refuse the names by which references mean other places than they seem to."""
        if schema is not self.root and isinstance(schema.get("$id"), str):
            message = "a part of it has an '$id' of its own: remove that '$id'"
            raise ValueError(message)
        if other := {"$dynamicRef", "$recursiveRef"} & schema.keys():
            message = f"it refers to a part by {other.pop()!r}: use '$ref'"
            raise ValueError(message)


def _looping(inner: Mapping[int, set[int]]) -> set[int]:
    """Return the places that lead back to themselves, and those between two such places."""
    left = _endless(inner)
    outer: dict[int, set[int]] = {place: set() for place in left}
    for place in left:
        for each in inner[place] & left:
            outer[each].add(place)
    return _endless(outer)


def _endless(graph: Mapping[int, set[int]]) -> set[int]:
    """Return the places that lead to a loop."""
    sorter, left = TopologicalSorter(graph), set(graph)
    try:
        sorter.prepare()
    except CycleError:
        while ready := sorter.get_ready():
            left.difference_update(ready)
            sorter.done(*ready)
        return left
    return set()


def measured(value: Json) -> tuple[int, int]:
    """Return the number of values, and of bytes of text (names included), in a value."""
    match value:
        case str():
            return 1, _bytes(value)
        case Mapping():
            inner, chars = [measured(each) for each in value.values()], sum(map(_bytes, value))
        case list() | tuple():
            inner, chars = [measured(each) for each in value], 0
        case _:
            return 1, 0
    return 1 + sum(each for each, _ in inner), chars + sum(each for _, each in inner)


def _parts(schema: Mapping[str, Json]) -> Iterator[Json]:
    yield from (schema[key] for key in _ONE if isinstance(schema.get(key), dict | bool))
    for key in _SEVERAL:
        if isinstance(parts := schema.get(key), list):
            yield from parts
    for key in _NAMED:
        yield from (
            each for each in _map(schema.get(key)).values() if isinstance(each, dict | bool)
        )


def _map(given: Json) -> Mapping[str, Json]:
    return given if isinstance(given, dict) else {}


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
