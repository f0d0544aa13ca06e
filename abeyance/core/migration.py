"""Moving a run to another version of its graph.

Everything in a run that belongs to a node has to have its place in the new graph: a node of the same
kind, under the same name or the one that `renames` gives it. Anything without a place is an obstacle. If
there are obstacles, all are reported at once and nothing is moved. Addresses are rewritten wherever they
occur; ids, prompts, schemas and digests of questions stay as people have seen them.

A run moves only at rest (`RunState.is_at_rest`): code that runs reports under the names of its graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from abeyance.core import asking, branches, items, lifecycle, messages, policy, visits
from abeyance.core.events import Message, Migrated
from abeyance.core.json import Json
from abeyance.core.ledger import Interrupt, InterruptTable, Ledger
from abeyance.core.outcome import Finished, VisitOutcome
from abeyance.core.renaming import Path, Places
from abeyance.core.spec import Ask, GraphSpec
from abeyance.core.state import Resumption, RunState, Scope, ScopeTable
from abeyance.core.step import Step
from abeyance.core.visit import Gate, GateTable, Ready, Running, Unroutable, Visit, VisitTable
from abeyance.errors import Code, Refusal

CODE_UNDER_WAY: Final = "code"
"""The name of an obstacle that disappears once the run is at rest."""


def refuse(
    state: RunState, spec: GraphSpec, *, changes: Mapping[str, Json], renames: Mapping[str, str]
) -> None:
    """Refuse to move a run to another graph if anything has no place there.

    Raises `cannot_migrate`, with all obstacles, and `read_only_field` for a patch of what only the start
    sets, in either graph.
    """
    for graph in (state.spec, spec):
        items.refuse_fixed(graph, state.root.values, changes, "/patch")
    places = Places(state, spec, renames)
    move = _Move(state, places)
    move.check_patch(changes)
    move.run()
    if not places.obstacles:
        return
    listed = [f"the {each['what']} {each['name']!r}: {each['why']}" for each in places.obstacles]
    raise Refusal(
        Code.CANNOT_MIGRATE,
        f"The run cannot move to version {spec.version} of {state.spec.name!r}. Nothing has changed. "
        f"Obstacles: {'; '.join(listed)}.",
        obstacles=places.obstacles,
    )


def under_way(state: RunState) -> list[dict[str, Json]]:
    """Return the code that keeps a run from coming to rest, as obstacles to its migration."""
    return [
        {
            "what": CODE_UNDER_WAY,
            "name": ".".join((*state.scopes[visit.scope].path, visit.node)),
            "why": "it is under way"
            if visit.blocked is None
            else "it is blocked, and will be tried again",
            "remedy": "migrate with `pause`",
            "address": visit.address,
        }
        for visit in state.visits_in(Running)
    ]


def refuse_while_code_runs(state: RunState) -> None:
    """Refuse to move a run that is not at rest. Raises `cannot_migrate`."""
    if not state.is_at_rest:
        found = under_way(state)
        nodes = ", ".join(sorted({repr(each["name"]) for each in found}))
        raise Refusal(
            Code.CANNOT_MIGRATE,
            f"The run cannot be migrated while its code is under way ({nodes}). Nothing has changed. "
            "Migrate it with `pause`: the run is then paused until that code has ended, migrated, and "
            "resumed.",
            obstacles=found,
        )


def refuse_event(state: RunState, event: Migrated) -> None:
    """Refuse a migration, or a dry run of it, if the principal may not do it, code runs, or there are
    obstacles.
    """
    if event.dry_run:
        doing, why = "try a migration of the run", "It reads the run."
        policy.demand_only(event.principal, policy.READ, doing=doing, why=why)
    else:
        policy.demand(state, event.principal, "migrate the run")
        refuse_while_code_runs(state)
    refuse(state, event.spec, changes=event.patch, renames=event.renames)


def migrated(step: Step, event: Migrated) -> None:
    """Move an open run to another graph, and publish that. `refuse` has found no obstacle."""
    if event.spec == step.run.spec and not event.patch:
        return
    migrate(step, event.spec, changes=event.patch, renames=event.renames)
    step.run.last_activity_at = event.now
    step.publish(
        "run.migrated",
        step.run.root.address,
        event.principal.subject,
        from_version=event.versions[0],
        to_version=event.versions[1],
        renames=dict(event.renames),
        fields=sorted(event.patch),
    )


def migrate(
    step: Step,
    spec: GraphSpec,
    *,
    changes: Mapping[str, Json],
    renames: Mapping[str, str],
) -> None:
    """Move a run to another graph, and set fields of its values. `refuse` has found no obstacle."""
    if changes:
        # In the graph that has declared the questions which show these fields.
        asking.set_values(step, changes)
    if spec != step.run.spec:
        step.adopt(_Move(step.run, Places(step.run, spec, renames)).run())
    for visit in step.run.visits_in(Unroutable):
        _go_on(step, visit)
    if changes:
        branches.ask_changed_gates_again(step)


def _go_on(step: Step, visit: Visit) -> None:
    """Let a visit go to the node that it chose, if the run's graph has it now."""
    assert visit.routing is not None  # noqa: S101 its code has ended
    if not visits.unknown_targets(
        step.run.graph_of(visit.scope), visit.node, visit.routing.outcome
    ):
        lifecycle.unblock(step, visit)
        step.move(visit, "migrate", Ready(stage="rules"))


