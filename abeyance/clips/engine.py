"""Which rules fire after a visit, of those whose condition is CLIPS text.

The facts are built from the values each time: `(node-id (id <node>))`, and for every field that a rule
names `(<field> (value "..."))`, where dots walk mappings, as in every other condition. A value is a
text: a text as it is; true, false and numbers as in JSON (`"true"`, `"3"`, `"0.5"`); lists and mappings
as their canonical JSON text. To compare numbers, a condition reads them: `(string-to-field ?x)`.

A null and a field that is missing are one thing, as everywhere in conditions: there is no fact, so that
no pattern matches and `(not (verdict))` holds. A field that CLIPS cannot name, such as `two words` or
`not`, no text can name either, so it needs no fact.

Rules fire in order of declaration, each time the first of those that can. What a rule asserts or
retracts may let others fire, within this one evaluation: nothing is kept. A fact that is asserted has
the slots that it was asserted with, and `value`. Rules that never come to rest are an error. A rule
whose pattern `(node-id (id other))` stands for itself, in no `or` and no `not`, is not looked at after
a visit of another node, so its functions need not bear the values that there are before its own.

Values reach CLIPS as values, never as text, and texts only once `source` has checked them. An
evaluation has an environment of its own, which is gone with it, so that threads may evaluate at the same
time. The library is the extra `rules`, and is imported when there is something to evaluate. All this is
for activities: nothing here belongs into a workflow.
"""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias, assert_never

from abeyance.clips import source
from abeyance.clips.source import NODE, Part, TextError
from abeyance.core.json import Json, look_up, matches
from abeyance.core.spec import Assert, Clips, Matches, Retract, Rule
from abeyance.errors import AbeyanceError

_FIRED: Final = "!fired"
"""The fact by which a rule says that it fired. No text can name it."""
_BLAMED: Final = re.compile(r"(?:in rule|of defrule) !(\d+)\b")
_FIRST: Final = 10_000
"""The highest salience that CLIPS knows."""


class ClipsError(AbeyanceError):
    """Rules cannot be evaluated; the text names the rule, what is wrong with it, and the way out."""


class ClipsMissing(ClipsError):
    """The library that evaluates CLIPS text is not installed."""


def library(id_: str) -> Any:
    """The library. Raises ClipsMissing, which names a rule that needs it."""
    try:
        return importlib.import_module("clips")
    except ModuleNotFoundError as error:
        message = f"the rule {id_!r} has CLIPS text as its condition; install abeyance[rules]"
        raise ClipsMissing(message) from error


class Engine:
    """An environment of CLIPS, for one evaluation.

    `clips` is the library; `ids` are those of the rules, by which they are numbered. First `know` the
    facts, then `learn` rules, then ask once which have `fired`. Nothing of CLIPS leaves it: a fact that
    outlived its environment would end the process.
    """

    def __init__(self, clips: Any, ids: Sequence[str]) -> None:
        self._clips = clips
        self._ids = ids
        self._environment = clips.Environment()
        self._ear = _ear(clips)()
        for router in self._environment.routers():
            # It would print what it hears, and is asked about every character that is read.
            router.deactivate()
        self._environment.add_router(self._ear)
        self._facts: list[str] = []

    def know(self, whens: Sequence[Part], changes: Sequence[Sequence[Part]]) -> None:
        """Make known every fact that the texts name: a pattern may name one that never comes."""
        slots: dict[str, set[str]] = defaultdict(lambda: {"value"})
        slots |= {name: {"value"} for when in whens for name in when.slots}
        for change in [part for parts in changes for part in parts]:
            for name, named in change.slots.items():
                slots[name] |= named
        slots[NODE] = {"id"}
        slots[_FIRED] = {"rule"}
        for name in sorted(slots):
            told = " ".join(f"(slot {slot})" for slot in sorted(slots[name]))
            self._environment.build(f"(deftemplate {name} {told})")
        self._facts = sorted(slots.keys() - {NODE, _FIRED})

    def learn(self, number: int, when: Part, changes: Sequence[Part]) -> list[str]:
        """Take in a rule; what CLIPS has against it."""
        commands = " ".join(change.clips for change in changes)
        try:
            self._environment.build(
                f"(defrule !{number} (declare (salience {_FIRST - number})) {when.clips}"
                f" => (assert ({_FIRED} (rule {number}))) {commands})"
            )
        except self._clips.CLIPSError:
            return [f"the rule {self._ids[number]!r}: CLIPS says: {_said(self._ear.take())}"]
        return []

    def fired(self, node: str, values: Mapping[str, Json], limit: int) -> tuple[str, ...]:
        """Put the facts in, and let the rules fire; their ids, as they fired.

        Raises ClipsError if CLIPS complains, or if rules still fire after `limit` firings.
        """
        self._put(NODE, id=self._clips.Symbol(node))
        for name in self._facts:
            value = look_up(values, name)
            if value is not None:
                self._put(name, value=source.value_text(value))
        count = self._environment.run(limit)
        self._listen()
        if count >= limit and (left := self._waiting()):
            message = (
                f"the rules still fire after {limit} firings, next {left}: what they assert and "
                "retract makes them fire for ever"
            )
            raise ClipsError(message)
        facts = self._environment.find_template(_FIRED).facts()
        return tuple(self._ids[fact["rule"]] for fact in facts)

    def _put(self, name: str, **slots: Any) -> None:
        self._environment.find_template(name).assert_fact(**slots)
        self._listen()

    def _waiting(self) -> str:
        numbers = {int(each.name.lstrip("!")) for each in self._environment.activations()}
        return ", ".join(repr(self._ids[number]) for number in sorted(numbers)[:5])

    def _listen(self) -> None:
        """Raise what CLIPS complained of: it would go on, and take the condition for not met."""
        said = self._ear.take()
        if not said:
            return
        blamed = {int(number) for number in _BLAMED.findall(said)}
        ids = [repr(id_) for number, id_ in enumerate(self._ids) if number in blamed]
        which = f"the rule {', '.join(ids)}" if ids else "a rule with CLIPS text"
        message = (
            f"{which} cannot be evaluated on these values; CLIPS says: {_said(said)} (values are texts; "
            "(string-to-field ?x) reads a number, and numberp tells whether it is one)"
        )
        raise ClipsError(message)


