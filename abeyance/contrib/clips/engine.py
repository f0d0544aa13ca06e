"""Evaluation of rules whose condition is CLIPS text.

The facts are built from the values each time: `(node-id (id <node>))`, and for every field that a rule
names `(<field> (value "..."))`, where dots lead into mappings, as in every other condition. Every value
is a string: strings unchanged; true, false and numbers as in JSON (`"true"`, `"3"`, `"0.5"`); lists and
mappings as canonical JSON. A condition converts numbers to compare them: `(string-to-field ?x)`.

Null and a missing field are the same, as in every condition: there is no fact, so no pattern matches and
`(not (verdict))` holds. A field with a name that CLIPS cannot have, such as `two words`, has
no fact.

Rules fire in order of declaration. Facts that a rule asserts or retracts may let others fire, but only
within the same evaluation. An asserted fact has its own slots and `value`. Rules that fire forever are an
error. A rule with a top-level pattern `(node-id (id other))` takes no part after visits of other nodes,
so its functions never see the values before its own node has run.

Values reach CLIPS as values, never as text; texts only after `source` has looked at them. Each evaluation
has its own environment, so threads may evaluate at the same time. In it, a rule's name is its number, so
an id may be any text. The library is the extra `rules`, imported on first use. For activities only.
"""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias, assert_never

from abeyance.authoring.routers import RouterError, RouterMissing
from abeyance.contrib.clips import source
from abeyance.contrib.clips.source import NODE, Part, TextError
from abeyance.core.json import Json, look_up, matches
from abeyance.core.spec import Assert, Clips, Matches, Retract, Rule

_FIRED: Final = "!fired"
"""The fact that records a rule's firing. No author text can name it."""
_BLAMED: Final = re.compile(r"(?:in rule|of defrule) !(\d+)\b")
_STRINGS: Final = 'values are strings such as "3": make a number of one with (string-to-field ?x)'
_FIRST: Final = 10_000
"""The highest salience in CLIPS."""


def library(id_: str) -> Any:
    """Return the library. Raise RouterMissing, which names a rule that needs it."""
    try:
        return importlib.import_module("clips")
    except ModuleNotFoundError as error:
        message = f"the rule {id_!r} has CLIPS text as its condition: pip install 'abeyance[rules]'"
        raise RouterMissing(message) from error


class Engine:
    """A CLIPS environment for one evaluation: `define_facts`, then `add_rule`, then `run` once.

    `clips` is the library; `ids` are the ids of the rules by number. No CLIPS object leaves the engine: a
    fact that outlives its environment crashes the process.
    """

    def __init__(self, clips: Any, ids: Sequence[str]) -> None:
        self._clips = clips
        self._ids = ids
        self._environment = clips.Environment()
        self._stderr = _stderr_router(clips)()
        for router in self._environment.routers():
            # These print, and CLIPS calls them for every character that it reads.
            router.deactivate()
        self._environment.add_router(self._stderr)
        self._facts: list[str] = []

    def define_facts(self, whens: Sequence[Part], changes: Sequence[Sequence[Part]]) -> None:
        """Define a template for every fact that a text names, even one that never exists."""
        slots: dict[str, set[str]] = defaultdict(lambda: {"value"})
        slots |= {name: {"value"} for when in whens for name in when.slots}
        for change in [part for parts in changes for part in parts]:
            for name, used in change.slots.items():
                slots[name] |= used
        slots[NODE] = {"id"}
        slots[_FIRED] = {"rule"}
        for name in sorted(slots):
            type_ = {NODE: "SYMBOL", _FIRED: "INTEGER"}.get(name, "STRING")
            definition = " ".join(f"(slot {slot} (type {type_}))" for slot in sorted(slots[name]))
            self._environment.build(f"(deftemplate {name} {definition})")
        self._facts = sorted(slots.keys() - {NODE, _FIRED})

    def add_rule(self, number: int, when: Part, changes: Sequence[Part]) -> list[str]:
        """Add a rule, and return its faults."""
        commands = " ".join(change.clips for change in changes)
        try:
            self._environment.build(
                f"(defrule !{number} (declare (salience {_FIRST - number})) {when.clips}"
                f" => {commands} (assert ({_FIRED} (rule {number}))))"
            )
        except self._clips.CLIPSError:
            output = self._stderr.take()
            complaint = _complaint(output)
            # CLIPS prints what it has read: if it stopped in the condition, its last line is the place.
            last = output.rstrip().rpartition("\n")[2].strip()
            place = "" if "\n   =>" in output else f" (at `{last}`)"
            hint = f" ({_STRINGS})" if " type" in complaint else ""
            return [f"the rule {self._ids[number]!r}: CLIPS says: {complaint}{place}{hint}"]
        return []

    def run(self, node: str, values: Mapping[str, Json], limit: int) -> tuple[str, ...]:
        """Assert the facts, let the rules fire, and return their ids in the order of firing.

        Raise RouterError if CLIPS complains, or if rules still fire after `limit` firings.
        """
        self._put(NODE, id=self._clips.Symbol(node))
        for name in self._facts:
            value = look_up(values, name)
            if value is not None:
                self._put(name, value=source.value_text(value))
        count = self._environment.run(limit)
        self._raise_complaints()
        if count >= limit and (pending := self._pending()):
            message = (
                f"the rules still fire after {limit} firings, next {pending}: change what they assert "
                "or retract"
            )
            raise RouterError(message)
        facts = self._environment.find_template(_FIRED).facts()
        return tuple(self._ids[fact["rule"]] for fact in facts)

    def _put(self, name: str, **slots: Any) -> None:
        self._environment.find_template(name).assert_fact(**slots)
        self._raise_complaints()

    def _pending(self) -> str:
        numbers = {int(rule.name.lstrip("!")) for rule in self._environment.activations()}
        return ", ".join(repr(self._ids[number]) for number in sorted(numbers)[:5])

    def _raise_complaints(self) -> None:
        """Raise the complaints that CLIPS printed: it would go on as if the condition did not hold."""
        output = self._stderr.take()
        if not output:
            return
        blamed = {int(number) for number in _BLAMED.findall(output)}
        ids = [repr(id_) for number, id_ in enumerate(self._ids) if number in blamed]
        subject = f"the rule {', '.join(ids)}" if ids else "a rule with CLIPS text"
        message = (
            f"{subject} cannot be evaluated on these values; CLIPS says: {_complaint(output)} "
            f"({_STRINGS}, check it with numberp)"
        )
        raise RouterError(message)


