"""Who may answer a question: assignees, escalations, four eyes, and rules that nobody can fulfil."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core_agents import gated, reviewing, turn
from core_askers import (
    ADA,
    BOB,
    CAROL,
    CFO,
    PAY,
    ROOT,
    asking,
    eyes,
    person,
    refusal_of,
    started_by,
)
from core_drive import Drive, asked, at, chain, edge, gate, graph, nested
from core_graphs import sending, sent

from abeyance.core import four_eyes, who_may_answer
from abeyance.core.ledger import InterruptTable
from abeyance.core.policy import EVERYTHING, TEMPORAL, Principal
from abeyance.core.spec import START, Default
from abeyance.core.terms import STARTER, Escalation, Quorum, Terms
from abeyance.errors import Code, Refusal

# assignees


def test_assignees_say_for_whom_a_question_is_and_restrict_nobody() -> None:
    run = asking(assignees=("ada",))
    run.answer("ask", "yes", principal=BOB)
    assert run.settled("ask").by == "bob"


def test_assignees_only_excludes_even_people_with_all_capabilities() -> None:
    run = asking(assignees=("ada", "group:finance"), assignees_only=True)
    for who in (ROOT, TEMPORAL):
        refusal = refusal_of(run, who)
        assert refusal.code is Code.NOT_ASSIGNED
        assert refusal.details["assignees"] == ["ada", "group:finance"]

    run.answer("ask", "yes", principal=person("bob", groups=("finance",)))
    assert run.settled("ask").by == "bob"


def test_an_assignee_needs_the_capability_too() -> None:
    run = asking(assignees=("ada",), assignees_only=True, capability=PAY)
    assert refusal_of(run, ADA).code is Code.CAPABILITY_REQUIRED
    assert refusal_of(run, CFO).code is Code.NOT_ASSIGNED
    run.answer("ask", "yes", principal=person("ada", PAY))


def test_a_refused_answer_names_the_question_and_who_may_answer() -> None:
    run = asking(assignees=("ada", "bob"), assignees_only=True)
    refusal = refusal_of(run, CAROL)
    assert "it is only for ada, bob" in refusal.message
    assert refusal.details == {
        "interrupt_id": run.open("ask").id,
        "assignees": ["ada", "bob"],
    }

    run = asking(quorum=Quorum(count=2, of=("ada", "bob")))
    refusal = refusal_of(run, CAROL)
    assert "You have no vote on 'ask'. These have: ada, bob" in refusal.message
    refusal = refusal_of(run, TEMPORAL)
    assert refusal.code is Code.NOT_ASSIGNED

    run = asking(quorum=Quorum(count=2))
    refusal = refusal_of(run, TEMPORAL)
    assert "takes the votes of 2 people" in refusal.message
    assert refusal.details == {"interrupt_id": run.open("ask").id}
    run = asking(quorum=Quorum(count=2), capability=PAY)
    assert refusal_of(run, TEMPORAL).code is Code.CAPABILITY_REQUIRED


def test_a_refusal_names_the_first_twenty_of_whom_a_question_is_for() -> None:
    names = tuple(f"p{number}" for number in range(21))
    refusal = refusal_of(asking(assignees=names, assignees_only=True), ADA)
    assert refusal.details["assignees"] == [*names[:20]]


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


def test_a_refusal_names_the_people_of_a_past_escalation() -> None:
    escalation = Escalation(after=60, to=("group:directors",), requested_capability=PAY)
    run = asking(assignees=("ada",), assignees_only=True, escalate=(escalation,))
    assert refusal_of(run, BOB).details["assignees"] == ["ada"]
    run.wait(60)
    refusal = refusal_of(run, BOB)
    assert refusal.details["assignees"] == ["ada", "group:directors"]
    assert "only for ada, group:directors" in str(refusal)


def test_people_of_an_escalation_are_refused_with_its_capability() -> None:
    escalation = Escalation(after=60, to=("group:directors",), requested_capability="cfo:only")
    run = asking(assignees=("ada",), assignees_only=True, capability=PAY, escalate=(escalation,))
    run.wait(60)
    for capabilities in ((), (PAY,)):
        refusal = refusal_of(run, person("dan", *capabilities, groups=("directors",)))
        assert refusal.details["capabilities"] == ["cfo:only"]
    assert refusal_of(run, person("ada", "cfo:only")).details["capabilities"] == [PAY]
    assert refusal_of(run, person("bob", "cfo:only")).details["capabilities"] == [PAY]


def test_people_of_an_escalation_get_their_receipt_again() -> None:
    run = asking(capability=PAY, escalate=(Escalation(after=60, to=("carol",)),))
    run.wait(60)
    id_ = run.open("ask").id
    run.answer("ask", "yes", principal=CAROL)
    before = run.seen()
    run.respond({id_: "yes"}, principal=CAROL)
    assert run.seen() == before


def test_an_escalation_without_its_moment_never_comes() -> None:
    run = asking(capability=PAY, escalate=(Escalation(after=60, to=("carol",)),))
    entry = replace(run.open("ask"), escalations=())
    with pytest.raises(Refusal) as refused:
        who_may_answer.acting_for(entry, who_may_answer.Request(principal=CAROL, now=at(61)))
    assert refused.value.code is Code.CAPABILITY_REQUIRED


# four eyes


def test_the_starter_of_the_run_may_not_answer() -> None:
    run = started_by("ada", "first", eyes("ask", STARTER))
    run.finish("first")

    refusal = refusal_of(run, person("ada", EVERYTHING))

    assert refusal.code is Code.SEPARATION_OF_DUTIES
    assert refusal.details == {"interrupt_id": run.open("ask").id, "not_by": ["@starter"]}
    assert refusal.message == (
        "You started this run, so you cannot answer 'ask'. Ask another approver."
    )
    run.answer("ask", "yes", principal=BOB)


def test_the_last_answerer_of_the_named_question_may_not_answer() -> None:
    run = Drive(chain(gate("one"), gate("two"), eyes("ask", "one")))
    run.read_again()
    run.answer("one", "yes", principal=ADA)
    run.answer("two", "yes", principal=BOB)
    run.read_again()

    refusal = refusal_of(run, ADA)

    assert refusal.code is Code.SEPARATION_OF_DUTIES
    assert refusal.message.startswith("You answered 'one', so you cannot answer 'ask'.")
    run.answer("ask", "yes", principal=BOB)


def test_a_question_that_nobody_answered_bars_nobody() -> None:
    default = Default(answer="yes")
    run = Drive(chain(gate("one", timeout=5, on_timeout=default), eyes("ask", "one", "outcome")))
    run.tick(5)
    assert run.open("ask").barred == {}
    run.answer("ask", "yes", principal=ADA)


MISNAMED = asked("ask", terms=Terms(not_by=("on",)))


@pytest.mark.parametrize("by", ["a node", "code", "a call", "nested code"])
def test_a_question_that_would_bar_nobody_is_not_asked(by: str) -> None:
    match by:
        case "a node":
            run = Drive(chain(gate("one"), eyes("ask", "on")))
            run.answer("one", "yes", principal=ADA)
        case "code":
            run = Drive(chain(gate("one"), "work"))
            run.answer("one", "yes", principal=ADA)
            run.ask("work", MISNAMED)
        case "a call":
            run = reviewing()
            turn(run, gated("c1", terms=Terms(not_by=("on",))))
        case _:
            # Questions of a nested graph bar nobody around it.
            run = Drive(chain(nested("sub", chain(gate("on"))), eyes("ask", "on")))
            run.answer("on", "yes", principal=ADA)
    assert (run.status, [*run.state.ledger.open]) == ("failed", [])
    assert run.error[0] == "unknown_question"
    assert "not_by= names 'on'" in run.error[1]


def test_a_name_that_was_asked_or_is_asked_at_the_same_time_bars_its_answerer() -> None:
    run = Drive(chain("work"))
    run.ask("work", "on", MISNAMED)
    run.answer("on", "yes", principal=ADA)
    assert run.open("ask").barred == {"ada": "on"}
    run.answer("ask", "yes", principal=BOB)
    run.ask("work", asked("again", terms=Terms(not_by=("on", "again"))))
    assert run.open("again").barred == {"ada": "on"}


def test_an_anonymous_answer_does_not_satisfy_four_eyes() -> None:
    run = Drive(chain(eyes("ask", STARTER)))
    refusal = refusal_of(run, TEMPORAL)
    assert refusal.code is Code.SEPARATION_OF_DUTIES
    assert "'ask' bars some people, and nobody knows whose this answer is" in refusal.message
    assert refusal.details == {"interrupt_id": run.open("ask").id, "not_by": [STARTER]}


def beside() -> Drive:
    return Drive(graph(gate("one"), eyes("ask", "one"), ways=[(START, "one"), (START, "ask")]))


def deciding(**terms: Any) -> Drive:
    """Start a run that asks `one`, and beside it `both`, which the answerer of `one` may not answer."""
    both = gate("both", schema={"type": "boolean"}, terms=Terms(not_by=("one",), **terms))
    return Drive(graph(gate("one"), both, ways=[(START, "one"), (START, "both")]))


def test_a_vote_of_somebody_who_is_barred_since_counts_no_more() -> None:
    run = deciding(quorum=Quorum(count=2))
    run.answer("both", True, principal=ADA)
    run.answer("one", "yes", principal=ADA)
    assert (run.open("both").votes, run.open("both").barred) == ((), {"ada": "one"})
    (fact,) = run.facts("interrupt.reopened")
    assert fact.data["reason"] == "'ada' has answered 'one' since"
    run.answer("both", True, principal=BOB)
    assert [vote.by for vote in run.open("both").votes] == ["bob"]
    run.answer("both", True, principal=CAROL)
    assert run.state.ledger.open == {}


def test_a_held_yes_of_somebody_who_is_barred_since_counts_no_more() -> None:
    run = deciding(hold=600.0)
    run.answer("both", True, principal=ADA)
    run.answer("one", "yes", principal=ADA)
    run.tick(600)

    assert (run.open("both").status, run.open("both").barred) == ("open", {"ada": "one"})
    run.answer("both", True, principal=BOB)
    run.tick(600)
    assert run.state.ledger.open == {}


def test_an_answer_that_no_longer_counts_bars_nobody() -> None:
    third = gate("third", terms=Terms(not_by=("both",)))
    both = gate("both", schema={"type": "boolean"}, terms=Terms(not_by=("one",), hold=600.0))
    names = ("one", "both", "third")
    run = Drive(graph(gate("one"), both, third, ways=[(START, name) for name in names]))
    run.answer("both", True, principal=ADA)
    assert run.open("third").barred == {"ada": "both"}
    run.answer("one", "yes", principal=ADA)

    assert run.open("third").barred == {}


def test_a_vote_bars_nobody_from_its_own_question() -> None:
    terms = Terms(quorum=Quorum(count=2, veto=False), not_by=("ask",))
    run = Drive(chain(gate("ask", schema={"type": "boolean"}, terms=terms)))
    run.answer("ask", True, principal=ADA)
    run.answer("ask", False, principal=ADA)

    assert run.open("ask").barred == {}
    assert [vote.answer for vote in run.open("ask").votes] == [False]


def test_nobody_answers_both_in_one_call() -> None:
    run = beside()
    both = {run.open(name).id: "yes" for name in ("one", "ask")}
    refusal = run.refused_response(both, principal=ADA)
    assert refusal.code is Code.SEPARATION_OF_DUTIES
    assert refusal.message.startswith("One person may not answer both 'ask' and 'one': ")
    assert refusal.details == {"interrupt_id": run.open("ask").id, "not_by": ["one"]}


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
        run.respond({id_: "yes"}, principal=who)
    first, second = run.state.ledger.open.values()
    assert (first.barred, second.barred) == ({"ada": "one"}, {"bob": "one"})
    for entry in (first, second):
        run.respond({entry.id: "yes"}, principal=CAROL)
    assert run.open("last").barred == {"ada": "one", "bob": "one"}


def test_a_nested_graph_may_name_a_question_that_will_be_asked_around_it() -> None:
    run = Drive(chain(nested("sub", chain(eyes("ask", "later"), name="inner")), gate("later")))
    assert (run.open("ask").barred, run.status) == ({}, "awaiting-input")


def test_a_nested_graph_knows_who_answered_around_it() -> None:
    inner = chain(gate("again"), eyes("ask", "one", "again"), name="inner")
    run = Drive(chain(gate("one"), nested("sub", inner)))
    run.answer("one", "yes", principal=ADA)
    run.answer("again", "yes", principal=BOB)
    assert run.open("ask").barred == {"ada": "one", "bob": "again"}


def test_a_vote_in_one_nested_graph_bars_nobody_in_another() -> None:
    votes = Terms(quorum=Quorum(count=2))
    approval = {"properties": {"approved": {"type": "boolean"}}}
    left = chain(gate("one", schema=approval, terms=votes), name="left")
    right = chain(eyes("ask", "one"), gate("one"), name="right")
    run = Drive(graph(nested("l", left), nested("r", right), ways=[(START, "l"), (START, "r")]))
    run.answer("one", {"approved": True}, principal=ADA)
    assert len(run.open("one").votes) == 1
    assert run.open("ask").barred == {}


def test_the_calls_of_an_agent_know_it_too() -> None:
    run = reviewing()
    run.ask("model", "one")
    run.answer("one", "yes", principal=ADA)
    turn(run, gated("c1", terms=Terms(not_by=("one",))))
    assert run.open("approve").barred == {"ada": "one"}


def test_names_that_code_makes_up_are_forgotten_at_last() -> None:
    run = Drive(chain("work"))
    for number in range(202):
        run.ask("work", f"q{number}")
        run.answer(f"q{number}", "yes")
    names = [*run.state.root.answerers]
    assert (len(names), names[0], names[-1]) == (200, "q2", "q201")


# warnings


def warnings_of(run: Drive) -> list[str]:
    return four_eyes.warnings(run.state, run.open("ask"))


def test_a_question_warns_of_rules_that_nobody_can_fulfil() -> None:
    run = started_by("ada", "first", only_for("ada"))
    run.finish("first")
    assert warnings_of(run) == ["all people whom it is for are barred: reassign it"]
    run = asking(
        assignees=("ada", "bob"), assignees_only=True, quorum=Quorum(count=2), not_by=(STARTER,)
    )
    run.state = replace(run.state, ledger=barring_first(run))
    assert warnings_of(run) == [
        "it needs more approvals than it has people who may answer: reassign it",
    ]
    run = asking(quorum=Quorum(count=2, of=("ada", "bob")), not_by=(STARTER,))
    run.state = replace(run.state, ledger=barring_first(run))
    assert warnings_of(run) == [
        "it needs more approvals than it has people who may answer: reassign it, and its votes too",
    ]


def test_a_question_warns_that_what_bars_people_from_it_is_asked_no_more() -> None:
    run = Drive(
        graph(
            "work",
            "first",
            eyes("ask", "made-up"),
            ways=[(START, "work"), (START, "first"), ("first", "ask")],
        )
    )
    run.ask("work", "made-up", "other", composite=True)
    run.finish("first")
    assert warnings_of(run) == []
    run.answer("other", "yes")
    run.ask("work", "third", composite=True)
    assert warnings_of(run) == ["not_by names 'made-up', which is no longer asked: it bars nobody"]


def only_for(name: str) -> Any:
    terms = Terms(assignees=(name,), assignees_only=True, not_by=(STARTER,))
    return gate("ask", terms=terms)


def barring_first(run: Drive) -> Any:
    entry = replace(run.open("ask"), barred={"ada": "one"})
    return replace(run.state.ledger, open=InterruptTable({entry.id: entry}))


def test_a_question_whose_rules_can_be_fulfilled_warns_of_nothing() -> None:
    assert warnings_of(Drive(chain(gate("ask")))) == []
    director = Escalation(after=60, requested_capability="direct")
    assert warnings_of(asking(assignees_only=True, escalate=(director,))) == []
    boss = Escalation(after=60, to=("boss",))
    run = asking(assignees=("ada",), assignees_only=True, escalate=(boss,))
    run.state = replace(run.state, ledger=barring_first(run))
    assert warnings_of(run) == []
    assert warnings_of(asking(assignees=("group:a",), assignees_only=True)) == []
    assert warnings_of(asking(assignees=("ada", "bob"), assignees_only=True)) == []
    run = asking(assignees=("ada", "bob"), assignees_only=True, quorum=Quorum(count=2))
    assert warnings_of(run) == []
    inner = chain(gate("inside"), name="inner")
    asks = eyes("ask", "one", STARTER)
    ways = [(START, "ask"), (START, "work"), ("work", "one"), ("one", "sub")]
    assert (
        warnings_of(Drive(graph(asks, "work", gate("one"), nested("sub", inner), ways=ways))) == []
    )
