"""Graphs with renamed nodes, and runs that migrate to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core_drive import ROOT, Drive, chain, nested, restored

from abeyance.core import events, migration
from abeyance.core.outcome import Stopped
from abeyance.core.spec import (
    END,
    START,
    Ask,
    FunctionNode,
    GoTo,
    GraphSpec,
    InterruptNode,
    Node,
    Parallel,
    Retry,
    SubgraphNode,
)
from abeyance.core.state import RunState, copied
from abeyance.core.step import Step


def renamed(spec: GraphSpec, suffix: str, around: str = "") -> tuple[GraphSpec, dict[str, str]]:
    """Return the graph with a suffix at every node's name, also in nested graphs, and the renames."""
    place = around.replace(".", f"{suffix}.")
    names = {f"{around}{name}": f"{place}{name}{suffix}" for name in spec.nodes}

    def new(name: str) -> str:
        return name if name in {START, END} else f"{name}{suffix}"

    def going(action: Any) -> Any:
        match action:
            case GoTo(node=node) | Retry(node=str() as node):
                return replace(action, node=new(node))
            case Parallel(nodes=nodes):
                return replace(action, nodes=tuple(map(new, nodes)))
            case Ask(question=question):
                asked = replace(question, on_timeout=going(question.on_timeout))
                return replace(action, question=asked)
            case _:
                return action

    def moved(node: Node) -> Node:
        match node:
            case InterruptNode(question=question):
                name = new(question.name) if question.name == node.id else question.name
                asked = replace(question, name=name, on_timeout=going(question.on_timeout))
                return replace(node, id=new(node.id), question=asked)
            case FunctionNode():
                to = tuple(map(new, node.to))
                return replace(node, id=new(node.id), to=to, on_error=going(node.on_error))
            case SubgraphNode():
                graph, inner = renamed(node.graph, suffix, f"{around}{node.id}.")
                names.update(inner)
                return replace(node, id=new(node.id), graph=graph, on_error=going(node.on_error))

    nodes = {new(name): moved(node) for name, node in spec.nodes.items()}
    return replace(
        spec,
        nodes=nodes,
        edges=tuple(
            replace(edge, sources=tuple(map(new, edge.sources)), target=new(edge.target))
            for edge in spec.edges
        ),
        routes=tuple(
            replace(route, source=new(route.source), targets=tuple(map(new, route.targets)))
            for route in spec.routes
        ),
        rules=tuple(
            replace(
                rule,
                condition=replace(
                    rule.condition,
                    node=None if rule.condition.node is None else new(rule.condition.node),
                ),
                actions=tuple(map(going, rule.actions)),
            )
            for rule in spec.rules
        ),
        finally_nodes=tuple(map(new, spec.finally_nodes)),
        interrupt_before=tuple(map(new, spec.interrupt_before)),
        interrupt_after=tuple(map(new, spec.interrupt_after)),
    ), names


def rest(run: Drive) -> None:
    """Pause a run, and stop its code."""
    run.feed(events.Paused, actor="root", mode="now")
    for visit, _ in run.state.running():
        run.end(Stopped, visit=visit.address, journal=visit.checkpoint.journal)


def migrate(run: Drive, spec: GraphSpec, **fields: Any) -> None:
    """Migrate a run to a graph, as `root` unless a principal is given. If code runs, pause it first."""
    given: dict[str, Any] = {"principal": ROOT, "versions": ("v1", "v2"), **fields}
    runs, was_paused = not run.state.is_at_rest, run.state.pause is not None
    if runs:
        rest(run)
    run.feed(events.Migrated, spec=spec, **given)
    assert restored(run.state) == run.state
    if runs and not was_paused:
        run.feed(events.Resumed, actor="root")


def moved(state: RunState, spec: GraphSpec, renames: Mapping[str, str]) -> RunState:
    """Return a run at rest as migrated to another graph, without its events."""
    step = Step(copied(state), state.updated_at)
    migration.migrate(step, spec, changes={}, renames=renames)
    return step.run


def obstacles(run: Drive, spec: GraphSpec, **fields: Any) -> list[tuple[str, str]]:
    """Return kind and name of every obstacle to a migration, and migrate nothing."""
    given: dict[str, Any] = {"principal": ROOT, "versions": ("v1", "v2"), **fields}
    at_rest = run.copy()
    if not run.state.is_at_rest:
        rest(at_rest)
    refusal = at_rest.refused(events.Migrated, spec=spec, **given)
    assert refusal.code == "cannot_migrate"
    found = refusal.details["obstacles"]
    assert all(each["why"] and each["remedy"] for each in found)
    nowhere = {"graph", "rename", "patch", "message"}
    assert all(("address" in each) == (each["what"] not in nowhere) for each in found)
    return [(each["what"], each["name"]) for each in found]


def sub(*nodes: Any, id_: str = "sub", name: str = "inner", **kwargs: Any) -> SubgraphNode:
    """Return a nested graph that is a chain of nodes."""
    return nested(id_, chain(*nodes, name=name), **kwargs)
