"""A run of a random graph, and the events that code and time cause; people's events are elsewhere.

At every step a copy of the run is read from a snapshot and takes the same step: state and effects must
be equal.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from core_drive import SNAPSHOT, T0, restored, written
from core_shown import Shown
from core_strategies import ITEMS, JOURNALS, PATCHES, RARELY, SECONDS, asked_by
from core_watch import Watch, senders
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from abeyance.core import events, machine
from abeyance.core.effects import Effect
from abeyance.core.json import Json
from abeyance.core.messages import for_visit
from abeyance.core.outcome import (
    AttemptFailed,
    Failed,
    Finished,
    Interrupted,
    Send,
    Stopped,
    VisitOutcome,
)
from abeyance.core.policy import Principal
from abeyance.core.spec import END, Fail, FunctionNode, GraphSpec, InterruptNode, SubgraphNode
from abeyance.core.state import Limits, RunState, copied, joined, parted
from abeyance.core.visit import Running
from abeyance.errors import Refusal

EVERYTHING = ("runs:control", "approve", "audit")
"""The capabilities that a person needs to change the course of any of these runs."""
BOSS = Principal(subject="boss", capabilities=EVERYTHING)
"""A person who may do everything."""
DEPUTY = Principal(subject="deputy", capabilities=EVERYTHING)
NOBODY = Principal(subject="nobody")
PEOPLE = [
    BOSS,
    *(
        Principal(subject=" ".join(names) or "nobody", capabilities=names)
        for names in [
            (),
            ("runs:control",),
            ("approve",),
            ("audit",),
            ("runs:control", "approve"),
            ("runs:control", "audit"),
            ("approve", "audit"),
        ]
    ),
]
"""One person with all capabilities, and one for each smaller set of them."""
_ENOUGH = 200
"""Steps after which a run that still asks again and again may be given up."""


class Watched(RuleBasedStateMachine):
    """A run, its clock, and the watchers that check it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = T0
        self.is_sound = False

    def begin(self, spec: GraphSpec, limits: Limits, values: dict[str, Json]) -> None:
        self.watch = Watch()
        self.shown = Shown()
        self.state = machine.new_run(
            run_id="r", spec=spec, limits=limits, values=values, now=self.now
        )
        self.feed(events.Started)

    # One step

    def feed(self, kind: type[events.Event], **fields: Any) -> Refusal | None:
        """Feed an event to the run and to a copy that was read from a snapshot."""
        event = kind(now=self.now, **fields)
        before = self.state
        self.is_sound = False
        as_json = written(before)
        copy = SNAPSHOT.validate_json(as_json)
        assert copy == before

        after, effects, refusal = advanced(before, event)
        assert (after, effects, refusal) == advanced(copy, event)
        assert checked(before, event) == refusal
        assert written(before) == as_json
        assert after is before or refusal is None
        noted = replace(before, mailbox=after.mailbox, events_published=after.events_published)
        assert not before.finished or after == replace(noted, ending=after.ending)
        self.watch.saw(before, event, after, effects)
        self.shown.saw(before, event, after, effects)
        self.state = after
        self.is_sound = True
        return refusal

    def end(self, kind: type[VisitOutcome], *, visit: str, **fields: Any) -> None:
        """End the code of a visit with this outcome."""
        self.feed(events.VisitEnded, visit=visit, outcome=kind(**fields))

    @invariant()
    def every_promise_is_kept(self) -> None:
        self.watch.check(self.state)

    # Events of code

    @precondition(lambda self: self.watch.orders)
    @rule(
        data=st.data(),
        patch=PATCHES,
        goes=st.booleans(),
        is_lost=RARELY,
        messages_read=st.sampled_from([None, None, 0, 1]),
        journal=JOURNALS,
    )
    def code_returns(
        self,
        data: st.DataObject,
        patch: dict[str, Json],
        *,
        goes: bool,
        is_lost: bool,
        messages_read: int | None,
        journal: Json,
    ) -> None:
        order = self.watch.orders[data.draw(st.sampled_from(sorted(self.watch.orders)))]
        goto = "nowhere" if is_lost else None
        node = self.watch.node_of(order)
        if order.kind == "visit" and isinstance(node, FunctionNode) and node.to and goes:
            goto = data.draw(st.sampled_from([*node.to, END]))
        routed: tuple[str, ...] = ()
        if targets := targets_of(self.watch.graph_of(order), order.node):
            routed = tuple(data.draw(st.lists(st.sampled_from(targets), max_size=2)))
        self.end(
            Finished,
            visit=order.address,
            patch=patch,
            goto=goto,
            route_targets=routed,
            messages_read=messages_read,
            journal=journal,
        )

    @precondition(lambda self: bool(senders(self.watch)))
    @rule(data=st.data(), patch=PATCHES, is_lost=RARELY)
    def code_fans_out(self, data: st.DataObject, patch: dict[str, Json], *, is_lost: bool) -> None:
        visit, nodes = data.draw(st.sampled_from(senders(self.watch)))
        targets = [*nodes, END] if is_lost else nodes
        sends = st.builds(Send, node=st.sampled_from(targets), item=ITEMS)
        count = data.draw(st.sampled_from([3, 2, 1, 0]))
        items = tuple(data.draw(st.lists(sends, min_size=count, max_size=count)))
        self.end(Finished, visit=visit, patch=patch, sends=items)

    @precondition(lambda self: any(each.kind == "visit" for each in self.watch.orders.values()))
    @rule(data=st.data(), journal=JOURNALS, composite=st.booleans(), again=RARELY)
    def code_asks(
        self, data: st.DataObject, journal: Json, *, composite: bool, again: bool
    ) -> None:
        orders = [each for each in self.watch.orders.values() if each.kind == "visit"]
        order = data.draw(st.sampled_from(orders))
        asked = data.draw(asked_by(self.watch.graph_of(order)))
        self.end(
            Interrupted,
            visit=order.address,
            interrupts=tuple(each for each in asked if again or each.key not in order.own_answers),
            journal=journal,
            user_state=[1],
            composite=composite,
        )

    @precondition(lambda self: self.watch.orders)
    @rule(data=st.data(), for_good=RARELY)
    def code_fails(self, data: st.DataObject, *, for_good: bool) -> None:
        order = self.watch.orders[data.draw(st.sampled_from(sorted(self.watch.orders)))]
        node = self.watch.node_of(order)
        is_caught = not isinstance(node, InterruptNode) and not isinstance(node.on_error, Fail)
        if is_caught or for_good:
            self.end(Failed, visit=order.address, code="node_failed", message="it broke")

    @precondition(lambda self: self.watch.stops)
    @rule(data=st.data(), journal=JOURNALS)
    def code_stops(self, data: st.DataObject, journal: Json) -> None:
        visit = data.draw(st.sampled_from(sorted(self.watch.stops)))
        self.end(Stopped, visit=visit, journal=journal)

    @precondition(lambda self: self.watch.orders)
    @rule(data=st.data(), journal=JOURNALS, pause=st.sampled_from([1.0, 90.0]))
    def code_is_to_be_tried_again(
        self, data: st.DataObject, journal: Json, *, pause: float
    ) -> None:
        visit = data.draw(st.sampled_from(sorted(self.watch.orders)))
        before = self.watch.orders[visit].attempts
        attempts = before.with_failed(pause)
        self.end(
            AttemptFailed,
            visit=visit,
            message="it broke",
            journal=journal,
            attempts=attempts,
            pause=pause,
        )

    @precondition(lambda self: not self.state.finished)
    @rule(data=st.data(), most=st.integers(0, 3))
    def code_takes_messages(self, data: st.DataObject, most: int) -> None:
        self.notice_what_is_due()
        visit = data.draw(st.sampled_from([*sorted(self.state.visits), "graph:g;node:never"]))
        before = len(self.watch.delivered)
        taken: list[str] = []
        upto = most
        if (found := self.state.visits.get(visit)) is not None and isinstance(found.state, Running):
            upto += len(found.inbox.taken)
            taken = [message.message_id for message in for_visit(self.state, found)][:most]
        self.feed(events.MessagesTaken, visit=visit, upto=upto)
        assert taken == self.watch.delivered[before:][: len(taken)]

    # Events of time and of Temporal

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.notice_what_is_due()

    @precondition(lambda self: self.state.next_deadline())
    @rule()
    def the_next_deadline_comes(self) -> None:
        due = self.state.next_deadline()
        assert due is not None
        self.now = max(self.now, due)
        self.notice_what_is_due()

    @precondition(lambda self: self.state.task_bytes)
    @rule()
    def a_task_begins(self) -> None:
        self.feed(events.TaskBegan)

    @precondition(lambda self: self.state.rotation != "hard" and not self.state.finished)
    @rule(hard=st.booleans())
    def the_history_grows(self, *, hard: bool) -> None:
        self.feed(events.RotationDue, hard=hard)

    @precondition(lambda self: machine.may_rotate(self.state))
    @rule()
    def the_run_is_handed_over(self) -> None:
        snapshot, spec, values = parted(self.state)
        self.state = joined(restored(snapshot), spec, values)
        self.feed(events.Restored)

    def notice_what_is_due(self) -> None:
        # Twice: the end of a run without grace makes another deadline due at once.
        self.feed(events.Ticked)
        self.feed(events.Ticked)
        due = self.state.next_deadline()
        assert due is None or due > self.now

    # How every run ends

    @precondition(lambda self: not self.state.finished)
    @rule()
    def everybody_does_their_part(self) -> None:
        if machine.may_rotate(self.state):
            self.the_run_is_handed_over()
        if (due := self.state.next_attempt()) is not None:
            self.now = max(self.now, due)
            self.feed(events.Ticked)
        if self.state.yielding:
            self.feed(events.TaskBegan)
        sending = dict(senders(self.watch))
        for visit, order in list(self.watch.orders.items()):
            if visit in self.watch.stops:
                self.end(Stopped, visit=visit)
            elif visit in self.watch.orders and visit in sending:
                each = Send(node=sending[visit][0])
                self.end(Finished, visit=visit, sends=(each, each))
            elif visit in self.watch.orders:
                routed = tuple(targets_of(self.watch.graph_of(order), order.node)[:1])
                self.end(Finished, visit=visit, route_targets=routed)
        if self.held:
            self.now = max(filter(None, (self.now, self.state.next_deadline())))
            self.feed(events.Ticked)
        if self.state.ledger.open:
            self.people_answer_all_that_is_asked(True)
        self.feed(events.Resumed, actor="ada")

    @precondition(lambda self: self.state.ledger.open)
    @rule(value=st.sampled_from([None, True, ["x"]]))
    def people_answer_all_that_is_asked(self, value: Json) -> None:
        self.notice_what_is_due()
        others = {"static": None, "error": {"action": "fail"}}
        for who in (BOSS, DEPUTY):
            answers = {
                id_: others.get(entry.kind, value)
                for id_, entry in self.state.ledger.open.items()
                if entry.status == "open" and (who == BOSS or entry.quorum is not None)
            }
            refusal = self.feed(
                events.Responded,
                principal=who,
                answers=answers,
                schema_faults=dict.fromkeys(answers, ()),
            )
            assert refusal is None

    @precondition(lambda self: self.held)
    @rule(data=st.data(), principal=st.sampled_from([BOSS, DEPUTY, NOBODY]))
    def somebody_takes_an_answer_back(self, data: st.DataObject, principal: Principal) -> None:
        self.notice_what_is_due()
        if self.held:
            id_ = data.draw(st.sampled_from(self.held))
            if self.feed(events.TakenBack, principal=principal, interrupt_id=id_) is None:
                again = self.state.ledger.open[id_]
                assert (again.status, again.held_until) == ("open", None)
                assert principal.subject not in {vote.by for vote in again.votes}

    @property
    def held(self) -> list[str]:
        """The ids of the questions whose held answer can be taken back."""
        return [id_ for id_, entry in self.state.ledger.open.items() if entry.status == "held"]

    def teardown(self) -> None:
        if not self.is_sound:
            return  # A step has failed, and pytest should report that failure.
        self.now += timedelta(days=1)
        self.feed(events.Ticked)
        if has_a_loop(self.state.spec):
            self.feed(events.CancelRequested, actor="ada")
        self.let_everybody_do_their_part()
        if not self.state.finished:
            # In a nested graph or an item, code may each time change a value that a gate around it has
            # shown. The gate is asked again, which discards the change, and so on without an end.
            assert self.shown.has_reopened
            self.feed(events.CancelRequested, actor="ada")
            self.let_everybody_do_their_part()
        assert self.state.finished

    def let_everybody_do_their_part(self) -> None:
        for step in range(most_steps(self.state)):
            if self.state.finished or (step > _ENOUGH and self.shown.has_reopened):
                break
            self.everybody_does_their_part()
            self.every_promise_is_kept()


