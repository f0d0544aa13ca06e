"""Several people decide one question, each with one vote."""

from __future__ import annotations

from typing import Any

import pytest
from core_agents import gated, results, reviewing, turn
from core_drive import ROOT, Drive, at, chain, gate

from abeyance.core import idempotency, ledger, replies
from abeyance.core.answering import call_digest
from abeyance.core.events import Responded
from abeyance.core.json import Json, sha256
from abeyance.core.ledger import Receipt
from abeyance.core.policy import TIMEOUT, Principal
from abeyance.core.spec import Default
from abeyance.core.terms import Escalation, Quorum, Terms
from abeyance.errors import Code, Refusal

APPROVAL: Json = {"properties": {"approved": {"type": "boolean"}}}
YES: Json = {"approved": True}
NO: Json = {"approved": False}
ADA, BOB, CAROL, DAN = (Principal(subject=name) for name in ("ada", "bob", "carol", "dan"))


def voting(count: int = 2, *, veto: bool = True, **options: Any) -> Drive:
    """Start a run that waits for the votes on `ask`, and then runs `work`."""
    quorum = Quorum(count=count, veto=veto, of=options.pop("of", ()))
    terms = Terms(quorum=quorum, hold=options.pop("hold", None))
    about = {"schema": APPROVAL, **options}
    return Drive(chain(gate("ask", terms=terms, **about), "work"))


def receipt_of(run: Drive, who: Principal, value: Json, **fields: Any) -> Receipt:
    """Answer `ask` for somebody, and return the receipt."""
    about = run.response({run.open("ask").id: value}, principal=who, **fields)
    (receipt,) = idempotency.receipts(run.state.ledger, Responded(now=run.now, **about))
    run.feed(Responded, **about)
    return receipt


def again(run: Drive, who: Principal, value: Json) -> Receipt:
    """Send somebody's answer to `ask` once more, which changes nothing, and return the receipt."""
    (id_,) = [*run.state.ledger.open, *run.state.ledger.settled]
    event = Responded(now=run.now, **run.response({id_: value}, principal=who))
    before = run.seen()
    receipts = replies.check_answers(run.state.ledger, event)
    run.respond({id_: value}, principal=who)
    assert run.seen() == before
    assert receipts[id_].interrupt_id == id_
    return receipts[id_]


def refusal_of(run: Drive, who: Principal, value: Json) -> Refusal:
    (id_,) = [*run.state.ledger.open, *run.state.ledger.settled]
    return run.refused_response({id_: value}, principal=who)


def voters(run: Drive) -> list[tuple[str, Json]]:
    (entry,) = [*run.state.ledger.open.values(), *run.state.ledger.settled.values()]
    return [(vote.by, vote.answer) for vote in entry.votes]


def test_a_vote_is_counted_and_the_last_that_is_needed_answers_the_question() -> None:
    run = voting(2)
    run.wait(1)
    first = receipt_of(run, ADA, YES, note="fine")

    assert (first.status, first.missing, first.answered_by) == ("voted", 1, "ada")
    assert (run.started, run.status) == ([], "awaiting-input")
    run.wait(1)
    receipt = receipt_of(run, BOB, {**YES, "note": "good"})

    assert (receipt.status, receipt.missing, run.started) == ("answered", None, ["work"])
    settled = run.settled("ask")
    assert (settled.by, settled.answer) == ("bob", {"approved": True, "note": "good"})
    (order,) = run.orders("work")
    known = order.answerers["ask"]
    assert (known.by, known.at, known.people) == ("bob", at(2), ())
    assert [(vote.by, vote.answer, vote.note) for vote in known.votes] == [
        ("ada", YES, "fine"),
        ("bob", settled.answer, None),
    ]
    assert [(vote.by, vote.at, vote.note) for vote in settled.votes] == [
        ("ada", at(1), "fine"),
        ("bob", at(2), None),
    ]
    first_fact, second = run.facts("interrupt.voted")
    assert (first_fact.actor, first_fact.address) == ("ada", "graph:g;node:ask")
    assert first_fact.data == {
        "id": settled.id,
        "name": "ask",
        "answer_sha256": sha256(YES),
        "missing": 1,
        "note": "fine",
    }
    (answered,) = run.facts("interrupt.answered")
    assert (second.actor, second.data["missing"], answered.actor) == ("bob", 0, "bob")
    assert answered.number == second.number + 1


@pytest.mark.parametrize("value", [False, NO, {"approved": "true"}, {}, None])
def test_the_first_rejection_is_a_veto(value: Json) -> None:
    run = voting(2)
    receipt_of(run, ADA, YES)

    assert receipt_of(run, BOB, value).status == "answered"
    assert (run.settled("ask").answer, run.settled("ask").by) == (value, "bob")


def test_a_quorum_without_veto_needs_as_many_rejections_as_approvals() -> None:
    run = voting(2, veto=False)

    assert receipt_of(run, ADA, False).missing == 2
    assert receipt_of(run, BOB, True).missing == 1
    assert receipt_of(run, CAROL, False).status == "answered"
    assert run.settled("ask").answer is False


