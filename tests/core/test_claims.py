"""Claim, release and reassign: who takes care of a question."""

from __future__ import annotations

from typing import Any

import pytest
from core_askers import ADA, BOB, CAROL, PAY, ROOT, asking, claim, person, refusal_of
from core_drive import Drive, at, chain, gate, graph

from abeyance.core import events, four_eyes
from abeyance.core.json import rfc3339
from abeyance.core.policy import TEMPORAL, Principal
from abeyance.core.spec import START
from abeyance.core.terms import Quorum, Terms
from abeyance.errors import Code, Refusal

DORA = person("dora")
YES_OR_NO = {"properties": {"approved": {"type": "boolean"}}}


def test_while_a_question_is_claimed_nobody_else_answers_it_and_a_claim_ends_by_itself() -> None:
    run = asking()
    claim(run, ADA, seconds=60)
    claim(run, ADA, seconds=600)
    (_, again) = run.facts("interrupt.claimed")
    id_ = run.open("ask").id
    assert again.data == {"id": id_, "name": "ask", "until": rfc3339(at(600))}
    refusal = refusal_of(run, BOB)
    assert refusal.code is Code.CLAIMED
    about = {"interrupt_id": id_, "claimed_by": "ada"}
    assert refusal.details == {**about, "claimed_until": rfc3339(at(600))}
    assert refused_claim(run, BOB).code is Code.CLAIMED

    run.copy().answer("ask", "yes", principal=ADA)
    run.wait(600)
    run.answer("ask", "yes", principal=BOB)
    assert run.settled("ask").by == "bob"


def refused_claim(run: Drive, who: Principal, **fields: Any) -> Refusal:
    about = {"principal": who, "interrupt_id": run.open("ask").id, "seconds": 60, **fields}
    return run.refused(events.Claimed, **about)


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        ({"capability": PAY}, Code.CAPABILITY_REQUIRED),
        ({"quorum": Quorum(count=2)}, Code.NOT_CLAIMABLE),
    ],
)
def test_only_who_may_answer_may_claim_and_only_what_one_decides(
    terms: dict[str, Any], code: Code
) -> None:
    assert refused_claim(asking(**terms), ADA).code is code


def test_the_claimer_or_a_controller_releases_a_claim() -> None:
    run = asking()
    about = {"interrupt_id": run.open("ask").id}
    run.feed(events.Released, principal=BOB, **about)
    assert run.facts("interrupt.released") == []
    for who in (ADA, person("boss", "runs:control"), TEMPORAL):
        claim(run, ADA)
        refusal = run.refused(events.Released, principal=BOB, **about)
        assert (refusal.code, refusal.details["capability"]) == (
            Code.CAPABILITY_REQUIRED,
            "runs:control",
        )
        run.feed(events.Released, principal=who, **about)
        assert run.open("ask").claim is None
        assert run.facts("interrupt.released")[-1].actor == who.subject

    # A claim that has ended is nobody's, so its release publishes no event.
    claim(run, ADA, seconds=1)
    run.wait(1)
    run.feed(events.Released, principal=BOB, **about)
    assert run.open("ask").claim is None
    assert len(run.facts("interrupt.released")) == 3


def reassign(run: Drive, who: Principal, *to: str, **fields: Any) -> None:
    id_ = run.open("ask").id
    run.feed(events.Reassigned, principal=who, interrupt_id=id_, to=to, **fields)


def test_reassigning_replaces_whom_a_question_is_for_and_ends_a_claim() -> None:
    run = asking(assignees=("ada",), assignees_only=True)
    claim(run, ADA)

    reassign(run, ADA, "bob", "group:finance", note="I am away.")

    entry = run.open("ask")
    assert (entry.terms and entry.terms.assignees, entry.claim) == (("bob", "group:finance"), None)
    (fact,) = run.facts("interrupt.reassigned")
    assert (fact.actor, fact.data["to"], fact.data["note"]) == (
        "ada",
        ["bob", "group:finance"],
        "I am away.",
    )
    assert refusal_of(run, ADA).code is Code.NOT_ASSIGNED
    run.answer("ask", "yes", principal=BOB)


