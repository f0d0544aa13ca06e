"""The CLIPS text of a rule: checked, and handed to CLIPS.

CLIPS reads the text itself. What it would not refuse is refused here: a text that closes its rule and
begins another construct, a function that does more than look at values (those in `FUNCTIONS` do not;
`div` and `mod` are not among them, because on the smallest integer and -1 the processor ends the whole
process), work without a bound, and a value that no fact can have. Values are texts in double quotes,
only the id of a node is a plain word.
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
"""The fact that says after a visit of which node the rules are looked at."""

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
"""CLIPS makes one rule of every combination of an `or` with another, so their number multiplies."""
_GROUPS: Final = frozenset({"and", "or", "not", "exists", "forall"})
_RESERVED: Final = frozenset({*_GROUPS, "test", "logical", "object", "declare"})
_NAME: Final = re.compile(r"[^\W\d][\w.\-]*")
_LITERAL: Final = re.compile(r"[\w.+\-]+")
_UNREAD: Final = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f"
"""CLIPS ends its text at some of these, and deletes the character before others."""
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
    """A text that cannot be used; what it says tells why, and where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A text that was checked.

    `clips` is the text for CLIPS; `slots` are those that it names of each fact. `node` is the one node
    after whose visits a condition can hold, None if that cannot be told from its outermost patterns.
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
    """What stands between two parentheses."""

    opened: _Token
    items: list[_Item]


_Item: TypeAlias = _Token | _List


@lru_cache(maxsize=1000)
def condition(text: str) -> Part:
    """The check of a `when`: everything that must hold. Raises TextError."""
    items, slots = _read(text), _Slots()
    if not items:
        raise TextError("it is empty, and would hold after every visit")
    alternatives = math.prod(slots.elements(items))
    if alternatives > _MOST_ALTERNATIVES:
        message = (
            f"its `or`s make {alternatives} combinations; at most {_MOST_ALTERNATIVES} are "
            "evaluated: make it several rules"
        )
        raise TextError(message)
    nodes = (node for node in map(_only_node, items) if node is not None)
    return Part(clips=_written(items), slots=slots.named(), node=next(nodes, None))


@lru_cache(maxsize=1000)
def assertion(text: str) -> Part:
    """The command that asserts a fact such as `(escalated (level "high") (by ?x))`. Raises TextError."""
    fact, name, values, slots = _fact(text)
    if name == NODE:
        raise _fault(fact, f"{NODE} says where the run is, which no rule can assert")
    for _, value in values:
        if value.kind == "wildcard":
            raise _fault(value, "a fact that is asserted needs a value here")
    return Part(clips=f"(assert {_written([fact])})", slots=slots)


@lru_cache(maxsize=1000)
def retraction(text: str) -> Part:
    """The command that retracts `?n`, or all facts such as `(escalated (level ?))`. Raises TextError."""
    match _read(text):
        case [_Token(kind="variable", text=name)]:
            return Part(clips=f"(retract {name})", slots={})
        case _:
            _, name, values, slots = _fact(text)
    held = " ".join(
        f"(eq ?its.fact:{slot} {value.text})" for slot, value in values if value.kind != "wildcard"
    )
    # A variable with a dot is none that a text can have bound; and `and` wants two, if all is `?`.
    query = f"(and TRUE TRUE {held})"
    command = f"(delayed-do-for-all-facts ((?its.fact {name})) {query} (retract ?its.fact))"
    return Part(clips=command, slots=slots)


def value_text(value: Json) -> str:
    """A value as it stands in a slot: a text as it is, anything else as its canonical JSON text.

    CLIPS ends a text at NUL, so that `yes` and NUL and `no` would be `yes`: it is replaced.
    """
    text = value if isinstance(value, str) else canonical(value)
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def fact_text(name: str, slots: Mapping[str, Json]) -> str:
    """The text of a fact with these values in its slots, for `assertion`. A null is left out."""
    told = [
        f"({slot} {_quoted(value_text(value))})"
        for slot, value in slots.items()
        if value is not None
    ]
    return f"({' '.join([name, *told])})"