class _Move:
    """A run, put together in another graph."""

    def __init__(self, state: RunState, to: Places) -> None:
        self._state = state
        self._to = to

    def run(self) -> RunState:
        state, to = self._state, self._to
        old = {*state.spec.guarded_by, *state.earlier_guards}
        pause, resumption = state.pause, state.resumption
        return replace(
            state,
            spec=to.new,
            earlier_guards=tuple(sorted(old - {*to.new.guarded_by})),
            visits=VisitTable({to.address(k): self._visit(v) for k, v in state.visits.items()}),
            scopes=ScopeTable({to.address(k): self._scope(s) for k, s in state.scopes.items()}),
            ledger=Ledger(
                open=InterruptTable({k: self._open(e) for k, e in state.ledger.open.items()}),
                settled={
                    key: replace(entry, address=to.address(entry.address))
                    for key, entry in state.ledger.settled.items()
                },
            ),
            gates=GateTable({key: self._gate(gate) for key, gate in state.gates.items()}),
            mailbox=state.mailbox.with_targets(self._message),
            pause=None if pause is None else self._to.row(pause, (), state.root.address),
            transcripts={to.address(key): head for key, head in state.transcripts.items()},
            agent_memory=dict(self._memory(*each) for each in state.agent_memory.items()),
            resumption=None if resumption is None else self._resumption(resumption),
        )

    def _visit(self, visit: Visit) -> Visit:
        path = self._to.path(visit.scope)
        moved = self._to.row(visit, path, visit.address, (*path, visit.node))
        # Other services know the requests of its code by that name.
        first = visit.first_address or (visit.address if visit.activations else None)
        moved.first_address = None if first == moved.address else first
        return moved

    def _scope(self, scope: Scope) -> Scope:
        path, address = scope.path, scope.address
        graph = self._to.graphs[path][1]
        if graph is not None:
            self._to.fields(graph, scope.values, address)
        moved = self._to.row(scope, path, address)
        moved.path = tuple(self._to.names[path[:depth]] for depth in range(1, len(path) + 1))
        return moved

    def _gate(self, gate: Gate) -> Gate:
        path = self._to.path(gate.scope)
        return self._to.row(gate, path, gate.visit, (*path, gate.node))

    def _open(self, entry: Interrupt) -> Interrupt:
        path = self._to.path(entry.scope)
        node = (*path, self._state.visits[entry.visit].node)
        if entry.kind == "rule":
            self._check_rule(entry, node)
        moved = self._to.row(entry, path, entry.address, node)
        if entry.kind != "question":
            return moved
        return replace(moved, name=self._to.question(node, entry.name))

    def _check_rule(self, entry: Interrupt, node: Path) -> None:
        """Find the obstacle to a question whose rule the other graph does not have."""
        graph, name = self._to.graphs[node[:-1]][1], self._to.names[node]
        if graph is None or any(
            isinstance(act, Ask) and act.question.name == entry.name
            for rule in graph.rules_on(name)
            for act in rule.actions
        ):
            return
        why = f"no rule of the other graph asks {entry.name!r} after {name!r}"
        remedy = "keep the rule, or wait for the answer"
        self._to.obstacle("question", entry.name, why, remedy=remedy, address=entry.address)

    def _resumption(self, resumption: Resumption) -> Resumption:
        outcomes = {
            self._to.address(address): self._outcome(self._state.visits[address], outcome)
            for address, outcome in resumption.outcomes.items()
            # A patch may have left it.
            if address in self._state.visits
        }
        return replace(resumption, outcomes=outcomes)

    def _outcome(self, visit: Visit, outcome: VisitOutcome) -> VisitOutcome:
        """Return the outcome of code that ran when the run ended. Its author did not know the new graph,
        so a target that the new graph lacks is not their fault.
        """
        if not isinstance(outcome, Finished):
            return outcome
        path = self._to.path(visit.scope)
        known = self._to.graphs[path][0].targets_of(visit.node)
        targets = (self._to.names.get((*path, name), name) for name in known)
        moved = self._to.row(outcome, path, visit.address)
        return replace(moved, unpinned=(*moved.unpinned, *targets))

    def _memory(self, key: str, memory: Mapping[str, Json]) -> tuple[str, Mapping[str, Json]]:
        scope, _, node = key.rpartition("/")
        name = self._to.node((*self._to.path(scope), node), "agent memory", scope)
        return f"{self._to.address(scope)}/{name}", memory

    def _message(self, message: Message) -> Message:
        if message.target is None:
            return message
        is_address = ";" in message.target or message.target == self._state.root.address
        target = (
            self._to.address(message.target) if is_address else self._to.targets.get(message.target)
        )
        moved = replace(message, target=target or message.target)
        try:
            messages.refuse_unknown_target(self._to.new, moved)
        except Refusal as refusal:
            remedy = "clear the messages of the run, or give the new name of the node in `map`"
            self._to.obstacle("message", message.message_id, refusal.message, remedy=remedy)
        return moved

    def check_patch(self, changes: Mapping[str, Json]) -> None:
        """Find the obstacles to setting fields of the run's values."""
        for name, why in items.misfits(self._to.new, changes).items():
            self._to.obstacle("patch", name, f"it {why}", remedy="correct the patch")
