"""A yes that is held for a while, and can be taken back."""

from __future__ import annotations

from typing import Any

from core_drive import ROOT, Drive, asked, at, chain, gate, graph

from abeyance.core import events, idempotency, machine, replies, run_retry
from abeyance.core.events import Responded
from abeyance.core.json import Json, rfc3339, sha256
from abeyance.core.ledger import Interrupt, InterruptTable, Ledger
from abeyance.core.lifecycle import may_evict
from abeyance.core.policy import TEMPORAL, TIMEOUT, Principal
from abeyance.core.replies import addressee, check_answers
from abeyance.core.run_retry import retried
from abeyance.core.spec import START, Default, FunctionNode
from abeyance.core.terms import Quorum, Terms
from abeyance.errors import Code, Refusal

HELD = Terms(hold=600.0)
APPROVAL: Json = {"properties": {"approved": {"type": "boolean"}}}
YES: Json = {"approved": True}
NO: Json = {"approved": False}
ADA, BOB = (Principal(subject=name) for name in ("ada", "bob"))
OPS = Principal(subject="ops", capabilities=("runs:control",))


def holding(answer: Json = YES, *, terms: Terms = HELD, **options: Any) -> Drive:
    """Start a run whose question `ask` Ada has answered, with `work` behind it."""
    run = Drive(chain(gate("ask", terms=terms, schema=APPROVAL, **options), "work"))
    run.says(ADA, "ask", answer)
    return run


def take_back(run: Drive, who: Principal = ADA, **fields: Any) -> None:
    run.feed(events.TakenBack, principal=who, interrupt_id=run.open("ask").id, **fields)


def refused(run: Drive, who: Principal, id_: str | None = None) -> Refusal:
    about = {"principal": who, "interrupt_id": id_ or run.open("ask").id}
    return run.refused(events.TakenBack, **about)


def test_code_begins_only_when_the_hold_is_over() -> None:
    run = holding()
    entry = run.open("ask")

    assert (entry.status, entry.held_until) == ("held", at(600))
    assert (run.status, run.started, run.state.next_deadline()) == ("awaiting-input", [], at(600))
    (fact,) = run.facts("interrupt.held")
    assert (fact.actor, fact.address) == ("ada", "graph:g;node:ask")
    assert fact.data == {
        "id": entry.id,
        "name": "ask",
        "answer_sha256": sha256(YES),
        "until": rfc3339(at(600)),
    }
    assert run.facts("interrupt.answered") == []
    run.tick(599)
    assert run.started == []
    run.tick(1)
    assert run.started == ["work"]
    settled = run.settled("ask")
    assert (settled.status, settled.by, settled.answer) == ("answered", "ada", YES)
    assert (settled.settled_at, settled.accepted_at) == (at(600), at(0))


def test_an_answer_that_is_not_a_yes_is_not_held() -> None:
    run = holding(NO)

    assert (run.started, run.facts("interrupt.held")) == (["work"], [])


def test_the_receipt_says_until_when_the_answer_is_held() -> None:
    run = Drive(chain(gate("ask", terms=HELD, schema=APPROVAL)))
    about = run.response({run.open("ask").id: YES}, principal=ADA, key="k")
    event = Responded(now=run.now, **about)
    (receipt,) = idempotency.receipts(run.state.ledger, event)
    run.feed(Responded, **about)
    called = idempotency.earlier(run.state.keys, event)

    assert (receipt.status, receipt.held_until, receipt.replayed) == ("held", at(600), False)
    assert called is not None
    (again,) = idempotency.receipts_again(called)
    assert (again.status, again.held_until, again.replayed) == ("held", at(600), True)


def test_the_same_answer_again_is_a_repeat_and_that_of_somebody_else_comes_too_late() -> None:
    run = holding()
    run.wait(5)
    about = run.response({run.open("ask").id: YES}, principal=ADA)
    before = run.seen()
    (receipt,) = check_answers(before.ledger, Responded(now=run.now, **about)).values()
    run.feed(Responded, **about)

    assert run.seen() == before
    assert (receipt.status, receipt.accepted_at, receipt.held_until) == ("held", at(0), at(600))
    for who, value in [(BOB, YES), (BOB, NO), (ADA, NO)]:
        refusal = run.refused_answer("ask", value, principal=who)
        assert refusal.code is Code.ALREADY_ANSWERED
        assert refusal.details == {
            "interrupt_id": run.open("ask").id,
            "answered_by": "ada",
            "answered_at": rfc3339(at(0)),
            "held_until": rfc3339(at(600)),
        }
        assert f"until {rfc3339(at(600))}: take it back" in refusal.message


