"""Whose word the values have that run, as somebody knows it who sees what happens to a run.

*No sequence of events of people without a gate's capability makes a node behind that gate start with what
somebody with it has not answered for.* What a gate shows is read from its prompt, as people read it;
who is behind which gate from the graph alone; and who has changed a field since from what happened.

This is told of gates that are nodes, name a capability and show fields, and of the nodes that are
reached by way of them only, or by a join for which they are needed; of a nested graph that begins with a
gate also for what follows the graph. It is not told of

- items of fan-outs, and gates that a node may send to, since their values are the item's own;
- what follows where somebody who may change everything has led the run elsewhere (`goto` of a pause or a
  deadline, `skip`), or where the deadline of code's question has, until the gates
  are answered again;
- a field that several have changed in one step, of whom only some were allowed to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TypeAlias

from core_behind import Gate, behind, capability_of, fields_of, graph_at, named_in

from abeyance.core import events
from abeyance.core.address import Address
from abeyance.core.effects import Effect, Publish, RunNode, VisitInput
from abeyance.core.json import Json, fill
from abeyance.core.ledger import Interrupt
from abeyance.core.outcome import Finished
from abeyance.core.policy import TIMEOUT
from abeyance.core.spec import Ask, FunctionNode, GoTo, InterruptNode, SubgraphNode
from abeyance.core.state import RunState
from abeyance.core.visit import Visit

SEPARATOR = "|"
"""Between the fields in a prompt, so that each can be read from it."""

Text: TypeAlias = frozenset[str] | None
Texts: TypeAlias = dict[str, Text]
"""What is approved of each field, as texts; None: nobody can tell."""


def text_of(values: Mapping[str, Json], name: str) -> str:
    """What a prompt shows of a field."""
    return fill(f"{{{name}}}", values)


@dataclass(frozen=True)
class Writer:
    """Code, or a person by an answer, that may have changed these fields in a step (None: any), after it
    was told something under these capabilities; with `person` somebody who may change everything.
    """

    node: str
    told: frozenset[str | None] = frozenset()
    fields: frozenset[str] | None = None
    person: bool = False


@dataclass
class Standing:
    """What is approved, so far: of which values of a scope, by the answer of which gate."""

    approved: dict[tuple[str, Gate], Texts] = field(default_factory=dict)
    begun: set[Gate] = field(default_factory=set)
    told: dict[str, set[str | None]] = field(default_factory=dict)
    reopened: set[str] = field(default_factory=set)
    asked_by: dict[tuple[str, Gate], str] = field(default_factory=dict)
    around: dict[tuple[str, str], set[str | None]] = field(default_factory=dict)
    is_led: bool = False
    checks: int = 0
    _known: dict[tuple[str, ...], dict[str, frozenset[Gate]]] = field(default_factory=dict)

    def saw(
        self,
        before: RunState,
        event: events.Event,
        after: RunState,
        effects: tuple[Effect, ...],
    ) -> None:
        """One step of the run; AssertionError if something began in it that nobody has approved."""
        facts = [effect for effect in effects if isinstance(effect, Publish)]
        # What is stopped in the event that orders it, with the graph around it, does not begin.
        started = [each.input for each in effects if isinstance(each, RunNode)]
        orders = [each for each in started if each.kind == "visit" and each.address in after.visits]
        if is_led(before, event, facts):
            self.is_led = True
            self.approved.clear()
        self.reopened |= {str(each.address) for each in facts if each.type == "interrupt.reopened"}
        for fact in facts:
            self._hears(before, event, fact)
        was = {key: dict(texts) for key, texts in self.approved.items()}
        visits = {**before.visits, **after.visits}
        beginning = {gate for order in orders for gate in self._gates(after, visits[order.address])}
        self._follows(before, event, after, facts, beginning)
        self._goes_out_and_in(before, event, after)
        for order in orders:
            self._begins(after, visits[order.address], order, was)
        self.begun |= beginning

    # What was said

    def _hears(self, before: RunState, event: events.Event, fact: Publish) -> None:
        if fact.type == "interrupt.answered":
            self._hears_an_answer(before, before.ledger.open[str(fact.data["id"])], fact.actor)
        elif fact.type == "message.delivered":
            sent = [event.message] if isinstance(event, events.MessageSent) else []
            sent += before.mailbox.queue
            message = next(each for each in sent if each.message_id == fact.data["message_id"])
            # Who may change the course of this run may also talk its code into it.
            if not {"runs:control", *named_in(asdict(before.spec))} <= {*message.capabilities}:
                self._tell(before, str(fact.address), None)

    def _hears_an_answer(self, before: RunState, entry: Interrupt, by: str | None) -> None:
        visit = before.visits[entry.visit]
        if by != TIMEOUT and entry.kind not in {"static", "error"}:
            self._tell(before, visit.address, entry.requested_capability)
        gate = (before.scopes[visit.scope].path, visit.node)
        node = before.node_of(visit)
        if entry.kind == "rule":
            self._is_asked_by_a_rule(visit)
        if isinstance(node, InterruptNode) and entry.kind == "question" and not visit.members:
            names = fields_of(node)
            if names and entry.requested_capability is not None:
                texts = entry.prompt.split(SEPARATOR)
                shown = {name: frozenset({t}) for name, t in zip(names, texts, strict=True)}
                self._approve((visit.scope, gate), shown, visit.address)

    def _is_asked_by_a_rule(self, visit: Visit) -> None:
        """What is asked again behind a nested graph is the rule's question, in place of its gates."""
        for key, by in self.asked_by.items():
            if by in self.reopened and Address.parse(by).segments[-1].id == visit.node:
                self.approved[key] = dict.fromkeys(self.approved.get(key, {}))

    def _approve(self, key: tuple[str, Gate], shown: Mapping[str, Text], by: str) -> None:
        known = self.approved.get(key)
        if known is None or self.asked_by[key] in self.reopened:
            self.approved[key] = dict(shown)
            self.begun.discard(key[1])
        else:
            # Asked twice, or in a loop: what follows may be behind either answer.
            self.approved[key] = _either(known, shown)
        self.asked_by[key] = by

    def _tell(self, state: RunState, visit: str, capability: str | None) -> None:
        self.told.setdefault(visit, set()).add(capability)
        for scope in state.scopes.values():
            if scope.visit is not None and visit.startswith(f"{scope.address};"):
                self.told.setdefault(scope.visit, set()).add(capability)

    # What was changed

    def _follows(
        self,
        before: RunState,
        event: events.Event,
        after: RunState,
        facts: list[Publish],
        beginning: set[Gate],
    ) -> None:
        waiting: list[Visit] = []
        for visit in before.visits.values():
            writer = self._writer(before, event, after, visit)
            if writer is None and visit.address in after.visits:
                waiting.append(visit)
            for member in visit.members[-1:]:
                if writer is not None and writer.fields != frozenset():
                    self.told.setdefault(member.fan, set()).update(writer.told)

        def beside(gate: Gate) -> bool:
            """Whether a branch waits that began with what the gate showed, and may go on with it."""
            return any(gate in self._gates(before, visit) for visit in waiting)

        for address, scope in after.scopes.items():
            if address not in before.scopes or scope.values == before.scopes[address].values:
                continue
            writers = list(self._writers(before, event, after, facts, address))
            for name in {*scope.values}:
                old = before.scopes[address].values
                if text_of(old, name) != text_of(scope.values, name):
                    self._is_around(before, address, name, writers)
            for (held, gate), texts in self.approved.items():
                for name, text in texts.items() if held == address else ():
                    then = text_of(before.scopes[address].values, name)
                    now = text_of(scope.values, name)
                    if then == now or text is None:
                        continue
                    wrote = [w for w in writers if w.fields is None or name in w.fields]
                    found = {self._may(after, address, writer, gate, beginning) for writer in wrote}
                    if found == {True}:
                        # What was approved stays so beside what another branch makes of it.
                        is_own = all(self._is_behind(after, address, w, gate) for w in wrote)
                        is_over = len(text) == 1 and is_own and not beside(gate)
                        rest = text - {then} if is_over else text
                        texts[name] = rest | {now} if then in text else text
                    elif found != {False}:
                        texts[name] = None

    def _is_around(self, state: RunState, scope: str, name: str, writers: list[Writer]) -> None:
        """A field has changed around the nested graphs that are walked now."""
        for each in state.scopes.values():
            # Of a graph that is being left the visit goes first.
            around = None if each.visit is None else state.visits.get(each.visit)
            if around is not None and around.scope == scope:
                said = self.around.setdefault((each.address, name), set())
                for writer in writers:
                    if writer.fields is None or name in writer.fields:
                        said |= writer.told

    def _may(
        self, state: RunState, scope: str, writer: Writer, gate: Gate, beginning: set[Gate]
    ) -> bool | None:
        """Whether what somebody changed stands approved; None if nobody can tell."""
        if any(name != capability_of(state.spec, gate) for name in writer.told):
            return False
        is_behind = self._is_behind(state, scope, writer, gate)
        if gate in self.begun or (is_behind and not writer.person):
            return True
        return None if gate in beginning else False

    def _is_behind(self, state: RunState, scope: str, writer: Writer, gate: Gate) -> bool:
        path = state.scopes[scope].path
        return (path, writer.node) == gate or gate in self._behind(state, path, writer.node)

    def _writers(
        self,
        before: RunState,
        event: events.Event,
        after: RunState,
        facts: list[Publish],
        scope: str,
    ) -> Iterator[Writer]:
        """Everybody who may have changed the values of a scope in a step."""
        for fact in facts:
            if fact.type == "run.values_edited":
                yield Writer(node="", fields=frozenset(fact.data["fields"]), person=True)
        for visit in before.visits.values():
            writer = self._writer(before, event, after, visit)
            if writer is not None and visit.scope == scope and not visit.members:
                yield writer
        for key, fan in before.scopes[scope].fans.items():
            if key not in after.scopes[scope].fans and not fan.outer:
                node = Address.parse(key).segments[-1].id
                yield Writer(node=node, told=frozenset(self.told.get(key, ())))

    def _writer(
        self, before: RunState, event: events.Event, after: RunState, visit: Visit
    ) -> Writer | None:
        """A visit as what may have changed values in a step, if it may have."""
        told = frozenset(self.told.get(visit.address, ()))
        match event:
            case events.VisitEnded(visit=visit.address, outcome=Finished(patch=changes)):
                if visit.routing is None and visit.pending is None:
                    return Writer(node=visit.node, told=told, fields=frozenset(changes))
                return None
            case _:
                pass
        later = after.visits.get(visit.address)
        is_over = later is None or (later.routing, later.pending) != (
            visit.routing,
            visit.pending,
        )
        if not is_over:
            return None
        match before.node_of(visit):
            case _ if visit.routing is not None:
                rules = before.graph_of(visit.scope).rules_on(visit.node)
                acts = [act for rule in rules for act in rule.actions]
                names = {act.answer_to for act in acts if isinstance(act, Ask) and act.answer_to}
                return Writer(node=visit.node, told=told, fields=frozenset(names))
            case InterruptNode(answer_to=name):
                names = set() if name is None else {name}
                return Writer(node=visit.node, told=told, fields=frozenset(names))
            case SubgraphNode():
                return Writer(node=visit.node, told=told)
            case _:
                return None

    # Where it goes

    def _goes_out_and_in(self, before: RunState, event: events.Event, after: RunState) -> None:
        for address, scope in before.scopes.items():
            if address in after.scopes or scope.visit is None:
                continue
            visit = before.visits[scope.visit]
            unknown: set[str] = set()
            for inner in before.visits.values():
                if inner.scope == address:
                    writer = self._writer(before, event, after, inner)
                    if writer is not None:
                        # A graph in it, which is left in the same step, may have changed any field.
                        unknown |= {*scope.values} if writer.fields is None else writer.fields
            around = after.scopes.get(visit.scope)
            for held, gate in [key for key in self.approved if key[0] == address]:
                texts = self.approved.pop((held, gate))
                shown = {name: None if name in unknown else text for name, text in texts.items()}
                inside = len(gate[0]) > len(before.scopes[visit.scope].path)
                known = self.approved.get((visit.scope, gate))
                if not inside and known is not None:
                    # What code in the graph made of a field may be what others have made of it around.
                    if self.asked_by[visit.scope, gate] == self.asked_by[held, gate]:
                        self.approved[visit.scope, gate] = _either(known, shown)
                elif inside and not visit.members and around is not None:
                    is_begun = gate in self.begun
                    own = capability_of(before.spec, gate)
                    for name, text in shown.items() if is_begun else ():
                        said = self.around.get((address, name), set())
                        if text is not None and not said - {own}:
                            # Others may change it since then, and back to what was shown.
                            shown[name] = text | {text_of(around.values, name)}
                    self._approve((visit.scope, gate), shown, visit.address)
                    if is_begun:
                        self.begun.add(gate)
        for address, scope in after.scopes.items():
            # Where the run has ended in the same step the scope is there, and its visit is not.
            if address not in before.scopes and str(scope.visit) in after.visits:
                outer = after.visits[str(scope.visit)].scope
                for (held, gate), texts in list(self.approved.items()):
                    if held == outer:
                        self.approved[address, gate] = dict(texts)
                        self.asked_by[address, gate] = self.asked_by[held, gate]

    def _begins(
        self,
        state: RunState,
        visit: Visit,
        order: VisitInput,
        was: Mapping[tuple[str, Gate], Texts],
    ) -> None:
        if visit.members or visit.is_finally:
            return
        for gate in self._gates(state, visit):
            key = visit.scope, gate
            if key not in self.approved:
                assert self.is_led, "nothing begins behind a gate that was not answered"
                continue
            for name, text in self.approved[key].items():
                then = was.get(key, {}).get(name, text)
                if text is None or then is None:
                    continue
                self.checks += 1
                now = text_of(order.values, name)
                assert now in text | then, (
                    f"{visit.address} begins with {name} {now!r}, and at {gate} was approved {text}"
                )

    def _gates(self, state: RunState, visit: Visit) -> frozenset[Gate]:
        return self._behind(state, state.scopes[visit.scope].path, visit.node)

    def _behind(self, state: RunState, path: tuple[str, ...], node: str) -> frozenset[Gate]:
        """Every gate that a node at the end of a path lies behind."""
        found = frozenset[Gate]()
        for depth, name in enumerate((*path, node)):
            if (around := path[:depth]) not in self._known:
                self._known[around] = behind(graph_at(state.spec, around), around)
            found |= self._known[around].get(name, frozenset())
        return found


def _either(known: Texts, shown: Mapping[str, Text]) -> Texts:
    """What is approved where it may be either of two."""
    return {
        name: None if text is None or (old := known[name]) is None else old | text
        for name, text in shown.items()
    }


def is_led(before: RunState, event: events.Event, facts: list[Publish]) -> bool:
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
