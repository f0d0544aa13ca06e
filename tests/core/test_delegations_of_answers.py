"""Answers, votes and claims of delegates, in the place of somebody else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core_askers import (
    ADA,
    BOB,
    CAROL,
    CFO,
    PAY,
    asking,
    claim,
    eyes,
    lent,
    person,
    refusal_of,
    started_by,
)
from core_drive import Drive, at, chain, gate, graph, nested

from abeyance.core import idempotency, who_may_answer
from abeyance.core.delegations import Delegation
from abeyance.core.events import Responded
from abeyance.core.json import rfc3339
from abeyance.core.policy import Principal
from abeyance.core.spec import START
from abeyance.core.terms import STARTER, Escalation, Quorum, Terms
from abeyance.errors import Code


def test_a_delegate_answers_in_the_place_of_who_may() -> None:
    run = asking(capability=PAY)
    id_ = run.open("ask").id
    about = run.response(
        {id_: "yes"}, principal=BOB, delegations=(lent("ada", "bob", PAY),), key="k"
    )
    event = Responded(now=run.now, **about)
    (receipt,) = idempotency.receipts(run.state.ledger, event)
    run.feed(Responded, **about)

    assert (receipt.answered_by, receipt.on_behalf_of) == ("bob", "ada")
    settled = run.settled("ask")
    assert (settled.by, settled.on_behalf_of) == ("bob", "ada")
    (fact,) = run.facts("interrupt.answered")
    assert (fact.actor, fact.data["on_behalf_of"]) == ("bob", "ada")
    known = run.orders("work")[0].answerers["ask"]
    assert (known.by, known.on_behalf_of) == ("bob", "ada")
    # A repeat gets the receipt again, with its key and without one.
    called = idempotency.earlier(run.state.keys, event)
    assert called is not None
    (again,) = idempotency.receipts_again(called)
    assert (again.answered_by, again.on_behalf_of, again.replayed) == ("bob", "ada", True)
    (again,) = idempotency.receipts(run.state.ledger, replace(event, key=None, delegations=()))
    assert (again.answered_by, again.on_behalf_of, again.replayed) == ("bob", "ada", True)
    (again,) = idempotency.receipts(
        run.state.ledger, replace(event, principal=CAROL, delegations=(lent("x", "carol", PAY),))
    )
    assert again.replayed


def test_a_second_answer_is_refused_with_the_delegator_of_the_first() -> None:
    run = asking()
    id_ = run.open("ask").id
    run.answer("ask", "yes", principal=BOB, on_behalf_of="ada", delegations=(lent("ada"),))
    refusal = run.refused_response({id_: "no"}, principal=CAROL)
    assert (refusal.details["answered_by"], refusal.details["on_behalf_of"]) == ("bob", "ada")


@pytest.mark.parametrize(
    ("delegation", "named"),
    [
        (lent("ada", "bob"), Code.CAPABILITY_REQUIRED),
        (lent("ada", "carol", PAY), Code.NOT_ASSIGNED),
        (lent("ada", "bob", PAY, since=at(1)), Code.NOT_ASSIGNED),
        (lent("ada", "bob", PAY, until=at(0)), Code.NOT_ASSIGNED),
    ],
    ids=["lends something else", "to somebody else", "not yet", "over"],
)
def test_a_delegation_counts_for_its_delegate_in_its_time_for_what_it_lends(
    delegation: Delegation, named: Code
) -> None:
    run = asking(capability=PAY)
    refusal = refusal_of(run, BOB, delegations=(delegation, lent("dan")))
    assert (refusal.code, refusal.details["capability"]) == (Code.CAPABILITY_REQUIRED, PAY)
    assert refusal_of(run, BOB, delegations=(delegation,), on_behalf_of="ada").code is named


@pytest.mark.parametrize("capability", ["admin", "runs:control"])
def test_a_delegation_of_everything_does_not_lend_capabilities_beyond_questions(
    capability: str,
) -> None:
    run = asking(capability=capability)
    refusal = refusal_of(run, BOB, delegations=(lent("root", "bob", capabilities=None),))
    assert refusal.code is Code.CAPABILITY_REQUIRED


def test_a_maker_with_everything_lends_the_capability_of_any_question() -> None:
    run = asking(capability=PAY)
    everything = lent("root", "bob", capabilities=None)
    run.answer("ask", "yes", principal=BOB, delegations=(everything,))
    assert run.settled("ask").on_behalf_of == "root"


def test_a_delegate_answers_what_is_only_for_their_maker_or_the_makers_group() -> None:
    for assignee, groups in (("ada", ()), ("group:finance", ("finance",))):
        run = asking(assignees=(assignee,), assignees_only=True)
        run.answer("ask", "yes", principal=BOB, delegations=(lent("ada", groups=groups),))
        assert run.settled("ask").on_behalf_of == "ada"


def test_a_person_answers_in_their_own_right_unless_they_name_another() -> None:
    delegations = (lent("ada"), lent("carol"))
    for said, expected in ((None, None), ("bob", None), ("carol", "carol")):
        run = asking()
        run.answer("ask", "yes", principal=BOB, on_behalf_of=said, delegations=delegations)
        assert run.settled("ask").on_behalf_of == expected


def test_a_delegate_of_two_people_has_to_name_one() -> None:
    run = asking(capability=PAY)
    delegations = (lent("ada", "bob", PAY), lent("carol", "bob", PAY), lent("dan"))
    refusal = refusal_of(run, BOB, delegations=delegations)
    assert refusal.code is Code.AMBIGUOUS_DELEGATION
    assert "You may answer 'ask' for 'ada', 'carol'" in refusal.message
    assert refusal.details == {
        "interrupt_id": run.open("ask").id,
        "on_behalf_of": ["ada", "carol"],
    }
    own = refusal_of(run, BOB, delegations=delegations, on_behalf_of="bob")
    assert own.code is Code.CAPABILITY_REQUIRED

    run.answer("ask", "yes", principal=BOB, delegations=delegations, on_behalf_of="carol")
    assert run.settled("ask").on_behalf_of == "carol"


def test_answering_for_another_person_requires_their_delegation() -> None:
    run = asking()
    # Neither without a delegation nor with the delegation of somebody else.
    for delegations in ((), (lent("dan"),)):
        refusal = refusal_of(run, BOB, on_behalf_of="ada", delegations=delegations)
        assert refusal.code is Code.NOT_ASSIGNED
        assert "You cannot answer 'ask' for 'ada'" in refusal.message
        assert refusal.details == {
            "interrupt_id": run.open("ask").id,
            "on_behalf_of": "ada",
        }


def test_a_claim_in_somebodys_place_keeps_a_question_for_both_and_says_so() -> None:
    run = asking(assignees=("ada", "dan"), assignees_only=True)
    claim(run, BOB, seconds=60, delegations=(lent("ada"),))
    (fact,) = run.facts("interrupt.claimed")
    assert fact.data["on_behalf_of"] == "ada"

    refusal = refusal_of(run, person("dan"))

    assert refusal.code is Code.CLAIMED
    assert f"'bob' has claimed 'ask' until {rfc3339(at(60))}" in refusal.message
    assert refusal.details == {
        "interrupt_id": run.open("ask").id,
        "claimed_by": "bob",
        "claimed_until": rfc3339(at(60)),
        "on_behalf_of": "ada",
    }
    run.answer("ask", "yes", principal=ADA)


def test_a_delegate_of_whom_an_escalation_names_answers_from_then_on() -> None:
    run = asking(capability=PAY, escalate=(Escalation(after=60, to=("carol",)),))
    about: dict[str, Any] = {"principal": BOB, "delegations": (lent("carol"),)}

    def names() -> list[str]:
        return who_may_answer.names(run.open("ask"), who_may_answer.Request(now=run.now, **about))

    assert (names(), refusal_of(run, BOB).code) == ([], Code.CAPABILITY_REQUIRED)
    run.wait(60)
    assert names() == ["carol"]
    run.answer("ask", "yes", **about)
    assert run.settled("ask").on_behalf_of == "carol"


def test_only_people_who_may_answer_learn_the_outcome_of_a_question() -> None:
    run = asking(capability=PAY)
    run.answer("ask", "yes", principal=CFO)
    settled = run.settled("ask")
    for who, delegations, learns in (
        (BOB, (), False),
        (BOB, (lent("ada"),), False),
        (BOB, (lent("ada", "bob", PAY),), True),
        (person("eve", PAY), (), True),
        (person("cfo"), (), True),
    ):
        assert who_may_answer.may_learn_of(settled, who, delegations) is learns


def test_four_eyes_look_at_both_names() -> None:
    delegations = (lent("ada"), lent("carol"))
    barring = Drive(chain(gate("one"), eyes("ask", "one")))
    barring.answer("one", "yes", principal=BOB, on_behalf_of="ada", delegations=delegations)
    assert barring.open("ask").barred == {"bob": "one", "ada": "one"}
    cases: list[tuple[Principal, dict[str, Any]]] = [
        (BOB, {}),
        (BOB, {"on_behalf_of": "carol", "delegations": delegations}),
        (ADA, {}),
        (CAROL, {"on_behalf_of": "ada", "delegations": (lent("ada", "carol"),)}),
    ]
    for who, fields in cases:
        assert refusal_of(barring, who, **fields).code is Code.SEPARATION_OF_DUTIES
    assert "so nobody can answer 'ask' for 'ada'" in refusal_of(barring, CAROL, **fields).message


def test_a_delegate_of_two_people_answers_for_the_one_who_is_not_barred() -> None:
    run = started_by("ada", "first", eyes("ask", STARTER, capability=PAY))
    run.finish("first")
    delegations = (lent("ada", "bob", PAY), lent("carol", "bob", PAY))
    run.answer("ask", "yes", principal=BOB, delegations=delegations)
    assert run.settled("ask").on_behalf_of == "carol"


def test_a_delegate_uses_the_claim_of_whom_they_stand_for() -> None:
    run = asking(capability=PAY)
    claim(run, person("ada", PAY))
    run.answer("ask", "yes", principal=BOB, delegations=(lent("ada", "bob", PAY),))
    assert run.settled("ask").on_behalf_of == "ada"


def test_for_whom_somebody_may_answer_can_be_listed() -> None:
    run = started_by("dan", "first", eyes("ask", STARTER, capability=PAY))
    run.finish("first")
    delegations = tuple(lent(by, "bob", PAY) for by in ("carol", "ada", "dan"))
    entry = run.open("ask")
    request = who_may_answer.Request(principal=BOB, now=run.now, delegations=delegations)
    assert who_may_answer.names(entry, request) == ["ada", "carol"]
    barred = replace(entry, barred={"bob": "one"})
    assert who_may_answer.names(barred, request) == []


def test_a_vote_bars_from_the_next_question_before_it_has_decided() -> None:
    voting = replace(
        gate("one", schema={"properties": {"approved": {"type": "boolean"}}}),
    )
    terms = Terms(quorum=Quorum(count=2))
    voting = replace(voting, question=replace(voting.question, terms=terms))
    inner = chain(eyes("inside", "one"), name="inner")
    ways = [(START, "one"), (START, "ask"), (START, "sub")]
    run = Drive(graph(voting, eyes("ask", "one"), nested("sub", inner), ways=ways))
    yes = {"approved": True}
    delegations = (lent("carol"),)
    run.answer("one", yes, principal=BOB, on_behalf_of="carol", delegations=delegations)
    for name in ("ask", "inside"):
        assert run.open(name).barred == {"bob": "one", "carol": "one"}
    run.answer("one", yes, principal=ADA)
    assert run.state.root.answerers["one"].people == ("ada", "bob", "carol")
    assert run.open("ask").barred == {"ada": "one", "bob": "one", "carol": "one"}


def test_a_vote_for_somebody_uses_up_the_votes_of_both_and_its_repeat_gets_its_receipt() -> None:
    run = asking(quorum=Quorum(count=2, of=("ada", "group:finance")))
    id_, yes, delegations = run.open("ask").id, {"approved": True}, (lent("ada"),)
    about = run.response({id_: yes}, principal=BOB, delegations=delegations)
    event = Responded(now=run.now, **about)
    (receipt,) = idempotency.receipts(run.state.ledger, event)
    assert (receipt.status, receipt.on_behalf_of) == ("voted", "ada")
    run.feed(Responded, **about)
    (fact,) = run.facts("interrupt.voted")
    assert fact.data["on_behalf_of"] == "ada"
    (again,) = idempotency.receipts(run.state.ledger, event)
    assert (again.replayed, again.on_behalf_of) == (True, "ada")
    run.answer("ask", yes, principal=ADA)
    assert [vote.by for vote in run.open("ask").votes] == ["ada"]


def test_a_delegate_who_voted_gets_the_receipt_again() -> None:
    run = asking(quorum=Quorum(count=1), capability=PAY)
    id_, yes = run.open("ask").id, {"approved": True}
    run.answer("ask", yes, principal=BOB, delegations=(lent("ada", "bob", PAY),))
    for name in (None, "ada"):
        about = run.response({id_: yes}, principal=BOB, on_behalf_of=name)
        (again,) = idempotency.receipts(run.state.ledger, Responded(now=run.now, **about))
        assert (again.replayed, again.answered_by, again.on_behalf_of) == (True, "bob", "ada")
    for_another = run.response({id_: yes}, principal=BOB, on_behalf_of="carol")
    assert run.refused(Responded, **for_another).code is Code.ALREADY_ANSWERED


FOR_ADA: dict[str, Any] = {"principal": BOB, "on_behalf_of": "ada", "delegations": (lent("ada"),)}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"principal": ADA}, FOR_ADA),
        (FOR_ADA, {"principal": BOB}),
        ({"principal": BOB}, FOR_ADA),
    ],
    ids=["of whom they stand for", "for another", "of their own"],
)
def test_a_vote_in_another_right_replaces_the_earlier_vote(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    run = asking(quorum=Quorum(count=2))
    run.answer("ask", {"approved": True}, **first)
    about = run.response({run.open("ask").id: {"approved": True}}, **second)
    (receipt,) = idempotency.receipts(run.state.ledger, Responded(now=run.now, **about))
    run.feed(Responded, **about)

    name = second.get("on_behalf_of")
    assert (receipt.status, receipt.missing, receipt.replayed) == ("voted", 1, False)
    assert receipt.on_behalf_of == name
    assert [(vote.by, vote.on_behalf_of) for vote in run.open("ask").votes] == [("bob", name)]
