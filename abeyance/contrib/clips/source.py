"""The check of a rule's CLIPS text before CLIPS parses it.

CLIPS itself judges the text. It offers no way to take functions out of an environment, and evaluates a
test without patterns already while it parses; so the symbols after parentheses are read here first, by
hand. A text may call `FUNCTIONS` only, may not close its rule or begin its own actions, and has bounds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

from abeyance.authoring.routers import AT_NODE
from abeyance.core.json import Json, canonical

NODE: Final = "node-id"
"""The fact that names the node after whose visit rules are evaluated."""

# fmt: off
FUNCTIONS: Final = frozenset({
    "eq", "neq", "=", "<>", "<", "<=", ">", ">=", "and", "or", "not",
    "+", "-", "*", "/", "abs", "min", "max", "integer", "float", "round",
    "str-cat", "str-length", "str-index", "str-compare", "sub-string", "upcase", "lowcase",
    "string-to-field", "numberp", "integerp", "floatp", "stringp", "symbolp", "lexemep",
    "create$", "member$", "subsetp", "length$", "nth$",
})
# fmt: on
"""The functions that a text may call: those without effects. `div` and `mod` are missing because the
smallest integer and -1 crash the process."""

_LARGEST: Final = 10_000
_DEEPEST: Final = 40
_MOST_ALTERNATIVES: Final = 64
"""CLIPS makes one rule of each combination of `or`s, so their number multiplies."""
_GROUPS: Final = frozenset({"and", "or", "not", "exists", "forall"})
_RESERVED: Final = frozenset({*_GROUPS, "test", "logical", "object", "declare"})
_NAME: Final = re.compile(r"[^\W\d][\w.\-]*")
_BINDING: Final = re.compile(r"(\?[A-Za-z_][\w\-]*)?(<-)?")
_UNREAD: Final = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f"
"""CLIPS ends its text at some of these characters, and deletes the one before others."""
_TOKEN: Final = re.compile(
    rf"""[ \t\r\n]+|;[^\r\n]*|(\(|\)|"(?:[^"\\{_UNREAD}]|\\[^{_UNREAD}])*"|[^ \t\r\n()";{_UNREAD}]+)"""
)


class TextError(ValueError):
    """A text is invalid; the message says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A text that CLIPS may parse.

    `clips` is the text for CLIPS; `slots` are the slots that it names, by fact. `node` is the one node
    after which the condition can hold, or None if its outermost patterns do not say.
    """

    clips: str
    slots: Mapping[str, AbstractSet[str]]
    node: str | None = None


@lru_cache(maxsize=1000)
def condition(text: str) -> Part:
    """Check the text of a condition, and return it as a part. Raise TextError."""
    scan = _Scan(text, _GROUPS)
    # Without the line break, a comment at the end would hide the actions.
    return Part(clips=f"{text}\n", slots=scan.slots, node=scan.node)


@lru_cache(maxsize=1000)
def assertion(text: str) -> Part:
    """Check facts to assert, such as `(escalated (level "high") (by ?x))`. Raise TextError."""
    scan = _Scan(text)
    if NODE in scan.slots:
        raise TextError(f"{NODE} is the visited node, which a rule cannot assert")
    return Part(clips=f"(assert {text}\n)", slots=scan.slots)


@lru_cache(maxsize=1000)
def retraction(text: str) -> Part:
    """Check a retraction: `?n`, or all facts such as `(escalated (level ?))`. Raise TextError."""
    if text.startswith("?") and _BINDING.fullmatch(text):
        return Part(clips=f"(retract {text})", slots={})
    scan = _Scan(text)
    if len(scan.slots) > 1:
        raise TextError("write one fact")
    values = ((slot, value) for slot, value in scan.values if value.strip() != "?")
    # CLIPS checks the types of a comparison's arguments; `and` needs two, even if all are `?`.
    equal = " ".join(f"(= 0 (str-compare ?its.fact:{slot} {value}))" for slot, value in values)
    query = f"((?its.fact {next(iter(scan.slots))})) (and TRUE TRUE {equal})"
    return Part(clips=f"(delayed-do-for-all-facts {query} (retract ?its.fact))", slots=scan.slots)


def value_text(value: Json) -> str:
    """Return a value as a slot's string: a string unchanged, anything else as canonical JSON.

    NUL is replaced, because CLIPS would end the string there.
    """
    text = value if isinstance(value, str) else canonical(value)
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def fact_text(name: str, slots: Mapping[str, Json]) -> str:
    """Return the text of a fact for `assertion`. Null values are left out."""
    parts = [
        f"({slot} {_quoted(value_text(value))})"
        for slot, value in slots.items()
        if value is not None
    ]
    return f"({' '.join([name, *parts])})"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@dataclass(slots=True, kw_only=True)
class _Open:
    """An open parenthesis: its place, and the kind, name and end of its first symbol."""

    at: int
    kind: Literal["group", "fact", "slot", "test", "call"] = "group"
    name: str = ""
    named: int = 0
    alternatives: list[int] = field(default_factory=list)


class _Scan:
    """Reads the symbols after parentheses, which name groups, facts, their slots, and functions."""

    def __init__(self, text: str, groups: Collection[str] = ()) -> None:
        self.slots: dict[str, set[str]] = {}
        self.values: list[tuple[str, str]] = []
        self.node: str | None = None
        self._text, self._groups = text, groups
        if len(text) > _LARGEST:
            raise TextError(f"it has {len(text)} characters, and the limit is {_LARGEST}")
        outermost = _Open(at=0, name="and")
        self._open = [outermost]
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._fault(at, "a control character, or a string without an end")
            if match[1]:
                self._read(match[1], at)
            at = match.end()
        if self._open[-1] is not outermost:
            raise self._fault(self._open[-1].at, "it has no closing parenthesis")
        if not outermost.alternatives:
            raise TextError('it is empty: write a pattern such as (verdict (value "refine"))')
        if (count := math.prod(outermost.alternatives)) > _MOST_ALTERNATIVES:
            limit = f"and the limit is {_MOST_ALTERNATIVES}: split the rule"
            raise TextError(f"its `or`s make {count} combinations, {limit}")

    def _read(self, symbol: str, at: int) -> None:
        inner = self._open[-1]
        if not inner.name:
            inner.name, inner.named = symbol, at + len(symbol)
            self._classify(inner, self._open[-2], at)
        elif symbol == "(":
            if len(self._open) > _DEEPEST:
                raise self._fault(at, f"it is nested deeper than {_DEEPEST} levels")
            self._open.append(_Open(at=at))
        elif symbol == ")":
            self._close(at)
        elif inner.kind == "fact" or (
            inner.kind == "group" and not (self._groups and _BINDING.fullmatch(symbol))
        ):
            raise self._fault(at, 'only a form such as (verdict (value "refine")) may stand here')

    def _classify(self, inner: _Open, outer: _Open, at: int) -> None:
        match outer.kind:
            case "group" if inner.name in self._groups:
                return
            case "group" if self._groups and inner.name == "test":
                inner.kind = "test"
                return
            case "group":
                inner.kind = "fact"
                self.slots.setdefault(inner.name, set())
            case "fact":
                inner.kind = "slot"
                self.slots[outer.name].add(inner.name)
            case _:
                inner.kind = "call"
                if inner.name not in FUNCTIONS:
                    functions = " ".join(sorted(FUNCTIONS))
                    raise self._fault(at, f"a rule cannot call this: use one of {functions}")
                return
        if not _NAME.fullmatch(inner.name) or inner.name in _RESERVED:
            raise self._fault(at, f"this is not a valid name of a {inner.kind}")

    def _close(self, at: int) -> None:
        inner = self._open.pop()
        if not self._open:
            raise self._fault(at, "it has no opening parenthesis")
        if inner.kind == "slot":
            self.values.append((inner.name, self._text[inner.named : at]))
        combine = sum if inner.kind == "group" and inner.name == "or" else math.prod
        self._open[-1].alternatives.append(combine(inner.alternatives))
        if len(self._open) == 1 and (match := AT_NODE.fullmatch(self._text, inner.at, at + 1)):
            self.node = self.node or match["node"]

    def _fault(self, at: int, why: str) -> TextError:
        line, column = self._text.count("\n", 0, at) + 1, at - self._text.rfind("\n", 0, at)
        match = _TOKEN.match(self._text, at)
        found = match[0] if match else self._text[at]
        return TextError(f"line {line}, column {column}: `{found[:40]}`: {why}")
