"""The names in another version of a run's graph: of nodes, addresses, joins and questions.

A node has its place in a node of the same kind, under the same name or a new one. A node without a place
is an obstacle to the migration of the run. A row of the run is renamed by the types of its fields: one of
the types in `address` (`NodeName`, `EdgeKey`) gets its new name, and every other field stays as it is. So
a new field needs a type, and no rule of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar, assert_never, get_args, get_type_hints

from abeyance.core.address import Address, Means
from abeyance.core.json import Json
from abeyance.core.outcome import Call
from abeyance.core.spec import GraphSpec, InterruptNode, Node, SubgraphNode
from abeyance.core.state import RunState

Path: TypeAlias = tuple[str, ...]
"""The names of nodes that lead from the run's graph to a node, with its own; empty for the graph."""

_Row = TypeVar("_Row")

_OPAQUE: Final = (Call,)
"""The questions of a call lead to no node."""
_PLACE: Final = (
    "give its new name in `map`, or keep {name!r} in the graph; a run that is not migrated needs only "
    "graph.retired({name!r})(...)"
)


def _kind(node: Node) -> str:
    if isinstance(node, SubgraphNode) and node.agent:
        return "agent"
    return node.kind


@dataclass(frozen=True, slots=True)
class _Around:
    """Where a text is: in the graph at `path`, at an address, and at a visit of `node`."""

    path: Path
    address: str
    node: Path


