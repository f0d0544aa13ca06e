"""A rule as an author writes it: mappings, of the same shape in Python and in YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from abeyance.authoring.declarations import DeclarationErrors, question_of, supplied
from abeyance.clips import engine, source
from abeyance.clips.source import TextError
from abeyance.core.json import Json
from abeyance.core.spec import (
    Ask,
    Assert,
    Clips,
    GoTo,
    HaltRun,
    InterruptNode,
    InterruptSpec,
    Matches,
    Node,
    Parallel,
    Retract,
    Retry,
    Rule,
    RuleAction,
    RuleCondition,
)
from abeyance.schemas.state_model import StateModel

NODE: Final = "node"
"""The key of a condition that means the node, and not a field of the values."""

_AT_NODE: Final = re.compile(r"\s*(\?\w+\s*<-\s*)?\(\s*node-id\s+\(\s*id\s+([\w.\-]+)\s*\)\s*\)\s*")
_QUESTION_KEYS: Final = frozenset(
    {
        "prompt",
        "reason",
        "payload",
        "interrupt_payload",
        "response",
        "answer_to",
        "requested_capability",
        "timeout",
        "on_timeout",
    }
)
ACTION_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "assert": frozenset({"fact", "slots"}),
    "goto": frozenset({"node"}),
    "halt": frozenset({"reason"}),
    "interrupt": _QUESTION_KEYS,
    "parallel": frozenset({"nodes"}),
    "retract": frozenset({"pattern"}),
    "retry": frozenset(),
}
"""The kinds of action, and what may be said of each."""


class RuleParser:
    """Reads rules; what is wrong is noted, and what cannot be read is left out."""

    def __init__(self, intake: DeclarationErrors, states: StateModel) -> None:
        self._intake = intake
        self._states = states

    def rule(self, id_: str, when: object, then: object) -> Rule | None:
        """The rule, or None if its condition or all of its actions cannot be read."""
        told = f"the rule {id_!r}"
        condition = self._condition(when, told)
        if isinstance(then, str | Mapping) or not isinstance(then, Sequence):
            self._intake.note(f"{told}: then={then!r} is no list of actions")
            return None
        read = [
            self._action(id_, action, told, f"{told}, then[{number}]")
            for number, action in enumerate(then)
        ]
        actions = tuple(action for action in read if action is not None)
        if condition is None or (read and not actions):
            return None
        if isinstance(when, str) and any(map(_needs_a_binding, actions)):
            condition = Clips(text=when, node=condition.node)
        return Rule(id=id_, condition=condition, actions=actions)

    def _condition(self, when: object, told: str) -> RuleCondition | None:
        match when:
            case Mapping():
                equals = self._intake.json(dict(when), f"{told}, when=")
                if equals is None:
                    return None
                if NODE not in equals:
                    return Matches(equals=equals)
                node = equals.pop(NODE)
                if isinstance(node, str):
                    return Matches(node=node, equals=equals)
                self._intake.note(f"{told}, when=: {node!r} is no name of a node, which is a text")
            case str() if found := _AT_NODE.fullmatch(when):
                return Matches(node=found[2])
            case str():
                return Clips(text=when, node=node_of(when))
            case _:
                self._intake.note(f"{told}: when={when!r} is neither a mapping nor a text")
        return None

    def _action(self, id_: str, given: object, told: str, place: str) -> RuleAction | None:
        if not isinstance(given, Mapping) or not isinstance(given.get("kind"), str):
            self._intake.note(f"{place}: {given!r} is no action, which is a mapping with a kind")
            return None
        kind, said = given["kind"], {name: given[name] for name in given if name != "kind"}
        if kind not in ACTION_KEYS:
            known = ", ".join(map(repr, ACTION_KEYS))
            self._intake.note(
                f"{place}: there is no action of the kind {kind!r}; there are {known}"
            )
            return None
        unknown = [name for name in said if name not in ACTION_KEYS[kind]]
        for name in unknown:
            known = ", ".join(map(repr, sorted(ACTION_KEYS[kind]))) or "nothing more"
            self._intake.note(f"{place}: {kind!r} has no {name!r}; it has {known}")
        if unknown:
            return None
        match kind:
            case "assert":
                return self._assert(said, place)
            case "interrupt":
                return self._ask(id_, said, told)
            case "halt":
                return HaltRun(reason=self._text(said.get("reason", id_), f"{place}, reason="))
            case "goto":
                return self._goto(said.get("node"), place)
            case "parallel":
                nodes = self._intake.names(said.get("nodes", ()), f"{place}, nodes=")
                return Parallel(nodes=nodes)
            case "retract":
                pattern = self._clips(said.get("pattern"), f"{place}, pattern=")
                return None if pattern is None else Retract(fact=pattern)
            case _:
                return Retry()

    def _assert(self, said: Mapping[str, Any], place: str) -> Assert | None:
        fact, slots = self._clips(said.get("fact"), f"{place}, fact="), said.get("slots")
        if fact is None:
            return None
        if slots is None:
            return Assert(fact=fact if fact.startswith("(") else f"({fact})")
        if fact.startswith("("):
            self._intake.note(
                f"{place}: say the slots in the text of the fact, or name the fact and give slots="
            )
            return None
        if not isinstance(slots, Mapping):
            self._intake.note(f"{place}, slots=: {slots!r} is no mapping of slots to values")
            return None
        values = self._intake.json(dict(slots), f"{place}, slots=")
        return None if values is None else Assert(fact=source.fact_text(fact, values))

    def _ask(self, id_: str, said: Mapping[str, Any], told: str) -> Ask:
        options = dict(said)
        if "interrupt_payload" in options:
            if "payload" in options:
                self._intake.note(f"{told} says payload and interrupt_payload, which are one thing")
            options["payload"] = options.pop("interrupt_payload")
        question = question_of(id_, told, self._intake, self._states, **options)
        return Ask(question=question, answer_to=options.get("answer_to"))

    def _goto(self, node: object, place: str) -> GoTo | None:
        if isinstance(node, str):
            return GoTo(node=node)
        self._intake.note(f"{place}, node=: {node!r} is no name of a node, which is a text")
        return None

    def _clips(self, given: object, place: str) -> str | None:
        if isinstance(given, str):
            return given.strip()
        self._intake.note(f"{place}: {given!r} is no CLIPS, which is a text")
        return None

    def _text(self, given: Json, place: str) -> str:
        if isinstance(given, str):
            return given
        self._intake.note(f"{place}: {given!r} is no text")
        return ""


def settled(
    nodes: Mapping[str, Node], rules: Iterable[Rule], states: StateModel, intake: DeclarationErrors
) -> tuple[dict[str, Node], tuple[Rule, ...]]:
    """The nodes and rules of a graph, once all are known.

    A rule whose whole condition is a gate that has no prompt of its own, and which asks, means the
    gate's own question: it is asked once, and not by the rule. What is wrong with CLIPS text is noted
    here, because what one rule asserts another may name.
    """
    found = dict(nodes)
    left: list[Rule] = []
    for rule in rules:
        ask = next((action for action in rule.actions if isinstance(action, Ask)), None)
        match found.get(rule.condition.node or ""):
            case InterruptNode(question=InterruptSpec(prompt="")) as gate if (
                ask is not None and rule.condition == Matches(node=gate.id)
            ):
                found[gate.id] = supplied(gate, rule.id, ask, intake)
                others = tuple(action for action in rule.actions if action is not ask)
                if others:
                    left.append(replace(rule, actions=others))
            case _:
                left.append(rule)
    if any(isinstance(rule.condition, Clips) for rule in left):
        for fault in engine.faults_of(engine.taking_part(left)) or _unknown_facts(left, states):
            intake.note(fault)
    return found, tuple(left)


def _unknown_facts(rules: Sequence[Rule], states: StateModel) -> Iterator[str]:
    if states.is_open:
        return
    asserted = {
        name
        for rule in rules
        for action in rule.actions
        if isinstance(action, Assert)
        for name in source.assertion(action.fact).slots
    }
    for rule in rules:
        looks = source.condition(rule.condition.text) if isinstance(rule.condition, Clips) else None
        for name in sorted(looks.slots if looks else ()):
            if name.split(".")[0] not in {*states.fields, source.NODE} and name not in asserted:
                yield (
                    f"the rule {rule.id!r} looks at {name!r}, which is no field of the state, and which "
                    "no rule asserts"
                )


def _needs_a_binding(action: RuleAction) -> bool:
    # `?n <- (node-id (id work))` is more than a node's name where `?n` is then retracted.
    return isinstance(action, Retract) and action.fact.startswith("?")


def node_of(when: str | Mapping[str, Json]) -> str | None:
    """The node after whose visits a condition can hold, if it is only one."""
    if not isinstance(when, str):
        node = when.get(NODE)
        return node if isinstance(node, str) else None
    try:
        return source.condition(when).node
    except TextError:
        # Told with the faults of all rules, once the graph is built.
        return None
