"""What was shown is what runs.

A gate is an answered question of an interrupt node, of a rule or of code. (The documentation calls only
those a gate that are restricted or have a capability.) Two rules hold for each:

1. Before the first code that the answer led to begins, the values that the question showed are compared
   with those at the answer. If one differs, whoever changed it, the question is asked again
   (`branches`). Once that code has begun, the answer is used up.
2. After a person has changed the course of the run (`policy`), every answer that is not used up is
   compared in the same way, and at once if it led to an open question. A *restricted* answer, to a
   question with `quorum`, `not_by` or `assignees_only`, is compared again even if it is used up.

What agents, other branches and other answers change after the code has begun is the author's business. A
tool call has no gate: its arguments travel with it.

`RunState.gates` has one row for each gate. The visits, tokens and fan-outs that an answer led to have the
gate's id. A join has the gates of all its tokens; nested graphs and items begin with those of their
visit. When they are over, the gates inside them are gates of that visit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from abeyance.core import items
from abeyance.core.address import Address
from abeyance.core.json import Json, look_up, paths, sha256
from abeyance.core.ledger import Interrupt
from abeyance.core.spec import GraphSpec, InterruptSpec
from abeyance.core.state import FanOut, RunState, Scope
from abeyance.core.step import Step
from abeyance.core.terms import KINDS, is_restricted
from abeyance.core.visit import IN_SCOPE, FanOutBranch, Gate, Running, TakenToken, Token, Visit

_ABSENT: Final = "absent"


def shown_by(question: InterruptSpec, values: Mapping[str, Json]) -> dict[str, str]:
    """Return hashes of the values that a question shows, by their paths."""
    shown_paths = {*paths([question.prompt, question.reason, question.payload])}
    return {path: _hash_at(values, path) for path in sorted(shown_paths)}


def add(step: Step, visit: Visit, interrupt: Interrupt, *, answer_to: str | None) -> None:
    """Add the gate of a visit's answered question. `answer_to` is the field that gets the answer."""
    if KINDS[interrupt.kind].asked_by != "author" or visit.call is not None:
        return
    capability = interrupt.requested_capability or None
    if capability is None and is_restricted(interrupt.terms):
        # No capability, and yet not everybody could have answered, or not alone.
        capability = ""
    if capability is None and answer_to is None and not interrupt.fields:
        return
    gate = Gate(
        question=interrupt.id,
        visit=visit.address,
        scope=visit.scope,
        node=visit.node,
        key=interrupt.key,
        capability=capability,
        is_restricted=is_restricted(interrupt.terms),
        members=visit.members,
        shown=interrupt.fields,
        answer_to=answer_to,
        routing=visit.routing,
    )
    visit.gates = _put(step, visit.gates, [gate])


def _put(step: Step, before: tuple[str, ...], gates: Iterable[Gate]) -> tuple[str, ...]:
    """Store gates behind those `before`, and return all ids. A gate replaces that of an earlier round."""
    for gate in gates:
        known = step.run.gates
        before = tuple(
            each for each in before if each in known and _place(known[each]) != _place(gate)
        )
        step.run.gates[gate.question] = replace(gate, before=before)
        before = (*before, gate.question)
    return before


def _place(gate: Gate) -> tuple[str, str, str]:
    return gate.scope, gate.node, gate.key


def of_visit(state: RunState, visit: Visit) -> Iterator[Gate]:
    """Yield the gates whose answers led to a visit, the oldest first."""
    yield from (state.gates[each] for each in visit.gates if each in state.gates)


def is_guarded(state: RunState, visit: Visit) -> bool:
    """Return whether a visit is behind an answer that not everybody could have given."""
    return any(gate.capability is not None for gate in of_visit(state, visit))


def are_unchanged(state: RunState, visit: Visit) -> bool:
    """Return whether the values that a visit's approvals showed are the same now."""
    approved = (gate for gate in of_visit(state, visit) if gate.capability is not None)
    return not any(_differs(state, visit, gate) for gate in approved)


def first_changed(state: RunState, visit: Visit) -> Gate | None:
    """Return the first gate that has to be asked again before a visit's code may run, or None."""
    for gate in of_visit(state, visit):
        if not gate.begun and _differs(state, visit, gate):
            return gate
    return None


def answered(state: RunState, visit: Visit) -> Mapping[str, Gate]:
    """Return the gates whose unused answers have filled fields that a visit reads, by field.

    Left out are fields with a reducer: it would add a new answer to the old one, not replace it.
    """
    found = {}
    for gate in of_visit(state, visit):
        if gate.begun or gate.answer_to is None:
            continue
        declared = state.graph_of(gate.scope).fields.get(gate.answer_to)
        if declared is None or declared.reducer == "last":
            (_, names) = _views(state, visit, replace(gate, shown={gate.answer_to: ""}))[-1]
            found.update(dict.fromkeys(names, gate))
    return found


