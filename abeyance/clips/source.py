"""Checks of the CLIPS text of a rule before CLIPS parses it.

CLIPS parses the text itself. This refuses what CLIPS would accept: a text that closes its rule and begins
another construct, a function with effects (`FUNCTIONS` lists those without; `div` and `mod` are missing
because the smallest integer and -1 crash the process), unbounded work, and a value that no fact can have.
Values are strings in double quotes; only the id of a node is a plain word.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

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
"""The functions that a condition may call."""

_LARGEST: Final = 10_000
_DEEPEST: Final = 40
_MOST_ALTERNATIVES: Final = 64
"""CLIPS makes one rule of each combination of `or`s, so their number multiplies."""
_GROUPS: Final = frozenset({"and", "or", "not", "exists", "forall"})
_RESERVED: Final = frozenset({*_GROUPS, "test", "logical", "object", "declare"})
_NAME: Final = re.compile(r"[^\W\d][\w.\-]*")
_LITERAL: Final = re.compile(r"[\w.+\-]+")
_UNREAD: Final = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f"
"""CLIPS ends its text at some of these characters, and deletes the one before others."""
_TOKEN: Final = re.compile(
    rf"""(?P<space>\s+|;[^\r\n]*)
      | (?P<text>"(?:[^"\\{_UNREAD}]|\\[^{_UNREAD}])*")
      | (?P<variable>\?[A-Za-z_][A-Za-z0-9_\-]*)
      | (?P<wildcard>\?)
      | (?P<sign><-|[()&|~])
      | (?P<word><>|<=|<|[^\s"()&|~;<?${_UNREAD}][^\s"()&|~;<?{_UNREAD}]*)""",
    re.VERBOSE | re.DOTALL,
)


class TextError(ValueError):
    """A text is invalid; the message says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A checked text.

    `clips` is the text for CLIPS; `slots` are the slots that it names, by fact. `node` is the one node
    after which the condition can hold, or None if its outermost patterns do not say.
    """

    clips: str
    slots: Mapping[str, frozenset[str]]
    node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    kind: str
    text: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _List:
    """The items between two parentheses."""

    opened: _Token
    items: list[_Item]


_Item: TypeAlias = _Token | _List


@lru_cache(maxsize=1000)
def condition(text: str) -> Part:
    """Check a condition. Raise TextError."""
    items, slots = _read(text), _Slots()
    if not items:
        raise TextError("it is empty: write a pattern or a test")
    alternatives = math.prod(slots.elements(items))
    if alternatives > _MOST_ALTERNATIVES:
        message = (
            f"its `or`s make {alternatives} combinations, and the limit is {_MOST_ALTERNATIVES}: split "
            "the rule"
        )
        raise TextError(message)
    nodes = (node for node in map(_only_node, items) if node is not None)
    return Part(clips=_written(items), slots=slots.named(), node=next(nodes, None))


@lru_cache(maxsize=1000)
def assertion(text: str) -> Part:
    """Check a fact to assert, such as `(escalated (level "high") (by ?x))`. Raise TextError."""
    fact, name, values, slots = _fact(text)
    if name == NODE:
        raise _fault(fact, f"{NODE} is the visited node, which a rule cannot assert")
    for _, value in values:
        if value.kind == "wildcard":
            raise _fault(value, "an asserted fact needs a value here")
    return Part(clips=f"(assert {_written([fact])})", slots=slots)


@lru_cache(maxsize=1000)
def retraction(text: str) -> Part:
    """Check a retraction: `?n`, or all facts such as `(escalated (level ?))`. Raise TextError."""
    match _read(text):
        case [_Token(kind="variable", text=name)]:
            return Part(clips=f"(retract {name})", slots={})
        case _:
            _, name, values, slots = _fact(text)
    conditions = " ".join(
        f"(eq ?its.fact:{slot} {value.text})" for slot, value in values if value.kind != "wildcard"
    )
    # No author text can bind a variable with a dot; `and` needs two arguments even if all are `?`.
    query = f"(and TRUE TRUE {conditions})"
    command = f"(delayed-do-for-all-facts ((?its.fact {name})) {query} (retract ?its.fact))"
    return Part(clips=command, slots=slots)


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


class _Slots:
    """Checks the elements of a condition, and collects the slots that they name."""

    def __init__(self) -> None:
        self._by_fact: dict[str, set[str]] = {}

    def named(self) -> dict[str, frozenset[str]]:
        return {fact: frozenset(slots) for fact, slots in self._by_fact.items()}

    def elements(self, items: list[_Item]) -> list[int]:
        """Check elements, and return the number of `or` alternatives of each."""
        counts: list[int] = []
        for item in items:
            if isinstance(item, _List):
                counts.append(self._element(item))
            elif item.kind != "variable" and item.text != "<-":
                raise _fault(item, 'a pattern such as (verdict (value "refine")) is expected here')
        return counts

    def _element(self, element: _List) -> int:
        head, rest = _head(element, "the name of a fact")
        if head.text in _GROUPS:
            counts = self.elements(rest)
            return sum(counts) if head.text == "or" else math.prod(counts)
        if head.text == "test":
            for call in rest:
                _check_call(call)
        else:
            for fact, _, values in self.pattern(element):
                _check_constraint(fact, values)
        return 1

    def pattern(self, pattern: _List) -> Iterator[tuple[str, str, list[_Item]]]:
        """Yield the slots of a pattern or fact: fact name, slot name, items."""
        head, rest = _head(pattern, "the name of a fact")
        fact = _checked_name(head, "of a fact")
        slots = self._by_fact.setdefault(fact, set())
        for item in rest:
            if not isinstance(item, _List):
                raise _fault(item, 'a slot such as (value "refine"), or `)`, is expected here')
            slot, values = _head(item, "the name of a slot")
            if fact == NODE and slot.text != "id":
                raise _fault(slot, f"{NODE} has only the slot id")
            slots.add(_checked_name(slot, "of a slot"))
            yield fact, slot.text, values


def _check_constraint(fact: str, items: list[_Item]) -> None:
    before = ""
    for item in items:
        match item:
            case _List() if before in {":", "="}:
                _check_call(item)
            case _Token(kind="variable" | "wildcard" | "sign") | _Token(text=":" | "="):
                pass
            case _:
                _check_value(fact, item)
        before = item.text if isinstance(item, _Token) else ""


def _fact(text: str) -> tuple[_List, str, list[tuple[str, _Token]], dict[str, frozenset[str]]]:
    """Parse a fact to assert or retract: item, name, values by slot, slots by fact."""
    match _read(text):
        case [_List() as fact]:
            pass
        case [_List(), another, *_]:
            raise _fault(another, "the end is expected here: write one fact")
        case [other, *_]:
            raise _fault(other, 'a fact such as (escalated (level "high")) is expected here')
        case _:
            raise TextError("it is empty: write a fact")
    slots = _Slots()
    values: list[tuple[str, _Token]] = []
    for name, slot, items in slots.pattern(fact):
        if len(items) != 1:
            raise _fault(fact, f"the slot {slot!r} needs exactly one value")
        [value] = items
        if not (isinstance(value, _Token) and value.kind in {"variable", "wildcard"}):
            value = _check_value(name, value)
        values.append((slot, value))
    named = slots.named()
    return fact, next(iter(named)), values, named


def _only_node(element: _Item) -> str | None:
    match element:
        case _List(
            items=[_Token(text="node-id"), _List(items=[_, _Token(kind="word", text=node)])]
        ):
            return node
        case _:
            return None


def _head(form: _List, expected: str) -> tuple[_Token, list[_Item]]:
    match form.items:
        case [_Token(kind="word") as head, *rest]:
            return head, rest
        case _:
            raise _fault(form.opened, f"{expected} is expected after it")


def _checked_name(token: _Token, what: str) -> str:
    if not _NAME.fullmatch(token.text) or token.text in _RESERVED:
        raise _fault(token, f"this is not a valid name {what}")
    return token.text


def _check_value(fact: str, item: _Item) -> _Token:
    match item:
        case _Token(kind="text") if fact != NODE:
            return item
        case _Token(kind="word", text=text) if fact == NODE and _LITERAL.fullmatch(text):
            return item
        case _Token(kind="text" | "word") if fact == NODE:
            why = "the id of a node is a plain word: remove the quotes"
        case _Token(kind="word", text=text):
            why = f"values are strings, so this never matches: write {_quoted(text)}"
        case _:
            why = "a value or a variable such as ?x is expected here"
    raise _fault(item, why)


def _check_call(call: _Item) -> None:
    if isinstance(call, _Token):
        raise _fault(call, 'a call such as (eq ?x "high") is expected here')
    head, rest = _head(call, "the name of a function")
    if head.text not in FUNCTIONS:
        functions = " ".join(sorted(FUNCTIONS))
        raise _fault(head, f"a condition cannot call this function: use one of {functions}")
    for item in rest:
        match item:
            case _List():
                _check_call(item)
            case _Token(kind="text" | "variable"):
                pass
            case _Token(kind="word", text=text) if _LITERAL.fullmatch(text):
                pass
            case _:
                raise _fault(item, "an argument or `)` is expected here")


def _read(text: str) -> list[_Item]:
    """Parse a text into nested lists of tokens."""
    if len(text) > _LARGEST:
        raise TextError(f"it has {len(text)} characters, and the limit is {_LARGEST}")
    outermost: list[_Item] = []
    open_: list[_List] = []
    for token in _tokens(text):
        items = open_[-1].items if open_ else outermost
        if token.text == "(":
            open_.append(_List(opened=token, items=[]))
            items.append(open_[-1])
            if len(open_) > _DEEPEST:
                raise _fault(token, f"it is nested deeper than {_DEEPEST} levels")
        elif token.text != ")":
            items.append(token)
        elif open_:
            open_.pop()
        else:
            raise _fault(token, "it has no opening parenthesis")
    if open_:
        raise _fault(open_[-1].opened, "it has no closing parenthesis")
    return outermost


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        place = f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"
        match = _TOKEN.match(text, at)
        if match is None:
            why = "CLIPS text cannot contain this character"
            if text[at] == '"':
                why = "this string has no end, or contains a control character"
            raise _fault(_Token(kind="sign", text=text[at], place=place), why)
        if match.lastgroup != "space":
            yield _Token(kind=str(match.lastgroup), text=match[0], place=place)
        at = match.end()


def _fault(item: _Item, why: str) -> TextError:
    token = item.opened if isinstance(item, _List) else item
    return TextError(f"{token.place}: `{token.text[:40]}`: {why}")


def _written(items: list[_Item]) -> str:
    return " ".join(
        item.text if isinstance(item, _Token) else f"({_written(item.items)})" for item in items
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
