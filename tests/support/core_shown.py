"""The check that values still are as a question showed them when the first code behind its answer begins.
If the question restricts who answers, or needs several people, the check repeats after each edit.

The check covers declared questions that show fields, and the nodes in the same graph that are reached
only through them. Any other node behind the answer uses the answer up without a check. So does a person
who leads the run elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from abeyance.core import events
from abeyance.core.address import Address
from abeyance.core.effects import Effect, Publish, RunNode, VisitInput
from abeyance.core.json import Json, fill, paths
from abeyance.core.spec import (
    END,
    START,
    Always,
    FunctionNode,
    GoTo,
    GraphSpec,
    InterruptNode,
    SubgraphNode,
)
from abeyance.core.state import RunState
from abeyance.core.terms import is_restricted
from abeyance.core.visit import Visit

Gate: TypeAlias = tuple[tuple[str, ...], str]
"""The path of nodes to a nested graph, and the name of a gate in it."""
SEPARATOR = "|"
"""The separator of fields in a prompt, so that the check can read each field from it."""


def _text_of(values: Mapping[str, Json], name: str) -> str:
    return fill(f"{{{name}}}", values)


@dataclass
class Shown:
    """`answers`: those that no code has used up yet, by scope and node, with the visits before each.
    `used`: answers that count again after an edit. `texts`: every text that a question showed of a field.
    """

    answers: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    used: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    texts: dict[tuple[str, str, str], set[str]] = field(default_factory=dict)
    has_reopened: bool = False
    _behind: dict[tuple[str, ...], dict[str, frozenset[Gate]]] = field(default_factory=dict)

    def saw(
        self,
        before: RunState,
        event: events.Event,
        after: RunState,
        effects: tuple[Effect, ...],
    ) -> None:
        """Take a step of the run. Raises AssertionError if code began with a value that was not shown."""
        facts = [effect for effect in effects if isinstance(effect, Publish)]
        is_moved = isinstance(event, events.Restored | events.Migrated)
        if is_moved or _is_led(before, event, facts):
            self.answers.clear()
            self.used.clear()
            self._behind.clear()
        self.has_reopened |= any(fact.type == "interrupt.reopened" for fact in facts)
        for fact in facts:
            if fact.type == "run.values_edited":
                self._edited(before, str(fact.address), {*fact.data["fields"]})
            if fact.type == "interrupt.answered":
                self._answered(before, str(fact.data["id"]))
            if fact.type == "interrupt.reopened" and (
                asked := before.visits.get(str(fact.address))
            ):
                # The gate is asked again, so its earlier answer no longer leads anywhere.
                self.answers.pop((asked.scope, asked.node), None)
        for each in effects:
            if isinstance(each, RunNode) and each.input.kind == "visit":
                self._begins(after, each.input)

    def _answered(self, before: RunState, id_: str) -> None:
        entry = before.ledger.open[id_]
        visit = before.visits[entry.visit]
        node = before.node_of(visit)
        if entry.kind != "question" or visit.members or not isinstance(node, InterruptNode):
            return
        if not fields_of(node):
            return
        key = (visit.scope, visit.node)
        self.answers[key] = frozenset(before.visits)
        self.used.pop(key, None)
        for name, text in zip(fields_of(node), entry.prompt.split(SEPARATOR), strict=True):
            self.texts.setdefault((*key, name), set()).add(text)

    def _begins(self, after: RunState, order: VisitInput) -> None:
        address = order.address
        for (scope, gate), known in list(self.answers.items()):
            if scope not in after.scopes or address in known:
                continue
            graph = after.graph_of(scope)
            visit = _in_scope(after, address, scope)
            if visit is None:
                name = _name_in(address, scope)
                if name is not None and name in _reached(graph, gate):
                    self._use_up(after, scope, gate)
                continue
            if visit.node not in _reached(graph, gate):
                continue
            self._use_up(after, scope, gate)
            path = after.scopes[scope].path
            is_behind = (path, gate) in self._gates(after.spec, path).get(visit.node, frozenset())
            node = graph.nodes[gate]
            assert isinstance(node, InterruptNode)
            if order.address != visit.address or not is_behind or visit.members:
                continue
            for name in fields_of(node):
                if name != node.answer_to:
                    now, shown = _text_of(order.values, name), self.texts[scope, gate, name]
                    assert now in shown, (
                        f"{address} begins with {name} {now!r}, and {gate!r} has shown {shown}"
                    )

    def _use_up(self, state: RunState, scope: str, gate: str) -> None:
        known = self.answers.pop((scope, gate))
        node = state.graph_of(scope).nodes[gate]
        if isinstance(node, InterruptNode) and is_restricted(node.question.terms):
            self.used[scope, gate] = known

    def _edited(self, state: RunState, address: str, fields: set[str]) -> None:
        visit = state.visits.get(address)
        scope = address if visit is None else visit.scope
        for (within, gate), known in list(self.used.items()):
            node = state.graph_of(scope).nodes.get(gate)
            if within == scope and isinstance(node, InterruptNode) and fields & {*fields_of(node)}:
                self.answers[within, gate] = known

    def _gates(self, spec: GraphSpec, path: tuple[str, ...]) -> dict[str, frozenset[Gate]]:
        if path not in self._behind:
            self._behind[path] = behind(graph_at(spec, path), path)
        return self._behind[path]


def _in_scope(state: RunState, address: str, scope: str) -> Visit | None:
    """Return the visit of a scope that is at an address or contains it."""
    visit = state.visits.get(address)
    while visit is not None and visit.scope != scope:
        visit = state.visits.get(str(state.scopes[visit.scope].visit))
    return visit


def _name_in(address: str, scope: str) -> str | None:
    """Return the node at an address in a scope whose visit is over."""
    inside = address.removeprefix(f"{scope};") if address.startswith(f"{scope};") else None
    return None if inside is None else Address.parse(address).segments[-1].id


def _reached(graph: GraphSpec, gate: str) -> set[str]:
    reached, waiting = set[str](), [gate]
    while waiting:
        found = set(graph.successors(waiting.pop())) - reached
        reached |= found
        waiting += [name for name in found if name in graph.nodes]
    return reached


def _is_led(before: RunState, event: events.Event, facts: list[Publish]) -> bool:
    """Return whether a person who may change everything, or code's question, led the run elsewhere."""
    pause = before.pause
    is_due = pause is not None and pause.deadline is not None and pause.deadline <= event.now
    if pause is not None and is_due and isinstance(pause.on_timeout, GoTo):
        return True
    if isinstance(event, events.DeadlineEdited):
        return True
    if isinstance(event, events.Responded):
        for id_, answer in event.answers.items():
            entry = before.ledger.open.get(id_)
            if entry is not None and entry.kind == "error" and answer["action"] == "skip":
                return True
    for fact in facts:
        if fact.type == "interrupt.expired":
            entry = before.ledger.open[str(fact.data["id"])]
            if isinstance(before.node_of(before.visits[entry.visit]), FunctionNode):
                return isinstance(entry.on_timeout, GoTo)
    return False


