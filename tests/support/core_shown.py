"""Whether what a question showed still stands when the first code behind its answer begins, and after a
change of course when the next does, if not everybody could have answered, or not alone.

This is told of declared questions that show fields, and of the nodes that are reached by way of them
only, in the same graph. What else may lie behind the answer uses it up without being looked at, and so
does whoever leads the run elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from core_behind import Gate, behind, fields_of, graph_at

from abeyance.core import events
from abeyance.core.address import Address
from abeyance.core.effects import Effect, Publish, RunNode, VisitInput
from abeyance.core.json import Json, fill
from abeyance.core.spec import FunctionNode, GoTo, GraphSpec, InterruptNode
from abeyance.core.state import RunState
from abeyance.core.terms import is_restricted
from abeyance.core.visit import Visit

SEPARATOR = "|"
"""Between the fields in a prompt, so that each can be read from it."""


def _text_of(values: Mapping[str, Json], name: str) -> str:
    return fill(f"{{{name}}}", values)


@dataclass
class Shown:
    """The answers that no code has used up yet, by scope and node, each with the visits before it; those
    that count again after an edit; and every text that a question has shown of a field.
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
        """One step of the run; AssertionError if code began in it with what was not shown."""
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
    """The visit of a scope that is at an address, or that an address lies within."""
    visit = state.visits.get(address)
    while visit is not None and visit.scope != scope:
        visit = state.visits.get(str(state.scopes[visit.scope].visit))
    return visit


def _name_in(address: str, scope: str) -> str | None:
    """The node of a visit of a scope that is over."""
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
    """Whether somebody who may change everything, or a question of code, has led the run elsewhere."""
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
