"""Validation of a graph and of its state model: each fault is one sentence for the author."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Final, assert_never

from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from abeyance.authoring.terms import approval_fault, time_faults
from abeyance.core.json import Json, canonical, paths
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
from abeyance.core.terms import PLAIN, Terms, is_template
from abeyance.core.text import truncate
from abeyance.names import NOTIFICATION_WORKFLOW
from abeyance.schemas.json_schema import places_fault
from abeyance.schemas.json_types import Kinds, in_words, kinds
from abeyance.schemas.state_model import StateModel, reducers_of
from abeyance.schemas.written import WrittenValues, unread_aliases

_REDUCED: Final[dict[str, Kinds]] = {
    "append": frozenset({"array"}),
    "union": frozenset({"array"}),
    "merge": frozenset({"object"}),
    "add": frozenset({"integer", "number"}),
}
"""The JSON types that each reducer accepts."""


def state_faults_of(states: StateModel) -> list[str]:
    """Return every fault of the state model."""
    model = states.model
    if model is None:
        if states.declared is None:
            return []
        return [
            f"the state {states.declared!r} is not a pydantic model: pass a subclass of BaseModel"
        ]
    try:
        model.model_rebuild()
        if (fault := places_fault(states.input_schema())) is not None:
            return [
                f"the state {model.__name__} has a schema that is too large for an interrupt: {fault}"
            ]
        return [fault for name in states.fields for fault in _field_faults(states, name)]
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        return [f"the state {model.__name__} cannot be used: {error.message}"]


def _field_faults(states: StateModel, name: str) -> Iterator[str]:
    schema = states.adapters[name].json_schema(mode="serialization")
    reducers = reducers_of(states.fields[name])
    if len(reducers) > 1:
        yield f"the field {name!r} has {len(reducers)} reducers: keep one"
    for reducer in reducers[:1]:
        # A Decimal is written as a text, and accepted as a number too.
        either = kinds(schema) | kinds(states.adapters[name].json_schema(mode="validation"))
        actual, accepted = either - {"null"}, _REDUCED.get(reducer.name)
        if accepted is not None and not actual & accepted:
            yield (
                f"the field {name!r} has the reducer {reducer.name!r} but its JSON type is "
                f"{in_words(actual)}: the reducer needs {in_words(accepted)}"
            )
    for function in filter(inspect.isroutine, states.fields[name].metadata):
        yield (
            f"the field {name!r} is annotated with the function {function.__name__!r}, which is not a "
            "reducer: use append, merge, add or union of abeyance"
        )
    for model, alias in unread_aliases(states.adapters[name]):
        yield (
            f"the field {name!r} holds a {model}, which writes {alias!r} and does not read it: use "
            "alias= in place of serialization_alias="
        )
    if '"writeOnly": true' in json.dumps(schema):
        yield (
            f"the field {name!r} holds a secret, which would be written to the run's history: store the "
            "secret's name, and look it up in the node"
        )


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,99}")


def faults_of(spec: GraphSpec) -> tuple[str, ...]:
    """Return every fault of the graph, without duplicates."""
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
    for kind, name in names:
        if not _NAME.fullmatch(name):
            yield (
                f"the {kind} name {name!r} must start with a letter or underscore and have at most "
                "100 letters, digits, '_', '-' or '.'"
            )
    if spec.name == NOTIFICATION_WORKFLOW:
        yield (
            f"{spec.name!r} is a workflow type of Abeyance's own in Temporal, where each run has its "
            "graph's name as its type: give the graph another name"
        )
    for reserved in (START, END):
        if reserved in spec.nodes:
            yield f"{reserved!r} is a reserved word: give the node another name"


def _edge_faults(spec: GraphSpec) -> Iterator[str]:
    for edge in spec.edges:
        label = f"the edge from {_listed(edge.sources)} to {edge.target!r}"
        for source in edge.sources:
            if source == END:
                yield f"{label} starts at END, where a branch is over: remove it"
            elif source != START and source not in spec.nodes:
                yield f"{label} starts at an unknown node {source!r}"
        if edge.target == START:
            yield f"{label} leads to START, which is entered only once: name a node"
        elif edge.target != END and edge.target not in spec.nodes:
            yield f"{label} leads to an unknown node {edge.target!r}"
        if len(set(edge.sources)) < len(edge.sources):
            yield f"{label} names a source twice: remove one"
        if not edge.sources:
            yield f"an edge to {edge.target!r} has no source: name one"
        if edge.is_join and edge.target == END:
            yield f"{label} is a join before END: remove it, a run ends once all its branches have ended"
        yield from _condition_faults(spec, edge, label)
    keys = [edge.key for edge in spec.edges if edge.is_join]
    for key in sorted({key for key in keys if keys.count(key) > 1}):
        yield f"the join {key!r} is declared twice: remove one"


def _condition_faults(spec: GraphSpec, edge: Edge, label: str) -> Iterator[str]:
    match edge.condition:
        case When(equals=equals) if not equals:
            yield f"{label} has an empty condition: name a field, or leave out `when`"
        case Else() if not _conditions_beside(spec, edge):
            yield f"{label} has `else`, but no other condition beside it: add one"
        case _:
            pass


def value_faults(spec: GraphSpec, states: StateModel) -> Iterator[str]:
    """Yield a fault for every condition that no values can meet, and for every unknown `{field}`."""
    values = WrittenValues(states)
    for edge in spec.edges:
        if isinstance(edge.condition, When):
            label = f"the edge from {_listed(edge.sources)} to {edge.target!r}"
            yield from _comparison_faults(values, edge.condition.equals, label)
    for rule in spec.rules:
        if isinstance(rule.condition, Matches):
            yield from _comparison_faults(values, rule.condition.equals, f"the rule {rule.id!r}")
    for label, question in _questions(spec):
        for option in ("prompt", "reason", "payload"):
            for path in dict.fromkeys(paths(getattr(question, option))):
                if (fault := values.path_fault(path)) is not None:
                    yield (
                        f"{label}, {option}=, shows {{{path}}}, {fault}; to show the braces, write "
                        f"{{{{{path}}}}}"
                    )
        capability = question.requested_capability
        for path in dict.fromkeys(paths(capability)):
            if (fault := values.path_fault(path)) is not None:
                yield f"{label} requests the capability {capability!r} with {path!r}, {fault}"
        named = (path for path in paths(_named(question.terms or PLAIN)) if "." in path)
        for path in dict.fromkeys(named):
            if (fault := values.path_fault(path)) is not None:
                yield f"{label} names people by {{{path}}}, {fault}"


def _comparison_faults(
    values: WrittenValues, equals: Mapping[str, Json], label: str
) -> Iterator[str]:
    for path, value in equals.items():
        if (fault := values.path_fault(path)) is not None:
            yield f"{label} looks at {path!r}, {fault}"
        elif (fault := values.value_fault(path, value)) is not None:
            yield f"{label} looks at {path!r} for {truncate(canonical(value), 100)}, {fault}"


def _questions(spec: GraphSpec) -> Iterator[tuple[str, InterruptSpec]]:
    for node in spec.nodes.values():
        if isinstance(node, InterruptNode):
            yield f"the interrupt {node.id!r}", node.question
    for rule in spec.rules:
        for action in rule.actions:
            if isinstance(action, Ask):
                yield f"the rule {rule.id!r}", action.question


def _conditions_beside(spec: GraphSpec, edge: Edge) -> bool:
    # A source whose other edges have no condition never takes its `else`.
    return all(
        spec.routes_from(source)
        or any(isinstance(other.condition, When) for other in spec.edges_from(source))
        for source in edge.sources
    )


def _route_faults(spec: GraphSpec) -> Iterator[str]:
    for route in spec.routes:
        label = f"the route {route.name!r} from {route.source!r}"
        if route.source == START:
            yield f"{label} starts at START, which runs no code: use edge(START, ..., when=...)"
        elif route.source not in spec.nodes:
            yield f"{label} starts at an unknown node"
        if not route.targets:
            yield f"{label} has no targets: name them with to=[...]"
        for target in route.targets:
            yield from _target_fault(spec, label, target)


def _node_faults(spec: GraphSpec) -> Iterator[str]:
    for node in spec.nodes.values():
        match node:
            case FunctionNode():
                yield from _function_faults(spec, node)
            case InterruptNode(question=question, answer_to=field):
                label = f"the interrupt {node.id!r}"
                yield from _question_faults(spec, label, question, field)
            case SubgraphNode():
                yield from _subgraph_faults(spec, node)
            case _:
                assert_never(node)


def _function_faults(spec: GraphSpec, node: FunctionNode) -> Iterator[str]:
    label = f"the node {node.id!r}"
    yield from _seconds_fault(label, "timeout", node.timeout)
    yield from _seconds_fault(label, "heartbeat", node.heartbeat)
    for target in node.to:
        yield from _target_fault(spec, f"{label}, to=,", target)
    if isinstance(node.on_error, GoTo):
        yield from _target_fault(spec, f"{label}, on_error,", node.on_error.node)


def _subgraph_faults(spec: GraphSpec, node: SubgraphNode) -> Iterator[str]:
    inner = node.graph
    label = f"the nested graph {node.id!r}"
    for fault in faults_of(inner):
        yield f"{label}: {fault}"
    if inner.finally_nodes:
        yield f"{label} has finally nodes, which run once a run has ended: move them to {spec.name!r}"
    for target, source in (node.input or {}).items():
        if not _knows(inner, target):
            yield f"{label}, input=: {target!r} is not a field of the state of {inner.name!r}"
        if not _knows(spec, source):
            yield f"{label}, input=: {source!r} is not a field of the state"
    inputs = node.input
    if inputs is None:
        inputs = {name: name for name in inner.fields if name in spec.fields}
    for target, source in inputs.items():
        if _is_fixed(inner, target) and not _is_fixed(spec, source):
            yield (
                f"{label}, input=: only the start of a run sets {target!r} (FromStart), and {source!r} "
                f"can change: declare it in {spec.name!r} with FromStart too"
            )
    for target, source in (node.output or {}).items():
        if not _knows(spec, target):
            yield f"{label}, output=: {target!r} is not a field of the state"
        if _is_fixed(spec, target):
            yield f"{label}, output=: only the start of a run sets {target!r} (FromStart): leave it out"
        if not _knows(inner, source):
            yield f"{label}, output=: {source!r} is not a field of the state of {inner.name!r}"
    if isinstance(node.on_error, GoTo):
        yield from _target_fault(spec, f"{label}, on_error,", node.on_error.node)


def _static_faults(spec: GraphSpec) -> Iterator[str]:
    for option, names in (
        ("interrupt_before", spec.interrupt_before),
        ("interrupt_after", spec.interrupt_after),
    ):
        for name in names:
            if name not in spec.nodes:
                yield f"{option} names an unknown node {name!r}"
            elif name in spec.finally_nodes:
                yield f"{option} names the finally node {name!r}: a run that has ended asks nobody"


def _question_faults(
    spec: GraphSpec, label: str, question: InterruptSpec, answer_to: str | None
) -> Iterator[str]:
    if not question.prompt.strip():
        yield f"{label} has no prompt: describe the decision"
    yield from time_faults(label, question, has_deadline=question.timeout is not None)
    if (fault := approval_fault(question)) is not None:
        yield f"{label} {fault}"
    if question.timeout is None and question.on_timeout.kind != "halt":
        yield f"{label} has on_timeout but no timeout: add a timeout"
    if isinstance(question.on_timeout, GoTo):
        yield from _target_fault(spec, f"{label}, on_timeout,", question.on_timeout.node)
    yield from _people_faults(spec, label, question.terms or PLAIN)
    if answer_to is None:
        return
    if not _knows(spec, answer_to):
        yield f"{label} has answer_to={answer_to!r}, which is not a field of the state"
    elif _is_fixed(spec, answer_to):
        yield f"{label} has answer_to={answer_to!r}, which only the start of a run sets (FromStart)"


def _named(terms: Terms) -> dict[str, tuple[str, ...]]:
    """Return the names of people in the terms of a question, by the options that have them."""
    quorum = () if terms.quorum is None else terms.quorum.of
    return {"assignees=": terms.assignees, "not_by=": terms.not_by, "quorum, of=": quorum}


def _people_faults(spec: GraphSpec, label: str, terms: Terms) -> Iterator[str]:
    """Yield the faults of `{field}`s that name people: neither code nor people may change the fields."""
    for option, names in _named(terms).items():
        for name in filter(is_template, names):
            found = [*paths(name)]
            if option == "not_by=" and found and name != f"{{{found[0]}}}":
                yield f"{label}, {option}: {name!r} bars nobody: write {{field}} and nothing beside it"
            for path in found:
                field = path.partition(".")[0]
                if not _is_fixed(spec, field):
                    why = "is not a field of the state"
                    if field in spec.fields:
                        why = "is not set by the start alone, so nodes and people can change it"
                    yield (
                        f"{label}, {option}: {name!r} names people, and {field!r} {why}: declare "
                        f"`{field}: Annotated[str, FromStart]`, in YAML `{field}: from_start`"
                    )
                elif path == field and "string" not in (spec.fields[field].kinds or {"string"}):
                    kinds_ = " or ".join(spec.fields[field].kinds)
                    yield f"{label}, {option}: {name!r} names people, and {field!r} is {kinds_}, not text"


def _rule_faults(spec: GraphSpec) -> Iterator[str]:
    ids = [rule.id for rule in spec.rules]
    for id_ in dict.fromkeys(id_ for id_ in ids if ids.count(id_) > 1):
        yield f"two rules are named {id_!r}"
    has_clips = any(isinstance(rule.condition, Clips) for rule in spec.rules)
    for rule in spec.rules:
        label = f"the rule {rule.id!r}"
        yield from _rule_condition_faults(spec, rule, label)
        if not rule.actions:
            yield f"{label} has no actions: add one to `then`"
        if any(isinstance(action, Assert | Retract) for action in rule.actions) and not has_clips:
            yield f"{label} changes facts, but no rule has CLIPS text: only such rules read facts"
        asking = [action for action in rule.actions if isinstance(action, Ask)]
        if len(asking) > 1:
            yield f"{label} has {len(asking)} interrupts: a rule may have one"
        if asking and isinstance(spec.nodes.get(rule.id), InterruptNode):
            yield f"{label} has the name of the interrupt node {rule.id!r}: rename one"
        for action in rule.actions:
            match action:
                case Ask(question=question, answer_to=field):
                    yield from _question_faults(spec, label, question, field)
                case GoTo(node=node):
                    yield from _target_fault(spec, f"{label}, goto,", node)
                case Parallel(nodes=nodes):
                    yield from _parallel_faults(spec, label, nodes)
                case Retry(node=again):
                    if again is not None:
                        yield from _target_fault(spec, f"{label}, retry,", again)
                case HaltRun() | Assert() | Retract():
                    pass
                case _:
                    assert_never(action)


def _rule_condition_faults(spec: GraphSpec, rule: Rule, label: str) -> Iterator[str]:
    node = rule.condition.node
    match rule.condition:
        case Matches(equals=equals):
            if node is None and not equals:
                yield f"{label} has an empty condition: name a node or a field"
        case Clips():
            # CLIPS text is checked while the graph is compiled.
            pass
        case _:
            assert_never(rule.condition)
    if node in spec.finally_nodes:
        yield f"{label} looks at the finally node {node!r}: rules do not run after the end"
    elif node is not None and node not in spec.nodes:
        yield f"{label} looks at an unknown node {node!r}"


def _parallel_faults(spec: GraphSpec, label: str, nodes: tuple[str, ...]) -> Iterator[str]:
    if not nodes:
        yield f"{label}, parallel, names no nodes: add some"
    if len(set(nodes)) < len(nodes):
        yield f"{label}, parallel, names a node twice: remove one"
    for node in nodes:
        yield from _target_fault(spec, f"{label}, parallel,", node)


def _seconds_fault(label: str, option: str, seconds: float | None) -> Iterator[str]:
    if seconds is not None and not 0 < seconds < math.inf:
        yield f"{label} has a {option} of {seconds:g} s: it must be positive and finite"


def _target_fault(spec: GraphSpec, label: str, target: str) -> Iterator[str]:
    if target != END and target not in spec.nodes:
        yield f"{label} leads to an unknown node {target!r}"
    elif target in spec.finally_nodes:
        yield f"{label} leads to the finally node {target!r}, which runs only after the end"


def _finally_faults(spec: GraphSpec) -> Iterator[str]:
    for name in spec.finally_nodes:
        node = spec.nodes.get(name)
        if node is None:
            yield f"finally names an unknown node {name!r}"
            continue
        if not isinstance(node, FunctionNode) or node.asks:
            yield f"the finally node {name!r} may not ask a person: the run is over by then"
        elif (
            node.to
            or isinstance(node.on_error, GoTo | AskHuman)
            or spec.routes_from(name)
            or spec.edges_from(name)
        ):
            yield f"the finally node {name!r} may not lead to another node: nothing runs after it"
        if any(name in (edge.target, *edge.sources) for edge in spec.edges):
            yield f"the finally node {name!r} may not be part of an edge: it runs after the end"
    if len(set(spec.finally_nodes)) < len(spec.finally_nodes):
        yield "finally names a node twice: remove one"


def _reach_faults(spec: GraphSpec) -> Iterator[str]:
    if not spec.edges_from(START):
        yield (
            "nothing starts: add an edge from START"
            if spec.nodes
            else "there are no nodes: add one"
        )
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
            yield f"the node {name!r} is unreachable from START: add an edge, route or goto to it"


def _is_fixed(spec: GraphSpec, field: str) -> bool:
    return field in spec.fields and spec.fields[field].reducer == "start"


def _knows(spec: GraphSpec, field: str) -> bool:
    return spec.open_values or field in spec.fields


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names))
