"""Whether what a question showed still stands when the first code behind its answer begins.

This is told of declared questions that everybody may answer and that show fields, and of the nodes that
are reached by way of them only, in the same graph. What else may lie behind the answer uses it up without
being looked at, and so does whoever leads the run elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from core_behind import Gate, behind, fields_of, graph_at
from core_standing import SEPARATOR, is_led, text_of

from abeyance.core import events
from abeyance.core.address import Address
from abeyance.core.effects import Effect, Publish, RunNode, VisitInput
from abeyance.core.spec import GraphSpec, InterruptNode
from abeyance.core.state import RunState
from abeyance.core.terms import is_restricted
from abeyance.core.visit import Visit


def is_for_all(node: InterruptNode) -> bool:
    """Whether everybody may answer a question, which shows fields."""
    question = node.question
    is_open = question.requested_capability is None and not is_restricted(question.terms)
    return is_open and bool(fields_of(node))


@dataclass
class Shown:
    """The answers that no code has used up yet, by scope and node, each with the visits before it; and
    every text that a question has shown of a field.
    """

    answers: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    texts: dict[tuple[str, str, str], set[str]] = field(default_factory=dict)
    checks: int = 0
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
        if is_moved or is_led(before, event, facts):
            self.answers.clear()
            self._behind.clear()
        for fact in facts:
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
        if not is_for_all(node):
            return
        key = (visit.scope, visit.node)
        self.answers[key] = frozenset(before.visits)
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
                    del self.answers[scope, gate]
                continue
            if visit.node not in _reached(graph, gate):
                continue
            del self.answers[scope, gate]
            path = after.scopes[scope].path
            is_behind = (path, gate) in self._gates(after.spec, path).get(visit.node, frozenset())
            node = graph.nodes[gate]
            assert isinstance(node, InterruptNode)
            if order.address != visit.address or not is_behind or visit.members:
                continue
            for name in fields_of(node):
                if name != node.answer_to:
                    self.checks += 1
                    now, shown = text_of(order.values, name), self.texts[scope, gate, name]
                    assert now in shown, (
                        f"{address} begins with {name} {now!r}, and {gate!r} has shown {shown}"
                    )

    def _gates(self, spec: GraphSpec, path: tuple[str, ...]) -> dict[str, frozenset[Gate]]:
        if path not in self._behind:
            self._behind[path] = behind(graph_at(spec, path), path, is_for_all)
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
