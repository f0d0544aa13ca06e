"""Comparison of this process's code with the pinned graph and the values of an open run.

The graph of a run is the one that it was started with, and its code is that of the workers, so a deploy
can leave a run without the code that it needs. `compare` returns what would block it, without running
any of the code.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never

from abeyance.authoring.graph import Graph
from abeyance.clips import engine
from abeyance.clips.engine import ClipsMissing
from abeyance.core import authority, items
from abeyance.core.json import Json
from abeyance.core.spec import END, FunctionNode, GraphSpec, InterruptNode, Node, SubgraphNode
from abeyance.core.state import RunState
from abeyance.errors import BlockedCode
from abeyance.schemas.json_types import misfit
from abeyance.schemas.state_model import ValuesError


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Something that would block a run: its code as in the view of the run, the node, and the remedy.

    `node` is the name of the graph, of the nested graphs in it, and of the node, with dots.
    """

    code: str
    node: str
    text: str
    remedy: str


def compare(
    state: RunState, graphs: Mapping[str, Graph], *, everywhere: bool = False
) -> tuple[Block, ...]:
    """Return what would block a run if `graphs` were the code of its workers.

    Only what is ahead of the run counts, as far as its graph says. `everywhere`: every node of its graph
    counts, as it would for other runs with the same graph.
    """
    name = state.spec.name
    graph = graphs.get(name)
    if graph is None:
        if not _needs_code(state.spec):
            # One question, such as MCP's `ask_human`, which no worker serves.
            return ()
        return (
            Block(
                code=BlockedCode.CODE_MISSING,
                node=name,
                text=f"there is no graph {name!r}",
                remedy="serve the graph until its last run has ended",
            ),
        )
    found = _Comparison(state).walk((), state.spec, graph, enters=everywhere)
    return tuple(dict.fromkeys(found))


