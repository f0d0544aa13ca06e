"""Compiling a `Graph` into its `GraphSpec`: nested graphs, defaults, breakpoints and validation."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, get_args

from abeyance.authoring import validation
from abeyance.authoring.declarations import DeclarationErrors, type_faults
from abeyance.authoring.rules import compile_rules
from abeyance.authoring.validation import faults_of, value_faults
from abeyance.core.spec import (
    END,
    START,
    Always,
    Condition,
    Edge,
    Else,
    GoTo,
    GraphSpec,
    InterruptNode,
    Join,
    Node,
    OnError,
    Rule,
    SubgraphNode,
    When,
)
from abeyance.errors import GraphError
from abeyance.schemas.json_types import misfit
from abeyance.schemas.state_model import StateModel

if TYPE_CHECKING:
    from abeyance.authoring.graph import Graph


_EVERY: Final = "*"


def _with_default_on_error(
    nodes: Mapping[str, Node],
    default: OnError,
    by_default: Collection[str],
    finally_nodes: Collection[str],
) -> dict[str, Node]:
    """Apply the graph's `on_error` to the nodes that have none of their own.

    It does not apply to finally nodes, nor to the node that it leads to.
    """
    return {
        id_: node
        if isinstance(node, InterruptNode)
        or id_ not in by_default
        or id_ in finally_nodes
        or default == GoTo(node=id_)
        else replace(node, on_error=default)
        for id_, node in nodes.items()
    }


def _breakpoints(
    names: tuple[str, ...], nodes: Mapping[str, Node], finally_nodes: Collection[str]
) -> tuple[str, ...]:
    """Expand `*` to every node that is neither an interrupt node nor a finally node."""
    every = [
        id_
        for id_, node in nodes.items()
        if not isinstance(node, InterruptNode) and id_ not in finally_nodes
    ]
    own = [name for name in names if name != _EVERY]
    return tuple(dict.fromkeys([*every, *own] if _EVERY in names else own))


def _with_subgraphs(
    graph: Graph, nodes: Mapping[str, Node], errors: DeclarationErrors
) -> dict[str, Node]:
    """Return the nodes with their nested graphs built, and collect the faults of the nested graphs."""
    compiled = dict(nodes)
    for name, inner in graph.subgraphs.items():
        # A nested graph without a node is retired: only its faults count.
        node = compiled.get(name)
        label = f"the {'retired' if node is None else 'nested'} graph {name!r}"
        if not isinstance(node, SubgraphNode | None):
            continue
        if inner is graph or any(nested is graph for nested in _inside(inner)):
            errors.note(f"{label} contains this graph: remove the cycle")
            continue
        try:
            spec = inner.build()
        except GraphError as error:
            for fault in error.faults:
                errors.note(f"{label}: {fault}")
            if node is None:
                continue
            # The fields of the nested graph are enough to check input and output.
            placeholder = replace(
                node.graph, fields=inner.states.field_specs(), open_values=inner.states.is_open
            )
            compiled[name] = replace(node, graph=placeholder)
            continue
        if node is None:
            continue
        passed = graph.states.fields if node.input is None else node.input
        defaults, missing = inner.states.defaults(passed)
        # An open state may have any field by the time the nested graph is entered.
        for field in () if graph.states.is_open and node.input is None else missing:
            errors.note(
                f"the nested graph {name!r} gets no value for {field!r}, which has no default: map a "
                "field to it with input={...}"
            )
        for fault in _misfits(graph.states, inner.states, node):
            errors.note(f"the nested graph {name!r}, {fault}")
        compiled[name] = replace(node, graph=spec, defaults=defaults)
    return compiled


def _misfits(outer: StateModel, inner: StateModel, node: SubgraphNode) -> Iterator[str]:
    ways = (
        ("input=", node.input, outer, inner),
        ("output=", node.output, inner, outer),
    )
    for option, mapping, source, target in ways:
        shared = {field: field for field in source.fields if field in target.fields}
        for to, from_ in (shared if mapping is None else mapping).items():
            why = misfit(source.field_schema(from_), target.field_schema(to))
            if why is not None:
                yield f"{option}: {from_!r} cannot become {to!r}: {why}"
    passed = inner.fields if node.input is None else node.input
    for name in filter(inner.is_read_only, passed):
        from_ = name if node.input is None else node.input[name]
        if not outer.is_read_only(from_) and (outer.is_open or from_ in outer.fields):
            yield (
                f"input=: {name!r} is read-only, and whoever starts a run can set {from_!r}: declare "
                "that as read-only too, or map another field to it"
            )


def _inside(graph: Graph) -> list[Graph]:
    """Return all graphs nested in a graph, at any depth."""
    inside: list[Graph] = []
    waiting = list(graph.subgraphs.values())
    while waiting:
        inner = waiting.pop()
        if not any(inner is graph for graph in inside):
            inside.append(inner)
            waiting += inner.subgraphs.values()
    return inside


def compile_graph(
    graph: Graph,
    declared: GraphSpec,
    *,
    rules: Sequence[Rule],
    by_default: Collection[str],
    default: OnError,
    faults: Sequence[str],
) -> GraphSpec:
    """Return the frozen graph. Raise GraphError with all faults at once.

    `by_default` names the nodes without an `on_error` of their own, which get `default`. `faults` are
    those of the declarations.
    """
    states = graph.states
    errors = DeclarationErrors(states)
    compiled = _with_subgraphs(graph, declared.nodes, errors)
    nodes, compiled_rules = compile_rules(compiled, rules, errors)
    for name, rule in errors.types.items():
        supplied = graph.answer_types.get(rule)
        graph.answer_types[name] = supplied if supplied is not None else graph.answer_types[name]
    finally_ = declared.finally_nodes
    faults = [*faults, *errors.faults, *validation.state_faults_of(states)]
    spec = replace(
        declared,
        fields=states.field_specs(),
        open_values=states.is_open,
        input_schema=None if faults else states.input_schema(),
        nodes=_with_default_on_error(nodes, default, by_default, finally_),
        rules=compiled_rules,
        interrupt_before=_breakpoints(declared.interrupt_before, nodes, finally_),
        interrupt_after=_breakpoints(declared.interrupt_after, nodes, finally_),
    )
    faults += [*type_faults(spec)] or [*faults_of(spec), *value_faults(spec, states)]
    if faults:
        raise GraphError(graph.name, graph.lines.placed(faults))
    return spec


def placeholder_spec(name: str) -> GraphSpec:
    """Return a valid placeholder for the spec of a nested graph until the outer one is built."""
    return GraphSpec(name=name, edges=(Edge(sources=(START,), target=END),))


def subgraph_node(
    errors: DeclarationErrors,
    name: str,
    graph: Graph,
    input_: Mapping[str, str] | None,
    output: Mapping[str, str] | None,
) -> SubgraphNode:
    """Return the node for a nested graph, which is compiled when the outer one is built.

    Raise TypeError if `graph` is not a Graph.
    """
    if not hasattr(graph, "build_for"):
        raise TypeError(f"{graph!r} is not a Graph: write subgraph({name!r}, graph)")
    label = f"the nested graph {name!r}"
    return SubgraphNode(
        id=name,
        graph=placeholder_spec(graph.name),
        description=graph.description,
        input=errors.mapping(input_, f"{label}, input="),
        output=errors.mapping(output, f"{label}, output="),
    )


def run_options(
    graph: Graph,
    interrupt_before: str | Sequence[str],
    interrupt_after: str | Sequence[str],
    on_error: str | None,
) -> tuple[tuple[str, ...], tuple[str, ...], OnError | None]:
    """Return a run's own breakpoints and default `on_error`. Raise GraphError with all faults."""
    errors = DeclarationErrors(graph.states)
    before = errors.names(interrupt_before, "interrupt_before")
    after = errors.names(interrupt_after, "interrupt_after")
    default = None if on_error is None else errors.on_error(on_error, "the run")
    if isinstance(default, GoTo):
        errors.note(
            f"the run: on_error={on_error!r} is for the author of the graph: a start takes 'fail' or "
            "'interrupt'"
        )
    if errors.faults:
        raise GraphError(graph.name, errors.faults)
    return before, after, default