def test_a_person_replaces_their_vote_while_the_question_is_open() -> None:
    run = voting(2, veto=False)
    receipt_of(run, ADA, True)
    run.wait(1)

    assert receipt_of(run, ADA, False).missing == 2
    assert voters(run) == [("ada", False)]
    receipt_of(run, BOB, False)
    assert run.settled("ask").answer is False


def test_the_same_vote_again_gets_its_first_receipt_before_and_after_the_decision() -> None:
    run = voting(2)
    first = receipt_of(run, ADA, YES)
    run.wait(5)

    repeated = again(run, ADA, YES)
    assert (repeated.status, repeated.missing, repeated.replayed) == ("voted", 1, True)
    assert (repeated.accepted_at, first.accepted_at) == (at(0), at(0))
    receipt_of(run, BOB, YES)
    later = again(run, ADA, YES)
    assert (later.status, later.answered_by, later.accepted_at) == ("answered", "ada", at(0))
    assert len(run.facts("interrupt.voted")) == 2


def test_the_same_answer_of_somebody_who_did_not_vote_comes_too_late() -> None:
    run = voting(1)
    receipt_of(run, ADA, YES)

    for who, value in [(BOB, YES), (ADA, NO)]:
        refusal = refusal_of(run, who, value)
        assert refusal.code is Code.ALREADY_ANSWERED
        assert refusal.message.endswith(", so no more votes count.")


def test_a_keyed_vote_is_one_vote_and_its_repeat_gets_the_same_receipt() -> None:
    run = voting(2)
    receipt_of(run, ADA, YES, key="k")
    event = Responded(
        now=run.now, **run.response({run.open("ask").id: YES}, principal=ADA, key="k")
    )
    called = idempotency.earlier(run.state.keys, event)

    assert called is not None
    (receipt,) = idempotency.receipts_again(called)
    assert (receipt.status, receipt.missing, receipt.replayed) == ("voted", 1, True)


def test_the_default_counts_at_the_deadline_and_votes_stay_on_record() -> None:
    run = voting(2, timeout=60, on_timeout=Default(answer=NO))
    receipt_of(run, ADA, YES)
    run.tick(60)

    settled = run.settled("ask")
    assert (settled.by, settled.answer, voters(run)) == (TIMEOUT, NO, [("ada", YES)])
    assert refusal_of(run, ADA, YES).code is Code.ALREADY_ANSWERED


def test_a_long_answer_is_not_kept_with_the_votes_of_a_settled_question() -> None:
    run = voting(2)
    receipt_of(run, ADA, {**YES, "note": "x" * 600}, note="y" * 600)
    (vote,) = run.open("ask").votes
    receipt_of(run, BOB, YES)

    assert run.settled("ask").votes[0].answer is None
    assert len(run.settled("ask").votes[0].note or "") == 500
    assert run.settled("ask").votes[0].answer_sha256 == vote.answer_sha256
    assert again(run, ADA, {**YES, "note": "x" * 600}).replayed


def test_people_named_by_an_escalation_have_a_vote_from_then_on() -> None:
    escalation = Escalation(after=60.0, to=("root",))
    terms = Terms(quorum=Quorum(count=1, of=("ada",)), escalate=(escalation,))
    run = Drive(chain(gate("ask", schema=APPROVAL, terms=terms), "work"))
    assert refusal_of(run, ROOT, YES).code is Code.NOT_ASSIGNED
    run.wait(60)

    assert refusal_of(run, BOB, YES).code is Code.NOT_ASSIGNED
    assert receipt_of(run, ROOT, YES).status == "answered"


# Approvals that say something else


CARD: Json = {"approved": True, "pay": "card"}


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (None, {"pay": "card"}),
        ({"pay": "cash", "for": "A-7"}, {"pay": "card", "for": "A-7"}),
        ([1], [1]),
    ],
)
def test_an_approval_with_another_answer_asks_about_that_and_is_its_first_vote(
    payload: Json, shown: Json
) -> None:
    run = voting(2, payload=payload)
    receipt_of(run, ADA, YES)
    before = run.open("ask")
    receipt = receipt_of(run, BOB, CARD)

    entry = run.open("ask")
    assert (receipt.status, receipt.missing, voters(run)) == ("voted", 1, [("bob", CARD)])
    assert (
        entry.prompt == f"""{before.prompt} 'bob' approves with another answer: {{"pay":"card"}}."""
    )
    assert entry.payload == shown
    (fact,) = run.facts("interrupt.revised")
    assert (fact.actor, fact.data["was"], fact.data["digest"]) == (
        "bob",
        before.digest,
        entry.digest,
    )
    assert before.digest != entry.digest
    receipt_of(run, ADA, {**CARD, "note": "well"})
    assert (run.started, run.settled("ask").answer) == (["work"], {**CARD, "note": "well"})


