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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from abeyance.clips import source
from abeyance.clips.engine import ClipsError, ClipsMissing, Engine, library
from abeyance.clips.source import Part, TextError
from abeyance.core.json import Json, matches
from abeyance.core.spec import Assert, Clips, Matches, Retract, Rule

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