def unused_name(base: str, taken: Collection[str]) -> str:
    """Return `base`, with a number if it is taken."""
    names = [base, *(f"{base}_{number}" for number in range(2, len(taken) + 2))]
    return next(name for name in names if name not in taken)


def edges(
    errors: DeclarationErrors, source: str | Sequence[str], target: str, *, when: Any, join: Join
) -> list[Edge]:
    """Return the edge, or nothing if its target is not a name; collect its faults."""
    label = f"the edge from {source!r} to {target!r}"
    sources = errors.names(source, label)
    targets = errors.names([target], label)
    condition = _condition(when, errors, label)
    if join not in get_args(Join):
        errors.note(f"{label}: join={join!r} is invalid: use 'all' or 'arrived'")
        join = "all"
    return [
        Edge(
            sources=sources,
            target=name,
            condition=condition,
            join=join,
            gathers=not isinstance(source, str),
        )
        for name in targets
    ]


def _condition(when: Any, errors: DeclarationErrors, label: str) -> Condition:
    match when:
        case None:
            return Always()
        case "else":
            return Else()
        case Mapping():
            equals = errors.json(dict(when), f"{label}, when=")
            return Always() if equals is None else When(equals=equals)
        case _:
            errors.note(f"{label}: when={when!r} is invalid: use a mapping or 'else'")
            return Always()
