"""The promises, held against random graphs and whatever may happen to a run of them.

At every step the run is also written down, read again and taken on from there: it has to be equal,
and to want the same.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from core_drive import SNAPSHOT, T0, restored
from core_strategies import SECONDS, graphs, limits
from hypothesis import HealthCheck, settings
from hypothesis import Phase as HypothesisPhase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from abeyance.core import events, machine
from abeyance.core.canonical import Json, size
from abeyance.core.effects import DecideRoutes, Effect, Finish, Publish, RunNode, StopNode, Yield
from abeyance.core.ledger import judge, receipt_of
from abeyance.core.model import END, START, FunctionNode, GoTo, GraphSpec, Halt, ResumeRun
from abeyance.core.policy import Principal
from abeyance.core.snapshot import joined, parted
from abeyance.core.state import Limits, Outcome, Phase, RunState, Status
from abeyance.errors import Refusal

TERMINAL = {Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.HALTED}
NOBODY = Principal(subject="nobody")
BOSS = Principal(subject="boss", capabilities=("approve",))
SETTLING = {"interrupt.answered", "interrupt.expired", "interrupt.cancelled"}
PATCHES: st.SearchStrategy[dict[str, Json]] = st.sampled_from(
    [
        *[{"flag": True}, {"flag": False, "count": 1}, {"log": ["x"]}, {}] * 4,
        {"count": "x"},
        {"nope": 1},
    ]
)
VALUES: st.SearchStrategy[dict[str, Json]] = st.sampled_from([{}, {"flag": True}, {"log": []}])
ANSWERS: st.SearchStrategy[Json] = st.sampled_from([None, False, True, ["x"], 7, float("inf")])
RARELY = st.integers(0, 9).map(lambda number: number == 9)
"""Most of what may happen should happen to runs that go on."""
FAULTS = (events.SchemaFault(pointer="", message="is wrong"),)


class Runs(RuleBasedStateMachine):
    """A run, and what a watcher of its effects knows of it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = T0
        self.is_sound = False

    @initialize(spec=graphs(), limits=limits(), values=VALUES)
    def start(self, spec: GraphSpec, limits: Limits, values: dict[str, Json]) -> None:
        self.orders: dict[str, RunNode | DecideRoutes] = {}
        self.stops: set[str] = set()
        self.starts: Counter[str] = Counter()
        self.over: list[str] = []
        self.facts = 0
        self.opened: list[str] = []
        self.settled: list[str] = []
        self.accepted: list[str] = []
        self.delivered: list[str] = []
        self.undelivered: list[str] = []
        self.sent_orders = 0
        self.finishes = 0
        self.state = machine.new_run(
            run_id="r", spec=spec, limits=limits, values=values, now=self.now
        )
        self.feed(events.Started)

    @precondition(lambda self: self.state.finished)
    @rule(spec=graphs(), limits=limits(), values=VALUES)
    def another_run_begins(
        self, spec: GraphSpec, limits: Limits, values: dict[str, Json]
    ) -> None:
        self.start(spec=spec, limits=limits, values=values)

    # One step

    def feed(self, kind: type[events.Event], **fields: Any) -> Refusal | None:
        """Let something happen, here and to a copy that was read from a snapshot."""
        event = kind(now=self.now, **fields)
        before = self.state
        self.is_sound = False
        written = SNAPSHOT.dump_json(before)
        copy = SNAPSHOT.validate_json(written)
        assert copy == before

        after, effects, refusal = _advanced(before, event)
        assert (after, effects, refusal) == _advanced(copy, event)
        assert _checked(before, event) == refusal
        assert SNAPSHOT.dump_json(before) == written
        if refusal is not None:
            assert after is before
        if before.finished:
            assert (after, effects) == (before, ())
        self.state = after
        self._watch(before, event, effects)
        self.is_sound = True
        return refusal

    def _watch(self, before: RunState, event: events.Event, effects: tuple[Effect, ...]) -> None:
        if isinstance(event, events.TaskBegan | events.Restored) and not before.finished:
            self.sent_orders = 0
        ended = None
        if isinstance(event, events.NodeFinished | events.NodeFailed | events.NodeStopped):
            ended = event.visit
            self.orders.pop(ended, None)
            self.stops.discard(ended)
        for effect in effects:
            match effect:
                case RunNode() | DecideRoutes():
                    self._ordered(before, effect)
                case StopNode():
                    # What was due comes first: it may stop the visit whose outcome comes next.
                    assert effect.visit in self.orders or effect.visit == ended
                    self._stopped(effect)
                case Publish():
                    self._told(effect)
                case Yield():
                    assert self.state.yielding
                case Finish():
                    self.finishes += 1

    def _ordered(self, before: RunState, order: RunNode | DecideRoutes) -> None:
        visit = order.visit
        assert visit not in self.orders, "a visit that runs is not started again"
        assert visit not in self.over, "a visit that is over is not started again"
        assert self.state.pause is None, "nothing starts in a paused run"
        self.starts[visit] += 1
        self.orders[visit] = order
        self.sent_orders += 1
        if isinstance(order, RunNode):
            assert order.start == self.starts[visit]
            is_finally = order.node.id in self.state.spec.finally_nodes
            assert (order.outcome is not None) == is_finally
            assert before.ending is None or is_finally, "nothing starts in a run that ends"

    def _stopped(self, stop: StopNode) -> None:
        if stop.abandon:
            self.over.append(stop.visit)
            self.stops.discard(stop.visit)
            self.orders.pop(stop.visit, None)
        elif stop.visit in self.orders:
            self.stops.add(stop.visit)

    def _told(self, fact: Publish) -> None:
        assert fact.number == self.facts + 1
        self.facts = fact.number
        assert fact.time == self.now
        if fact.type == "interrupt.opened":
            self.opened.append(str(fact.data["id"]))
        elif fact.type in SETTLING:
            self.settled.append(str(fact.data["id"]))
        elif fact.type == "message.queued":
            self.accepted.append(str(fact.data["message_id"]))
        elif fact.type == "message.delivered":
            self.delivered.append(str(fact.data["message_id"]))
        elif fact.type == "message.undelivered":
            self.undelivered.append(str(fact.data["message_id"]))

    # What holds after every step

    @invariant()
    def a_terminal_status_is_for_ever(self) -> None:
        assert self.state.finished == (self.state.status in TERMINAL)
        assert self.finishes == self.state.finished

    @invariant()
    def each_interrupt_is_settled_once_and_never_reopened(self) -> None:
        assert len(set(self.opened)) == len(self.opened)
        assert len(set(self.settled)) == len(self.settled)
        assert set(self.settled) <= set(self.opened)
        assert set(self.state.ledger.open) == set(self.opened) - set(self.settled)
        assert len(self.state.ledger.settled) <= self.state.limits.settled_kept

    @invariant()
    def open_interrupts_belong_to_the_visits_that_wait(self) -> None:
        asking = {interrupt.visit for interrupt in self.state.ledger.open.values()}
        assert asking == {visit.address for visit in self.state.in_phase(Phase.WAITING)}

    @invariant()
    def what_runs_was_ordered_and_is_bounded(self) -> None:
        running = {visit.address for visit in self.state.in_phase(Phase.RUNNING)}
        assert running == set(self.orders)
        assert len(running) <= self.state.limits.max_parallel_visits

    @invariant()
    def what_one_task_sends_is_bounded(self) -> None:
        assert self.state.task_bytes <= self.state.limits.task_bytes or self.sent_orders == 1

    @invariant()
    def an_accepted_message_is_queued_delivered_or_reported(self) -> None:
        queued = [message.message_id for message in self.state.mailbox.queue]
        assert len(queued) <= self.state.limits.max_queue_size
        assert sorted(self.accepted) == sorted(queued + self.delivered + self.undelivered)
        reported = [left.message_id for left in self.state.mailbox.undelivered]
        assert reported == self.undelivered
        counters = self.state.counters
        assert (counters.messages_queued, counters.messages_delivered) == (
            len(self.accepted),
            len(self.delivered),
        )

    @invariant()
    def a_loop_is_bounded(self) -> None:
        counts = self.state.root.visit_counts
        assert all(
            count <= self.state.limits.max_visits
            for node, count in counts.items()
            if node not in self.state.spec.finally_nodes
        )

    @invariant()
    def no_run_is_stranded(self) -> None:
        state = self.state
        if state.finished or state.pause is not None:
            return
        assert state.visits, "nothing runs, is ready or waits, so it has to be finished"
        ready = list(state.in_phase(Phase.READY))
        if ready and state.rotation is None and not state.yielding:
            assert len(self.orders) == state.limits.max_parallel_visits
        if state.rotation is not None and not self.orders:
            assert machine.may_rotate(state)
        if state.ending is not None and not all(visit.is_finally for visit in ready):
            raise AssertionError("only finally nodes may still begin")

    # What code does

    @precondition(lambda self: self.orders)
    @rule(data=st.data(), patch=PATCHES, goes=st.booleans(), is_lost=RARELY)
    def code_returns(
        self, data: st.DataObject, patch: dict[str, Json], *, goes: bool, is_lost: bool
    ) -> None:
        visit = data.draw(st.sampled_from(sorted(self.orders)))
        order = self.orders[visit]
        goto = "nowhere" if is_lost else None
        if isinstance(order, RunNode) and order.node.to and goes:
            goto = data.draw(st.sampled_from([*order.node.to, END]))
        targets = self._targets(order)
        routed = tuple(data.draw(st.lists(st.sampled_from(targets), max_size=2))) if targets else None
        self.feed(events.NodeFinished, visit=visit, patch=patch, goto=goto, routed=routed)
        self.over.append(visit)

    @precondition(lambda self: self.orders)
    @rule(data=st.data(), for_good=RARELY)
    def code_fails(self, data: st.DataObject, *, for_good: bool) -> None:
        visit = data.draw(st.sampled_from(sorted(self.orders)))
        node = self.orders[visit].node
        is_caught = isinstance(node, FunctionNode) and isinstance(node.on_error, GoTo)
        if not (is_caught or for_good):
            return
        self.feed(events.NodeFailed, visit=visit, code="node_failed", message="it broke")
        self.over.append(visit)

    @precondition(lambda self: self.stops)
    @rule(data=st.data(), journal=st.sampled_from([None, {"step": 1}, {"step": "x" * 6_000}]))
    def code_stops(self, data: st.DataObject, journal: Json) -> None:
        visit = data.draw(st.sampled_from(sorted(self.stops)))
        self.feed(events.NodeStopped, visit=visit, journal=journal)

    @precondition(lambda self: self.over)
    @rule(data=st.data())
    def an_outcome_comes_late(self, data: st.DataObject) -> None:
        visit = data.draw(st.sampled_from(self.over))
        self.notice_what_is_due()
        before = self.state
        self.feed(events.NodeFinished, visit=visit, patch={"log": ["late"]})
        assert self.state is before

    @precondition(lambda self: not self.state.finished)
    @rule(data=st.data(), most=st.integers(0, 3))
    def code_takes_messages(self, data: st.DataObject, most: int) -> None:
        self.notice_what_is_due()
        visit = data.draw(st.sampled_from([*sorted(self.state.visits), "graph:g;node:never"]))
        queued = [message.message_id for message in self.state.mailbox.queue]
        before = len(self.delivered)
        self.feed(events.MessagesTaken, visit=visit, most=most)
        taken = queued[:most] if visit in self.state.visits else []
        assert taken == self.delivered[before:]

    # What people do

    @precondition(lambda self: self.opened)
    @rule(
        data=st.data(),
        value=ANSWERS,
        principal=st.sampled_from([BOSS, BOSS, NOBODY]),
        faults=st.sampled_from([(), (), (), None, FAULTS]),
        is_stale=st.sampled_from([False, False, False, True]),
        late=st.sampled_from([0.0, 0.0, 5.0, 20.0]),
    )
    def people_answer(
        self,
        data: st.DataObject,
        value: Json,
        principal: Principal,
        faults: tuple[events.SchemaFault, ...] | None,
        late: float,
        *,
        is_stale: bool,
    ) -> None:
        known = [*self.state.ledger.open, *self.opened, "r.unknown"]
        chosen = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
        self.now += timedelta(seconds=late)
        refusal = self.feed(
            events.Responded,
            principal=principal,
            answers=dict.fromkeys(chosen, value),
            schema_faults={} if faults is None else dict.fromkeys(chosen, faults),
            digests=dict.fromkeys(chosen, "sha256:0") if is_stale else {},
        )
        assert refusal is not None or set(chosen) <= set(self.settled)

    @precondition(lambda self: self.state.ledger.open)
    @rule(value=st.sampled_from([None, True, ["x"]]))
    def people_answer_all_that_is_asked(self, value: Json) -> None:
        self.answer_everything(value)

    @precondition(lambda self: self.state.ledger.settled)
    @rule(data=st.data())
    def an_answer_is_repeated(self, data: st.DataObject) -> None:
        self.notice_what_is_due()
        settled = data.draw(st.sampled_from(list(self.state.ledger.settled.values())))
        event = events.Responded(
            now=self.now, principal=BOSS, answers={settled.id: settled.answer}, schema_faults={}
        )
        if settled.status == "answered" and settled.by != "timeout":
            assert judge(self.state.ledger, event) == {
                settled.id: receipt_of(settled, replayed=True)
            }
        before = self.state
        self.feed(
            events.Responded, principal=BOSS, answers={settled.id: settled.answer}, schema_faults={}
        )
        assert self.state.ledger == before.ledger

    @precondition(lambda self: not self.state.finished)
    @rule(
        data=st.data(),
        mode=st.sampled_from(["after-node", "now"]),
        timeout=st.none() | SECONDS,
    )
    def people_pause(self, data: st.DataObject, mode: str, timeout: float | None) -> None:
        nodes = st.sampled_from([*self.state.spec.nodes, END])
        on_timeout = data.draw(
            st.sampled_from([ResumeRun(), Halt()]) | nodes.map(lambda node: GoTo(node=node))
        )
        self.feed(events.Paused, actor="ada", mode=mode, timeout=timeout, on_timeout=on_timeout)

    @precondition(lambda self: self.state.pause)
    @rule()
    def people_resume(self) -> None:
        self.feed(events.Resumed, actor="ada")
        assert self.state.pause is None

    @rule(mode=st.sampled_from(["graceful", "now"]), grace=st.none() | SECONDS, for_good=RARELY)
    def people_cancel(self, mode: str, grace: float | None, *, for_good: bool) -> None:
        if for_good or self.state.ending is not None:
            self.feed(events.CancelRequested, actor="ada", mode=mode, grace=grace)
            assert self.state.ending is not None

    @rule(
        id_=st.sampled_from(["a", "b", "c", "d"]),
        text=st.sampled_from(["hello", "hello", "other"]),
        signalled=st.booleans(),
    )
    def people_write(self, id_: str, text: str, *, signalled: bool) -> None:
        message = events.Message(message_id=id_, text=text, sender="ada")
        was_known = id_ in self.accepted
        refusal = self.feed(events.MessageSent, message=message, signalled=signalled)
        assert not (signalled and refusal)
        if not signalled and refusal is None:
            assert id_ in self.accepted
        assert self.accepted.count(id_) <= 1 or not was_known

    # What time and Temporal do

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

    def notice_what_is_due(self) -> None:
        # Twice: what ends a run without any grace leaves something to notice at once.
        self.feed(events.Ticked)
        self.feed(events.Ticked)
        due = self.state.next_deadline()
        assert due is None or due > self.now

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
        assert not self.orders
        snapshot, spec, values = parted(self.state)
        self.state = joined(restored(snapshot), spec, values)
        self.feed(events.Restored)

    def _targets(self, order: RunNode | DecideRoutes) -> list[str]:
        routes = self.state.spec.routes_from(order.node.id)
        return [target for route in routes for target in route.targets]

    # How every run can be brought to its end

    def answer_everything(self, value: Json) -> None:
        answers = dict.fromkeys(self.state.ledger.open, value)
        refusal = self.feed(
            events.Responded,
            principal=BOSS,
            answers=answers,
            schema_faults=dict.fromkeys(answers, ()),
        )
        assert refusal is None or self.state.next_deadline() <= self.now

    @precondition(lambda self: not self.state.finished)
    @rule()
    def round_off(self) -> None:
        """Everybody does at once what is theirs to do."""
        if machine.may_rotate(self.state):
            self.the_run_is_handed_over()
        if self.state.yielding:
            self.feed(events.TaskBegan)
        for visit, order in list(self.orders.items()):
            if visit in self.stops:
                self.feed(events.NodeStopped, visit=visit)
            elif visit in self.orders:
                routed = tuple(self._targets(order)[:1])
                self.feed(events.NodeFinished, visit=visit, routed=routed)
        if self.state.ledger.open:
            self.answer_everything(True)
        self.feed(events.Resumed, actor="ada")

    def teardown(self) -> None:
        if not self.is_sound:
            return  # A step has failed, and is what should be told.
        self.now += timedelta(days=1)
        self.feed(events.Ticked)
        self.feed(events.Resumed, actor="ada")
        most = 10 + 2 * len(self.state.visits)
        outcome: Outcome | None = None
        if _is_a_loop(self.state.spec):
            self.feed(events.CancelRequested, actor="ada")
        else:
            most += 4 * 2 ** len(self.state.spec.nodes)
        for _ in range(most):
            if self.state.finished:
                break
            self.round_off()
            ending = self.state.ending
            assert outcome is None or (ending is not None and ending.outcome == outcome)
            outcome = ending and ending.outcome
        assert self.state.finished
        self.check_invariants_once_more()

    def check_invariants_once_more(self) -> None:
        assert not self.state.visits
        assert not self.state.ledger.open
        assert not self.state.mailbox.queue
        self.a_terminal_status_is_for_ever()
        self.each_interrupt_is_settled_once_and_never_reopened()
        self.an_accepted_message_is_queued_delivered_or_reported()
        self.feed(events.Ticked)


def _advanced(
    state: RunState, event: events.Event
) -> tuple[RunState, tuple[Effect, ...], Refusal | None]:
    try:
        return (*machine.advance(state, event), None)
    except Refusal as refusal:
        return state, (), refusal


def _checked(state: RunState, event: events.Event) -> Refusal | None:
    try:
        machine.check(state, event)
    except Refusal as refusal:
        return refusal
    return None


def _is_a_loop(spec: GraphSpec) -> bool:
    """Whether a node can be reached from itself."""
    reached = {name: set(spec.successors(name)) for name in spec.nodes}
    for _ in spec.nodes:
        for found in reached.values():
            found.update(*(reached[name] for name in list(found)))
    return any(name in found for name, found in reached.items())


Runs.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    phases=[HypothesisPhase.explicit, HypothesisPhase.generate],
    suppress_health_check=list(HealthCheck),
)
TestRuns = Runs.TestCase
