"""The core's promises, tested with random graphs and random events of their runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from core_runs import BOSS, NOBODY, PEOPLE, Watched
from core_strategies import (
    ANSWERS,
    GOOD_PATCHES,
    MODES,
    RARELY,
    SECONDS,
    VALUES,
    fitting,
    gated_graphs,
    graphs,
    limits,
)
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from abeyance.core import events
from abeyance.core.delegations import Delegation, may_be_lent
from abeyance.core.json import Json
from abeyance.core.outcome import Finished
from abeyance.core.policy import Principal
from abeyance.core.spec import (
    END,
    Ask,
    FunctionNode,
    GoTo,
    GraphSpec,
    Halt,
    InterruptNode,
    ResumeRun,
    SubgraphNode,
)
from abeyance.core.state import Limits
from abeyance.errors import Refusal

SOMEBODY = st.sampled_from([BOSS, BOSS, *PEOPLE])


def guards_of(spec: GraphSpec) -> set[str]:
    """Return every capability that a graph can ask for."""
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
                found |= {*(asks or ())}
    return found | {each.requested_capability for each in questions if each.requested_capability}


FAULTS = (events.SchemaFault(pointer="", message="is wrong"),)


class Peopled(Watched):
    """A run, and people who answer, write, and change its course if they may."""

    @precondition(lambda self: self.state.ledger.open)
    @rule(data=st.data(), value=ANSWERS, principal=SOMEBODY)
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

    @precondition(lambda self: not self.state.finished)
    @rule(
        data=st.data(),
        mode=st.sampled_from(["after-node", "now"]),
        timeout=st.none() | SECONDS,
        principal=SOMEBODY,
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
        before = self.state.pause
        self.feed(events.Resumed, actor="ada")
        assert self.state.pause is not before

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

    @rule(principal=SOMEBODY, patch=st.sampled_from(GOOD_PATCHES))
    def people_edit(self, principal: Principal, patch: dict[str, Json]) -> None:
        self.notice_what_is_due()
        version = self.state.root.version
        refusal = self.feed(events.ValuesEdited, principal=principal, patch=patch, version=version)
        self.only_who_may(principal, refusal)

    @precondition(lambda self: self.state.ledger.open)
    @rule(
        data=st.data(),
        principal=SOMEBODY,
        on_timeout=st.sampled_from([None, Halt(), GoTo(node=END)]),
        is_rare=RARELY,
    )
    def people_move_a_deadline(
        self, data: st.DataObject, principal: Principal, on_timeout: Any, *, is_rare: bool
    ) -> None:
        self.notice_what_is_due()
        unheld = [*self.state.ledger.open.keys() - {*self.held}]
        if unheld and (is_rare or principal != BOSS):
            refusal = self.feed(
                events.DeadlineEdited,
                principal=principal,
                interrupt_id=data.draw(st.sampled_from(sorted(unheld))),
                moves=True,
                deadline=self.now + timedelta(seconds=5),
                on_timeout=on_timeout,
            )
            self.only_who_may(principal, refusal)

    @precondition(lambda self: self.state.ledger.open)
    @rule(
        data=st.data(),
        principal=SOMEBODY,
        kind=st.sampled_from([events.Claimed, events.Released, events.Reassigned]),
        seconds=SECONDS,
    )
    def people_take_care(
        self, data: st.DataObject, principal: Principal, kind: Any, seconds: float
    ) -> None:
        self.notice_what_is_due()
        if not self.state.ledger.open:
            return
        id_ = data.draw(st.sampled_from(list(self.state.ledger.open)))
        # Only the boss, who answers at the end of each example, may keep a question from others.
        principal = BOSS if kind is events.Claimed else principal
        about: dict[str, Any] = {"principal": principal, "interrupt_id": id_}
        if kind is events.Claimed:
            about["seconds"] = seconds
        elif kind is events.Reassigned:
            about["to"] = (principal.subject,)
        if self.feed(kind, **about) is None:
            # A claim never lets a person answer who may not answer otherwise.
            entry = self.state.ledger.open[id_]
            is_claimed = entry.claim is not None and principal.may(entry.requested_capability)
            assert is_claimed is (kind is events.Claimed)

    def only_who_may(self, principal: Principal, refusal: Refusal | None) -> None:
        """Check that only people who may approve everything change the course, and what others lack."""
        if self.state.ending is None:
            asked = {each.requested_capability for each in self.state.ledger.open.values()}
            wanted = {"runs:control", *guards_of(self.state.spec), *filter(None, asked)}
            lacking = sorted(wanted - {*principal.capabilities})
            if lacking:
                assert refusal is not None
                assert refusal.details["capabilities"] == lacking
            else:
                assert refusal is None or refusal.code != "capability_required"


class Runs(Peopled):
    """A run of any graph, and anything that may happen to it."""

    @initialize(spec=graphs(), limits=limits(), values=VALUES)
    def a_run_begins(self, spec: GraphSpec, limits: Limits, values: dict[str, Json]) -> None:
        self.begin(spec, limits, values)

    @precondition(lambda self: self.state.finished)
    @rule(spec=graphs(), limits=limits(), values=VALUES)
    def another_run_begins(self, spec: GraphSpec, limits: Limits, values: dict[str, Json]) -> None:
        self.begin(spec, limits, values)

    @precondition(lambda self: self.watch.over)
    @rule(data=st.data())
    def an_outcome_comes_late(self, data: st.DataObject) -> None:
        visit = data.draw(st.sampled_from(self.watch.over))
        self.notice_what_is_due()
        before = self.state
        self.end(Finished, visit=visit, patch={"log": ["late"]})
        after = replace(self.state, updated_at=before.updated_at)
        if before.ending is not None and after.ending is not None:
            # The run keeps the outcome of stopped code for a retry.
            after = replace(after, ending=replace(after.ending, outcomes=before.ending.outcomes))
        assert after == before

    @precondition(lambda self: self.watch.opened)
    @rule(
        data=st.data(),
        value=ANSWERS,
        principal=st.sampled_from([BOSS, BOSS, *PEOPLE]),
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
        for id_ in chosen if refusal is None else ():
            entry = self.state.ledger.open.get(id_)
            assert entry is None or entry.status == "held" or entry.votes

    @precondition(lambda self: self.watch.opened)
    @rule(data=st.data(), value=ANSWERS, maker=st.sampled_from(PEOPLE), is_over=RARELY)
    def a_delegate_answers(
        self, data: st.DataObject, value: Json, maker: Principal, *, is_over: bool
    ) -> None:
        self.notice_what_is_due()
        if not self.state.ledger.open:
            return
        asked = data.draw(st.sampled_from(list(self.state.ledger.open.values())))
        lent = tuple(name for name in maker.capabilities if may_be_lent(name))
        delegation = Delegation(
            id="d",
            by=maker.subject,
            to="dan",
            capabilities=lent,
            since=self.now - timedelta(seconds=9),
            until=self.now + timedelta(seconds=-1 if is_over else 9),
            created_at=self.now,
        )
        refusal = self.feed(
            events.Responded,
            principal=Principal(subject="dan"),
            answers={asked.id: fitting(self.state, data, asked.id, value)},
            schema_faults={asked.id: ()},
            delegations=(delegation,),
        )
        if refusal is None and asked.status == "open" and asked.requested_capability is not None:
            assert not is_over
            assert asked.requested_capability in lent

    @precondition(lambda self: self.state.ledger.settled)
    @rule(data=st.data())
    def an_answer_is_repeated(self, data: st.DataObject) -> None:
        self.notice_what_is_due()
        settled = data.draw(st.sampled_from(list(self.state.ledger.settled.values())))
        before = self.state
        self.feed(
            events.Responded,
            principal=BOSS,
            answers={settled.id: settled.answer},
            schema_faults={},
        )
        assert replace(self.state, updated_at=before.updated_at) == before

    @rule(mode=MODES, grace=st.none() | SECONDS, for_good=RARELY)
    def people_cancel(self, mode: str, grace: float | None, *, for_good: bool) -> None:
        if for_good or self.state.ending is not None:
            self.feed(events.CancelRequested, actor="ada", mode=mode, grace=grace)
            assert self.state.ending is not None

    @rule()
    def people_clear_messages(self) -> None:
        self.notice_what_is_due()
        self.feed(events.MessagesCleared, actor="ada")
        assert not self.state.mailbox.queue


# The same examples each time, so that a change fails only for what it has changed.
Runs.TestCase.settings = settings(
    # Forty, and 160 in the profile `wide`.
    max_examples=settings().max_examples * 2 // 5,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
)
TestRuns = Runs.TestCase


class GatedRuns(Peopled):
    """A run of a graph with gates: no code begins behind a gate before somebody with its capability has
    answered it, whatever people with and without that capability do to the run.
    """

    @initialize(spec=gated_graphs(), values=VALUES, places=st.sampled_from([1, 50]))
    def a_run_begins(self, spec: GraphSpec, values: dict[str, Json], places: int) -> None:
        self.begin(spec, Limits(max_parallel_visits=places), values)

    @precondition(lambda self: self.state.finished)
    @rule(spec=gated_graphs(), values=VALUES, places=st.sampled_from([1, 50]))
    def another_run_begins(self, spec: GraphSpec, values: dict[str, Json], places: int) -> None:
        self.begin(spec, Limits(max_parallel_visits=places), values)


# The same examples each time, so that a change fails only for what it has changed.
GatedRuns.TestCase.settings = settings(
    # Twenty, and eighty in the profile `wide`.
    max_examples=settings().max_examples // 5,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
)
TestGatedRuns = GatedRuns.TestCase
