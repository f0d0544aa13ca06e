"""What is wrong with the model of a graph's state, in sentences for its author."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Iterator
from typing import Final, assert_never

from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from abeyance.core.spec import (
    END,
    START,
    Ask,
    AskHuman,
    Assert,
    Clips,
    Edge,
    Else,
    FunctionNode,
    GoTo,
    GraphSpec,
    HaltRun,
    InterruptNode,
    InterruptSpec,
    Matches,
    Parallel,
    Retract,
    Retry,
    Rule,
    SubgraphNode,
    When,
)
from abeyance.schemas.json_schema import places_fault
from abeyance.schemas.json_types import Kinds, in_words, kinds
from abeyance.schemas.state_model import StateModel, reducers_of

_REDUCED: Final[dict[str, Kinds]] = {
    "append": frozenset({"array"}),
    "union": frozenset({"array"}),
    "merge": frozenset({"object"}),
    "add": frozenset({"integer", "number"}),
}
"""What sort of JSON a reducer works on."""


def state_faults_of(states: StateModel) -> list[str]:
    """Every fault of the model; empty if runs may use it."""
    model = states.model
    if model is None:
        return [] if states.given is None else [f"the state {states.given!r} is no pydantic model"]
    try:
        model.model_rebuild()
        if (fault := places_fault(states.input_schema())) is not None:
            return [
                f"the state {model.__name__} has a schema of which no question can be made: {fault}"
            ]
        return [fault for name in states.fields for fault in _field_faults(states, name)]
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        return [f"the state {model.__name__} cannot be used: {error.message}"]


def _field_faults(states: StateModel, name: str) -> Iterator[str]:
    written = states.adapters[name].json_schema(mode="serialization")
    reducers = reducers_of(states.fields[name])
    if len(reducers) > 1:
        yield f"the field {name!r} has {len(reducers)} reducers; it can have one"
    for reducer in reducers[:1]:
        found, wanted = kinds(written) - {"null"}, _REDUCED.get(reducer.name)
        if wanted is not None and not found & wanted:
            yield (
                f"the field {name!r} merges by {reducer.name!r}, which works on {in_words(wanted)}, "
                f"but its JSON is {in_words(found)}"
            )
    for mark in filter(inspect.isroutine, states.fields[name].metadata):
        yield (
            f"the field {name!r} is marked with the function {mark.__name__!r}, by which nothing merges: "
            "there are append, merge, add and union of abeyance"
        )
    if '"writeOnly": true' in json.dumps(written):
        yield (
            f"the field {name!r} holds a secret, and values are written into the run's history: keep "
            "there what the secret is called, and look it up in the node"
        )


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,99}")


def faults_of(spec: GraphSpec) -> tuple[str, ...]:
    """Every fault of the graph, in reading order; empty if it may run."""
    return tuple(
        dict.fromkeys(
            [
                *_name_faults(spec),
                *_edge_faults(spec),
                *_route_faults(spec),
                *_node_faults(spec),
                *_rule_faults(spec),
                *_finally_faults(spec),
                *_static_faults(spec),
                *_reach_faults(spec),
            ]
        )
    )


def _name_faults(spec: GraphSpec) -> Iterator[str]:
    names = [("graph", spec.name), *(("node", node) for node in spec.nodes)]
    names += [("rule", rule.id) for rule in spec.rules]
    for what, name in names:
        if not _NAME.fullmatch(name):
            yield (
                f"the {what} name {name!r} must start with a letter or underscore and have at most "
                "100 letters, digits, '_', '-' or '.'"
            )
    for reserved in (START, END):
        if reserved in spec.nodes:
            yield f"{reserved!r} is a reserved word and cannot name a node"


def _edge_faults(spec: GraphSpec) -> Iterator[str]:
    for edge in spec.edges:
        told = f"the edge from {_listed(edge.sources)} to {edge.target!r}"
        for source in edge.sources:
            if source == END:
                yield f"{told} leaves END, where a branch is over"
            elif source != START and source not in spec.nodes:
                yield f"{told} leaves an unknown node {source!r}"
        if edge.target == START:
            yield f"{told} leads to START, which only a run's beginning enters"
        elif edge.target != END and edge.target not in spec.nodes:
            yield f"{told} leads to an unknown node {edge.target!r}"
        if len(set(edge.sources)) < len(edge.sources):
            yield f"{told} names a source twice"
        if not edge.sources:
            yield f"an edge to {edge.target!r} has no source"
        if edge.is_join and edge.target == END:
            yield f"{told} is a join that nothing follows: a run ends by itself when all is done"
        yield from _condition_faults(spec, edge, told)
    keys = [edge.key for edge in spec.edges if edge.is_join]
    for key in sorted({key for key in keys if keys.count(key) > 1}):
        yield f"the join {key!r} is declared twice"


def _condition_faults(spec: GraphSpec, edge: Edge, told: str) -> Iterator[str]:
    match edge.condition:
        case When(equals=equals) if not equals:
            yield f"{told} has an empty condition"
        case When(equals=equals) if not spec.open_values:
            for path in equals:
                if path.split(".")[0] not in spec.fields:
                    yield f"{told} looks at {path!r}, which is no field of the state"
        case Else() if not _conditions_beside(spec, edge):
            yield f"{told} is the `else` of no other condition"
        case _:
            pass


def _conditions_beside(spec: GraphSpec, edge: Edge) -> bool:
    # A source of a join whose other ways are all plain never takes its `else`.
    return all(
        spec.routes_from(source)
        or any(isinstance(other.condition, When) for other in spec.edges_from(source))
        for source in edge.sources
    )


def _route_faults(spec: GraphSpec) -> Iterator[str]:
    for route in spec.routes:
        told = f"the route {route.name!r} from {route.source!r}"
        if route.source == START:
            yield f"{told}: START runs no code; use edge(START, ..., when=...) or a node before it"
        elif route.source not in spec.nodes:
            yield f"{told} leaves an unknown node"
        if not route.targets:
            yield f"{told} has no targets: name them with to=[...]"
        for target in route.targets:
            yield from _target_fault(spec, told, target)


def _node_faults(spec: GraphSpec) -> Iterator[str]:
    for node in spec.nodes.values():
        match node:
            case FunctionNode():
                yield from _function_faults(spec, node)
            case InterruptNode(question=question, answer_to=field):
                told = f"the interrupt {node.id!r}"
                yield from _question_faults(spec, told, question, field)
            case SubgraphNode():
                yield from _subgraph_faults(spec, node)
            case _:
                assert_never(node)


def _function_faults(spec: GraphSpec, node: FunctionNode) -> Iterator[str]:
    told = f"the node {node.id!r}"
    yield from _seconds_fault(told, "timeout", node.timeout)
    yield from _seconds_fault(told, "heartbeat", node.heartbeat)
    if node.retries < 0:
        yield f"{told} has {node.retries} retries; the least is 0"
    for target in node.to:
        yield from _target_fault(spec, f"{told}, to=,", target)
    if isinstance(node.on_error, GoTo):
        yield from _target_fault(spec, f"{told}, on_error,", node.on_error.node)


def _subgraph_faults(spec: GraphSpec, node: SubgraphNode) -> Iterator[str]:
    inner = node.graph
    told = f"the nested graph {node.id!r}"
    for fault in faults_of(inner):
        yield f"{told}: {fault}"
    if inner.finally_nodes:
        yield f"{told} has finally nodes, which run after the end of a run: declare them in {spec.name!r}"
    for target, source in (node.input or {}).items():
        if not _knows(inner, target):
            yield f"{told}, input=: {target!r} is no field of the state of {inner.name!r}"
        if not _knows(spec, source):
            yield f"{told}, input=: {source!r} is no field of the state"
    for target, source in (node.output or {}).items():
        if not _knows(spec, target):
            yield f"{told}, output=: {target!r} is no field of the state"
        if not _knows(inner, source):
            yield f"{told}, output=: {source!r} is no field of the state of {inner.name!r}"
    if isinstance(node.on_error, GoTo):
        yield from _target_fault(spec, f"{told}, on_error,", node.on_error.node)


def _static_faults(spec: GraphSpec) -> Iterator[str]:
    for what, names in (
        ("interrupt_before", spec.interrupt_before),
        ("interrupt_after", spec.interrupt_after),
    ):
        for name in names:
            if name not in spec.nodes:
                yield f"{what} names an unknown node {name!r}"
            elif name in spec.finally_nodes:
                yield f"{what} names {name!r}, which runs only after the end, when nobody is asked"


def _question_faults(
    spec: GraphSpec, told: str, question: InterruptSpec, answer_to: str | None
) -> Iterator[str]:
    if not question.prompt.strip():
        yield f"{told} has no prompt: say what a person is to decide"
    yield from _seconds_fault(told, "timeout", question.timeout)
    if question.timeout is None and question.on_timeout.kind != "halt":
        yield f"{told} says on_timeout, but has no timeout"
    if isinstance(question.on_timeout, GoTo):
        yield from _target_fault(spec, f"{told}, on_timeout,", question.on_timeout.node)
    if answer_to is not None and not _knows(spec, answer_to):
        yield f"{told} answers to {answer_to!r}, which is no field of the state"


def _rule_faults(spec: GraphSpec) -> Iterator[str]:
    ids = [rule.id for rule in spec.rules]
    for id_ in dict.fromkeys(id_ for id_ in ids if ids.count(id_) > 1):
        yield f"two rules are named {id_!r}"
    is_heard = any(isinstance(rule.condition, Clips) for rule in spec.rules)
    for rule in spec.rules:
        told = f"the rule {rule.id!r}"
        yield from _rule_condition_faults(spec, rule, told)
        if not rule.actions:
            yield f"{told} does nothing: name its actions"
        if any(isinstance(each, Assert | Retract) for each in rule.actions) and not is_heard:
            yield f"{told} changes facts, at which only rules with CLIPS text look, and there is none"
        asking = [action for action in rule.actions if isinstance(action, Ask)]
        if len(asking) > 1:
            yield f"{told} asks {len(asking)} questions of the same name; a rule asks one"
        if asking and isinstance(spec.nodes.get(rule.id), InterruptNode):
            yield f"{told} asks under the name of the interrupt {rule.id!r}: give it another"
        for action in rule.actions:
            match action:
                case Ask(question=question, answer_to=field):
                    yield from _question_faults(spec, told, question, field)
                case GoTo(node=node):
                    yield from _target_fault(spec, f"{told}, goto,", node)
                case Parallel(nodes=nodes):
                    yield from _parallel_faults(spec, told, nodes)
                case HaltRun() | Retry() | Assert() | Retract():
                    pass
                case _:
                    assert_never(action)


def _rule_condition_faults(spec: GraphSpec, rule: Rule, told: str) -> Iterator[str]:
    node = rule.condition.node
    match rule.condition:
        case Matches(equals=equals):
            if node is None and not equals:
                yield f"{told} has an empty condition"
            for path in equals:
                if not _knows(spec, path.split(".")[0]):
                    yield f"{told} looks at {path!r}, which is no field of the state"
        case Clips():
            # What its text says is looked at when the rule is declared: the core reads no CLIPS.
            pass
        case _:
            assert_never(rule.condition)
    if node in spec.finally_nodes:
        yield f"{told} looks at {node!r}, which runs only after the end"
    elif node is not None and node not in spec.nodes:
        yield f"{told} looks at an unknown node {node!r}"


def _parallel_faults(spec: GraphSpec, told: str, nodes: tuple[str, ...]) -> Iterator[str]:
    if not nodes:
        yield f"{told}, parallel, names no nodes"
    if len(set(nodes)) < len(nodes):
        yield f"{told}, parallel, names a node twice"
    for node in nodes:
        yield from _target_fault(spec, f"{told}, parallel,", node)


def _seconds_fault(told: str, what: str, seconds: float | None) -> Iterator[str]:
    if seconds is not None and not 0 < seconds < math.inf:
        yield f"{told} has a {what} of {seconds:g} s; it must be above zero, and finite"


def _target_fault(spec: GraphSpec, told: str, target: str) -> Iterator[str]:
    if target != END and target not in spec.nodes:
        yield f"{told} leads to an unknown node {target!r}"
    elif target in spec.finally_nodes:
        yield f"{told} leads to {target!r}, which runs only after the end"


def _finally_faults(spec: GraphSpec) -> Iterator[str]:
    for name in spec.finally_nodes:
        node = spec.nodes.get(name)
        if node is None:
            yield f"finally names an unknown node {name!r}"
            continue
        if not isinstance(node, FunctionNode):
            yield f"the finally node {name!r} may not ask a person: the run is over by then"
        elif (
            node.to
            or isinstance(node.on_error, GoTo | AskHuman)
            or spec.routes_from(name)
            or spec.edges_from(name)
        ):
            yield f"the finally node {name!r} may not lead on: nothing runs after it"
        if any(name in (edge.target, *edge.sources) for edge in spec.edges):
            yield f"the finally node {name!r} may not stand in an edge: it runs after the end"
    if len(set(spec.finally_nodes)) < len(spec.finally_nodes):
        yield "finally names a node twice"


def _reach_faults(spec: GraphSpec) -> Iterator[str]:
    if not spec.edges_from(START):
        yield "nothing starts: add an edge from START" if spec.nodes else "there are no nodes"
        return
    reached: set[str] = set()
    waiting = [START]
    while waiting:
        for target in spec.successors(waiting.pop()):
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    for name in spec.nodes:
        if name not in reached and name not in spec.finally_nodes:
            yield f"the node {name!r} cannot be reached from START"


def _knows(spec: GraphSpec, field: str) -> bool:
    return spec.open_values or field in spec.fields


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names))