# Which nodes the graph reaches only through the answers of which gates


def fields_of(node: InterruptNode) -> list[str]:
    """Return the fields that the prompt of a gate shows, in order."""
    return list(paths(node.question.prompt))


def graph_at(spec: GraphSpec, path: Iterable[str]) -> GraphSpec:
    for name in path:
        node = spec.nodes[name]
        assert isinstance(node, SubgraphNode)
        spec = node.graph
    return spec


def passed_by(spec: GraphSpec, path: tuple[str, ...], name: str) -> frozenset[Gate]:
    """Return the gates that must have been answered when a node has finished normally."""
    if name in _sent_to(spec):
        return frozenset()
    match spec.nodes.get(name):
        case InterruptNode() as node if fields_of(node):
            return frozenset({(path, name)})
        case SubgraphNode(graph=inner):
            firsts = [
                inner.nodes[edge.target]
                for edge in inner.edges
                if edge.sources == (START,)
                and isinstance(edge.condition, Always)
                and edge.target != END
            ]
            return frozenset(
                ((*path, name), node.id)
                for node in firsts
                if isinstance(node, InterruptNode)
                and fields_of(node)
                and node.id not in _sent_to(inner)
                and not isinstance(node.question.on_timeout, GoTo)
            )
        case _:
            return frozenset()


def _sent_to(spec: GraphSpec) -> set[str]:
    """Return the nodes that may be within an item of a fan-out."""
    nodes = [node for node in spec.nodes.values() if isinstance(node, FunctionNode)]
    reached = {target for node in nodes for target in node.to}
    waiting = list(reached)
    while waiting:
        found = spec.successors(waiting.pop()) - reached
        reached |= found
        waiting += found
    return reached


def behind(spec: GraphSpec, path: tuple[str, ...]) -> dict[str, frozenset[Gate]]:
    """Return the gates that each node of a graph lies behind; `path` is the path of the graph."""
    passed = {name: passed_by(spec, path, name) for name in spec.nodes}
    everything = frozenset[Gate]().union(*passed.values())
    known = dict.fromkeys(spec.nodes, everything)
    while True:
        found = {
            name: _meet(_ways_to(spec, name, known, passed), everything) for name in spec.nodes
        }
        if found == known:
            return known
        known = found


def _meet(ways: list[frozenset[Gate]], everything: frozenset[Gate]) -> frozenset[Gate]:
    return everything.intersection(*ways) if ways else everything


def _ways_to(
    spec: GraphSpec,
    name: str,
    known: Mapping[str, frozenset[Gate]],
    passed: Mapping[str, frozenset[Gate]],
) -> list[frozenset[Gate]]:
    """Return the gates that are answered on each way to a node."""

    def by(source: str) -> frozenset[Gate]:
        return known.get(source, frozenset()) | passed.get(source, frozenset())

    ways = []
    for edge in spec.edges:
        if edge.target == name:
            sources = [by(source) for source in edge.sources]
            is_all = edge.join == "all"
            ways.append(
                frozenset().union(*sources) if is_all else sources[0].intersection(*sources)
            )
    ways += [by(route.source) for route in spec.routes if name in route.targets]
    for source, node in spec.nodes.items():
        ways += [by(source) for rule in spec.rules_on(source) if name in rule.targets(source)]
        match node:
            case FunctionNode(to=to) if name in to:
                ways.append(by(source))
            case _:
                pass
        match node:
            case (
                FunctionNode(on_error=GoTo(node=target)) | SubgraphNode(on_error=GoTo(node=target))
            ) if target == name:
                ways.append(known[source])
            case InterruptNode() if node.question.on_timeout == GoTo(node=name):
                ways.append(known[source])
            case _:
                pass
    return ways