def targets_of(graph: GraphSpec, node: str) -> list[str]:
    """Return the targets of a node's routes."""
    return [target for route in graph.routes_from(node) for target in route.targets]


def most_steps(state: RunState) -> int:
    """Return within how many steps a run without loops ends, if everybody does their part."""
    nested = [node.graph for node in state.spec.nodes.values() if isinstance(node, SubgraphNode)]
    nodes = len(state.spec.nodes) + sum(len(graph.nodes) for graph in nested)
    most: int = 8 * 2**nodes + 8 * len(state.visits)
    return most


def has_a_loop(spec: GraphSpec) -> bool:
    """Return whether any node can be reached from itself."""
    reached = {name: set(spec.successors(name)) for name in spec.nodes}
    for _ in spec.nodes:
        for found in reached.values():
            found.update(*(reached[name] for name in list(found)))
    inner = [node.graph for node in spec.nodes.values() if isinstance(node, SubgraphNode)]
    return any(name in found for name, found in reached.items()) or any(map(has_a_loop, inner))


def advanced(
    state: RunState, event: events.Event
) -> tuple[RunState, tuple[Effect, ...], Refusal | None]:
    """Return a copy of the run after an event and its effects, or the same run and the refusal."""
    after = copied(state)
    try:
        return after, machine.advance(after, event), None
    except Refusal as refusal:
        assert after == state, "a refusal changes nothing"
        return state, (), refusal


def checked(state: RunState, event: events.Event) -> Refusal | None:
    """Return the refusal of an event, or None."""
    try:
        machine.check(state, event)
    except Refusal as refusal:
        return refusal
    return None