@cache
def _ear(clips: Any) -> Any:
    """What hears all that CLIPS would print: its complaints are kept, and nothing is printed."""

    class Ear(clips.Router):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__("abeyance", 50)
            self._said: list[str] = []

        def query(self, name: str) -> bool:
            return name in {"stdout", "stderr", "stdwrn"}

        def write(self, name: str, message: str) -> None:
            if name == "stderr":
                self._said.append(message)

        def take(self) -> str:
            said = "".join(self._said)
            self._said.clear()
            return said

    return Ear


def _said(text: str) -> str:
    """What CLIPS said, without its numbers, without what it had read by then, and without values."""
    told = re.split(r"\nERROR:|\n\n\[", text.strip())[0]
    return " ".join(re.sub(r"\[[A-Z]+\d+\] ", "", told).split())


MOST_FIRINGS: Final = 1_000
"""How often the rules may fire in one evaluation."""

_MOST_RULES: Final = 1_000
_ALWAYS: Final = "(test (eq 1 1))"
"""A condition that holds whatever other rules have retracted."""

Change: TypeAlias = Assert | Retract
"""What a rule does to the facts of one evaluation.

It asserts one, such as `(escalated (level "high") (by ?x))`. Or it retracts: a variable that its
condition bound to a fact (`?n`), or all facts that have these values, as in `(escalated (by ?))`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipsRule:
    """A rule with CLIPS text as its condition, and what it changes in the facts, in this order."""

    id: str
    when: str
    changes: tuple[Change, ...] = ()


def taking_part(
    rules: Iterable[Rule], values: Mapping[str, Json] | None = None
) -> tuple[ClipsRule, ...]:
    """What CLIPS is to know of the rules of a graph, in their order.

    A rule whose condition is a mapping takes part if it changes facts, and makes its changes in its turn.
    With `values`, only those are left of which the mapping holds on them: CLIPS is not asked about it,
    because there all values are texts, and the mapping tells 5 from "5".
    """
    found: list[ClipsRule] = []
    for rule in rules:
        changes = tuple(each for each in rule.actions if isinstance(each, Assert | Retract))
        match rule.condition:
            case Clips(text=text):
                found.append(ClipsRule(id=rule.id, when=text, changes=changes))
            case Matches(equals=equals):
                if changes and (values is None or matches(equals, values)):
                    found.append(ClipsRule(id=rule.id, when=_ALWAYS, changes=changes))
            case _:
                assert_never(rule.condition)
    return tuple(found)


def faults_of(rules: Sequence[ClipsRule]) -> list[str]:
    """Everything that is wrong with the texts of a graph's rules, a sentence each.

    They are looked at together, for what one rule asserts another may name. Where a rule has a text that
    cannot be read, the others are not yet held against each other.
    """
    try:
        faults, _ = _built(rules)
    except ClipsMissing as error:
        return [str(error)]
    return faults


def evaluate(
    rules: Sequence[ClipsRule],
    *,
    node: str,
    values: Mapping[str, Json],
    limit: int = MOST_FIRINGS,
) -> tuple[str, ...]:
    """The ids of the rules that fire after a visit of `node` that left these values, as they fired.

    `node` is the id of the node; `limit` is how often rules may fire, at least 1. Each rule is named
    once, however many ways its condition holds.

    Raises ClipsMissing without the extra `rules`, and ClipsError if a text is faulty, if a function met
    a value that it cannot take, or if rules still fire after `limit` firings.
    """
    if not rules:
        return ()
    faults, engine = _built(rules, node)
    if engine is None:
        raise ClipsError("; ".join(faults))
    return engine.fired(node, values, limit)


def _built(rules: Sequence[ClipsRule], node: str | None = None) -> tuple[list[str], Engine | None]:
    """What is wrong with the rules or, if that is nothing, what evaluates those that look at a node."""
    if not rules:
        return [], None
    clips = library(rules[0].id)
    faults: list[str] = []
    if len(rules) > _MOST_RULES:
        faults.append(f"there are {len(rules)} rules with CLIPS text; at most {_MOST_RULES} may be")
    whens: list[Part] = []
    changes: list[list[Part]] = []
    for rule in rules:
        try:
            whens.append(source.condition(rule.when))
        except TextError as error:
            faults.append(f"the rule {rule.id!r}, when=: {error}")
        changes.append([])
        for change in rule.changes:
            try:
                changes[-1].append(_command(change))
            except TextError as error:
                faults.append(f"the rule {rule.id!r}, {change.kind}: {error}")
    if faults:
        return faults, None
    engine = Engine(clips, [rule.id for rule in rules])
    # That a slot is one which some rule asserts is held against all rules of a graph. After a visit it
    # may be a rule that is not looked at here: the pattern then finds nothing, which is no fault.
    engine.know(whens, changes if node is None else [*changes, whens])
    for number, when in enumerate(whens):
        if node is None or when.node in {None, node}:
            faults.extend(engine.learn(number, when, changes[number]))
    return faults, None if faults else engine


def _command(change: Change) -> Part:
    match change:
        case Assert(fact=fact):
            return source.assertion(fact)
        case Retract(fact=fact):
            return source.retraction(fact)
        case _:
            assert_never(change)