def test_a_repeat_after_the_hold_has_the_time_of_the_first_receipt() -> None:
    run = holding()
    run.tick(600)
    (id_,) = run.state.ledger.settled
    event = Responded(now=run.now, **run.response({id_: YES}, principal=ADA))

    assert check_answers(run.state.ledger, event)[id_].accepted_at == at(0)


def test_a_default_is_not_held() -> None:
    run = Drive(
        chain(
            gate("ask", terms=HELD, schema=APPROVAL, timeout=60, on_timeout=Default(answer=YES)),
            "work",
        )
    )
    run.tick(60)

    assert (run.started, run.settled("ask").by) == (["work"], TIMEOUT)


def test_taken_back_the_question_is_open_again_with_the_time_that_it_had() -> None:
    run = holding(timeout=60)
    run.wait(100)
    take_back(run, note="too fast")
    entry = run.open("ask")

    assert (entry.status, entry.held, entry.held_until) == ("open", None, None)
    assert entry.deadline == at(160)
    (fact,) = run.facts("interrupt.reopened")
    assert (fact.actor, fact.data) == (
        "ada",
        {"id": entry.id, "name": "ask", "reason": "too fast"},
    )
    assert run.state.last_activity_at == at(100)
    run.tick(59)
    run.says(ADA, "ask", YES)
    assert run.open("ask").held_until == at(159 + 600)


def test_only_controllers_take_back_the_answers_of_others() -> None:
    refusal = refused(holding(), BOB)
    assert (refusal.code, refusal.details["capability"]) == (
        Code.CAPABILITY_REQUIRED,
        "runs:control",
    )
    assert refusal.message == (
        "You have not approved 'ask', and taking back the answer of somebody else requires "
        "'runs:control'."
    )
    for who in (OPS, ROOT, TEMPORAL):
        run = holding()
        take_back(run, who)
        assert run.open("ask").status == "open"


def test_only_a_held_answer_can_be_taken_back() -> None:
    run = holding()
    id_ = run.open("ask").id
    unknown = refused(run, ADA, "r.0")
    assert (unknown.code, unknown.details) == (Code.UNKNOWN_INTERRUPT, {"interrupt_id": "r.0"})
    take_back(run)
    refusal = refused(run, ADA)
    assert (refusal.code, refusal.details) == (Code.NOT_HELD, {"interrupt_id": id_})
    assert refusal.message == (
        f"{id_!r} is not held: a yes can be taken back until `held_until` of its question."
    )
    run.says(ADA, "ask", NO)
    assert refused(run, ADA, id_).code is Code.NOT_HELD
    run.finish("work")
    late = refused(run, ADA, id_)
    assert (late.code, late.message) == (
        Code.NOT_RUNNING,
        "The run is completed, so no answer can be taken back.",
    )


def test_a_yes_that_was_taken_back_bars_nobody() -> None:
    eyes = gate("other", terms=Terms(not_by=("ask",)))
    asks = gate("ask", terms=HELD, schema=APPROVAL)
    run = Drive(graph(asks, eyes, ways=[(START, "ask"), (START, "other")]))
    run.says(ADA, "ask", YES)
    assert run.open("other").barred == {"ada": "ask"}
    take_back(run)
    assert run.open("other").barred == {}


def test_a_deadline_cannot_be_moved_while_an_answer_is_held() -> None:
    run = holding()
    about = {"principal": ROOT, "interrupt_id": run.open("ask").id, "moves": True}

    refusal = run.refused(events.DeadlineEdited, **about)

    assert refusal.code is Code.ALREADY_ANSWERED
    held = run.open("ask").held
    assert held is not None
    assert rfc3339(held.at) in refusal.message


