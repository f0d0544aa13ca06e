"""The cost of validating an answer against a JSON Schema, estimated before it is validated.

A short schema can be expensive: if each of thirty definitions refers twice to the next, it expands to a
billion places. So the places are counted with all references expanded, before the schema is compiled. The
count takes time linear in the length of the schema.

In a recursive schema, the number of visits of a place depends on the answer. Its places count once, and
each answer is measured before it is validated. The estimate uses no clock, so a workflow gets the same
result in a replay. It assumes that the validator never stops early and caches nothing, with one
exception: the objects of a union usually differ by a constant field. The schema is rewritten so that this
field is checked first (`_Guard`), and the estimate relies on that.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Final, TypeAlias
from urllib.parse import unquote

from abeyance.core.json import Json
from abeyance.schemas.patterns import pattern_of

MAX_PLACES: Final = 10_000
"""The maximum number of places of a schema, with its references expanded."""
_MOST_IN_A_ROW: Final = 100
"""The maximum depth of references at one place of an answer. The validator recurses for each, at each of
the hundred levels of an answer, and its stack is limited."""
MAX_WORK: Final = 20_000_000
"""The maximum work for one request, in units of about 25 ns: half a second."""
_MOST_STEPS: Final = 100_000
"""The maximum number of steps for measuring an answer, which takes time itself."""
_MOST_PATTERNS: Final = 16_000_000
"""The maximum size of all compiled patterns of a schema, in bytes."""
_MANY: Final = 10**12
"""Counting stops here."""

_HERE: Final = ("not", "if", "then", "else")
_HERE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_HERE_MAPS: Final = ("dependentSchemas", "dependencies")
_EVERY_MEMBER: Final = ("additionalProperties", "unevaluatedProperties")
_EVERY_ITEM: Final = ("items", "additionalItems", "contains", "unevaluatedItems")
_UNEVALUATED: Final = frozenset({"unevaluatedProperties", "unevaluatedItems"})
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}")
_LISTED: Final = ("enum", "const", "required", "dependentRequired", "dependencies")

_Wanted: TypeAlias = "dict[_Place, int]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guard:
    """The constant fields of a union member, such as `kind`, by which its objects are recognized."""

    one_of: Mapping[str, tuple[str, ...]]
    required: frozenset[str]

    @property
    def schema(self) -> Json:
        properties = {name: {"enum": list(texts)} for name, texts in self.one_of.items()}
        return {"properties": properties, "required": sorted(self.required)}

    def refuses(self, value: Json) -> bool:
        return isinstance(value, Mapping) and any(
            value[name] not in texts if name in value else name in self.required
            for name, texts in self.one_of.items()
        )


@dataclass(slots=True, eq=False)
class _Place:
    """One subschema, and its parts: those for the same value, and those for values inside it."""

    schema: dict[str, Json]
    own: int = 1
    times: int = 1
    """How often its parts are evaluated: more than once for `unevaluatedProperties` and the like."""
    text_cost: int = 0
    name_cost: int = 0
    here: list[_Place] = field(default_factory=list)
    guarded: list[tuple[_Guard, _Place]] = field(default_factory=list)
    members: dict[str, list[_Place]] = field(default_factory=dict)
    items: dict[int, list[_Place]] = field(default_factory=dict)
    every_member: list[_Place] = field(default_factory=list)
    every_item: list[_Place] = field(default_factory=list)
    names: list[_Place] = field(default_factory=list)

    def inner(self) -> Iterator[_Place]:
        """Yield the parts for values inside this one."""
        for found in (*self.members.values(), *self.items.values()):
            yield from found
        yield from (*self.every_member, *self.every_item, *self.names)

    def work(self, value: Json, sizes: Mapping[int, int]) -> int:
        """Return the work for a value, without the parts."""
        done = self.own
        if isinstance(value, str) and self.text_cost:
            done += self.text_cost * _bytes(value)
        elif isinstance(value, Mapping) and self.name_cost:
            done += self.name_cost * sum(map(_bytes, value))
        elif isinstance(value, list) and "uniqueItems" in self.schema:
            done += sizes[id(value)]
        return done


class CostEstimator:
    """Estimates the cost of a schema. Raise ValueError if it has too many places or invalid references.

    It owns the schema, and `prepare` and `linear` change it. `count` is the number of places with all
    references expanded, plus `around`, the number of places that an interrupt adds around it.
    """

    def __init__(self, schema: Json, *, around: int = 0) -> None:
        self.schema = schema
        self._root = schema if isinstance(schema, dict) else {}
        self._known: dict[int, _Place] = {}
        self._unread: list[_Place] = []
        self._anchors, self._is_nested = _anchors(self._root)
        self._top = self._place(self._root)
        while self._unread:
            self._read(self._unread.pop())
        self._order = self._ordered()
        self._loops = _loops(self._known.values())
        self.count = around + self._expanded({each: each.own for each in self._order})
        if self.count > MAX_PLACES:
            number = f"{self.count:,}" if self.count < _MANY else f"more than {_MANY:,}"
            message = (
                f"it has {number} places with its references expanded: the limit is {MAX_PLACES:,}"
            )
            raise ValueError(message)
        self.is_recursive = any(len(loop) > 1 for loop in self._loops.values())
        self.looks_around = False
        self._per_byte = 0

    def prepare(self) -> None:
        """Rewrite the schema to an equivalent one for which the estimate of `work` holds.

        `looks_around` then tells how to compile its patterns. Raise ValueError for an invalid pattern.
        """
        self.looks_around = self._priced()
        self._per_byte = self._expanded(
            {each: each.text_cost + each.name_cost for each in self._order}
        )
        if self.is_recursive:
            self._guard()

    def work(self, answer: Json, most: int = MAX_WORK) -> int:
        """Return the work of validating an answer. Raise ValueError if it exceeds `most`."""
        sizes: dict[int, int] = {}
        values, chars = _measured(answer, sizes)
        if not self.is_recursive:
            bound = self.count * values + self._per_byte * chars
            if bound <= most:
                return bound
        found = self._measured_work(answer, sizes, most)
        if found is None:
            why = "too large or too deep" if self.is_recursive else "too large"
            message = (
                f"it is {why} to be validated against its schema: it has {values:,} values and {chars:,} "
                f"bytes of text, and the schema {self.count:,} places"
            )
            raise ValueError(message)
        return found

    def linear(self) -> Json:
        """Remove patterns with lookaround from the schema, and return it.

        Raise ValueError if `patternProperties` has such a pattern.
        """
        for place in self._known.values():
            text = place.schema.get("pattern")
            if isinstance(text, str) and pattern_of(text).looks_around:
                del place.schema["pattern"]
            for pattern in _map(place.schema.get("patternProperties")):
                if pattern_of(pattern).looks_around:
                    message = (
                        f"its patternProperties have {pattern!r}: lookaround is not supported there"
                    )
                    raise ValueError(message)
        return self.schema

    def _place(self, schema: dict[str, Json]) -> _Place:
        if id(schema) not in self._known:
            self._known[id(schema)] = place = _Place(schema=schema)
            self._unread.append(place)
        return self._known[id(schema)]

    def _read(self, place: _Place) -> None:
        schema = place.schema
        place.own += sum(_values_in(schema[key]) for key in _LISTED if key in schema)

        def parts(given: Iterable[Json]) -> list[_Place]:
            found = list(given)
            # True and False are places too, without parts.
            place.own += sum(isinstance(each, bool) for each in found)
            return [self._place(each) for each in found if isinstance(each, dict)]

        place.here += parts(schema[key] for key in _HERE if key in schema)
        for key in _HERE_LISTS:
            place.here += parts(_list(schema.get(key)))
        for key in _HERE_MAPS:
            place.here += parts(_map(schema.get(key)).values())
        place.here += parts(self._target(schema[key]) for key in _REFERENCES if key in schema)
        for name, part in _map(schema.get("properties")).items():
            place.members[name] = parts([part])
        place.every_member += parts(_map(schema.get("patternProperties")).values())
        place.every_member += parts(schema[key] for key in _EVERY_MEMBER if key in schema)
        place.names += parts([schema["propertyNames"]] if "propertyNames" in schema else [])
        for key in ("prefixItems", "items"):
            for number, part in enumerate(_list(schema.get(key))):
                place.items.setdefault(number, []).extend(parts([part]))
        place.every_item += parts(
            schema[key] for key in _EVERY_ITEM if isinstance(schema.get(key), dict | bool)
        )

    def _target(self, reference: Json) -> Json:
        """Return the target of a reference.

        It must be unambiguous: the validator must resolve it to the place that is counted here.
        """
        id_ = self._root.get("$id")
        text = reference if isinstance(reference, str) else ""
        if isinstance(id_, str) and text.startswith(id_):
            text = text.removeprefix(id_) or "#"
        if not text.startswith("#"):
            message = (
                f"it refers to {reference!r}, outside of the schema: begin references with '#'"
            )
            raise ValueError(message)
        if self._is_nested:
            message = "it has references, and a part with an '$id' of its own: remove that '$id'"
            raise ValueError(message)
        text = unquote(text.removeprefix("#"))
        found: Json = self._root
        if text and not text.startswith("/"):
            found = self._anchors.get(text)
        else:
            for part in text.split("/")[1:]:
                found = _child(found, part.replace("~1", "/").replace("~0", "~"))
        if not isinstance(found, dict | bool):
            message = f"the reference {reference!r} leads to no schema in it, or to several"
            raise ValueError(message)  # noqa: TRY004 - as all that is wrong with a schema
        return found

    def _ordered(self) -> list[_Place]:
        """Return all places, each after its parts for the same value."""
        try:
            order = list(
                TopologicalSorter({each: each.here for each in self._known.values()}).static_order()
            )
        except CycleError as error:
            message = "one of its references leads back to itself without end"
            raise ValueError(message) from error
        row: dict[_Place, int] = {}
        for place in order:
            row[place] = 1 + max((row[each] for each in place.here), default=0)
            if not _UNEVALUATED.isdisjoint(place.schema):
                place.times = row[place]
        if max(row.values()) > _MOST_IN_A_ROW:
            message = (
                f"its references are nested {max(row.values())} deep for the same value: the limit is "
                f"{_MOST_IN_A_ROW}"
            )
            raise ValueError(message)
        return order

    def _expanded(self, own: Mapping[_Place, int]) -> int:
        """Return the sum of `own` over all places, with references expanded."""
        at_once: dict[_Place, int] = {}
        for place in self._order:
            inside = sum(at_once[each] for each in place.here)
            at_once[place] = min(_MANY, own[place] + place.times * inside)
        sums: dict[frozenset[_Place], int] = {}
        # A loop comes after all those that it leads to.
        for loop in dict.fromkeys(self._loops.values()):
            found = 0
            for place in loop:
                here = sum(sums[self._loops[each]] for each in place.here if each not in loop)
                inner = sum(sums[self._loops[each]] for each in place.inner() if each not in loop)
                found += own[place] + place.times * here + inner
            sums[loop] = min(_MANY, found)
        return max(sums[self._loops[self._top]], *at_once.values())

    def _priced(self) -> bool:
        """Record the cost of the patterns. Return True if one has lookaround."""
        total, found = 0, set()
        for place in self._order:
            pattern = place.schema.get("pattern")
            texts = [pattern_of(each) for each in [pattern] if isinstance(each, str)]
            names = [pattern_of(each) for each in _map(place.schema.get("patternProperties"))]
            place.text_cost = sum(each.cost for each in texts)
            place.name_cost = sum(each.cost for each in names)
            total += sum(each.size for each in (*texts, *names) if not each.looks_around)
            found |= {each.looks_around for each in (*texts, *names)}
            if total > _MOST_PATTERNS:
                message = "its patterns are too large: use maxLength instead of '{...}'"
                raise ValueError(message)
        return True in found

    def _guard(self) -> None:
        """Rewrite unions so that the constant fields of their members are checked first."""
        for place in self._order:
            for part in (*_list(place.schema.get("anyOf")), *_list(place.schema.get("oneOf"))):
                branch = self._known.get(id(part))
                if branch is None or part.keys() != {"$ref"} or not branch.here:
                    continue
                (target,) = branch.here
                if (guard := _guard_of(target.schema)) is None:
                    continue
                branch.own += 2 + _values_in(guard.schema)
                branch.here, branch.guarded = [], [(guard, target)]
                then = dict(part)
                part.clear()
                part.update({"if": guard.schema, "then": then, "else": False})

    def _measured_work(self, answer: Json, sizes: Mapping[int, int], most: int) -> int | None:
        """Return the work of validating an answer, or None if it exceeds `most`."""
        done = steps = 0
        left: list[tuple[Json, _Wanted]] = [(answer, {self._top: 1})]
        while left:
            value, wanted = left.pop()
            inside: defaultdict[str | int, _Wanted] = defaultdict(lambda: defaultdict(int))
            names: _Wanted = defaultdict(int)
            queue = list(wanted.items())
            while queue:
                place, times = queue.pop()
                done += times * place.work(value, sizes)
                again = times * place.times
                queue += [(each, again) for each in place.here]
                queue += [
                    (each, again) for guard, each in place.guarded if not guard.refuses(value)
                ]
                for key, each in _within(place, value):
                    inside[key][each] += times
                    steps += 1
                    if steps > _MOST_STEPS:
                        return None
                for each in place.names if isinstance(value, Mapping) else ():
                    names[each] += times
                steps += 1 + (len(value) if place.name_cost and isinstance(value, Mapping) else 0)
                if done > most or steps > _MOST_STEPS:
                    return None
            left += [(value[key], parts) for key, parts in inside.items()]
            if names and isinstance(value, Mapping):
                left += [(name, names) for name in value]
        return done


def _within(place: _Place, value: Json) -> Iterator[tuple[str | int, _Place]]:
    if isinstance(value, Mapping):
        for name, parts in place.members.items():
            if name in value:
                yield from ((name, each) for each in parts)
        if place.every_member:
            for name in value:
                yield from ((name, each) for each in place.every_member)
    elif isinstance(value, list):
        for number, parts in place.items.items():
            if number < len(value):
                yield from ((number, each) for each in parts)
        if place.every_item:
            for number in range(len(value)):
                yield from ((number, each) for each in place.every_item)


def _guard_of(schema: Mapping[str, Json]) -> _Guard | None:
    one_of: dict[str, tuple[str, ...]] = {}
    for name, part in _map(schema.get("properties")).items():
        texts = _map(part).get("enum", [_map(part).get("const")])
        if isinstance(texts, list) and texts and all(isinstance(each, str) for each in texts):
            one_of[name] = tuple(texts)
    required = frozenset(one_of).intersection(_list(schema.get("required")))
    return _Guard(one_of=one_of, required=required) if one_of else None


def _loops(places: Iterable[_Place]) -> dict[_Place, frozenset[_Place]]:
    """Return the strongly connected component of each place, successors first.

    This is Tarjan's algorithm with an explicit stack, because chains of references may be very long.
    """
    number: dict[_Place, int] = {}
    low: dict[_Place, int] = {}
    found: dict[_Place, frozenset[_Place]] = {}
    open_: list[_Place] = []
    path: list[tuple[_Place, Iterator[_Place]]] = []

    def enter(place: _Place) -> None:
        number[place] = low[place] = len(number)
        open_.append(place)
        path.append((place, iter([*place.here, *place.inner()])))

    for start in places:
        if start not in number:
            enter(start)
        while path:
            place, following = path[-1]
            each = next(following, None)
            if each is None:
                path.pop()
                if path:
                    outer = path[-1][0]
                    low[outer] = min(low[outer], low[place])
                if low[place] == number[place]:
                    first = len(open_) - 1
                    while open_[first] is not place:
                        first -= 1
                    loop = frozenset(open_[first:])
                    del open_[first:]
                    found |= dict.fromkeys(loop, loop)
            elif each not in number:
                enter(each)
            elif each not in found:
                low[place] = min(low[place], number[each])
    return found


def _anchors(root: Json) -> tuple[dict[str, Json], bool]:
    """Return the anchors of a schema (None for a repeated one), and True if a part has an `$id`."""
    found: dict[str, Json] = {}
    is_nested = False
    left = [root]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            is_nested |= each is not root and isinstance(each.get("$id"), str)
            names = [each.get("$anchor"), each.get("$dynamicAnchor")]
            for name in {name for name in names if isinstance(name, str)}:
                found[name] = None if name in found else each
            left += each.values()
        elif isinstance(each, list):
            left += each
    return found, is_nested


def _child(outer: Json, key: str) -> Json:
    if isinstance(outer, dict):
        return outer.get(key)
    if isinstance(outer, list) and _INDEX.fullmatch(key) and int(key) < len(outer):
        return outer[int(key)]
    return None


def _list(given: Json) -> list[Json]:
    return given if isinstance(given, list) else []


def _map(given: Json) -> dict[str, Json]:
    return given if isinstance(given, dict) else {}


def _values_in(given: Json) -> int:
    sizes: dict[int, int] = {}
    return _measured(given, sizes)[0]


def _measured(value: Json, sizes: dict[int, int]) -> tuple[int, int]:
    """Return the number of values, and of bytes of text (names included), in a value.

    Record the number of values in each list in `sizes`, by the list's id.
    """
    match value:
        case str():
            return 1, _bytes(value)
        case Mapping():
            found = [_measured(each, sizes) for each in value.values()]
            chars = sum(map(_bytes, value))
        case list() | tuple():
            found = [_measured(each, sizes) for each in value]
            chars = 0
        case _:
            return 1, 0
    values = 1 + sum(each for each, _ in found)
    if not isinstance(value, Mapping):
        sizes[id(value)] = values
    return values, chars + sum(each for _, each in found)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