class Places:
    """The place in the graph `new` of everything in the graph of a run, and the `obstacles` found so far.

    `renames` are the new names of nodes, by their old ones, in nested graphs as `outer.inner`.
    """

    def __init__(self, state: RunState, new: GraphSpec, renames: Mapping[str, str]) -> None:
        self.obstacles: list[dict[str, Json]] = []
        self._state = state
        self.new = new
        self.names: dict[Path, str] = {}
        self.graphs: dict[Path, tuple[GraphSpec, GraphSpec | None]] = {}
        self._addresses: dict[str, str] = {}
        self.targets: dict[str, str] = {}
        if new.name != state.spec.name:
            self.obstacle(
                *("graph", state.spec.name, f"the other graph is named {new.name!r}"),
                remedy="migrate to a version of the same graph",
            )
        unknown = dict(renames)
        self._pair(state.spec, new, (), "", unknown)
        for name in unknown:
            remedy = "correct the name in `map`"
            self.obstacle("rename", name, "the run's graph has no such node", remedy=remedy)

    def _pair(
        self,
        old: GraphSpec,
        new: GraphSpec | None,
        path: Path,
        prefix: str,
        renames: dict[str, str],
    ) -> None:
        """Pair the nodes of a graph with those of its new version. `prefix` is the new name of the
        graph's node, with a dot. Used entries of `renames` are removed.
        """
        self.graphs[path] = old, new
        around = ".".join([*path, ""])
        chosen = {
            name: renames.pop(around + name).removeprefix(prefix)
            for name in old.nodes
            if around + name in renames
        }
        for name, node in old.nodes.items():
            inner = (*path, name)
            renamed = self.names[inner] = chosen.get(name, name)
            # A message may name a node of a nested graph; one of the run's graph comes first.
            self.targets.setdefault(name, renamed)
            counterpart = None if new is None else new.nodes.get(renamed)
            if renamed != name and new is not None:
                self._check_rename(inner, renamed, chosen, old, new)
            if isinstance(node, SubgraphNode):
                graph = counterpart.graph if isinstance(counterpart, SubgraphNode) else None
                if graph is not None and node.agent:
                    self.targets.setdefault(node.graph.name, graph.name)
                self._pair(node.graph, graph, inner, f"{prefix}{renamed}.", renames)

    def _check_rename(
        self, path: Path, name: str, chosen: Mapping[str, str], old: GraphSpec, new: GraphSpec
    ) -> None:
        remedy = "give the node a name of its own"
        if name not in new.nodes:
            why = f"the other graph has no node {name!r}"
            remedy = "correct the name in `map`"
        elif (
            name in old.nodes or [*chosen.values()].count(name) > 1 or self._was_visited(path, name)
        ):
            why = f"the run's graph has, or had, another node {name!r}"
        elif path[-1] in new.nodes:
            why = f"the other graph has a node {path[-1]!r} too"
        else:
            return
        self.obstacle("rename", ".".join(path), why, remedy=remedy)

    def _was_visited(self, path: Path, name: str) -> bool:
        scopes = self._state.scopes.values()
        return any(scope.path == path[:-1] and name in scope.ordinals for scope in scopes)

    def obstacle(
        self, what: str, name: str, why: str, *, remedy: str, address: str | None = None
    ) -> None:
        """Add an obstacle, once."""
        found: dict[str, Json] = {"what": what, "name": name, "why": why, "remedy": remedy}
        if address is not None:
            found["address"] = address
        if found not in self.obstacles:
            self.obstacles.append(found)

    def node(self, path: Path, what: str, address: str) -> str:
        """Return the new name of a node, where something of the run is or goes; END has no other."""
        old, new = self.graphs[path[:-1]]
        name, before = self.names.get(path, path[-1]), old.nodes.get(path[-1])
        if new is None or before is None:
            # Either nothing around it has a place, or it is END, or the author made a mistake.
            return name
        after = new.nodes.get(name)
        if after is None:
            why = f"the other graph has no node {name!r}"
        elif _kind(before) != _kind(after):
            why = f"{name!r} is a node of another kind there ({_kind(after)}, not {_kind(before)})"
        elif (path[-1] in old.finally_nodes) != (name in new.finally_nodes):
            why = f"{name!r} is a finally node in one of the two graphs only"
        else:
            return name
        remedy = _PLACE.format(name=path[-1])
        self.obstacle(what, ".".join(path), why, remedy=remedy, address=address)
        return name

    def address(self, text: str) -> str:
        """Return an address with the new names in it."""
        if text not in self._addresses:
            segments, passed = [], ""
            path: Path = ()
            for each in Address.parse(text).segments:
                passed = f"{passed};{each}" if passed else str(each)
                new = each
                match each.type:
                    case "graph" | "agent":
                        _, graph = self.graphs.get(path, (None, None))
                        new = each if graph is None else replace(each, id=graph.name)
                    case "node":
                        path = (*path, each.id)
                        new = replace(each, id=self.names.get(path, each.id))
                    case "tool":
                        # The call keeps the name that the model called.
                        visit = self._state.visits.get(passed)
                        path = (*path, each.id if visit is None else visit.node)
                    case _:
                        pass
                segments.append(new)
            self._addresses[text] = str(Address(tuple(segments)))
        return self._addresses[text]

    def path(self, scope: str) -> Path:
        return self._state.scopes[scope].path

    def _edge(self, path: Path, key: str, address: str) -> str:
        """Return the key of a join in the new graph."""
        old, new = self.graphs[path]
        edge = next(each for each in old.edges if each.key == key)
        moved = replace(
            edge,
            # One may be START.
            sources=tuple(self.names.get((*path, source), source) for source in edge.sources),
            target=self.names[*path, edge.target],
        )
        if new is not None and not any(e.key == moved.key and e.is_join for e in new.edges):
            why = f"the other graph has no join {moved.key!r}"
            remedy = "keep the join, or wait until the run has passed it"
            self.obstacle("join", key, why, remedy=remedy, address=address)
        return moved.key

    def fields(self, graph: GraphSpec, names: Iterable[str], address: str) -> None:
        """Find the fields that the state of a graph does not have."""
        for name in names:
            if name not in graph.fields and not graph.open_values:
                why = f"the state of the other graph {graph.name!r} has no such field"
                remedy = "keep the field in the state"
                self.obstacle("field", name, why, remedy=remedy, address=address)

    # Rows of the run

    def row(self, row: _Row, path: Path, address: str, node: Path = ()) -> _Row:
        """Return a row of the graph at `path` with its new names. `address` is where an obstacle is, and
        `node` is that of its visit.
        """
        return self._row(row, _Around(path, address, node))

    def _row(self, row: _Row, around: _Around) -> _Row:
        kind: Any = type(row)
        renamed = {
            name: self._renamed(getattr(row, name), hint, around)
            for name, hint in _referring(kind).items()
        }
        return replace(row, **renamed) if renamed else row  # type: ignore[type-var]

    def _renamed(self, value: Any, hint: Any, around: _Around) -> Any:
        hint = _if_there(hint)
        match value:
            case None:
                return None
            case str():
                return self._text(value, hint.__metadata__[0], around)
            case Mapping():
                key, each = get_args(hint)
                return {
                    self._renamed(name, key, around) if _refers(key) else name: (
                        self._renamed(held, each, around) if _refers(each) else held
                    )
                    for name, held in value.items()
                }
            case tuple() | list():
                each = get_args(hint)[0]
                return type(value)(self._renamed(held, each, around) for held in value)
            case _:
                return self._row(value, around)

    def _text(self, text: str, means: Means, around: _Around) -> str:
        match means:
            case Means.ADDRESS:
                return self.address(text)
            case Means.NODE:
                return self.names.get((*around.path, text), text)
            case Means.VISITED | Means.TARGET | Means.APPROVED:
                return self.node((*around.path, text), means.value, around.address)
            case Means.EDGE:
                return self._edge(around.path, text, around.address)
            case Means.QUESTION:
                return self.question(around.node, text)
            case Means.ANSWER:
                return self._answer(around.path, text)
            case Means.BARRING:
                return self._barring(around.path, text)
            case _:
                assert_never(means)

    # Questions of interrupt nodes, whose names are often those of their nodes

    def question(self, node: Path, name: str) -> str:
        """Return the name that the question of an interrupt node has now; any other as it is."""
        return self._asked_by(node).get(name, name)

    def _answer(self, path: Path, name: str) -> str:
        """Return the name that a question of the graph at `path` has now, by which answers are kept."""
        nodes = ((*path, each) for each in self.graphs[path][0].nodes)
        return next((new[name] for new in map(self._asked_by, nodes) if name in new), name)

    def _barring(self, path: Path, name: str) -> str:
        """Return the name that a question has now whose answerers a question of the graph at `path` bars:
        one of that graph, else of the graphs around it.
        """
        if name in self.graphs[path][0].question_names:
            return self._answer(path, name)
        return self._barring(path[:-1], name) if path else name

    def _asked_by(self, node: Path) -> Mapping[str, str]:
        """Return the old and the new name of an interrupt node's question, if it has another now."""
        old, new = self.graphs[node[:-1]]
        match old.nodes[node[-1]], None if new is None else new.nodes.get(self.names[node]):
            case InterruptNode(question=before), InterruptNode(question=after) if (
                before.name != after.name
            ):
                return {before.name: after.name}
            case _:
                return {}


@cache
def _referring(row: type) -> Mapping[str, Any]:
    """Return the types of the fields of a row that refer to something, by name."""
    if row in _OPAQUE or not is_dataclass(row):
        return {}
    hints = get_type_hints(row, include_extras=True)
    return {name: hint for name, hint in hints.items() if _refers(hint)}


@cache
def _refers(hint: Any) -> bool:
    if isinstance(hint, Means):
        return True
    if isinstance(hint, type) and is_dataclass(hint):
        return bool(_referring(hint))
    return any(map(_refers, get_args(hint)))


def _if_there(hint: Any) -> Any:
    """Return the type that a value has if it is not None."""
    choices = get_args(hint)
    return next(filter(_refers, choices)) if type(None) in choices else hint
