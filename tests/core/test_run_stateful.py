"""The promises, held against random graphs and whatever may happen to a run of them.

At every step the run is also written down, read again and taken on from there: it has to be equal,
and to want the same.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from core_drive import SNAPSHOT, T0, restored
from core_standing import EVERYTHING, Standing
from core_strategies import (
    ANSWERS,
    GOOD_PATCHES,
    ITEMS,
    JOURNALS,
    MODES,
    PATCHES,
    RARELY,
    SECONDS,
    VALUES,
    asked_by,
    fitting,
    gated_graphs,
    graphs,
    limits,
)
from core_watch import Watch, senders
from core_ways import advanced, checked, has_a_loop, most_steps, targets_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from abeyance.core import events, machine
from abeyance.core.canonical import Json
from abeyance.core.effects import RunNode
from abeyance.core.ledger import judge, receipt_of
from abeyance.core.messages import DIRECTIVES, for_visit
from abeyance.core.model import (
    END,
    Ask,
    Fail,
    FunctionNode,
    GoTo,
    GraphSpec,
    Halt,
    InterruptNode,
    ResumeRun,
    SubgraphNode,
)
from abeyance.core.policy import TIMEOUT, Principal
from abeyance.core.snapshot import joined, parted
from abeyance.core.state import Limits, Phase
from abeyance.errors import Refusal

NOBODY = Principal(subject="nobody")
BOSS = Principal(subject="boss", capabilities=EVERYTHING)
PEOPLE = [
    NOBODY,
    BOSS,
    *(
        Principal(subject=" ".join(names), capabilities=names)
        for names in [
            ("runs:control",),
            ("approve",),
            ("audit",),
            ("runs:control", "approve"),
            ("runs:control", "audit"),
            ("approve", "audit"),
        ]
    ),
]
"""Everybody who has some of what it takes, and who has all of it."""
COURSE = {"update_state", "rerun", "go_back", "skip"}
FAULTS = (events.SchemaFault(pointer="", message="is wrong"),)


def guards_of(spec: GraphSpec) -> set[str]:
    """Every capability that a graph can ask for."""
    acts = [act for each in spec.rules for act in each.actions]
    questions = [act.question for act in acts if isinstance(act, Ask)]
    found: set[str] = set()
    for node in spec.nodes.values():
        match node:
            case InterruptNode(question=question):
                questions.append(question)
            case SubgraphNode(graph=inner):
                found |= guards_of(inner)
            case FunctionNode(asks=asks):
                found |= {*asks}
    return found | {each.requested_capability for each in questions if each.requested_capability}


class Runs(RuleBasedStateMachine):
    """A run, its clock, and somebody who watches it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = T0
        self.is_sound = False

    @initialize(spec=graphs() | gated_graphs(), limits=limits(), values=VALUES)
    def a_run_begins(self, spec: GraphSpec, limits: Limits, values: dict[str, Json]) -> None:
        self.watch = Watch()
        self.standing = Standing()
        self.state = machine.new_run(
            run_id="r", spec=spec, limits=limits, values=values, now=self.now
        )
        self.feed(events.Started)

    @precondition(lambda self: self.state.finished)
    @rule(spec=graphs() | gated_graphs(), limits=limits(), values=VALUES)
    def another_run_begins(self, spec: GraphSpec, limits: Limits, values: dict[str, Json]) -> None:
        self.a_run_begins(spec=spec, limits=limits, values=values)

    # One step

    def feed(self, kind: type[events.Event], **fields: Any) -> Refusal | None:
        """Let something happen, here and to a copy that was read from a snapshot."""
        event = kind(now=self.now, **fields)
        before = self.state
        self.is_sound = False
        written = SNAPSHOT.dump_json(before)
        copy = SNAPSHOT.validate_json(written)
        assert copy == before

        after, effects, refusal = advanced(before, event)
        assert (after, effects, refusal) == advanced(copy, event)
        assert checked(before, event) == refusal
        assert SNAPSHOT.dump_json(before) == written
        assert after is before or refusal is None
        noted = replace(before, mailbox=after.mailbox, facts=after.facts)
        assert not before.finished or after == noted
        self.watch.saw(before, event, after, effects)
        self.standing.saw(before, event, after, effects)
        self.state = after
        self.is_sound = True
        return refusal

    @invariant()
    def every_promise_is_kept(self) -> None:
        self.watch.check(self.state)

    # What code does

    @precondition(lambda self: self.watch.orders)
    @rule(data=st.data(), patch=PATCHES, goes=st.booleans(), is_lost=RARELY)
    def code_returns(
        self, data: st.DataObject, patch: dict[str, Json], *, goes: bool, is_lost: bool
    ) -> None:
        order = self.watch.orders[data.draw(st.sampled_from(sorted(self.watch.orders)))]
        goto = "nowhere" if is_lost else None
        if isinstance(order, RunNode) and order.node.to and goes:
            goto = data.draw(st.sampled_from([*order.node.to, END]))
        routed = None
        if targets := targets_of(order):
            routed = tuple(data.draw(st.lists(st.sampled_from(targets), max_size=2)))
        self.feed(events.NodeFinished, visit=order.visit, patch=patch, goto=goto, routed=routed)

    @precondition(lambda self: bool(senders(self.watch)))
    @rule(data=st.data(), patch=PATCHES, is_lost=RARELY)
    def code_fans_out(self, data: st.DataObject, patch: dict[str, Json], *, is_lost: bool) -> None:
        visit, nodes = data.draw(st.sampled_from(senders(self.watch)))
        targets = [*nodes, END] if is_lost else nodes
        sends = st.builds(events.Send, node=st.sampled_from(targets), item=ITEMS)
        count = data.draw(st.sampled_from([3, 2, 1, 0]))
        items = tuple(data.draw(st.lists(sends, min_size=count, max_size=count)))
        self.feed(events.NodeFinished, visit=visit, patch=patch, sends=items)

    @precondition(lambda self: any(isinstance(o, RunNode) for o in self.watch.orders.values()))
    @rule(data=st.data(), journal=JOURNALS, composite=st.booleans(), again=RARELY)
    def code_asks(
        self, data: st.DataObject, journal: Json, *, composite: bool, again: bool
    ) -> None:
        orders = [each for each in self.watch.orders.values() if isinstance(each, RunNode)]
        order = data.draw(st.sampled_from(orders))
        asked = data.draw(asked_by(order.graph))
        self.feed(
            events.NodeInterrupted,
            visit=order.visit,
            asked=tuple(each for each in asked if again or each.key not in order.own),
            journal=journal,
            saved=[1],
            composite=composite,
        )

    @precondition(lambda self: self.watch.orders)
    @rule(data=st.data(), for_good=RARELY)
    def code_fails(self, data: st.DataObject, *, for_good: bool) -> None:
        order = self.watch.orders[data.draw(st.sampled_from(sorted(self.watch.orders)))]
        is_caught = not isinstance(order.node, InterruptNode) and not isinstance(
            order.node.on_error, Fail
        )
        if is_caught or for_good:
            self.feed(events.NodeFailed, visit=order.visit, code="node_failed", message="it broke")

    @precondition(lambda self: self.watch.stops)
    @rule(data=st.data(), journal=JOURNALS)
    def code_stops(self, data: st.DataObject, journal: Json) -> None:
        visit = data.draw(st.sampled_from(sorted(self.watch.stops)))
        self.feed(events.NodeStopped, visit=visit, journal=journal)

    @precondition(lambda self: self.watch.over)
    @rule(data=st.data())
    def an_outcome_comes_late(self, data: st.DataObject) -> None:
        visit = data.draw(st.sampled_from(self.watch.over))
        self.notice_what_is_due()
        before = self.state
        self.feed(events.NodeFinished, visit=visit, patch={"log": ["late"]})
        assert self.state is before

    @precondition(lambda self: not self.state.finished)
    @rule(data=st.data(), most=st.integers(0, 3))
    def code_takes_messages(self, data: st.DataObject, most: int) -> None:
        self.notice_what_is_due()
        visit = data.draw(st.sampled_from([*sorted(self.state.visits), "graph:g;node:never"]))
        before = len(self.watch.delivered)
        taken: list[str] = []
        upto = most
        if (found := self.state.visits.get(visit)) is not None and found.phase is Phase.RUNNING:
            upto += len(found.taken)
            taken = [message.message_id for message in for_visit(self.state, found)][:most]
        self.feed(events.MessagesTaken, visit=visit, upto=upto)
        assert taken == self.watch.delivered[before:][: len(taken)]

    # What people do

    @precondition(lambda self: self.watch.opened)
    @rule(
        data=st.data(),
        value=ANSWERS,
        principal=st.sampled_from([BOSS, *PEOPLE]),
        faults=st.sampled_from([(), (), (), None, FAULTS]),
        is_stale=RARELY,
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
        known = [*self.state.ledger.open, *self.watch.opened, "r.unknown"]
        chosen = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
        self.now += timedelta(seconds=late)
        refusal = self.feed(
            events.Responded,
            principal=principal,
            answers={id_: fitting(self.state, data, id_, value) for id_ in chosen},
            schema_faults={} if faults is None else dict.fromkeys(chosen, faults),
            digests=dict.fromkeys(chosen, "sha256:0") if is_stale else {},
        )
        assert refusal is not None or set(chosen) <= set(self.watch.settled)

    @precondition(lambda self: self.state.ledger.open)
    @rule(data=st.data(), value=ANSWERS, principal=st.sampled_from([BOSS, *PEOPLE]))
    def somebody_answers(self, data: st.DataObject, value: Json, principal: Principal) -> None:
        self.notice_what_is_due()
        known = self.state.ledger.open
        if known:
            id_ = data.draw(st.sampled_from(list(known)))
            capability = known[id_].requested_capability
            refusal = self.feed(
                events.Responded,
                principal=principal,
                answers={id_: fitting(self.state, data, id_, value)},
                schema_faults={id_: ()},
            )
            if capability is not None and capability not in principal.capabilities:
                assert refusal is not None
                assert refusal.code == "capability_required"

    @precondition(lambda self: self.state.ledger.open)
    @rule(value=st.sampled_from([None, True, ["x"]]))
    def people_answer_all_that_is_asked(self, value: Json) -> None:
        self.notice_what_is_due()
        others = {"static": None, "error": {"action": "fail"}}
        answers = {
            id_: others.get(entry.kind, value) for id_, entry in self.state.ledger.open.items()
        }
        refusal = self.feed(
            events.Responded,
            principal=BOSS,
            answers=answers,
            schema_faults=dict.fromkeys(answers, ()),
        )
        assert refusal is None

    @precondition(lambda self: self.state.ledger.settled)
    @rule(data=st.data())
    def an_answer_is_repeated(self, data: st.DataObject) -> None:
        self.notice_what_is_due()
        settled = data.draw(st.sampled_from(list(self.state.ledger.settled.values())))
        again: dict[str, Any] = {
            "principal": BOSS,
            "answers": {settled.id: settled.answer},
            "schema_faults": {},
        }
        before = self.state
        refusal = self.feed(events.Responded, **again)
        assert self.state is before
        is_first = settled.status == "answered" and settled.by != TIMEOUT
        assert is_first == (refusal is None)
        if is_first:
            receipts = judge(before.ledger, events.Responded(now=self.now, **again))
            assert receipts == {settled.id: receipt_of(settled, replayed=True)}

    @precondition(lambda self: not self.state.finished)
    @rule(
        data=st.data(),
        mode=st.sampled_from(["after-node", "now"]),
        timeout=st.none() | SECONDS,
        principal=st.sampled_from(PEOPLE),
    )
    def people_pause(
        self, data: st.DataObject, mode: str, timeout: float | None, principal: Principal
    ) -> None:
        nodes = st.sampled_from([*self.state.spec.nodes, END])
        on_timeout = data.draw(
            st.sampled_from([ResumeRun(), Halt()]) | nodes.map(lambda node: GoTo(node=node))
        )
        self.notice_what_is_due()
        refusal = self.feed(
            events.Paused,
            actor=principal.subject,
            capabilities=principal.capabilities,
            mode=mode,
            timeout=timeout,
            on_timeout=on_timeout,
        )
        if isinstance(on_timeout, GoTo):
            self.only_who_may(principal, refusal)

    @precondition(lambda self: self.state.pause)
    @rule()
    def people_resume(self) -> None:
        self.feed(events.Resumed, actor="ada")
        assert self.state.pause is None

    @rule(mode=MODES, grace=st.none() | SECONDS, for_good=RARELY)
    def people_cancel(self, mode: str, grace: float | None, *, for_good: bool) -> None:
        if for_good or self.state.ending is not None:
            self.feed(events.CancelRequested, actor="ada", mode=mode, grace=grace)
            assert self.state.ending is not None

    @rule(
        id_=st.sampled_from(["a", "b", "c", "d"]),
        text=st.sampled_from(["hello", "hello", "other"]),
        signalled=st.booleans(),
        principal=st.sampled_from([NOBODY, BOSS]),
    )
    def people_write(self, id_: str, text: str, principal: Principal, *, signalled: bool) -> None:
        message = events.Message(
            message_id=id_,
            text=text,
            sender=principal.subject,
            capabilities=principal.capabilities,
        )
        refusal = self.feed(events.MessageSent, message=message, signalled=signalled)
        assert refusal is None or not signalled
        assert signalled or refusal is not None or id_ in self.watch.accepted
        assert self.watch.accepted.count(id_) <= 1

    @rule(
        action=st.sampled_from(sorted(DIRECTIVES)),
        steps=st.sampled_from([1, 1, 2, 0]),
        for_=st.sampled_from([None, None, "graph:g", "a"]),
        principal=st.sampled_from([BOSS, *PEOPLE]),
    )
    def people_direct(
        self, action: str, steps: int, for_: str | None, principal: Principal
    ) -> None:
        message = events.Message(
            message_id=f"{action} {for_} {steps} {principal.subject}",
            text="again",
            sender=principal.subject,
            capabilities=principal.capabilities,
            action=action,
            target=for_,
            params={"steps": steps, "patch": {"flag": True}},
        )
        self.notice_what_is_due()
        refusal = self.feed(events.MessageSent, message=message)
        if action in COURSE:
            self.only_who_may(principal, refusal)

    @rule(principal=st.sampled_from([BOSS, *PEOPLE]), patch=st.sampled_from(GOOD_PATCHES))
    def people_edit(self, principal: Principal, patch: dict[str, Json]) -> None:
        self.notice_what_is_due()
        version = self.state.root.version
        refusal = self.feed(events.ValuesEdited, principal=principal, patch=patch, version=version)
        self.only_who_may(principal, refusal)

    @precondition(lambda self: self.state.ledger.open)
    @rule(
        data=st.data(),
        principal=st.sampled_from([BOSS, *PEOPLE]),
        on_timeout=st.sampled_from([None, Halt(), GoTo(node=END)]),
        is_rare=RARELY,
    )
    def people_move_a_deadline(
        self, data: st.DataObject, principal: Principal, on_timeout: Any, *, is_rare: bool
    ) -> None:
        self.notice_what_is_due()
        if self.state.ledger.open and (is_rare or principal != BOSS):
            refusal = self.feed(
                events.DeadlineEdited,
                principal=principal,
                interrupt_id=data.draw(st.sampled_from(list(self.state.ledger.open))),
                moves=True,
                deadline=self.now + timedelta(seconds=5),
                on_timeout=on_timeout,
            )
            self.only_who_may(principal, refusal)

    def only_who_may(self, principal: Principal, refusal: Refusal | None) -> None:
        """A change of course is refused, with all that is missing, to who may not approve everything."""
        if self.state.ending is None:
            wanted = {"runs:control", *guards_of(self.state.spec)}
            lacking = sorted(wanted - {*principal.capabilities})
            if lacking:
                assert refusal is not None
                assert refusal.details["capabilities"] == lacking
            else:
                assert refusal is None or refusal.code != "capability_required"

    @rule()
    def people_clear_messages(self) -> None:
        self.notice_what_is_due()
        self.feed(events.MessagesCleared, actor="ada")
        assert not self.state.mailbox.queue

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
        # Twice: what ends a run without any grace leaves something to notice at once.
        self.feed(events.Ticked)
        self.feed(events.Ticked)
        due = self.state.next_deadline()
        assert due is None or due > self.now

    # How every run comes to its end

    @precondition(lambda self: not self.state.finished)
    @rule()
    def everybody_does_their_part(self) -> None:
        if machine.may_rotate(self.state):
            self.the_run_is_handed_over()
        if self.state.yielding:
            self.feed(events.TaskBegan)
        sending = dict(senders(self.watch))
        for visit, order in list(self.watch.orders.items()):
            if visit in self.watch.stops:
                self.feed(events.NodeStopped, visit=visit)
            elif visit in self.watch.orders and visit in sending:
                each = events.Send(node=sending[visit][0])
                self.feed(events.NodeFinished, visit=visit, sends=(each, each))
            elif visit in self.watch.orders:
                routed = tuple(targets_of(order)[:1])
                self.feed(events.NodeFinished, visit=visit, routed=routed)
        if self.state.ledger.open:
            self.people_answer_all_that_is_asked(True)
        self.feed(events.Resumed, actor="ada")

    def teardown(self) -> None:
        if not self.is_sound:
            return  # A step has failed, and is what should be told.
        self.now += timedelta(days=1)
        self.feed(events.Ticked)
        if has_a_loop(self.state.spec):
            self.feed(events.CancelRequested, actor="ada")
        for _ in range(most_steps(self.state)):
            if self.state.finished:
                break
            self.everybody_does_their_part()
            self.every_promise_is_kept()
        assert self.state.finished


Runs.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestRuns = Runs.TestCase