@pytest.mark.parametrize("who", [person("boss", "runs:control"), TEMPORAL, ROOT])
def test_a_controller_reassigns_a_question_without_assignees(who: Principal) -> None:
    run = Drive(chain(gate("ask")))
    reassign(run, who, "ada")
    assert run.open("ask").terms == Terms(assignees=("ada",))


def test_the_claimer_of_a_question_reassigns_it() -> None:
    run = asking()
    claim(run, ADA)
    about = {"interrupt_id": run.open("ask").id, "to": ("carol",)}
    refusal = run.refused(events.Reassigned, principal=BOB, **about)
    assert refusal.code is Code.CAPABILITY_REQUIRED
    reassign(run, ADA, "carol")


def test_reassigning_does_not_change_who_votes_and_the_question_says_so() -> None:
    run = asking(quorum=Quorum(count=2, of=("ada", "bob")))
    boss = person("boss", "runs:control")
    reassign(run, boss, "bob")
    assert four_eyes.warnings(run.state, run.open("ask")) == []

    reassign(run, boss, "dora", "bob")

    (warning,) = four_eyes.warnings(run.state, run.open("ask"))
    assert warning == (
        "dora: no vote came with the question, which ada, bob decide: reassign its votes too if others "
        "are to vote"
    )
    assert refusal_of(run, DORA).code is Code.NOT_ASSIGNED


def test_reassigned_votes_drop_the_votes_of_former_voters() -> None:
    run = asking(quorum=Quorum(count=3, of=("ada", "bob", "carol")))
    for who in (ADA, BOB):
        run.answer("ask", {"approved": True}, principal=who)
    shown = run.open("ask").digest

    reassign(run, person("boss", "runs:control"), "bob", "carol", "dora", votes=True)

    entry = run.open("ask")
    assert [vote.by for vote in entry.votes] == ["bob"]
    assert (entry.digest == shown, four_eyes.warnings(run.state, entry)) == (False, [])
    assert run.facts("interrupt.reassigned")[-1].data["votes"] is True
    assert run.facts("interrupt.reopened")[-1].data["reason"] == "others vote on it since"
    assert refusal_of(run, ADA).code is Code.NOT_ASSIGNED
    assert refusal_of(run, DORA, digests={entry.id: shown}).code is Code.STALE
    for who in (CAROL, DORA):
        run.answer("ask", {"approved": True}, principal=who)
    assert run.running == ["work"]


def test_a_vote_that_is_dropped_bars_nobody_from_another_question() -> None:
    two = Terms(quorum=Quorum(count=2, of=("ada", "bob")))
    eyes = gate("other", terms=Terms(not_by=("ask",)))
    run = Drive(
        graph(
            gate("ask", schema=YES_OR_NO, terms=two), eyes, ways=[(START, "ask"), (START, "other")]
        )
    )
    run.answer("ask", {"approved": True}, principal=ADA)
    assert run.open("other").barred == {"ada": "ask"}

    reassign(run, person("boss", "runs:control"), "bob", "dora", votes=True)

    assert run.open("other").barred == {}


def test_reassigned_voters_stay_when_the_question_shows_other_values() -> None:
    two = Terms(quorum=Quorum(count=2, of=("ada", "bob")))
    run = Drive(chain(gate("ask", prompt="Pay {x}?", schema=YES_OR_NO, terms=two)), values={"x": 1})
    boss = person("boss", "runs:control")
    reassign(run, boss, "bob", "dora", votes=True)
    run.answer("ask", {"approved": True}, principal=BOB)
    run.edit(boss, x=1)
    assert [vote.by for vote in run.open("ask").votes] == ["bob"]

    run.edit(boss, x=2)

    entry = run.open("ask")
    assert (entry.prompt, entry.votes, entry.quorum and entry.quorum.of) == (
        "Pay 2?",
        (),
        ("bob", "dora"),
    )


@pytest.mark.parametrize(
    ("who", "lacking"),
    [
        (person("ada", PAY), ["runs:control"]),
        (person("boss", "runs:control"), [PAY]),
        (TEMPORAL, [PAY, "runs:control"]),
    ],
)
def test_reassigning_votes_requires_control_and_the_questions_capability(
    who: Principal, lacking: list[str]
) -> None:
    run = asking(capability=PAY, assignees=("ada",), quorum=Quorum(count=2, of=("ada", "bob")))
    about = {"interrupt_id": run.open("ask").id, "to": ("dora", "bob"), "votes": True}

    refusal = run.refused(events.Reassigned, principal=who, **about)

    assert (refusal.code, refusal.details["capabilities"]) == (Code.CAPABILITY_REQUIRED, lacking)
    reassign(run, ROOT, "dora", "bob", votes=True)


