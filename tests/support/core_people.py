"""What people do to a run of a random graph, each with what they may do, and some with too little."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from core_runs import BOSS, NOBODY, Watched
from core_strategies import ANSWERS, GOOD_PATCHES, RARELY, SECONDS, fitting
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from abeyance.core import events
from abeyance.core.json import Json
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
from abeyance.errors import Refusal

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
"""Somebody with all that it takes, and everybody who has only some of it."""
SOMEBODY = st.sampled_from([BOSS, BOSS, *PEOPLE])


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
                found |= {*(asks or ())}
    return found | {each.requested_capability for each in questions if each.requested_capability}


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
        before = self.state.ledger.open[id_]
        # Only who answers at the end of each example may keep a question from others.
        principal = BOSS if kind is events.Claimed else principal
        about: dict[str, Any] = {"principal": principal, "interrupt_id": id_}
        if kind is events.Claimed:
            about["seconds"] = seconds
        elif kind is events.Reassigned:
            about["to"] = (principal.subject,)
        refusal = self.feed(kind, **about)
        entry = self.state.ledger.open[id_]
        if refusal is not None:
            assert entry == before
        elif kind is events.Claimed:
            assert entry.claim is not None
            assert entry.claim.by == principal.subject
            # A claim never lets somebody answer who may not.
            assert principal.may(entry.requested_capability)
        else:
            assert entry.claim is None

    def only_who_may(self, principal: Principal, refusal: Refusal | None) -> None:
        """A change of course is refused, with all that is missing, to who may not approve everything."""
        if self.state.ending is None:
            asked = {each.requested_capability for each in self.state.ledger.open.values()}
            wanted = {"runs:control", *guards_of(self.state.spec), *filter(None, asked)}
            lacking = sorted(wanted - {*principal.capabilities})
            if lacking:
                assert refusal is not None
                assert refusal.details["capabilities"] == lacking
            else:
                assert refusal is None or refusal.code != "capability_required"
