"""Migrate and retry of random runs, at any moment: nothing is done twice, and nothing is lost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from core_drive import ROOT, restored
from core_people import Peopled
from core_renamed import moved, renamed
from core_runs import targets_of
from core_strategies import MODES, VALUES, graphs, limits
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from abeyance.core import events, machine
from abeyance.core.effects import RunNode
from abeyance.core.json import Json
from abeyance.core.outcome import Finished, Stopped
from abeyance.core.run_retry import retried
from abeyance.core.spec import GraphSpec
from abeyance.core.state import Limits, RunState, Status, copied
from abeyance.core.visit import Running
from abeyance.errors import Refusal

FAILED = {Status.FAILED, Status.HALTED, Status.CANCELLED}
MOST_ROUNDS = 8
"""Who may do everything, whatever the pattern of a capability."""

HOUR = 3_600.0


class Snapshots(Peopled):
    """A run of any graph that is moved, tried again and copied beside everything else."""

    @initialize(spec=graphs(), limits=limits(), values=VALUES)
    def a_run_begins(self, spec: GraphSpec, limits: Limits, values: dict[str, Json]) -> None:
        self.begin(spec, limits, values)

    @precondition(lambda self: self.state.ending is None)
    @rule(mode=MODES)
    def people_cancel(self, mode: str) -> None:
        self.feed(events.CancelRequested, actor="ada", mode=mode)

    def feed(self, kind: type[events.Event], **fields: Any) -> Refusal | None:
        before = self.state if hasattr(self, "state") else None
        if kind is events.Started:
            self.done: set[str] = set()
        refusal = super().feed(kind, **fields)
        visit = fields.get("visit")
        if (
            isinstance(fields.get("outcome"), Finished)
            and before is not None
            and isinstance(visit, str)
            and (ran := before.visits.get(visit)) is not None
            and isinstance(ran.state, Running)
            and self.state.root.version > before.root.version
        ):
            # Its changes are merged, so it has not failed.
            self.done.add(visit)
        return refusal

    @precondition(lambda self: self.state.ending is None)
    @rule()
    def every_node_is_renamed_there_and_back(self) -> None:
        state = self.at_rest()
        spec, names = renamed(state.spec, "_x")
        there = moved(state, spec, names)
        assert restored(there) == there
        moves = {new: old for old, new in names.items()}
        assert moved(there, state.spec, moves) == state
        assert {*there.ledger.open} == {*state.ledger.open}
        # The same happens under other names.
        resumed = events.Resumed(now=self.now, actor="root")
        self.play(there, resumed, {f"{visit}_x" for visit in self.done})

    def at_rest(self) -> RunState:
        """The run, once it is paused and its code has let itself be stopped."""
        paused = events.Paused(now=self.now, actor="root", mode="now", timeout=HOUR)
        state = copied(self.state)
        machine.advance(state, paused)
        for visit, _running in state.running():
            stopped = events.VisitEnded(now=self.now, visit=visit.address, outcome=Stopped())
            machine.advance(state, stopped)
        assert state.is_at_rest or state.ending is not None
        return state

    @precondition(lambda self: self.state.finished and self.state.status in FAILED)
    @rule(hours=st.integers(0, 30))
    def the_run_is_tried_again(self, hours: int) -> None:
        now = self.now + timedelta(hours=hours)
        again = retried(
            self.state, now=now, principal=ROOT, versions=("v1", "v1"), patch={}, renames={}
        )
        ending = self.state.ending
        assert ending is not None
        assert ending.before is not None
        assert restored(again) == again
        assert again.status is not self.state.status
        assert again.mailbox == self.state.mailbox
        assert again.keys == self.state.keys
        for id_, entry in ending.before.ledger.open.items():
            asked = again.ledger.open[id_]
            assert asked.digest == entry.digest
            if entry.deadline is not None:
                assert asked.deadline is not None
                assert asked.deadline > now
                assert asked.deadline - now <= entry.deadline - entry.created_at
        self.play(again, events.Restored(now=now), self.done)

    def play(self, state: RunState, first: events.Event, done: set[str]) -> None:
        """Let everybody do their part in a copy, in which what is `done` may not be done again."""
        now = first.now
        orders: dict[str, Any] = {}
        effects = machine.advance(state, first)
        for _ in range(MOST_ROUNDS):
            for effect in effects:
                if isinstance(effect, RunNode):
                    order = effect.input
                    assert order.kind == "routes" or order.address not in done
                    orders[order.address] = order
            if state.finished:
                return
            if state.yielding:
                effects = machine.advance(state, events.TaskBegan(now=now))
            elif orders:
                address, order = orders.popitem()
                routed: tuple[str, ...] = ()
                if order is not None:
                    graph = state.spec
                    for name in order.path:
                        graph = getattr(graph.nodes.get(name), "graph", graph)
                    routed = tuple(targets_of(graph, order.node)[:1])
                ended = events.VisitEnded(
                    now=now, visit=address, outcome=Finished(route_targets=routed)
                )
                effects = machine.advance(state, ended)
            elif claims := [
                entry.claim.until
                for entry in state.ledger.open.values()
                if entry.claim is not None and now < entry.claim.until
            ]:
                # Somebody else keeps the question for as long.
                now = max(claims)
                effects = machine.advance(state, events.Ticked(now=now))
            elif any(entry.status == "held" for entry in state.ledger.open.values()):
                now = max(filter(None, (now, state.next_deadline())))
                effects = machine.advance(state, events.Ticked(now=now))
            else:
                others: dict[str, Any] = {"static": None, "error": {"action": "fail"}}
                answers = {
                    id_: others.get(entry.kind, True) for id_, entry in state.ledger.open.items()
                }
                faults: dict[str, Any] = dict.fromkeys(answers, ())
                answered = events.Responded(
                    now=now, principal=ROOT, answers=answers, schema_faults=faults
                )
                effects = machine.advance(state, answered)
        assert restored(state) == state


Snapshots.TestCase.settings = settings(
    # Twenty, and eighty in the profile `wide`.
    max_examples=settings().max_examples // 5,
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
)
TestSnapshots = Snapshots.TestCase
