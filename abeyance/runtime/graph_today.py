"""Today's graph, for a run that was started with another version: compiled, and held against its values.

A worker reads it for a migration, and the client for a retry with today's graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from abeyance.authoring.graph import Graph
from abeyance.core import machine
from abeyance.core.events import Migrated
from abeyance.core.json import Json
from abeyance.core.migration import CODE_UNDER_WAY, under_way
from abeyance.core.spec import AskHuman, GraphSpec, InterruptNode, SubgraphNode
from abeyance.core.state import RunState
from abeyance.errors import Code, GraphError, Refusal
from abeyance.schemas.state_model import ValuesError
from abeyance.util import as_names
from abeyance.views import Migration, Obstacle
from abeyance.wire import GraphToday, ReadGraph, ScopeValues, StartRun

_ALL: Final = "*"


def spec_of_run(
    graph: Graph, before: str | Sequence[str], after: str | Sequence[str], on_error: str | None
) -> GraphSpec:
    """Return the graph of a run that starts with breakpoints and a default of its own. Raises Refusal."""
    nodes = graph.build().nodes
    for listed in (before, after):
        for name in as_names(listed):
            if name not in nodes and name != "*":
                raise Refusal(
                    Code.UNKNOWN_NODE,
                    f"`interrupt_before` or `interrupt_after` names {name!r}, which is not a node of "
                    f"{graph.name!r}; there are {', '.join(map(repr, nodes))}, and '*' for all.",
                    node=name,
                )
    try:
        return graph.build_for(interrupt_before=before, interrupt_after=after, on_error=on_error)
    except GraphError as error:
        faults = [{"pointer": "", "message": fault} for fault in error.faults]
        raise Refusal(
            Code.INVALID_BODY,
            f"The run cannot be started: {'; '.join(error.faults)}.",
            errors=faults,
        ) from error


def pinned(spec: GraphSpec) -> GraphSpec:
    """Return a graph as it is pinned in a run.

    The input is validated already; a run needs the schema only if answers may set fields.
    """
    nodes = {
        id_: replace(node, graph=pinned(node.graph)) if isinstance(node, SubgraphNode) else node
        for id_, node in spec.nodes.items()
    }
    schema = spec.input_schema if _lets_values_be_edited(spec) else None
    return replace(spec, nodes=nodes, input_schema=schema)


def _lets_values_be_edited(spec: GraphSpec) -> bool:
    """Return whether a question of the run itself may be answered with fields of the values."""
    return bool(spec.interrupt_before or spec.interrupt_after) or any(
        not isinstance(node, InterruptNode) and isinstance(node.on_error, AskHuman)
        for node in spec.nodes.values()
    )


def order_of(
    state: RunState, start: StartRun, *, patch: Mapping[str, Json], renames: Mapping[str, str]
) -> ReadGraph:
    """Return the facts about a run that reading today's graph for it needs."""
    return ReadGraph(
        graph=state.spec.name,
        interrupt_before=start.interrupt_before,
        interrupt_after=start.interrupt_after,
        on_error=start.on_error,
        renames=dict(renames),
        patch=dict(patch),
        scopes=[
            ScopeValues(path=scope.path, values=dict(scope.values))
            for scope in state.scopes.values()
        ],
    )


def read_graph(graph: Graph, order: ReadGraph) -> GraphToday:
    """Compile a graph for a run, and hold its values, with the patch, against the state models.

    Raises GraphError for a graph that cannot be built.
    """
    today = graph.build()
    spec = graph.build_for(
        interrupt_before=_known(today, order.interrupt_before, order.renames),
        interrupt_after=_known(today, order.interrupt_after, order.renames),
        on_error=order.on_error,
    )
    faults: list[dict[str, Any]] = []
    try:
        patch = graph.states.patch(order.patch)
    except ValuesError as error:
        faults += _faults(error, "send a `patch` that fits")
        # The fault is told only once.
        patch = {}
    for scope in order.scopes:
        inner = _graph_at(graph, scope.path, order.renames)
        values = {**scope.values, **({} if scope.path else patch)}
        # A node without a place today is an obstacle of its own.
        if inner is None or (faults and not scope.path):
            continue
        try:
            inner.states.read(values)
        except ValuesError as error:
            remedy = (
                "give the field a default, or a type that takes the value"
                if scope.path
                else "set the field by `patch`, or give it a default or a type that takes the value"
            )
            faults += _faults(error, remedy)
    return GraphToday(spec=pinned(spec), version=today.version, patch=patch, faults=faults)