def test_votes_of_a_question_that_takes_none_cannot_be_reassigned() -> None:
    run = asking(assignees=("ada",))
    about = {"interrupt_id": run.open("ask").id, "to": ("bob",), "votes": True}
    refusal = run.refused(events.Reassigned, principal=ROOT, **about)
    assert (refusal.code, refusal.details["errors"][0]["pointer"]) == (
        Code.INVALID_BODY,
        "/votes",
    )


def told_by(run: Drive, type_: str) -> tuple[str | None, str | None, dict[str, Any]]:
    """Return the address, the actor and the data of the last fact of a type."""
    fact = run.facts(type_)[-1]
    return fact.address, fact.actor, dict(fact.data)


def test_claims_releases_and_reassignments_are_published_with_their_actor() -> None:
    run = Drive(chain(gate("ask", capability=PAY, timeout=900)))
    payer = person("ada", PAY)
    about = {"id": run.open("ask").id, "name": "ask"}
    place = run.open("ask").address

    run.wait(1)
    claim(run, payer, seconds=60)
    assert run.state.last_activity_at == at(1)
    taken = run.open("ask").claim
    assert taken is not None
    assert (taken.by, taken.on_behalf_of, taken.at, taken.until) == ("ada", None, at(1), at(61))
    assert told_by(run, "interrupt.claimed") == (place, "ada", {**about, "until": rfc3339(at(61))})

    run.wait(1)
    run.feed(events.Released, principal=payer, interrupt_id=run.open("ask").id)
    assert run.state.last_activity_at == at(2)
    assert told_by(run, "interrupt.released") == (place, "ada", about)

    run.wait(1)
    reassign(run, ROOT, "bob")
    assert run.state.last_activity_at == at(3)
    assert told_by(run, "interrupt.reassigned") == (
        place,
        "root",
        {**about, "to": ["bob"], "capability": PAY, "deadline": rfc3339(at(900))},
    )


def test_a_refusal_says_which_question_it_is_and_what_it_would_take() -> None:
    run = asking()
    claim(run, ADA)
    id_ = run.open("ask").id
    about = {"principal": BOB, "interrupt_id": id_}
    claimer = "only the person who claimed 'ask'"
    release = f"release what somebody else has claimed: {claimer}, or"
    reassign = f"reassign what is not assigned to them: {claimer}, its assignees, or"
    for kind, fields, doing in (
        (events.Released, {}, release),
        (events.Reassigned, {"to": ("bob",)}, reassign),
    ):
        refusal = run.refused(kind, **about, **fields)
        assert refusal.message == f"You may not {doing} somebody with 'runs:control', may do that."
        assert refusal.details == {
            "interrupt_id": id_,
            "capability": "runs:control",
            "capabilities": ["runs:control"],
        }
    both = asking(quorum=Quorum(count=2))
    refusal = refused_claim(both, ADA)
    assert "'ask' takes the votes of several people" in refusal.message
    assert refusal.details == {"interrupt_id": both.open("ask").id}


def test_a_settled_question_refuses_claims_releases_and_reassignments() -> None:
    run = asking()
    id_ = run.open("ask").id
    each: tuple[tuple[type[events.Event], dict[str, Any], str], ...] = (
        (events.Claimed, {"seconds": 1}, "claimed"),
        (events.Released, {}, "released"),
        (events.Reassigned, {"to": ("bob",)}, "reassigned"),
    )
    run.answer("ask", "yes")
    for kind, fields, what in each:
        refusal = run.refused(kind, principal=ROOT, interrupt_id=id_, **fields)
        assert refusal.message.endswith(f"it cannot be {what}.")
        assert refusal.code is Code.ALREADY_ANSWERED
        assert refusal.details == {"interrupt_id": id_, "status": "answered"}
    run.finish("work")
    for kind, fields, what in each:
        refusal = run.refused(kind, principal=ROOT, interrupt_id=id_, **fields)
        assert refusal.message.endswith(f"no question of it can be {what}.")