def _differs(state: RunState, visit: Visit, gate: Gate) -> bool:
    return any(
        _hash_at(items.values_of(state, unit), path) != hash_
        for unit, shown in _views(state, visit, gate)
        for path, hash_ in shown.items()
    )


def _views(state: RunState, visit: Visit, gate: Gate) -> list[tuple[Visit, Mapping[str, str]]]:
    """Return for each scope, from a gate's to a visit's, the visit that is in it, and what the gate has
    shown, under the names of that scope.
    """
    scope = state.scopes[visit.scope]
    if scope.address == gate.scope or scope.visit is None:
        return [(visit, gate.shown)]
    around = _views(state, state.visits[scope.visit], gate)
    shown = {
        _renamed(path, inner): hash_
        for path, hash_ in around[-1][1].items()
        for inner, outer in scope.handed.items()
        if outer == _field_of(path)
    }
    return [*around, (visit, shown)]


def begin(step: Step, visit: Visit) -> None:
    """Use up the answers that led to a visit, whose code begins."""
    for gate in of_visit(step.run, visit):
        step.run.gates[gate.question] = replace(gate, begun=gate.begun + 1)


def undo_begin(step: Step, visit: Visit) -> None:
    """Undo `begin`: the code of a visit did not run."""
    for gate in of_visit(step.run, visit):
        step.run.gates[gate.question] = replace(gate, begun=max(0, gate.begun - 1))


def accept_own_patch(
    step: Step, visit: Visit, before: Mapping[str, Json], key: str | None = None
) -> None:
    """Accept what a visit's own patch, with its answers, has changed of the values `before`: its gates
    compare with the values of now. With a `key`, only the gate of that question does.
    """
    after = items.values_of(step.run, visit)
    for gate in of_visit(step.run, visit):
        if gate.visit == visit.address and key in (None, gate.key):
            now = {
                path: _hash_at(after, path) if _hash_at(before, path) == hash_ else hash_
                for path, hash_ in gate.shown.items()
            }
            step.run.gates[gate.question] = replace(gate, shown=now)


def use_up(step: Step, visit: Visit, running: Running) -> None:
    """Use up a visit's own answers with which its code went on, unless they are restricted: what they
    showed is not compared any more.
    """
    own = (gate for gate in of_visit(step.run, visit) if gate.visit == visit.address)
    restricted = {gate.key for gate in own if gate.is_restricted}
    if used := {*running.answered_keys} & {*visit.questions.shown_at} - restricted:
        visit.questions = visit.questions.used_up(used)


def withdraw(step: Step, visit: Visit, keys: Collection[str] | None = None) -> None:
    """Remove the gates of a visit's own questions, with these keys if there are any."""
    for gate in list(of_visit(step.run, visit)):
        if gate.visit == visit.address and (keys is None or gate.key in keys):
            del step.run.gates[gate.question]


def edited(step: Step, scope: str, fields: Collection[str]) -> None:
    """Compare restricted answers again even if they are used up: those that showed a field which a person
    has edited.
    """
    for gate in step.run.gates.found(IN_SCOPE, scope):
        if gate.is_restricted and any(_field_of(path) in fields for path in gate.shown):
            has_led = gate.has_led or gate.begun > 0
            step.run.gates[gate.question] = replace(gate, begun=0, has_led=has_led)


def joined(step: Step, scope: str, edge: str, tokens: Mapping[str, Token]) -> tuple[str, ...]:
    """Return the gates of the visit that tokens, by their sources, begin together. Each gate remembers
    the tokens that it has not led to.
    """
    ids = tuple(dict.fromkeys(id_ for token in tokens.values() for id_ in token.gates))
    for gate in [step.run.gates[id_] for id_ in ids if id_ in step.run.gates]:
        others = tuple(
            TakenToken(edge=edge, source=source, token=token)
            for source, token in tokens.items()
            if gate.question not in token.gates
        )
        if others and gate.scope == scope:
            step.run.gates[gate.question] = replace(gate, taken=(*gate.taken, *others))
    return ids


def changed_inside(
    state: RunState, scope: str, fan: str | None = None, arrived: Collection[int] = ()
) -> Gate | None:
    """Return the first gate inside a nested graph, or inside the `arrived` items of a fan-out, that has
    to be asked again before these are over; None if there is none.
    """
    for gate in _inside(state, scope, fan):
        if gate.begun or (fan is not None and gate.members[-1].index not in arrived):
            continue
        values = items.values_at(state, scope, gate.members)
        if any(_hash_at(values, path) != hash_ for path, hash_ in gate.shown.items()):
            return gate
    return None