class _Comparison:
    """The comparison of one run. A `path` is that of a nested graph, as in `Scope.path`."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._nested = {scope.visit for scope in state.scopes.values()}

    def walk(
        self,
        path: tuple[str, ...],
        spec: GraphSpec,
        graph: Graph,
        *,
        enters: bool,
        is_agent: bool = False,
    ) -> Iterator[Block]:
        """Yield what blocks a graph. `enters`: the run may still enter it, and so reach all of it."""
        current, later = self._visits(path), self._later(path, spec)
        ahead = [name for name in spec.nodes if enters or name in current or name in later]
        if any(spec.routes_from(name) or _reads_values(spec.nodes[name]) for name in ahead):
            yield from self._values(path, graph)
        for name in ahead:
            if is_agent and name not in graph.build().nodes:
                # The code of the agent decides which tools are called.
                if name in current:
                    yield self._block(
                        path,
                        name,
                        BlockedCode.CODE_MISSING,
                        f"a call of the tool {name!r} waits, and the agent has no such tool",
                        "keep the tool until its calls are over",
                    )
                continue
            yield from self._node(path, spec, graph, name)
            node = spec.nodes[name]
            inner = graph.subgraphs.get(name)
            if isinstance(node, SubgraphNode) and inner is not None:
                enters_it = enters or name in later or not self._nested.issuperset(current[name])
                if enters_it and not node.agent:
                    yield from self._input(path, spec, node, inner)
                yield from self.walk(
                    (*path, name), node.graph, inner, enters=enters_it, is_agent=node.agent
                )

    def _visits(self, path: tuple[str, ...]) -> Mapping[str, Collection[str]]:
        """The visits that are not over in the scopes of a graph, by node."""
        visits: dict[str, list[str]] = {}
        for visit in self._state.visits.values():
            if self._state.scopes[visit.scope].path == path:
                visits.setdefault(visit.node, []).append(visit.address)
        return visits

    def _later(self, path: tuple[str, ...], spec: GraphSpec) -> frozenset[str]:
        """The nodes that may run after those that run now."""
        state = self._state
        finals = frozenset() if path else frozenset(spec.finally_nodes)
        if state.ending is not None:
            return finals
        waiting = [*self._visits(path)]
        later: set[str] = set()
        for scope in state.scopes.values():
            if scope.path == path:
                later |= {edge.target for edge in spec.edges if edge.key in scope.tokens} - {END}
                later |= {
                    edge.target
                    for fan in scope.fans.values()
                    for edge in spec.edges
                    if edge.key in fan.joins
                } - {END}
        waiting += later
        while waiting:
            reached = spec.successors(waiting.pop()) - later
            later |= reached
            waiting += reached
        return frozenset(later) | finals

    def _block(self, path: tuple[str, ...], name: str, code: str, text: str, remedy: str) -> Block:
        node = ".".join([self._state.spec.name, *path, *([name] if name else [])])
        return Block(code=str(code), node=node, text=text, remedy=remedy)

    def _values(self, path: tuple[str, ...], graph: Graph) -> Iterator[Block]:
        state = self._state
        found: list[Mapping[str, Json]] = [
            scope.values for scope in state.scopes.values() if scope.path == path
        ]
        found += [
            items.values_of(state, visit)
            for visit in state.visits.values()
            if visit.members and state.scopes[visit.scope].path == path
        ]
        for values in found:
            try:
                graph.states.read(values)
            except ValuesError as error:
                yield self._block(
                    path,
                    "",
                    BlockedCode.VALUES_INCOMPATIBLE,
                    str(error),
                    "give a new field a default, and let a field keep its type until the run has ended",
                )

    def _input(
        self, path: tuple[str, ...], spec: GraphSpec, node: SubgraphNode, inner: Graph
    ) -> Iterator[Block]:
        shared = {name for name in node.graph.fields if spec.open_values or name in spec.fields}
        _, missing = inner.states.defaults({*node.defaults, *(node.input or shared)})
        for field in missing:
            yield self._block(
                path,
                node.id,
                BlockedCode.VALUES_INCOMPATIBLE,
                f"the nested graph {node.id!r} has a new field {field!r}, for which the run has no value",
                "give the field a default",
            )

    def _node(
        self, path: tuple[str, ...], spec: GraphSpec, graph: Graph, name: str
    ) -> Iterator[Block]:
        node, today = spec.nodes[name], graph.build().nodes.get(name)
        match node:
            case FunctionNode():
                if name not in graph.code:
                    yield self._gone(path, name, "")
                if isinstance(today, FunctionNode):
                    yield from self._targets(path, name, {*today.to}, {*node.to, END})
                    yield from self._asks(path, node, today)
            case SubgraphNode():
                if name not in graph.subgraphs:
                    yield self._gone(path, name, "graph ")
            case InterruptNode(question=question, answer_to=field):
                schema = None if field is None else graph.states.field_schema(field)
                why = None if schema is None else misfit(question.response_schema, schema)
                if why is not None:
                    yield self._block(
                        path,
                        name,
                        BlockedCode.VALUES_INCOMPATIBLE,
                        f"an answer to {name!r} does not fit the field {field!r}: {why}",
                        "let the field keep its type until the run has ended",
                    )
            case _:
                assert_never(node)
        yield from self._routes(path, spec, graph, name)
        if spec.has_clips_on(name):
            try:
                engine.library(name)
            except ClipsMissing:
                yield self._block(
                    path,
                    name,
                    BlockedCode.EXTRA_MISSING,
                    f"a rule on {name!r} has CLIPS text, and the extra `rules` is not installed",
                    "pip install 'abeyance[rules]'",
                )

    def _gone(self, path: tuple[str, ...], name: str, kind: str) -> Block:
        return self._block(
            path,
            name,
            BlockedCode.CODE_MISSING,
            f"there is no code for the {kind or 'node '}{name!r}",
            f"keep it until the run has ended: graph.retired({name!r})(...)",
        )

    def _routes(
        self, path: tuple[str, ...], spec: GraphSpec, graph: Graph, name: str
    ) -> Iterator[Block]:
        pinned = spec.routes_from(name)
        allowed = {target for route in pinned for target in route.targets}
        today = {route.name: route for route in graph.build().routes_from(name)}
        for route in pinned:
            if (name, route.name) not in graph.route_code:
                yield self._block(
                    path,
                    name,
                    BlockedCode.CODE_MISSING,
                    f"there is no route {route.name!r} from {name!r}",
                    f"keep its name (route(..., name={route.name!r})), or keep it until the run has "
                    f"ended: graph.retired({name!r})(None, routes={{{route.name!r}: ...}})",
                )
            elif route.name in today:
                yield from self._targets(path, name, {*today[route.name].targets}, allowed)

    def _targets(
        self, path: tuple[str, ...], name: str, today: set[str], pinned: set[str]
    ) -> Iterator[Block]:
        for target in sorted(today - pinned):
            yield self._block(
                path,
                name,
                BlockedCode.TARGET_UNKNOWN,
                f"{name!r} may choose {target!r}, which is no target of it in the run's graph",
                "choose only the older targets until the run has ended, or give the node with the new "
                "targets another name",
            )

    def _asks(
        self, path: tuple[str, ...], node: FunctionNode, today: FunctionNode
    ) -> Iterator[Block]:
        for capability in today.asks:
            if capability not in node.asks and not authority.declares(node.asks, capability):
                yield self._block(
                    path,
                    node.id,
                    BlockedCode.UNDECLARED_CAPABILITY,
                    f"{node.id!r} may ask for the capability {capability!r}, which it does not declare "
                    "in the run's graph",
                    "ask for a capability of older runs until the run has ended",
                )


def _needs_code(spec: GraphSpec) -> bool:
    """Return whether a worker needs the code of a graph: it has more than questions, edges and rules."""
    return any(
        not isinstance(node, InterruptNode) or spec.routes_from(name) or spec.has_clips_on(name)
        for name, node in spec.nodes.items()
    )


def _reads_values(node: Node) -> bool:
    """Return whether code of a node gets the values as the model of the state."""
    match node:
        case FunctionNode():
            return True
        case SubgraphNode(agent=is_agent):
            return is_agent
        case InterruptNode():
            return False
        case _:
            assert_never(node)