def test_an_answer_without_an_id_is_for_what_is_open_before_what_is_held() -> None:
    held = holding().open("ask")
    other = Drive(chain(gate("other"))).open("other")

    def meant(**entries: Interrupt) -> str:
        return addressee(Ledger(open=InterruptTable(entries)), YES, ADA)

    assert meant(a=held) == held.id
    assert meant(a=held, b=other) == other.id


def test_a_run_that_holds_an_answer_is_not_inactive() -> None:
    run = holding()

    assert not may_evict(run.state, events.Evicted(now=at(9), actor="x", inactive_since=at(9)))


# With votes


def test_a_vote_that_decides_is_held_and_each_who_approved_can_take_back_their_own() -> None:
    terms = Terms(hold=600.0, quorum=Quorum(count=2, veto=False))
    run = holding(terms=terms)
    run.says(BOB, "ask", NO)
    run.says(OPS, "ask", YES)
    assert run.open("ask").status == "held"
    assert refused(run, BOB).code is Code.CAPABILITY_REQUIRED
    take_back(run, ADA)

    assert [vote.by for vote in run.open("ask").votes] == ["bob", "ops"]
    run.says(ADA, "ask", YES)
    assert [vote.by for vote in run.open("ask").votes] == ["bob", "ops", "ada"]
    run.tick(600)
    assert run.started == ["work"]


def test_every_voter_can_repeat_a_vote_while_it_is_held() -> None:
    run = holding(terms=Terms(hold=600.0, quorum=Quorum(count=2)))
    run.says(BOB, "ask", YES)
    event = Responded(now=run.now, **run.response({run.open("ask").id: YES}, principal=ADA))
    (receipt,) = replies.check_answers(run.state.ledger, event).values()

    assert (receipt.status, receipt.answered_by, receipt.replayed) == ("held", "ada", True)


def test_an_operator_who_takes_it_back_clears_all_votes() -> None:
    run = holding(terms=Terms(hold=600.0, quorum=Quorum(count=2)))
    run.says(BOB, "ask", YES)
    take_back(run, OPS)

    assert (run.open("ask").status, run.open("ask").votes) == ("open", ())


# The run meanwhile


def test_a_retry_asks_again_for_an_answer_that_was_held() -> None:
    run = holding(terms=Terms(hold=600.0, quorum=Quorum(count=2)), timeout=60)
    run.wait(50)
    run.says(BOB, "ask", YES)
    run.wait(50)
    run.cancel()
    run.wait(100)
    again = retried(run.state, now=run.now, principal=ROOT, versions=("", ""), patch={}, renames={})

    (entry,) = again.ledger.open.values()
    assert (entry.status, [vote.by for vote in entry.votes]) == ("open", ["ada"])
    assert entry.deadline == at(210)


def test_a_question_that_shows_something_else_is_open_again() -> None:
    terms = Terms(hold=600.0)
    run = Drive(
        chain(gate("ask", prompt="Pay {x}?", schema=APPROVAL, terms=terms), "work"), values={"x": 1}
    )
    run.says(ADA, "ask", YES)
    run.edit(ROOT, x=2)

    assert (run.open("ask").status, run.open("ask").prompt) == ("open", "Pay 2?")
    assert len(run.facts("interrupt.reopened")) == 1
    run.tick(600)
    assert run.started == []


def test_code_that_asks_the_same_again_leaves_the_answer_held() -> None:
    run = Drive(chain(FunctionNode(id="code", asks=()), "work"))
    run.ask("code", asked("ask", terms=HELD), composite=True)
    run.says(ADA, "ask", YES)
    run.edit(ROOT, x=2)
    run.ask("code", asked("ask", terms=HELD), composite=True)
    assert (run.open("ask").status, run.started) == ("held", ["code", "code"])
    run.tick(600)

    assert run.orders("code")[-1].own_answers == {"ask": YES}


def test_a_yes_that_is_held_has_the_time_left_that_it_had_before_a_rewind() -> None:
    run = holding()
    machine.advance(run.state, events.Paused(now=at(20), actor="ada"))

    run_retry.begin_era(run.state, "1", at(1_000))

    assert (run.open("ask").status, run.open("ask").held_until) == ("held", at(1_580))
