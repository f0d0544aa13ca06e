"""The CLIPS text of a rule: read here, and written anew for CLIPS.

What CLIPS gets is never what the author wrote, but what was understood of it: the text is read into
tokens by a grammar of our own, which knows patterns, `and or not exists forall test`, and constraints
with `& | ~ : =`. So a text cannot close its rule and begin another construct, and whatever a later CLIPS
may read into a sign, it does not reach it. Functions are those in `FUNCTIONS` and no others: they look
at values and touch nothing else. (`div` and `mod` are not among them: on the smallest integer and -1 the
processor ends the whole process.)

Values are texts in double quotes, only the id of a node is a plain word. The other way round a pattern
could never match, so it is a fault.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from abeyance.clips.tokens import TextError, Token, Tokens, quoted, requoted
from abeyance.core.canonical import Json, canonical

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

_DEEPEST: Final = 40
_MOST_ALTERNATIVES: Final = 64
"""CLIPS makes one rule of every combination of an `or` with another, so their number multiplies."""
_RESERVED: Final = frozenset(
    {"and", "or", "not", "exists", "forall", "test", "logical", "object", "declare"}
)
_GROUPS: Final[Mapping[str, tuple[int, int | None]]] = {
    "and": (1, None),
    "or": (1, None),
    "not": (1, 1),
    "exists": (1, None),
    "forall": (2, None),
}
_NAME: Final = re.compile(r"[^\W\d][\w.\-]*")
_LITERAL: Final = re.compile(r"[\w.+\-]+")
_AT_NODE: Final = re.compile(r"(?:\?\S+ <- )?\(node-id \(id ([^\s?~=:|&()]+)\)\)")
"""A pattern as it is written here for CLIPS, which only one node matches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A text that was read.

    `clips` is what it becomes; `slots` are those that it names of each fact. `node` is the one node
    after whose visits a condition can hold, None if that cannot be told from its outermost patterns.
    """

    clips: str
    slots: Mapping[str, frozenset[str]]
    node: str | None = None


@lru_cache(maxsize=1000)
def condition(text: str) -> Part:
    """What a `when` says: everything that must hold. Raises TextError."""
    return _Reader(text).condition()


@lru_cache(maxsize=1000)
def assertion(text: str) -> Part:
    """The command that asserts a fact such as `(escalated (level "high") (by ?x))`. Raises TextError."""
    return _Reader(text).assertion()


@lru_cache(maxsize=1000)
def retraction(text: str) -> Part:
    """The command that retracts `?n`, or all facts such as `(escalated (level ?))`. Raises TextError."""
    return _Reader(text).retraction()


def value_text(value: Json) -> str:
    """A value as it stands in a slot: a text as it is, anything else as its canonical JSON text.

    CLIPS ends a text at NUL, so that `yes` and NUL and `no` would be `yes`: it is replaced.
    """
    text = value if isinstance(value, str) else canonical(value)
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def fact_text(name: str, slots: Mapping[str, Json]) -> str:
    """The text of a fact with these values in its slots, for `assertion`. A null is left out."""
    told = [
        f"({slot} {quoted(value_text(value))})"
        for slot, value in slots.items()
        if value is not None
    ]
    return f"({' '.join([name, *told])})"


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)
        self._slots: dict[str, set[str]] = {}

    # What there is to be read

    def condition(self) -> Part:
        told: list[str] = []
        node: str | None = None
        alternatives = 1
        while self._tokens.seen.kind != "end":
            clips, count = self._element(0)
            told.append(clips)
            alternatives *= count
            if node is None and (found := _AT_NODE.fullmatch(clips)):
                node = found[1]
        if not told:
            self._tokens.refuse(self._tokens.seen, "it is empty, and would hold after every visit")
        if alternatives > _MOST_ALTERNATIVES:
            message = (
                f"its `or`s make {alternatives} combinations; at most {_MOST_ALTERNATIVES} are "
                "evaluated: make it several rules"
            )
            raise TextError(message)
        return self._part(" ".join(told), node)

    def assertion(self) -> Part:
        opened = self._tokens.seen
        name, slots = self._fact()
        if name == NODE:
            self._tokens.refuse(opened, f"{NODE} says where the run is, which no rule can assert")
        told = "".join(f" ({slot} {self._filled(token)})" for slot, token in slots)
        return self._part(f"(assert ({name}{told}))")

    def retraction(self) -> Part:
        if self._tokens.seen.kind == "variable":
            name = self._tokens.take().text
            self._tokens.expect("end", "the end")
            return self._part(f"(retract {name})")
        name, slots = self._fact()
        held = " ".join(
            f"(eq ?its.fact:{slot} {requoted(token)})"
            for slot, token in slots
            if token.kind != "wildcard"
        )
        # A variable with a dot is none that a text can have bound; and `and` wants two, if all is `?`.
        query = f"(and TRUE TRUE {held})"
        return self._part(
            f"(delayed-do-for-all-facts ((?its.fact {name})) {query} (retract ?its.fact))"
        )

    # Conditional elements

    def _element(self, depth: int) -> tuple[str, int]:
        """An element as CLIPS gets it, and into how many alternatives its `or`s part it."""
        bound = ""
        if self._tokens.seen.kind == "variable":
            bound = f"{self._tokens.take().text} <- "
            self._tokens.expect("<-", "`<-` and a pattern")
        opened = self._open(depth, 'a pattern such as (verdict (value "refine"))')
        head = self._tokens.expect("word", "the name of a fact")
        if not bound and head.text in _GROUPS:
            return self._group(head, depth)
        if not bound and head.text == "test":
            call = self._call(depth + 1)
            self._tokens.expect(")", "`)`")
            return f"(test {call})", 1
        name = self._named(head, "of a fact")
        told = "".join(f" {slot}" for slot in self._constraints(name, depth))
        self._tokens.expect(")", 'a slot such as (value "refine"), or `)`', opened)
        return f"{bound}({name}{told})", 1

    def _group(self, head: Token, depth: int) -> tuple[str, int]:
        told: list[str] = []
        counts: list[int] = []
        while self._tokens.seen.text != ")":
            clips, count = self._element(depth + 1)
            told.append(clips)
            counts.append(count)
        self._tokens.take()
        least, most = _GROUPS[head.text]
        if not least <= len(told) <= (most or len(told)):
            needs = "exactly" if most else "at least"
            self._tokens.refuse(head, f"`{head.text}` takes {needs} {least}, and has {len(told)}")
        alternatives = sum(counts) if head.text == "or" else math.prod(counts)
        return f"({head.text} {' '.join(told)})", alternatives

    def _constraints(self, name: str, depth: int) -> Iterator[str]:
        while self._tokens.seen.kind == "sign" and self._tokens.seen.text == "(":
            self._tokens.take()
            slot = self._slot(name)
            yield f"({slot} {self._constraint(name, depth + 1)})"
            self._tokens.expect(")", "`)`, `&` or `|`")

    def _constraint(self, fact: str, depth: int) -> str:
        if self._tokens.seen.kind == "wildcard":
            return self._tokens.take().text
        told = [self._term(fact, depth)]
        while self._tokens.seen.kind == "sign" and self._tokens.seen.text in {"&", "|"}:
            told.append(self._tokens.take().text)
            told.append(self._term(fact, depth))
        return "".join(told)

    def _term(self, fact: str, depth: int) -> str:
        negated = "~" if self._tokens.seen.kind == "sign" and self._tokens.seen.text == "~" else ""
        if negated:
            self._tokens.take()
        token = self._tokens.take()
        if token.kind == "word" and token.text in {":", "="}:
            return f"{negated}{token.text}{self._call(depth)}"
        if token.kind == "variable":
            return negated + token.text
        return negated + self._literal(fact, token)

    def _literal(self, fact: str, token: Token) -> str:
        if token.kind not in {"text", "word"}:
            self._tokens.refuse(token, "here a value should stand, or a variable such as ?x")
        if fact == NODE and not (token.kind == "word" and _LITERAL.fullmatch(token.text)):
            self._tokens.refuse(token, "the id of a node is a plain word, without quotes")
        if fact != NODE and token.kind == "word":
            meant = quoted(token.text)
            self._tokens.refuse(token, f"values are texts, so it could never match: write {meant}")
        return requoted(token)

    def _call(self, depth: int) -> str:
        self._open(depth, 'a call such as (eq ?x "high")')
        function = self._tokens.take()
        if function.kind != "word" or function.text not in FUNCTIONS:
            known = " ".join(sorted(FUNCTIONS))
            self._tokens.refuse(
                function, f"is no function that a condition may call; there are {known}"
            )
        told = [function.text]
        while True:
            token = self._tokens.seen
            match token.kind:
                case "sign" if token.text == "(":
                    told.append(self._call(depth + 1))
                case "sign" if token.text == ")":
                    self._tokens.take()
                    return f"({' '.join(told)})"
                case "text" | "variable":
                    told.append(requoted(self._tokens.take()))
                case "word" if _LITERAL.fullmatch(token.text):
                    told.append(self._tokens.take().text)
                case _:
                    self._tokens.refuse(token, "here an argument should stand, or `)`")

    # Facts, as rules assert and retract them

    def _fact(self) -> tuple[str, list[tuple[str, Token]]]:
        self._tokens.expect("(", 'a fact such as (escalated (level "high"))')
        name = self._named(self._tokens.expect("word", "the name of a fact"), "of a fact")
        self._slots.setdefault(name, set())
        slots: list[tuple[str, Token]] = []
        while self._tokens.seen.kind == "sign" and self._tokens.seen.text == "(":
            self._tokens.take()
            slot = self._slot(name)
            token = self._tokens.take()
            if token.kind not in {"variable", "wildcard"}:
                self._literal(name, token)
            slots.append((slot, token))
            self._tokens.expect(")", "`)`")
        self._tokens.expect(")", 'a slot such as (level "high"), or `)`')
        self._tokens.expect("end", "the end, for it is one fact")
        return name, slots

    def _filled(self, token: Token) -> str:
        if token.kind == "wildcard":
            self._tokens.refuse(token, "a fact that is asserted needs a value here")
        return requoted(token)

    # Names

    def _slot(self, fact: str) -> str:
        token = self._tokens.expect("word", "the name of a slot")
        name = self._named(token, "of a slot")
        if fact == NODE and name != "id":
            self._tokens.refuse(token, f"{NODE} has the one slot id")
        self._slots[fact].add(name)
        return name

    def _named(self, token: Token, what: str) -> str:
        if not _NAME.fullmatch(token.text) or token.text in _RESERVED:
            self._tokens.refuse(token, f"cannot be the name {what} here")
        if what == "of a fact":
            self._slots.setdefault(token.text, set())
        return token.text

    def _open(self, depth: int, wanted: str) -> Token:
        if depth > _DEEPEST:
            self._tokens.refuse(self._tokens.seen, f"is nested deeper than {_DEEPEST} levels")
        return self._tokens.expect("(", wanted)

    def _part(self, clips: str, node: str | None = None) -> Part:
        slots = {name: frozenset(slots) for name, slots in self._slots.items()}
        return Part(clips=clips, slots=slots, node=node)