def _inside(state: RunState, scope: str, fan: str | None) -> Iterable[Gate]:
    """Return the latest gate of each question in a nested graph, or in each item of a fan-out."""
    latest = {
        (_place(gate), gate.members): gate
        for gate in state.gates.found(IN_SCOPE, scope)
        if (gate.members[-1].fan if gate.members else None) == fan
    }
    return latest.values()


def handed_out(
    step: Step,
    graph: GraphSpec,
    scope: Scope,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
) -> None:
    """Move the gates inside a nested graph that is over to its visit. What they showed is compared with
    the values that went into the graph and came out of it.
    """
    visit = step.run.visits[str(scope.visit)]
    if visit.call is not None:
        return

    def outside(gate: Gate) -> Gate:
        shown = {}
        for path in gate.shown:
            name = _field_of(path)
            if name in inputs:
                shown[_renamed(path, inputs[name])] = _hash_at(scope.input, path)
            for target in (target for target, source in outputs.items() if source == name):
                declared = graph.fields.get(target)
                if declared is None or declared.reducer == "last":
                    shown[_renamed(path, target)] = _hash_at(scope.values, path)
        written = (target for target, source in outputs.items() if source == gate.answer_to)
        outer = replace(gate, answer_to=next(written, None))
        return _outside(outer, visit.address, visit.scope, visit.members, shown)

    visit.gates = _put(step, visit.gates, [*map(outside, _inside(step.run, scope.address, None))])


def gathered(
    step: Step, scope: str, address: str, fan: FanOut, arrived: Collection[int]
) -> tuple[str, ...]:
    """Return the gates behind a fan-out that is over: those before it, and those inside the `arrived`
    items, whose values are merged. Equal questions of several items are one gate.
    """
    values = items.values_at(step.run, scope, fan.outer)
    together: dict[tuple[str, str | None], Gate] = {}
    for gate in list(_inside(step.run, scope, address)):
        del step.run.gates[gate.question]
        if gate.members[-1].index not in arrived:
            continue
        shown = {path: _hash_at(values, path) for path in gate.shown}
        own = _outside(gate, address, scope, fan.outer, shown)
        other = together.get((own.key, own.capability), own)
        together[own.key, own.capability] = replace(
            other,
            shown={**other.shown, **own.shown},
            begun=min(other.begun, own.begun),
            is_restricted=other.is_restricted or own.is_restricted,
        )
    return _put(step, fan.gates, together.values())


def out_of_items(step: Step, visit: Visit, members: tuple[FanOutBranch, ...]) -> None:
    """Move the gates inside the items that a visit leaves to the visits that sent the items. From now on
    the visit is only within `members`.
    """
    depth = len(members)
    for gate in list(of_visit(step.run, visit)):
        if gate.scope == visit.scope and len(gate.members) > depth:
            sender = gate.members[depth].fan
            left = _outside(gate, sender, gate.scope, members, gate.shown)
            step.run.gates[gate.question] = left


def _outside(
    gate: Gate,
    visit: str,
    scope: str,
    members: tuple[FanOutBranch, ...],
    shown: Mapping[str, str],
) -> Gate:
    return replace(
        gate,
        visit=visit,
        scope=scope,
        node=Address.parse(visit).segments[-1].id,
        key=f"{gate.node}/{gate.key}",
        members=members,
        shown=shown,
        routing=None,
        taken=(),
    )


def forget_unused(step: Step) -> None:
    """Remove gates that nothing under way is behind, except the latest gate of each question."""
    state = step.run
    used = {id_ for visit in state.visits.values() for id_ in visit.gates}
    for scope in state.scopes.values():
        used.update(id_ for fan in scope.fans.values() for id_ in fan.gates)
        queues = [queue for come in scope.tokens.values() for queue in come.values()]
        used.update(id_ for queue in queues for token in queue for id_ in token.gates)
    used.update({(*_place(g), g.members): g.question for g in state.gates.values()}.values())
    for id_ in [id_ for id_ in state.gates if id_ not in used]:
        del step.run.gates[id_]


def _field_of(path: str) -> str:
    return path.partition(".")[0]


def _renamed(path: str, field: str) -> str:
    return ".".join([field, *path.split(".")[1:]])


def _hash_at(values: Mapping[str, Json], path: str) -> str:
    """Return the hash of the value at a path, or a mark if there is no value."""
    value = look_up(values, path, _ABSENT)
    return _ABSENT if value is _ABSENT else sha256(value)
