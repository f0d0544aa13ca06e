"""What nodes get from their graph or their run, where they say nothing themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from abeyance.authoring import rules as ruleform
from abeyance.authoring import validation
from abeyance.authoring.declarations import DeclarationErrors, unreadable
from abeyance.authoring.validation import faults_of
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


def with_inherited(
    nodes: Mapping[str, Node],
    default: OnError,
    by_default: Collection[str],
    finally_nodes: Collection[str],
) -> dict[str, Node]:
    """The nodes with the default for failures, where it is for them.

    Only when all are declared is it known which run after the end, from where nothing leads on. And who
    deals with errors does not deal with its own.
    """
    found: dict[str, Node] = {}
    for id_, node in nodes.items():
        is_own = default == GoTo(node=id_)
        found[id_] = node
        if is_own or id_ not in by_default or id_ in finally_nodes:
            continue
        if not isinstance(node, InterruptNode):
            found[id_] = replace(node, on_error=default)
    return found


def looked_at(
    names: tuple[str, ...], nodes: Mapping[str, Node], finally_nodes: Collection[str]
) -> tuple[str, ...]:
    """The nodes at which a person looks: `*` is every one that is no question itself."""
    every = [
        id_
        for id_, node in nodes.items()
        if not isinstance(node, InterruptNode) and id_ not in finally_nodes
    ]
    own = [name for name in names if name != _EVERY]
    return tuple(dict.fromkeys([*every, *own] if _EVERY in names else own))


def nested_in(
    graph: Graph, nodes: Mapping[str, Node], intake: DeclarationErrors
) -> dict[str, Node]:
    """The nodes of a graph, with the nested graphs taken in; what is wrong with those is noted."""
    found = dict(nodes)
    for name, inner in graph.subgraphs.items():
        node = found[name]
        if not isinstance(node, SubgraphNode):
            continue
        if inner is graph or any(each is graph for each in _inside(inner)):
            intake.note(f"the nested graph {name!r} contains this graph itself, without an end")
            continue
        try:
            spec = inner.build()
        except GraphError as error:
            for fault in error.faults:
                intake.note(f"the nested graph {name!r}: {fault}")
            # As much of it as what leads in and out is held against.
            known = replace(
                node.graph, fields=inner.states.field_specs(), open_values=inner.states.is_open
            )
            found[name] = replace(node, graph=known)
            continue
        handed_in = node.input
        if handed_in is None:
            handed_in = {field: field for field in graph.states.fields}
        defaults, missing = inner.states.defaults(handed_in)
        # An open state may have any field by the time that the nested graph is entered.
        for field in () if graph.states.is_open and node.input is None else missing:
            intake.note(
                f"the nested graph {name!r} gets no value for {field!r}, which has no default: map a "
                "field to it with input={...}"
            )
        for fault in _misfits(graph.states, inner.states, node):
            intake.note(f"the nested graph {name!r}, {fault}")
        found[name] = replace(node, graph=spec, defaults=defaults)
    return found


def _misfits(outer: StateModel, inner: StateModel, node: SubgraphNode) -> Iterator[str]:
    ways = (
        ("input=", node.input, outer, inner),
        ("output=", node.output, inner, outer),
    )
    for told, mapping, source, target in ways:
        shared = {field: field for field in source.fields if field in target.fields}
        for taken, given in (shared if mapping is None else mapping).items():
            why = misfit(source.field_schema(given), target.field_schema(taken))
            if why is not None:
                yield f"{told}: {given!r} cannot become {taken!r}: {why}"


def _inside(graph: Graph) -> list[Graph]:
    found: list[Graph] = []
    waiting = list(graph.subgraphs.values())
    while waiting:
        inner = waiting.pop()
        if not any(inner is each for each in found):
            found.append(inner)
            waiting += inner.subgraphs.values()
    return found


def built(
    graph: Graph,
    declared: GraphSpec,
    *,
    rules: Sequence[Rule],
    by_default: Collection[str],
    default: OnError,
    noted: Sequence[str],
) -> GraphSpec:
    """The frozen graph. `by_default` are the nodes that deal with failures as `default` says, and `noted`
    the faults that are known already. Raises GraphError with all faults at once.
    """
    states = graph.states
    late = DeclarationErrors(states)
    own = nested_in(graph, declared.nodes, late)
    nodes, settled = ruleform.settled(own, rules, states, late)
    finally_ = declared.finally_nodes
    faults = [*noted, *late.faults, *validation.state_faults_of(states)]
    spec = replace(
        declared,
        fields=states.field_specs(),
        open_values=states.is_open,
        input_schema=None if faults else states.input_schema(),
        nodes=with_inherited(nodes, default, by_default, finally_),
        rules=settled,
        interrupt_before=looked_at(declared.interrupt_before, nodes, finally_),
        interrupt_after=looked_at(declared.interrupt_after, nodes, finally_),
    )
    faults += [*unreadable(spec)] or faults_of(spec)
    if faults:
        # A graph and the one around it may find the same.
        raise GraphError(graph.name, list(dict.fromkeys(faults)))
    return spec


def stand_in(name: str) -> GraphSpec:
    """What stands for a nested graph until the outer one is built: it has no fault of its own."""
    return GraphSpec(name=name, edges=(Edge(sources=(START,), target=END),))


def nested(
    intake: DeclarationErrors,
    name: str,
    graph: Graph,
    handed_in: Mapping[str, str] | None,
    handed_out: Mapping[str, str] | None,
) -> SubgraphNode:
    """The node that another graph is; the graph itself is taken in when the outer one is built.

    Raises TypeError for what is no graph.
    """
    if not hasattr(graph, "build_for"):
        message = f"{graph!r} is no Graph: write subgraph({name!r}, graph)"
        raise TypeError(message)
    told = f"the nested graph {name!r}"
    return SubgraphNode(
        id=name,
        graph=stand_in(graph.name),
        description=graph.description,
        input=intake.mapping(handed_in, f"{told}, input="),
        output=intake.mapping(handed_out, f"{told}, output="),
    )


def wanted(
    graph: Graph,
    interrupt_before: str | Sequence[str],
    interrupt_after: str | Sequence[str],
    on_error: str | None,
) -> tuple[tuple[str, ...], tuple[str, ...], OnError | None]:
    """What one run wants beyond what its graph says. Raises GraphError with all faults at once."""
    intake = DeclarationErrors(graph.states)
    before = intake.names(interrupt_before, "interrupt_before")
    after = intake.names(interrupt_after, "interrupt_after")
    default = None if on_error is None else intake.on_error(on_error, "the run")
    if isinstance(default, GoTo):
        intake.note(
            f"the run: on_error={on_error!r} would choose a way through the graph, which only its author "
            "may: a start takes 'fail' or 'interrupt'"
        )
    if intake.faults:
        raise GraphError(graph.name, intake.faults)
    return before, after, default


def unused(base: str, taken: Collection[str]) -> str:
    """A name that nobody has: the base, or the base with a number."""
    names = [base, *(f"{base}_{number}" for number in range(2, len(taken) + 2))]
    return next(name for name in names if name not in taken)


def edges(
    intake: DeclarationErrors, source: str | Sequence[str], target: str, *, when: Any, join: Join
) -> list[Edge]:
    """The edge that is declared so; none if its target is no name. What is wrong with it is noted."""
    told = f"the edge from {source!r} to {target!r}"
    sources = intake.names(source, told)
    targets = intake.names([target], told)
    condition = _condition(when, intake, told)
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


def _condition(when: Any, intake: DeclarationErrors, told: str) -> Condition:
    """When an edge fires, as its author says; what is wrong with it is noted."""
    match when:
        case None:
            return Always()
        case "else":
            return Else()
        case Mapping():
            equals = intake.json(dict(when), f"{told}, when=")
            return Always() if equals is None else When(equals=equals)
        case _:
            intake.note(f"{told}: when={when!r} is neither a mapping nor 'else'")
            return Always()
