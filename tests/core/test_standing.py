"""Who may answer a question: for whom it is, four eyes, claims, and delegations."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from core_agents import gated, reviewing, turn
from core_drive import Drive, at, chain, edge, gate, graph, nested, restored
from core_fans import sending, sent

from abeyance.core import duties, events, idempotency, standing
from abeyance.core.delegations import Delegation
from abeyance.core.events import Responded
from abeyance.core.json import rfc3339
from abeyance.core.policy import EVERYTHING, TEMPORAL, Principal
from abeyance.core.snapshots import forked
from abeyance.core.spec import START, Default
from abeyance.core.terms import STARTER, Escalation, Quorum, Terms
from abeyance.errors import Code, Refusal

PAY = "refunds:approve"


def person(name: str, *capabilities: str, groups: tuple[str, ...] = ()) -> Principal:
    return Principal(subject=name, capabilities=capabilities, groups=groups)


ADA, BOB, CAROL = person("ada"), person("bob"), person("carol")
ROOT = person("root", EVERYTHING)
CFO = person("cfo", PAY)


def lent(
    by: str, to: str = "bob", *names: str, until: datetime | None = None, **fields: Any
) -> Delegation:
    """A delegation that holds from the beginning."""
    about = {"id": f"{by}-{to}", "capabilities": names, "since": at(0), "created_at": at(0)}
    return Delegation(by=by, to=to, until=until or at(9_000), **{**about, **fields})


def asking(*, capability: str | None = None, **terms: Any) -> Drive:
    """A run that waits for the answer to `ask`, and then runs `work`."""
    schema = {"properties": {"approved": {"type": "boolean"}}} if "quorum" in terms else None
    question = gate("ask", capability=capability, schema=schema, terms=Terms(**terms))
    return Drive(chain(question, "work"))


def refusal_of(run: Drive, who: Principal, name: str = "ask", **fields: Any) -> Refusal:
    about = run.response({run.open(name).id: "yes"}, principal=who, **fields)
    return run.refused(Responded, **about)


def claim(run: Drive, who: Principal, *, seconds: float = 60, **fields: Any) -> None:
    id_ = run.open("ask").id
    run.feed(events.Claimed, principal=who, interrupt_id=id_, seconds=seconds, **fields)


# assignees


def test_assignees_say_for_whom_a_question_is_and_restrict_nobody() -> None:
    run = asking(assignees=("ada",))
    run.answer("ask", "yes", principal=BOB)
    assert run.settled("ask").by == "bob"


def test_with_assignees_only_nobody_else_may_answer_not_even_who_may_do_everything() -> None:
    run = asking(assignees=("ada", "group:finance"), assignees_only=True)

    refusal = refusal_of(run, ROOT)

    assert refusal.code is Code.NOT_ASSIGNED
    assert refusal.details["assignees"] == ["ada", "group:finance"]
    run.answer("ask", "yes", principal=person("bob", groups=("finance",)))
    assert run.settled("ask").by == "bob"


def test_an_assignee_needs_the_capability_too() -> None:
    run = asking(assignees=("ada",), assignees_only=True, capability=PAY)
    assert refusal_of(run, ADA).code is Code.CAPABILITY_REQUIRED
    assert refusal_of(run, CFO).code is Code.NOT_ASSIGNED
    run.answer("ask", "yes", principal=person("ada", PAY))


def test_an_answer_without_a_principal_is_of_nobody_whom_a_question_is_for() -> None:
    run = asking(assignees=("ada",), assignees_only=True)
    assert refusal_of(run, TEMPORAL).code is Code.NOT_ASSIGNED


def test_where_a_quorum_names_its_people_nobody_else_has_a_vote() -> None:
    run = asking(assignees=("bob",), quorum=Quorum(count=2, of=("ada", "carol")))
    refusal = refusal_of(run, BOB)
    assert (refusal.code, refusal.details["assignees"]) == (Code.NOT_ASSIGNED, ["ada", "carol"])


# escalations


@pytest.mark.parametrize(
    ("escalation", "who"),
    [
        (Escalation(after=60, to=("carol",)), CAROL),
        (Escalation(after=60, to=("group:directors",)), person("dan", groups=("directors",))),
        (
            Escalation(after=60, requested_capability="refunds:director"),
            person("d", "refunds:director"),
        ),
    ],
)
def test_from_an_escalation_on_whom_it_names_may_answer_too(
    escalation: Escalation, who: Principal
) -> None:
    run = asking(assignees=("ada",), assignees_only=True, capability=PAY, escalate=(escalation,))
    run.wait(59)
    assert refusal_of(run, who).code is Code.CAPABILITY_REQUIRED
    run.wait(1)
    assert refusal_of(run, BOB).code is Code.CAPABILITY_REQUIRED
    run.answer("ask", "yes", principal=who)
    assert run.settled("ask").by == who.subject


def test_who_an_escalation_names_gets_the_receipt_of_their_answer_again() -> None:
    run = asking(capability=PAY, escalate=(Escalation(after=60, to=("carol",)),))
    run.wait(60)
    id_ = run.open("ask").id
    run.answer("ask", "yes", principal=CAROL)
    before = run.state
    run.feed(Responded, **run.response({id_: "yes"}, principal=CAROL))
    assert run.state is before


# four eyes


def started_by(who: str, *nodes: Any) -> Drive:
    run = Drive(chain(*nodes))
    run.state = replace(run.state, starters=(who,))
    return run


def eyes(name: str, *not_by: str, capability: str | None = None) -> Any:
    return gate(name, capability=capability, terms=Terms(not_by=not_by))


def test_who_started_the_run_may_not_answer() -> None:
    run = started_by("ada", "first", eyes("ask", STARTER))
    run.finish("first")

    refusal = refusal_of(run, person("ada", EVERYTHING))

    assert refusal.code is Code.SEPARATION_OF_DUTIES
    assert refusal.details["not_by"] == ["@starter"]
    assert "'ada' started the run" in refusal.message
    run.answer("ask", "yes", principal=BOB)


def test_who_answered_the_named_question_last_may_not_answer_either() -> None:
    run = restored_drive(Drive(chain(gate("one"), gate("two"), eyes("ask", "one"))))
    run.answer("one", "yes", principal=ADA)
    run.answer("two", "yes", principal=BOB)
    run = restored_drive(run)

    refusal = refusal_of(run, ADA)

    assert refusal.code is Code.SEPARATION_OF_DUTIES
    assert "'ada' answered 'one'" in refusal.message
    run.answer("ask", "yes", principal=BOB)


def restored_drive(run: Drive) -> Drive:
    run.state = restored(run.state)
    return run


def test_a_question_that_nobody_answered_bars_nobody() -> None:
    default = Default(answer="yes")
    run = Drive(chain(gate("one", timeout=5, on_timeout=default), eyes("ask", "one", "never")))
    run.tick(5)
    assert run.open("ask").barred == {}
    run.answer("ask", "yes", principal=ADA)


def test_an_answer_without_a_principal_is_no_other_pair_of_eyes() -> None:
    run = Drive(chain(eyes("ask", "never")))
    assert refusal_of(run, TEMPORAL).code is Code.SEPARATION_OF_DUTIES


def beside() -> Drive:
    return Drive(graph(gate("one"), eyes("ask", "one"), ways=[(START, "one"), (START, "ask")]))


def test_an_answer_bars_its_principal_from_a_question_that_is_open_already() -> None:
    run = beside()
    run.answer("one", "yes", principal=ADA)
    assert run.open("ask").barred == {"ada": "one"}
    assert refusal_of(run, ADA).code is Code.SEPARATION_OF_DUTIES


def test_nobody_answers_both_in_one_call() -> None:
    run = beside()
    both = {run.open(name).id: "yes" for name in ("one", "ask")}
    refusal = run.refused(Responded, **run.response(both, principal=ADA))
    assert refusal.code is Code.SEPARATION_OF_DUTIES
    assert "call of its own" in refusal.message


def test_each_item_of_a_fan_out_has_its_own_pairs_of_eyes() -> None:
    spec = sending(
        gate("one"),
        eyes("ask", "one"),
        eyes("last", "one"),
        ways=[("one", "ask"), edge(["ask"], "last")],
    )
    run = sent(spec, [1, 2])
    ids = [*run.state.ledger.open]
    for id_, who in zip(ids, (ADA, BOB), strict=True):
        run.feed(Responded, **run.response({id_: "yes"}, principal=who))
    first, second = run.state.ledger.open.values()
    assert (first.barred, second.barred) == ({"ada": "one"}, {"bob": "one"})
    for entry in (first, second):
        run.feed(Responded, **run.response({entry.id: "yes"}, principal=CAROL))
    assert run.open("last").barred == {"ada": "one", "bob": "one"}


def test_a_nested_graph_knows_who_answered_around_it() -> None:
    inner = chain(gate("again"), eyes("ask", "one", "again"), name="inner")
    run = Drive(chain(gate("one"), nested("sub", inner)))
    run.answer("one", "yes", principal=ADA)
    run.answer("again", "yes", principal=BOB)
    assert run.open("ask").barred == {"ada": "one", "bob": "again"}


def test_the_calls_of_an_agent_know_it_too() -> None:
    run = reviewing()
    run.ask("model", "one")
    run.answer("one", "yes", principal=ADA)
    turn(run, gated("c1", terms=Terms(not_by=("one",))))
    assert run.open("approve").barred == {"ada": "one"}


def test_who_forks_a_run_starts_it_as_well() -> None:
    run = started_by("ada", "first", eyes("ask", STARTER))
    run.finish("first")
    boss = person("boss", "runs:control")
    fork = forked(run.state, run_id="f", salt="s", back=0, now=run.now, principal=boss)
    (entry,) = fork.ledger.open.values()
    assert entry.barred == {"ada": "@starter", "boss": "@starter"}


def test_names_that_code_makes_up_are_forgotten_at_last() -> None:
    run = Drive(chain("work"))
    for number in range(202):
        run.ask("work", f"q{number}")
        run.answer(f"q{number}", "yes")
    names = [*run.state.root.answerers]
    assert (len(names), names[0], names[-1]) == (200, "q2", "q201")


# claims


def test_while_a_question_is_claimed_nobody_else_answers_it_and_a_claim_ends_by_itself() -> None:
    run = asking()
    claim(run, ADA, seconds=60)

    refusal = refusal_of(run, BOB)

    assert refusal.code is Code.CLAIMED
    assert refusal.details["claimed_by"] == "ada"
    assert refusal.details["claimed_until"] == rfc3339(at(60))
    run.wait(60)
    run.answer("ask", "yes", principal=BOB)
    assert run.settled("ask").by == "bob"


def test_who_has_claimed_a_question_answers_it_and_can_claim_it_for_longer() -> None:
    run = asking()
    claim(run, ADA, seconds=60)
    claim(run, ADA, seconds=600)
    (_, again) = run.facts("interrupt.claimed")
    id_ = run.open("ask").id
    assert again.data == {"id": id_, "name": "ask", "until": rfc3339(at(600))}
    assert refused_claim(run, BOB).code is Code.CLAIMED
    run.answer("ask", "yes", principal=ADA)


def refused_claim(run: Drive, who: Principal, **fields: Any) -> Refusal:
    about = {"principal": who, "interrupt_id": run.open("ask").id, "seconds": 60, **fields}
    return run.refused(events.Claimed, **about)


def test_only_who_may_answer_may_claim() -> None:
    run = asking(capability=PAY)
    assert refused_claim(run, ADA).code is Code.CAPABILITY_REQUIRED


def test_a_question_that_several_decide_cannot_be_claimed() -> None:
    run = asking(quorum=Quorum(count=2))
    assert refused_claim(run, ADA).code is Code.NOT_CLAIMABLE


def test_who_claimed_it_releases_it_or_who_controls_runs() -> None:
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


def test_a_claim_that_has_ended_is_nobodys_to_release() -> None:
    run = asking()
    claim(run, ADA, seconds=1)
    run.wait(1)
    run.feed(events.Released, principal=BOB, interrupt_id=run.open("ask").id)
    assert run.open("ask").claim is None
    assert run.facts("interrupt.released") == []


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
def test_who_controls_runs_reassigns_what_was_for_nobody(who: Principal) -> None:
    run = Drive(chain(gate("ask")))
    reassign(run, who, "ada")
    assert run.open("ask").terms == Terms(assignees=("ada",))


def test_who_has_claimed_a_question_reassigns_it_and_nobody_else() -> None:
    run = asking()
    claim(run, ADA)
    about = {"interrupt_id": run.open("ask").id, "to": ("carol",)}
    refusal = run.refused(events.Reassigned, principal=BOB, **about)
    assert refusal.code is Code.CAPABILITY_REQUIRED
    reassign(run, ADA, "carol")


def test_a_question_that_shows_other_values_is_still_for_whom_people_named() -> None:
    run = Drive(
        chain(gate("ask", prompt="Pay {x}?", terms=Terms(assignees=("ada",)))), values={"x": 1}
    )
    boss = person("boss", "runs:control")
    reassign(run, boss, "bob")
    run.feed(events.ValuesEdited, principal=boss, patch={"x": 2}, version=1)
    entry = run.open("ask")
    assert (entry.prompt, entry.terms and entry.terms.assignees) == ("Pay 2?", ("bob",))


def test_what_is_settled_is_neither_claimed_nor_reassigned() -> None:
    run = asking()
    id_ = run.open("ask").id
    run.answer("ask", "yes")
    for kind, fields in ((events.Claimed, {"seconds": 1}), (events.Reassigned, {"to": ("bob",)})):
        refusal = run.refused(kind, principal=ROOT, interrupt_id=id_, **fields)
        assert refusal.code is Code.ALREADY_ANSWERED


def test_a_fork_asks_without_the_claim() -> None:
    run = asking()
    claim(run, ADA)
    boss = person("boss", "runs:control")
    fork = forked(run.state, run_id="f", salt="s", back=0, now=run.now, principal=boss)
    (entry,) = fork.ledger.open.values()
    assert entry.claim is None


# delegations


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
    # The receipts of a repeat, by its key and without one.
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


def test_another_answer_hears_in_whose_place_the_first_was_given() -> None:
    run = asking()
    id_ = run.open("ask").id
    run.answer("ask", "yes", principal=BOB, on_behalf_of="ada", delegations=(lent("ada"),))
    refusal = run.refused(Responded, **run.response({id_: "no"}, principal=CAROL))
    assert (refusal.details["answered_by"], refusal.details["on_behalf_of"]) == ("bob", "ada")


@pytest.mark.parametrize(
    "delegation",
    [
        lent("ada", "bob"),
        lent("ada", "carol", PAY),
        lent("ada", "bob", PAY, since=at(1)),
        lent("ada", "bob", PAY, until=at(0)),
    ],
    ids=["lends something else", "to somebody else", "not yet", "over"],
)
def test_a_delegation_counts_for_its_delegate_in_its_time_for_what_it_lends(
    delegation: Delegation,
) -> None:
    run = asking(capability=PAY)
    refusal = refusal_of(run, BOB, delegations=(delegation,))
    assert refusal.code is Code.CAPABILITY_REQUIRED
    named = refusal_of(run, BOB, delegations=(delegation,), on_behalf_of="ada")
    assert named.code in {Code.CAPABILITY_REQUIRED, Code.NOT_ASSIGNED}


@pytest.mark.parametrize("capability", ["admin", "runs:control"])
def test_what_reaches_beyond_questions_is_never_lent(capability: str) -> None:
    run = asking(capability=capability)
    refusal = refusal_of(run, BOB, delegations=(lent("root", "bob", capabilities=None),))
    assert refusal.code is Code.CAPABILITY_REQUIRED


def test_of_a_maker_with_everything_whatever_a_question_asks_for_is_lent() -> None:
    run = asking(capability=PAY)
    everything = lent("root", "bob", capabilities=None)
    run.answer("ask", "yes", principal=BOB, delegations=(everything,))
    assert run.settled("ask").on_behalf_of == "root"


def test_a_delegate_answers_what_is_only_for_their_maker_or_the_makers_group() -> None:
    for assignee, groups in (("ada", ()), ("group:finance", ("finance",))):
        run = asking(assignees=(assignee,), assignees_only=True)
        run.answer("ask", "yes", principal=BOB, delegations=(lent("ada", groups=groups),))
        assert run.settled("ask").on_behalf_of == "ada"


def test_who_may_answer_does_so_in_their_own_right_unless_they_say_otherwise() -> None:
    delegations = (lent("ada"), lent("carol"))
    for said, expected in ((None, None), ("bob", None), ("carol", "carol")):
        run = asking()
        run.answer("ask", "yes", principal=BOB, on_behalf_of=said, delegations=delegations)
        assert run.settled("ask").on_behalf_of == expected


def test_who_has_no_right_of_their_own_cannot_name_themselves() -> None:
    run = asking(capability=PAY)
    delegations = (lent("ada", "bob", PAY),)
    refusal = refusal_of(run, BOB, delegations=delegations, on_behalf_of="bob")
    assert refusal.code is Code.CAPABILITY_REQUIRED


def test_who_may_answer_for_two_names_one() -> None:
    run = asking(capability=PAY)
    delegations = (lent("ada", "bob", PAY), lent("carol", "bob", PAY), lent("dan"))
    refusal = refusal_of(run, BOB, delegations=delegations)
    assert refusal.code is Code.AMBIGUOUS_DELEGATION
    assert refusal.details["on_behalf_of"] == ["ada", "carol"]
    run.answer("ask", "yes", principal=BOB, delegations=delegations, on_behalf_of="carol")
    assert run.settled("ask").on_behalf_of == "carol"


def test_without_a_delegation_nobody_answers_for_somebody() -> None:
    run = asking()
    refusal = refusal_of(run, BOB, on_behalf_of="ada")
    assert (refusal.code, refusal.details["on_behalf_of"]) == (Code.NOT_ASSIGNED, "ada")


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


def test_of_two_makers_the_one_who_is_not_barred_is_meant() -> None:
    run = started_by("ada", "first", eyes("ask", STARTER, capability=PAY))
    run.finish("first")
    delegations = (lent("ada", "bob", PAY), lent("carol", "bob", PAY))
    run.answer("ask", "yes", principal=BOB, delegations=delegations)
    assert run.settled("ask").on_behalf_of == "carol"


def test_a_delegate_uses_the_claim_of_whom_they_stand_for_and_claims_for_them() -> None:
    run = asking(capability=PAY)
    delegations = (lent("ada", "bob", PAY),)
    claim(run, person("ada", PAY))
    run.answer("ask", "yes", principal=BOB, delegations=delegations)
    run = asking(capability=PAY)
    claim(run, BOB, delegations=delegations)
    (fact,) = run.facts("interrupt.claimed")
    assert fact.data["on_behalf_of"] == "ada"
    assert refusal_of(run, CFO).details["on_behalf_of"] == "ada"
    run.answer("ask", "yes", principal=person("ada", PAY))


def test_for_whom_somebody_may_answer_can_be_listed() -> None:
    run = started_by("dan", "first", eyes("ask", STARTER, capability=PAY))
    run.finish("first")
    delegations = tuple(lent(by, "bob", PAY) for by in ("carol", "ada", "dan"))
    entry = run.open("ask")
    request = standing.Request(principal=BOB, now=run.now, delegations=delegations)
    assert standing.names(entry, request) == ["ada", "carol"]
    barred = replace(entry, barred={"bob": "one"})
    assert standing.names(barred, request) == []


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


def test_who_voted_for_somebody_learns_what_became_of_it() -> None:
    run = asking(quorum=Quorum(count=1), capability=PAY)
    id_, yes = run.open("ask").id, {"approved": True}
    run.answer("ask", yes, principal=BOB, delegations=(lent("ada", "bob", PAY),))
    (again,) = idempotency.receipts(
        run.state.ledger, Responded(now=run.now, **run.response({id_: yes}, principal=BOB))
    )
    assert (again.replayed, again.answered_by, again.on_behalf_of) == (True, "bob", "ada")


# warnings


def warnings_of(run: Drive) -> list[str]:
    return duties.warnings(run.state, run.open("ask"))


def test_a_question_warns_of_rules_that_nobody_can_fulfil() -> None:
    run = started_by("ada", "first", only_for("ada"))
    run.finish("first")
    assert warnings_of(run) == ["nobody whom it is for may answer: reassign it"]
    run = asking(
        assignees=("ada", "bob"), assignees_only=True, quorum=Quorum(count=2), not_by=("ada-did",)
    )
    run.state = replace(run.state, ledger=barring_first(run))
    assert warnings_of(run) == [
        "it takes the approval of more people than it is for: reassign it",
        "not_by names 'ada-did': no such question has been answered so far",
    ]


def only_for(name: str) -> Any:
    terms = Terms(assignees=(name,), assignees_only=True, not_by=(STARTER,))
    return gate("ask", terms=terms)


def barring_first(run: Drive) -> Any:
    entry = replace(run.open("ask"), barred={"ada": "one"})
    return replace(run.state.ledger, open={entry.id: entry})


def test_a_question_whose_rules_can_be_fulfilled_warns_of_nothing() -> None:
    assert warnings_of(Drive(chain(gate("ask")))) == []
    director = Escalation(after=60, requested_capability="direct")
    assert warnings_of(asking(assignees_only=True, escalate=(director,))) == []
    assert warnings_of(asking(assignees=("group:a",), assignees_only=True)) == []
    inner = chain(gate("inside"), name="inner")
    asks = eyes("ask", "one", "inside", STARTER)
    ways = [(START, "ask"), (START, "work"), ("work", "one"), ("one", "sub")]
    assert (
        warnings_of(Drive(graph(asks, "work", gate("one"), nested("sub", inner), ways=ways))) == []
    )