def renamed(path: Sequence[str], renames: Mapping[str, str]) -> tuple[str, ...]:
    """Return the path of a node today, by the names that lead to it from the root.

    The longest name that is mapped counts: `outer.inner` before `outer`.
    """
    for length in range(len(path), 0, -1):
        if (name := renames.get(".".join(path[:length]))) is not None:
            return (*name.split("."), *path[length:])
    return tuple(path)


def obstacles(today: GraphToday, attempt: Callable[[], object]) -> list[Obstacle]:
    """Return everything that has no place in today's graph: what `attempt` is refused for, and values.

    Raises the other Refusals of `attempt`, and that code is under way.
    """
    found: list[Any] = []
    try:
        attempt()
    except Refusal as refusal:
        if refusal.code is not Code.CANNOT_MIGRATE or is_under_way(refusal):
            raise
        found += refusal.details["obstacles"]
    return [Obstacle.model_validate(each) for each in (*found, *today.faults)]


def is_under_way(refusal: Refusal) -> bool:
    """Return whether nothing but code that is under way keeps a run from being migrated."""
    found = refusal.details.get("obstacles", [])
    return refusal.code is Code.CANNOT_MIGRATE and all(
        each["what"] == CODE_UNDER_WAY for each in found
    )


def cannot_migrate(found: Sequence[Obstacle], *, is_moved: bool = True) -> Refusal:
    """Return the refusal of a migration or a retry, with every obstacle.

    `is_moved`: the run would have moved to today's graph, and not just have got the patch.
    """
    what = "move to today's graph" if is_moved else "go on with this patch"
    listed = "; ".join(f"{each.what} {each.name!r}: {each.why}" for each in found)
    return Refusal(
        Code.CANNOT_MIGRATE,
        f"The run cannot {what}: {listed}.",
        obstacles=[each.model_dump(mode="json") for each in found],
    )


def migration(
    state: RunState,
    start: StartRun,
    today: GraphToday,
    event: Migrated,
    *,
    dry_run: bool,
) -> Migration:
    """Return the effect of a migration, done or planned.

    Raises the Refusals of the event, `cannot_migrate` too unless it is a dry run.
    """
    found = obstacles(today, lambda: machine.check(state, event))
    if dry_run:
        found = [*map(Obstacle.model_validate, under_way(state)), *found]
    if found and not dry_run:
        raise cannot_migrate(found)
    paths = [
        (*state.scopes[visit.scope].path, visit.node)
        for visit in state.visits.values()
        if not state.scopes[visit.scope].is_agent
    ]
    return Migration(
        run_id=state.run_id,
        dry_run=dry_run,
        before=start.graph_version,
        after=today.version,
        nodes={".".join(path): ".".join(renamed(path, event.renames)) for path in paths},
        obstacles=found,
    )


def _known(spec: GraphSpec, names: Iterable[str], renames: Mapping[str, str]) -> tuple[str, ...]:
    current = [renames.get(name, name) for name in names]
    return tuple(name for name in current if name == _ALL or name in spec.nodes)


def _graph_at(graph: Graph, path: Sequence[str], renames: Mapping[str, str]) -> Graph | None:
    for name in renamed(path, renames):
        inner = graph.subgraphs.get(name)
        if inner is None:
            return None
        graph = inner
    return graph


def _faults(error: ValuesError, remedy: str) -> list[dict[str, Any]]:
    places = error.errors or [{"pointer": "", "message": str(error)}]
    return [
        {
            "what": "value",
            "name": each["pointer"].removeprefix("/"),
            "why": each["message"],
            "remedy": remedy,
        }
        for each in places
    ]