class _Slots:
    """Checks elements of a condition, and collects the slots that they name of each fact."""

    def __init__(self) -> None:
        self._named: dict[str, set[str]] = {}

    def named(self) -> dict[str, frozenset[str]]:
        return {fact: frozenset(slots) for fact, slots in self._named.items()}

    def elements(self, items: list[_Item]) -> list[int]:
        """Check elements. Into how many alternatives its `or`s part each of them."""
        counts: list[int] = []
        for item in items:
            if isinstance(item, _List):
                counts.append(self._element(item))
            elif item.kind != "variable" and item.text != "<-":
                raise _fault(item, 'here a pattern such as (verdict (value "refine")) should stand')
        return counts

    def _element(self, element: _List) -> int:
        head, rest = _head(element, "the name of a fact")
        if head.text in _GROUPS:
            counts = self.elements(rest)
            return sum(counts) if head.text == "or" else math.prod(counts)
        if head.text == "test":
            for each in rest:
                _check_call(each)
        else:
            for fact, _, values in self.pattern(element):
                _check_constraint(fact, values)
        return 1

    def pattern(self, pattern: _List) -> Iterator[tuple[str, str, list[_Item]]]:
        """What stands in a pattern or fact: its name, a slot, and what stands in this."""
        head, rest = _head(pattern, "the name of a fact")
        fact = _checked_name(head, "of a fact")
        slots = self._named.setdefault(fact, set())
        for item in rest:
            if not isinstance(item, _List):
                raise _fault(item, 'here a slot such as (value "refine"), or `)` should stand')
            slot, values = _head(item, "the name of a slot")
            if fact == NODE and slot.text != "id":
                raise _fault(slot, f"{NODE} has the one slot id")
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
    """A fact as rules assert and retract it: with its name, its values, and the slots it names."""
    match _read(text):
        case [_List() as fact]:
            pass
        case [_List(), another, *_]:
            raise _fault(another, "here the end should stand, for it is one fact")
        case [other, *_]:
            raise _fault(other, 'here a fact such as (escalated (level "high")) should stand')
        case _:
            raise TextError("it is empty, and names no fact")
    slots = _Slots()
    values: list[tuple[str, _Token]] = []
    for name, slot, items in slots.pattern(fact):
        if len(items) != 1:
            raise _fault(fact, f"here a value should stand in the slot {slot!r}, and nothing else")
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


def _head(form: _List, wanted: str) -> tuple[_Token, list[_Item]]:
    match form.items:
        case [_Token(kind="word") as head, *rest]:
            return head, rest
        case _:
            raise _fault(form.opened, f"behind it {wanted} should stand")


def _checked_name(token: _Token, what: str) -> str:
    if not _NAME.fullmatch(token.text) or token.text in _RESERVED:
        raise _fault(token, f"cannot be the name {what} here")
    return token.text


def _check_value(fact: str, item: _Item) -> _Token:
    match item:
        case _Token(kind="text") if fact != NODE:
            return item
        case _Token(kind="word", text=text) if fact == NODE and _LITERAL.fullmatch(text):
            return item
        case _Token(kind="text" | "word") if fact == NODE:
            why = "the id of a node is a plain word, without quotes"
        case _Token(kind="word", text=text):
            why = f"values are texts, so it could never match: write {_quoted(text)}"
        case _:
            why = "here a value should stand, or a variable such as ?x"
    raise _fault(item, why)


def _check_call(call: _Item) -> None:
    if isinstance(call, _Token):
        raise _fault(call, 'here a call such as (eq ?x "high") should stand')
    head, rest = _head(call, "the name of a function")
    if head.text not in FUNCTIONS:
        known = " ".join(sorted(FUNCTIONS))
        raise _fault(head, f"is no function that a condition may call; there are {known}")
    for item in rest:
        match item:
            case _List():
                _check_call(item)
            case _Token(kind="text" | "variable"):
                pass
            case _Token(kind="word", text=text) if _LITERAL.fullmatch(text):
                pass
            case _:
                raise _fault(item, "here an argument should stand, or `)`")


def _read(text: str) -> list[_Item]:
    """The tokens of a text, those between two parentheses in a list of their own."""
    if len(text) > _LARGEST:
        raise TextError(f"it has {len(text)} characters; at most {_LARGEST} are read")
    outermost: list[_Item] = []
    open_: list[_List] = []
    for token in _tokens(text):
        items = open_[-1].items if open_ else outermost
        if token.text == "(":
            open_.append(_List(opened=token, items=[]))
            items.append(open_[-1])
            if len(open_) > _DEEPEST:
                raise _fault(token, f"is nested deeper than {_DEEPEST} levels")
        elif token.text != ")":
            items.append(token)
        elif open_:
            open_.pop()
        else:
            raise _fault(token, "it closes nothing")
    if open_:
        raise _fault(open_[-1].opened, "it is never closed")
    return outermost


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        place = f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"
        found = _TOKEN.match(text, at)
        if found is None:
            why = "CLIPS text has no such sign"
            if text[at] == '"':
                why = "this text has no end, or a control character in it"
            raise _fault(_Token(kind="sign", text=text[at], place=place), why)
        if found.lastgroup != "space":
            yield _Token(kind=str(found.lastgroup), text=found[0], place=place)
        at = found.end()


def _fault(item: _Item, why: str) -> TextError:
    token = item.opened if isinstance(item, _List) else item
    return TextError(f"{token.place}: `{token.text[:40]}`: {why}")


def _written(items: list[_Item]) -> str:
    return " ".join(
        item.text if isinstance(item, _Token) else f"({_written(item.items)})" for item in items
    )


def _quoted(text: str) -> str:
    """A text in the quotes of CLIPS."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
