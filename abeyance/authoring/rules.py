"""Parsing and compiling of rules, which have the same form in Python and in YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from abeyance.authoring.declarations import DeclarationErrors, question_of, with_rule_question
from abeyance.authoring.routers import AT_NODE, router
from abeyance.authoring.terms import TERMS, terms_of
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
from abeyance.schemas.written import WrittenValues

NODE: Final = "node"
"""The key of a condition that names the visited node instead of a field."""

_AT_NODE: Final = re.compile(rf"\s*(\?\w+\s*<-\s*)?{AT_NODE.pattern}\s*")
_QUESTION_KEYS: Final = frozenset(
    {
        "prompt",
        "reason",
        "payload",
        "interrupt_payload",
        "response",
        "answer_to",
        "requested_capability",
        "from_input",
        "timeout",
        "on_timeout",
        *TERMS,
    }
)
ACTION_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "assert": frozenset({"fact", "slots"}),
    "goto": frozenset({"node"}),
    "halt": frozenset({"reason"}),
    "interrupt": _QUESTION_KEYS,
    "parallel": frozenset({"nodes"}),
    "retract": frozenset({"pattern"}),
    "retry": frozenset({"node", "backoff"}),
}
"""The kinds of action, with the keys of each."""


class RuleParser:
    """Parses rules, and collects their faults."""

    def __init__(self, intake: DeclarationErrors) -> None:
        self._intake = intake

    def rule(self, id_: str, when: object, then: object) -> Rule | None:
        """Return the rule, or None if its condition or all of its actions are invalid."""
        label = f"the rule {id_!r}"
        condition = self._condition(when, label)
        if isinstance(then, str | Mapping) or not isinstance(then, Sequence):
            self._intake.note(f"{label}: then={then!r} is not a list of actions")
            return None
        parsed = [
            self._action(id_, action, label, f"{label}, then[{number}]")
            for number, action in enumerate(then)
        ]
        actions = tuple(action for action in parsed if action is not None)
        if condition is None or (parsed and not actions):
            return None
        if isinstance(when, str) and any(map(_needs_a_binding, actions)):
            condition = Clips(text=when, node=condition.node)
        return Rule(id=id_, condition=condition, actions=actions)

    def _condition(self, when: object, label: str) -> RuleCondition | None:
        match when:
            case Mapping():
                equals = self._intake.json(dict(when), f"{label}, when=")
                if equals is None:
                    return None
                if NODE not in equals:
                    return Matches(equals=equals)
                node = equals.pop(NODE)
                if isinstance(node, str):
                    return Matches(node=node, equals=equals)
                self._intake.note(
                    f"{label}, when=: {node!r} is not the name of a node: use a string"
                )
            case str() if match := _AT_NODE.fullmatch(when):
                return Matches(node=match["node"])
            case str():
                return Clips(text=when, node=router().node_of(when))
            case _:
                self._intake.note(f"{label}: when={when!r} is invalid: use a mapping or CLIPS text")
        return None

    def _action(self, id_: str, value: object, label: str, place: str) -> RuleAction | None:
        if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
            self._intake.note(
                f"{place}: {value!r} is not an action: use a mapping with the key kind"
            )
            return None
        kind, options = value["kind"], {name: value[name] for name in value if name != "kind"}
        if kind not in ACTION_KEYS:
            kinds = ", ".join(map(repr, ACTION_KEYS))
            self._intake.note(f"{place}: the kind {kind!r} is unknown: use one of {kinds}")
            return None
        unknown = [name for name in options if name not in ACTION_KEYS[kind]]
        for name in unknown:
            keys = ", ".join(map(repr, sorted(ACTION_KEYS[kind])))
            self._intake.note(f"{place}: {kind!r} has no key {name!r}: it has {keys}")
        if unknown:
            return None
        match kind:
            case "assert":
                return self._assert(options, place)
            case "interrupt":
                return self._ask(id_, options, label)
            case "halt":
                return HaltRun(reason=self._text(options.get("reason", id_), f"{place}, reason="))
            case "goto":
                return self._goto(options.get("node"), place)
            case "parallel":
                nodes = self._intake.names(options.get("nodes", ()), f"{place}, nodes=")
                return Parallel(nodes=nodes)
            case "retract":
                pattern = self._clips(options.get("pattern"), f"{place}, pattern=")
                return None if pattern is None else Retract(fact=pattern)
            case _:
                return self._retry(options, place)

    def _assert(self, options: Mapping[str, Any], place: str) -> Assert | None:
        fact, slots = self._clips(options.get("fact"), f"{place}, fact="), options.get("slots")
        if fact is None:
            return None
        if slots is None:
            return Assert(fact=fact if fact.startswith("(") else f"({fact})")
        if fact.startswith("("):
            self._intake.note(
                f"{place} has slots both in the text of the fact and in slots=: use one"
            )
            return None
        if not isinstance(slots, Mapping):
            self._intake.note(f"{place}, slots=: {slots!r} is not a mapping of slots to values")
            return None
        values = self._intake.json(dict(slots), f"{place}, slots=")
        return None if values is None else Assert(fact=router().fact(fact, values))

    def _ask(self, id_: str, options: dict[str, Any], label: str) -> Ask:
        if "interrupt_payload" in options:
            if "payload" in options:
                self._intake.note(f"{label} has both payload and interrupt_payload: remove one")
            options["payload"] = options.pop("interrupt_payload")
        terms = {name: options.pop(name) for name in TERMS & options.keys()}
        question = question_of(
            id_,
            label,
            self._intake,
            terms=terms_of(terms, label, self._intake, fills=True),
            **options,
        )
        return Ask(question=question, answer_to=options.get("answer_to"))

    def _goto(self, node: object, place: str) -> GoTo | None:
        if isinstance(node, str):
            return GoTo(node=node)
        self._intake.note(f"{place}, node=: {node!r} is not the name of a node: use a string")
        return None

    def _retry(self, options: Mapping[str, Any], place: str) -> Retry | None:
        node = options.get("node")
        if node is not None and not isinstance(node, str):
            self._intake.note(f"{place}, node=: {node!r} is not the name of a node: use a string")
            return None
        return Retry(
            node=node,
            backoff=self._intake.seconds(options.get("backoff"), f"{place}, backoff=") or 0.0,
        )

    def _clips(self, value: object, place: str) -> str | None:
        if isinstance(value, str):
            return value.strip()
        self._intake.note(f"{place}: {value!r} is not CLIPS: use a string")
        return None

    def _text(self, value: Json, place: str) -> str:
        if isinstance(value, str):
            return value
        self._intake.note(f"{place}: {value!r} is not a string")
        return ""


def compile_rules(
    nodes: Mapping[str, Node], rules: Iterable[Rule], intake: DeclarationErrors
) -> tuple[dict[str, Node], tuple[Rule, ...]]:
    """Return the final nodes and rules of a graph, and collect the faults of CLIPS text.

    A rule that asks, and whose condition is only an interrupt node without a prompt, supplies that
    node's question: the node asks, not the rule. CLIPS text is checked here because a rule may name facts
    that another asserts.
    """
    compiled = dict(nodes)
    remaining: list[Rule] = []
    for rule in rules:
        ask = next((action for action in rule.actions if isinstance(action, Ask)), None)
        match compiled.get(rule.condition.node or ""):
            case InterruptNode(question=InterruptSpec(prompt="")) as gate if (
                ask is not None and rule.condition == Matches(node=gate.id)
            ):
                compiled[gate.id] = with_rule_question(gate, rule.id, ask, intake)
                others = tuple(action for action in rule.actions if action is not ask)
                if others:
                    remaining.append(replace(rule, actions=others))
            case _:
                remaining.append(rule)
    if any(isinstance(rule.condition, Clips) for rule in remaining):
        for fault in router().faults_of(remaining, WrittenValues(intake.states).path_fault):
            intake.note(fault)
    return compiled, tuple(remaining)


def _needs_a_binding(action: RuleAction) -> bool:
    # If `?n` is retracted, `?n <- (node-id (id work))` is more than a node's name.
    return isinstance(action, Retract) and action.fact.startswith("?")
