"""Where this process's code does not fit the graph and the values of an open run.

The graph of a run is the one that it was started with, and its code is that of the workers, so a deploy
can leave a run without the code that it needs. `compare` returns the obstacles, without running any of
the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from abeyance.authoring.graph import Graph
from abeyance.authoring.routers import RouterMissing, router
from abeyance.core import items, policy
from abeyance.core.renaming import Path
from abeyance.core.spec import END, FunctionNode, GraphSpec, InterruptNode, Node, SubgraphNode
from abeyance.core.state import RunState, Scope
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
    """Return the obstacles to a run if `graphs` were the code of its workers.

    Only the nodes ahead of the run count, as far as its graph tells. `everywhere`: every node of its
    graph counts, as it would for other runs with the same graph.
    """
    name, found = state.spec.name, _Comparison(state)
    if (graph := graphs.get(name)) is not None:
        found.walk((), state.spec, graph, enters=everywhere)
    elif _needs_code(state.spec):
        found.add(
            (),
            BlockedCode.CODE_MISSING,
            f"there is no graph {name!r}",
            "serve the graph until its last run has ended",
        )
    return tuple(found.blocks)


class _Comparison:
    """The comparison of one run. A path is that of a nested graph, or of a node in it."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._entered = {scope.visit for scope in state.scopes.values()}
        self.blocks: dict[Block, None] = {}

    def add(self, path: Path, code: BlockedCode, text: str, remedy: str) -> None:
        """Add what blocks the run at a path, once."""
        node = ".".join((self._state.spec.name, *path))
        self.blocks[Block(code=str(code), node=node, text=text, remedy=remedy)] = None

    def walk(
        self, path: Path, spec: GraphSpec, graph: Graph, *, enters: bool, is_agent: bool = False
    ) -> None:
        """Find the obstacles to a graph. `enters`: the run may still enter it, and so reach all of it."""
        current = self._current(path)
        later = self._later(path, spec, {*current})
        ahead = [name for name in spec.nodes if enters or name in current or name in later]
        if any(spec.routes_from(name) or _reads_values(spec.nodes[name]) for name in ahead):
            self._values(path, graph)
        for name in ahead:
            node, here = spec.nodes[name], (*path, name)
            if is_agent and name not in graph.build().nodes:
                # The code of the agent decides which tools are called.
                if name in current:
                    self.add(
                        here,
                        BlockedCode.CODE_MISSING,
                        f"a call of the tool {name!r} waits, and the agent has no such tool",
                        "keep the tool until its calls are over",
                    )
                continue
            self._node(here, node, spec, graph)
            self._routes(here, spec, graph)
            if isinstance(node, SubgraphNode) and (inner := graph.subgraphs.get(name)) is not None:
                is_ahead = enters or name in later or not self._entered.issuperset(current[name])
                if is_ahead and not node.agent:
                    self._input(here, spec, node, inner)
                self.walk(here, node.graph, inner, enters=is_ahead, is_agent=node.agent)

    def _scopes(self, path: Path) -> list[Scope]:
        return [scope for scope in self._state.scopes.values() if scope.path == path]

    def _current(self, path: Path) -> dict[str, list[str]]:
        """Return the visits that are not over in the scopes of a graph, by node."""
        visits: dict[str, list[str]] = {}
        for visit in self._state.visits.values():
            if self._state.scopes[visit.scope].path == path:
                visits.setdefault(visit.node, []).append(visit.address)
        return visits

    def _later(self, path: Path, spec: GraphSpec, current: set[str]) -> set[str]:
        """Return the nodes that may run after the `current` ones."""
        finals = set() if path else {*spec.finally_nodes}
        if self._state.ending is not None:
            return finals
        scopes = self._scopes(path)
        waiting = {key for scope in scopes for key in scope.tokens}
        waiting |= {key for scope in scopes for fan in scope.fans.values() for key in fan.joins}
        later = {edge.target for edge in spec.edges if edge.key in waiting} - {END}
        left = [*current, *later]
        while left:
            reached = spec.successors(left.pop()) - later
            later |= reached
            left += reached
        return later | finals

    def _values(self, path: Path, graph: Graph) -> None:
        scopes = self._scopes(path)
        addresses = {scope.address for scope in scopes}
        found = [scope.values for scope in scopes]
        found += [
            items.values_of(self._state, visit)
            for visit in self._state.visits.values()
            if visit.members and visit.scope in addresses
        ]
        for values in found:
            try:
                graph.states.read(values)
            except ValuesError as error:
                self.add(
                    path,
                    BlockedCode.VALUES_INCOMPATIBLE,
                    str(error),
                    "give a new field a default, and let a field keep its type until the run has ended",
                )

    def _input(self, path: Path, spec: GraphSpec, node: SubgraphNode, inner: Graph) -> None:
        shared = {name for name in node.graph.fields if spec.open_values or name in spec.fields}
        _, missing = inner.states.defaults({*node.defaults, *(node.input or shared)})
        for field in missing:
            self.add(
                path,
                BlockedCode.VALUES_INCOMPATIBLE,
                f"the nested graph {node.id!r} has a new field {field!r}, for which the run has no value",
                "give the field a default",
            )

    def _node(self, path: Path, node: Node, spec: GraphSpec, graph: Graph) -> None:
        name = node.id
        match node:
            case FunctionNode():
                if name not in graph.code:
                    self._gone(path, f"node {name!r}")
                today = graph.build().nodes.get(name)
                if isinstance(today, FunctionNode):
                    self._targets(path, {*today.to} - {*node.to, END})
                    self._asks(path, node, today)
            case SubgraphNode():
                if name not in graph.subgraphs:
                    self._gone(path, f"graph {name!r}")
            case InterruptNode(question=question, answer_to=field):
                schema = None if field is None else graph.states.field_schema(field)
                why = None if schema is None else misfit(question.response_schema, schema)
                if why is not None:
                    self.add(
                        path,
                        BlockedCode.VALUES_INCOMPATIBLE,
                        f"an answer to {name!r} does not fit the field {field!r}: {why}",
                        "let the field keep its type until the run has ended",
                    )
            case _:
                assert_never(node)
        if spec.has_clips_on(name):
            try:
                router().require(name)
            except RouterMissing:
                self.add(
                    path,
                    BlockedCode.EXTRA_MISSING,
                    f"a rule on {name!r} has CLIPS text, and the extra `rules` is not installed",
                    "pip install 'abeyance[rules]'",
                )

    def _gone(self, path: Path, what: str) -> None:
        self.add(
            path,
            BlockedCode.CODE_MISSING,
            f"there is no code for the {what}",
            f"keep it until the run has ended: graph.retired({path[-1]!r})(...)",
        )

    def _routes(self, path: Path, spec: GraphSpec, graph: Graph) -> None:
        name = path[-1]
        pinned = spec.routes_from(name)
        allowed = {target for route in pinned for target in route.targets}
        today = {route.name: route for route in graph.build().routes_from(name)}
        for route in pinned:
            if (name, route.name) not in graph.route_code:
                self.add(
                    path,
                    BlockedCode.CODE_MISSING,
                    f"there is no route {route.name!r} from {name!r}",
                    f"keep its name (route(..., name={route.name!r})), or keep it until the run has "
                    f"ended: graph.retired({name!r})(None, routes={{{route.name!r}: ...}})",
                )
            elif route.name in today:
                self._targets(path, {*today[route.name].targets} - allowed)

    def _targets(self, path: Path, new: set[str]) -> None:
        for target in sorted(new):
            self.add(
                path,
                BlockedCode.TARGET_UNKNOWN,
                f"{path[-1]!r} may choose {target!r}, which is not a target of it in the run's graph",
                "choose only the older targets until the run has ended, or give the node with the new "
                "targets another name",
            )

    def _asks(self, path: Path, node: FunctionNode, today: FunctionNode) -> None:
        for capability in today.asks:
            if capability not in node.asks and not policy.declares(node.asks, capability):
                self.add(
                    path,
                    BlockedCode.UNDECLARED_CAPABILITY,
                    f"{node.id!r} may ask for the capability {capability!r}, which it does not declare "
                    "in the run's graph",
                    "ask for a capability of older runs until the run has ended",
                )


def _needs_code(spec: GraphSpec) -> bool:
    """Return whether a worker needs the code of a graph: it has more than questions, edges and rules.

    A single question, such as that of MCP's `ask_human`, no worker serves.
    """
    return any(
        not isinstance(node, InterruptNode) or spec.routes_from(name) or spec.has_clips_on(name)
        for name, node in spec.nodes.items()
    )


def _reads_values(node: Node) -> bool:
    """Return whether code of a node gets the values as the model of the state."""
    return isinstance(node, FunctionNode) or (isinstance(node, SubgraphNode) and node.agent)