@cache
def _stderr_router(clips: Any) -> Any:
    """Return a router class that collects the output of CLIPS to stderr, and prints nothing."""

    class StderrRouter(clips.Router):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__("abeyance", 50)
            self._output: list[str] = []

        def query(self, name: str) -> bool:
            return name in {"stdout", "stderr", "stdwrn"}

        def write(self, name: str, message: str) -> None:
            if name == "stderr":
                self._output.append(message)

        def take(self) -> str:
            output = "".join(self._output)
            self._output.clear()
            return output

    return StderrRouter


def _complaint(output: str) -> str:
    """Return CLIPS's first complaint, without error codes, source text and values."""
    first = re.split(r"\nERROR:|\n\n\[", output.strip())[0]
    return " ".join(re.sub(r"\[[A-Z]+\d+\] ", "", first).split())


MOST_FIRINGS: Final = 1_000
"""The limit of firings in one evaluation."""

_MOST_RULES: Final = 1_000
_ALWAYS: Final = "(test (eq 1 1))"
"""A condition that always holds."""

Change: TypeAlias = Assert | Retract
"""A change of facts: `(escalated (level "high") (by ?x))` is asserted, or retracted.

A retraction names a variable that the condition bound to a fact (`?n`), or all facts with these values,
as in `(escalated (by ?))`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipsRule:
    """A rule with CLIPS text as its condition; its changes are made in order."""

    id: str
    when: str
    changes: tuple[Change, ...] = ()


def clips_rules(
    rules: Iterable[Rule], values: Mapping[str, Json] | None = None
) -> tuple[ClipsRule, ...]:
    """Return the rules that take part in a CLIPS evaluation, in order.

    A rule whose condition is a mapping takes part if it changes facts. With `values`, its mapping must
    hold on them. CLIPS cannot check that: its values are strings, and a mapping distinguishes 5 from "5".
    """
    taking_part: list[ClipsRule] = []
    for rule in rules:
        changes = tuple(one for one in rule.actions if isinstance(one, Assert | Retract))
        match rule.condition:
            case Clips(text=text):
                taking_part.append(ClipsRule(id=rule.id, when=text, changes=changes))
            case Matches(equals=equals):
                if changes and (values is None or matches(equals, values)):
                    taking_part.append(ClipsRule(id=rule.id, when=_ALWAYS, changes=changes))
            case _:
                assert_never(rule.condition)
    return tuple(taking_part)


def faults_of(rules: Sequence[ClipsRule]) -> list[str]:
    """Return every fault in the texts of a graph's rules.

    Rules are checked together, because one may name a fact that another asserts; but only once each text
    can be parsed.
    """
    try:
        faults, _ = _built(rules, is_graph=True)
    except RouterMissing as error:
        return [str(error)]
    return faults


def evaluate(
    rules: Sequence[ClipsRule],
    *,
    node: str,
    values: Mapping[str, Json],
    limit: int = MOST_FIRINGS,
) -> tuple[str, ...]:
    """Return the ids of the rules that fire after a visit of `node`, in order, each once.

    Raise RouterMissing without the extra `rules`, and RouterError if a text is faulty, a function cannot
    take a value, or rules still fire after `limit` firings (at least 1).
    """
    if not rules:
        return ()
    faults, engine = _built(rules, is_graph=False)
    if engine is None:
        raise RouterError("; ".join(faults))
    return engine.run(node, values, limit)


def _built(rules: Sequence[ClipsRule], *, is_graph: bool) -> tuple[list[str], Engine | None]:
    """Return the faults of the rules of a graph or of a visit; without faults, also an engine."""
    if not rules:
        return [], None
    clips = library(rules[0].id)
    faults: list[str] = []
    if len(rules) > _MOST_RULES:
        faults.append(
            f"the graph has {len(rules)} rules with CLIPS text: the limit is {_MOST_RULES}"
        )
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
    # A slot must be asserted by some rule of the graph. After a visit, that rule may not take part: then
    # the pattern matches nothing, which is not a fault.
    engine.define_facts(whens, changes if is_graph else [*changes, whens])
    for number, when in enumerate(whens):
        faults.extend(engine.add_rule(number, when, changes[number]))
    return faults, None if faults else engine


def _command(change: Change) -> Part:
    match change:
        case Assert(fact=fact):
            return source.assertion(fact)
        case Retract(fact=fact):
            return source.retraction(fact)
        case _:
            assert_never(change)
