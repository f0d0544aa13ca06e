"""From what an author declared to the graph that a run is pinned to, or to all that is wrong with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from abeyance.core.model import (
    END,
    START,
    Always,
    Condition,
    Edge,
    Else,
    GoTo,
    GraphSpec,
    Join,
    OnError,
    Rule,
    SubgraphNode,
    When,
)
from abeyance.errors import GraphError
from abeyance.graphs import inherited, statefaults, subgraph
from abeyance.graphs.validation import faults_of
from abeyance.nodes import ruleform
from abeyance.nodes.intake import Intake, unreadable

if TYPE_CHECKING:
    from abeyance.graphs.graph import Graph


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
    late = Intake(states)
    own = subgraph.nested_in(graph, declared.nodes, late)
    nodes, settled = ruleform.settled(own, rules, states, late)
    finally_ = declared.finally_nodes
    faults = [*noted, *late.faults, *statefaults.faults_of(states)]
    spec = replace(
        declared,
        fields=states.field_specs(),
        open_values=states.is_open,
        input_schema=None if faults else states.input_schema(),
        nodes=inherited.settled(nodes, default, by_default, finally_),
        rules=settled,
        interrupt_before=inherited.looked_at(declared.interrupt_before, nodes, finally_),
        interrupt_after=inherited.looked_at(declared.interrupt_after, nodes, finally_),
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
    intake: Intake,
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
    intake = Intake(graph.states)
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
    intake: Intake, source: str | Sequence[str], target: str, *, when: Any, join: Join
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


def _condition(when: Any, intake: Intake, told: str) -> Condition:
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