def test_people_never_agree_to_two_different_answers() -> None:
    run = voting(2)
    for who, value in ((ADA, CARD), (BOB, True), (ADA, {**CARD, "pay": "cash"}), (CAROL, CARD)):
        receipt_of(run, who, value)

    (end,) = run.open("ask").prompt_values
    assert run.open("ask").prompt[slice(*end)].startswith(" 'carol' approves")
    assert (run.started, voters(run)) == ([], [("carol", CARD)])


def test_another_approval_by_the_same_person_replaces_their_vote() -> None:
    run = voting(2)
    receipt_of(run, ADA, YES)
    receipt_of(run, ADA, CARD)

    assert run.facts("interrupt.revised") == []
    assert voters(run) == [("ada", CARD)]


# Approvals with other arguments


CALL: Json = {"tool": "pay", "arguments": {"amount": 10}}
OTHER: Json = {"approved": True, "arguments": {"amount": 7}}


def approving(count: int = 2, hold: float | None = None) -> Drive:
    """Start a run whose agent wants to call `pay`, which so many people have to approve."""
    run = reviewing()
    terms = Terms(quorum=Quorum(count=count), hold=hold)
    payload = {"digest": call_digest("pay", CALL["arguments"]), "account": "main"}
    turn(run, gated("c1", reason=CALL, payload=payload, preview="10 EUR", terms=terms))
    return run


def test_an_approval_with_other_arguments_asks_about_those_and_is_their_first_vote() -> None:
    run = approving(3)
    before = run.open("approve")
    run.says(ADA, "approve", YES)
    run.says(BOB, "approve", OTHER)

    entry = run.open("approve")
    assert [vote.by for vote in entry.votes] == ["bob"]
    assert entry.reason == {"tool": "pay", "arguments": {"amount": 7}}
    digest = sha256({"tool": "pay", "arguments": {"amount": 7}})
    assert (entry.payload, entry.preview) == ({"digest": digest, "account": "main"}, None)
    assert entry.prompt == """Run 'pay' with {"amount":7}? 'bob' has changed the arguments."""
    assert entry.digest == ledger.digest_of(entry.address, entry) != before.digest
    (fact,) = run.facts("interrupt.revised")
    assert (fact.actor, fact.address, fact.data) == (
        "bob",
        entry.address,
        {"id": entry.id, "name": "approve", "was": before.digest, "digest": entry.digest},
    )
    assert fact.audit is not None
    assert (fact.audit["shown"]["reason"], fact.audit["shown"]["digest"]) == (
        entry.reason,
        entry.digest,
    )


def test_a_receipt_of_changed_arguments_tells_of_a_new_preview() -> None:
    run = approving(1)
    id_ = run.open("approve").id

    def told(answer: Json) -> bool | None:
        event = Responded(now=run.now, **run.response({id_: answer}))
        (receipt,) = idempotency.receipts(run.state.ledger, event)
        return receipt.asked_again

    assert [told(OTHER), told(YES), told({**YES, "arguments": {"amount": 10}})] == [
        True,
        None,
        None,
    ]


def test_the_arguments_that_were_approved_reach_the_call() -> None:
    run = approving()
    run.says(ADA, "approve", OTHER)
    run.says(BOB, "approve", YES)

    (order,) = run.orders("pay")
    assert order.own_answers == {"/approval/approve": OTHER}
    assert order.approver == {"by": "ada"}
    settled = run.settled("approve")
    assert [vote.answer for vote in settled.votes] == [OTHER, YES]
    assert (settled.answer, settled.answer_sha256) == (OTHER, sha256(OTHER))


@pytest.mark.parametrize("hold", [None, 60])
def test_an_approval_with_other_arguments_may_be_enough(hold: float | None) -> None:
    run = approving(1, hold)
    run.says(ADA, "approve", OTHER)
    run.tick(60)

    (order,) = run.orders("pay")
    assert order.own_answers == {"/approval/approve": OTHER}
    (fact,) = run.facts("interrupt.revised")
    assert fact.audit is not None
    assert fact.audit["shown"]["reason"] == {"tool": "pay", "arguments": {"amount": 7}}


def test_a_call_without_more_about_it_is_revised_too() -> None:
    run = reviewing()
    turn(run, gated("c1", reason=CALL, terms=Terms(quorum=Quorum(count=2))))
    run.says(ADA, "approve", OTHER)

    assert run.open("approve").payload == {"digest": call_digest("pay", {"amount": 7})}


def test_a_vote_with_the_asked_arguments_revises_nothing() -> None:
    run = approving()
    run.says(ADA, "approve", YES)
    run.says(BOB, "approve", {"approved": True, "arguments": {"amount": 10}})

    assert run.facts("interrupt.revised") == []
    assert len(run.orders("pay")) == 1


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"approved": False, "reason": "no"}, {"rejected": "no"}),
        (
            {"approved": False, "result": 1},
            {"content": 1, "decision": "respond", "by": "bob"},
        ),
    ],
)
def test_a_revised_call_can_be_rejected(answer: Json, result: Json) -> None:
    run = approving()
    run.says(ADA, "approve", OTHER)
    run.says(BOB, "approve", answer)

    assert run.orders("pay") == []
    assert run.settled("approve").answer == answer
    assert results(run) == [result]
