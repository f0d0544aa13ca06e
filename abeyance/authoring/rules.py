"""Rules from their forms, and the nodes that get their question from a rule."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, assert_never

from pydantic import TypeAdapter, ValidationError

from abeyance.authoring.actions import (
    ActionForm,
    AssertForm,
    GotoForm,
    HaltForm,
    InterruptForm,
    ParallelForm,
    RetractForm,
    RetryForm,
)
from abeyance.authoring.declarations import DeclarationErrors, question_of, with_rule_question
from abeyance.authoring.routers import AT_NODE, router
from abeyance.authoring.terms import TERMS, terms_of
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
from abeyance.schemas.forms import in_words, named_in
from abeyance.schemas.written import WrittenValues

NODE: Final = "node"
"""The key of a condition that names the visited node instead of a field."""

_AT_NODE: Final = re.compile(rf"\s*(\?\w+\s*<-\s*)?{AT_NODE.pattern}\s*")
_ACTION: Final[TypeAdapter[ActionForm]] = TypeAdapter(ActionForm)


def rule_of(id_: str, when: object, then: object, intake: DeclarationErrors) -> Rule | None:
    """Return a rule, or None if its condition or all of its actions are invalid; faults are collected."""
    label = f"the rule {id_!r}"
    condition = _condition(when, label, intake)
    if isinstance(then, str | Mapping) or not isinstance(then, Sequence):
        intake.note(f"{label}: then={then!r} is not a list of actions")
        return None
    found = [
        _action(id_, action, label, f"{label}, then[{number}]", intake)
        for number, action in enumerate(then)
    ]
    actions = tuple(action for action in found if action is not None)
    if condition is None or (found and not actions):
        return None
    if isinstance(when, str) and any(map(_needs_a_binding, actions)):
        condition = Clips(text=when, node=condition.node)
    return Rule(id=id_, condition=condition, actions=actions)


def _condition(when: object, label: str, intake: DeclarationErrors) -> RuleCondition | None:
    match when:
        case Mapping():
            equals = intake.json(dict(when), f"{label}, when=")
            if equals is None:
                return None
            if NODE not in equals:
                return Matches(equals=equals)
            node = equals.pop(NODE)
            if isinstance(node, str):
                return Matches(node=node, equals=equals)
            intake.note(f"{label}, when=: {node!r} is not the name of a node: use a string")
        case str() if match := _AT_NODE.fullmatch(when):
            return Matches(node=match["node"])
        case str():
            return Clips(text=when, node=router().node_of(when))
        case _:
            intake.note(f"{label}: when={when!r} is invalid: use a mapping or CLIPS text")
    return None


def _action(
    id_: str, given: object, label: str, place: str, intake: DeclarationErrors
) -> RuleAction | None:
    try:
        form = _ACTION.validate_python(dict(given) if isinstance(given, Mapping) else given)
    except ValidationError as error:
        for entry in error.errors(include_url=False, include_context=False):
            # The kind of the action is the first name.
            names = [f"{name}=" for name in named_in(entry)[1:]]
            intake.note(in_words(entry, ", ".join([place, *names])))
        return None
    match form:
        case AssertForm():
            return _assert(form, place, intake)
        case RetractForm(pattern=pattern):
            return Retract(fact=pattern.strip())
        case HaltForm(reason=reason):
            return HaltRun(reason=id_ if reason is None else reason)
        case GotoForm(node=node):
            return GoTo(node=node)
        case ParallelForm(nodes=nodes):
            return Parallel(nodes=intake.names(nodes, place))
        case RetryForm(node=node, backoff=backoff):
            return Retry(node=node, backoff=backoff or 0.0)
        case InterruptForm():
            options = form.options()
            named = {name: options.pop(name) for name in TERMS & options.keys()}
            terms = terms_of(named, label, intake, fills=True)
            question = question_of(id_, label, intake, terms=terms, **options)
            return Ask(question=question, answer_to=form.answer_to)
        case _:
            assert_never(form)


def _assert(form: AssertForm, place: str, intake: DeclarationErrors) -> Assert | None:
    fact = form.fact.strip()
    is_whole = fact.startswith("(")
    if form.slots is None:
        return Assert(fact=fact if is_whole else f"({fact})")
    if is_whole:
        intake.note(f"{place} has slots both in the text of the fact and in slots=: use one")
        return None
    values = intake.json(dict(form.slots), f"{place}, slots=")
    return None if values is None else Assert(fact=router().fact(fact, values))


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
