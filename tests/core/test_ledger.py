"""The receipt or the refusal that each kind of answer gets."""

from __future__ import annotations

from typing import Any

import pytest
from core_drive import ADA, Drive, at, chain, gate, graph

from abeyance.core.events import Responded, SchemaFault
from abeyance.core.json import Json, rfc3339, sha256
from abeyance.core.ledger import Receipt
from abeyance.core.policy import EVERYTHING, TEMPORAL, Principal
from abeyance.core.replies import addressee, check_answers, refuse_strays
from abeyance.core.spec import END, START, Default, GoTo
from abeyance.errors import Code, Refusal

CFO = Principal(subject="cfo", capabilities=("refunds:approve",))


def asking(**options: Any) -> Drive:
    """Start a run that waits for the answer to `ask`, and then for nothing."""
    return Drive(chain(gate("ask", **options)))


def refusal_of(run: Drive, answers: dict[str, Json], **fields: Any) -> Refusal:
    """Return the refusal of answers, which has a message for people."""
    refusal = run.refused_response(answers, **fields)
    assert refusal.message
    return refusal


# accepted


def test_an_accepted_answer_settles_the_interrupt_and_leaves_a_receipt() -> None:
    run = asking(schema={})
    id_ = run.open("ask").id
    run.wait(3)
    run.answer("ask", {"approved": True}, note="fine by me")

    settled = run.settled("ask")
    assert run.state.ledger.open == {}
    assert (settled.status, settled.by, settled.settled_at) == ("answered", "ada", at(3))
    assert settled.answer_sha256 == sha256({"approved": True})
    assert settled.note == "fine by me"
    (fact,) = run.facts("interrupt.answered")
    assert (fact.address, fact.actor) == ("graph:g;node:ask", "ada")
    assert fact.data == {
        "id": id_,
        "name": "ask",
        "answer_sha256": sha256({"approved": True}),
        "note": "fine by me",
    }


@pytest.mark.parametrize("value", [None, False])
def test_null_and_empty_values_are_answers(value: Json) -> None:
    run = Drive(chain(gate("ask", answer_to="x"), "work"), values={"x": "before"})
    run.answer("ask", value)

    assert run.values["x"] == value
    assert run.state.root.answers == {"ask": value}
    assert run.started == ["work"]


# the same answer again


@pytest.mark.parametrize("is_over", [False, True])
def test_the_same_answer_again_gets_the_first_receipt(is_over: bool) -> None:
    run = Drive(chain(gate("ask"), "work"))
    id_ = run.open("ask").id
    run.answer("ask", {"b": 1, "a": [1.0]})
    if is_over:
        run.finish("work")
    run.wait(60)
    before = run.seen()
    again = run.response({id_: {"a": [1], "b": 1.0}})

    run.feed(Responded, **again)

    assert run.seen() == before
    assert run.last == ()
    (receipt,) = check_answers(run.state.ledger, Responded(now=run.now, **again)).values()
    assert receipt == Receipt(interrupt_id=id_, answered_by="ada", accepted_at=at(0), replayed=True)


# refused


def test_the_ledger_keeps_the_beginning_of_a_long_note() -> None:
    run = asking(schema={})
    run.answer("ask", 1, note="n" * 2_000)

    assert run.settled("ask").note == "n" * 497 + "..."


def test_another_answer_to_a_settled_one_is_refused() -> None:
    run = asking()
    id_ = run.open("ask").id
    run.answer("ask", True)

    refusal = refusal_of(run, {id_: False})
    assert refusal.code is Code.ALREADY_ANSWERED
    assert refusal.details == {
        "interrupt_id": id_,
        "answered_by": "ada",
        "answered_at": rfc3339(at(0)),
    }
    assert refusal.message.endswith(", with another answer.")
    assert refusal_of(run, {id_: 1}).code is Code.ALREADY_ANSWERED


def test_an_expired_interrupt_is_gone_and_a_cancelled_one_is_withdrawn() -> None:
    run = Drive(chain(gate("ask", timeout=10, on_timeout=GoTo(node="late")), "late"))
    id_ = run.open("ask").id
    run.tick(10)
    refusal = refusal_of(run, {id_: True})
    assert refusal.code is Code.EXPIRED
    assert refusal.details == {"interrupt_id": id_, "deadline": rfc3339(at(10))}

    run = asking()
    id_ = run.open("ask").id
    run.cancel(reason="changed our minds")
    refusal = refusal_of(run, {id_: True})
    assert refusal.code is Code.WITHDRAWN
    assert refusal.details == {"interrupt_id": id_, "status": "cancelled"}
    assert "the run ended: cancelled" in refusal.message
    assert run.settled("ask").by == "bob"


def test_an_answer_that_misses_its_schema_is_refused_with_pointers() -> None:
    run = asking(schema={"type": "object"})
    id_ = run.open("ask").id
    faults = (
        SchemaFault(pointer="/amount", message="is not a number"),
        SchemaFault(pointer="", message="x"),
    )

    refusal = refusal_of(run, {id_: {}}, schema_faults={id_: faults})
    assert refusal.code is Code.INVALID_ANSWER
    assert refusal.details == {
        "interrupt_id": id_,
        "errors": [
            {"pointer": "/amount", "message": "is not a number"},
            {"pointer": "", "message": "x"},
        ],
    }
    assert "/amount: is not a number; (the answer): x" in refusal.message
    assert run.waiting == ["ask"]


def test_an_answer_that_nobody_held_against_its_schema_is_refused_if_it_has_one() -> None:
    run = asking(schema={"type": "object"})
    id_ = run.open("ask").id
    refusal = refusal_of(run, {id_: {}}, schema_faults={})
    assert refusal.code is Code.INVALID_ANSWER
    assert refusal.details == {"interrupt_id": id_, "errors": []}

    plain = asking()
    plain.answer("ask", 1, schema_faults={})
    assert plain.status == "completed"


@pytest.mark.parametrize("value", [float("inf"), float("nan"), {"a": [float("-inf")]}])
def test_an_answer_that_is_not_json_is_refused(value: Json) -> None:
    run = asking()
    id_ = run.open("ask").id

    refusal = refusal_of(run, {id_: value})
    assert refusal.code is Code.INVALID_ANSWER
    (error,) = refusal.details["errors"]
    assert refusal.details == {"interrupt_id": id_, "errors": [{**error, "pointer": ""}]}
    assert error["message"] in refusal.message
    run.answer("ask", 1)
    assert refusal_of(run, {id_: value}).code is Code.INVALID_ANSWER


@pytest.mark.parametrize(
    ("principal", "called"),
    [
        (ADA, "You"),
        (TEMPORAL, "'temporal'"),
        (Principal(subject="root", capabilities=("admin",)), "You"),
    ],
)
def test_a_missing_capability_is_named(principal: Principal, called: str) -> None:
    run = asking(capability="refunds:approve")
    id_ = run.open("ask").id

    refusal = refusal_of(run, {id_: True}, principal=principal)
    assert refusal.code is Code.CAPABILITY_REQUIRED
    assert refusal.details == {
        "interrupt_id": id_,
        "capability": "refunds:approve",
        "capabilities": ["refunds:approve"],
    }
    assert refusal.message.startswith(f"{called} may not answer 'ask'")
    assert run.waiting == ["ask"]
    # The refusal is the same once somebody else has answered.
    run.answer("ask", True, principal=CFO)
    assert refusal_of(run, {id_: True}, principal=principal).code is Code.CAPABILITY_REQUIRED


@pytest.mark.parametrize(
    ("capability", "principal"),
    [
        ("refunds:approve", CFO),
        ("refunds:approve", Principal(subject="dev", capabilities=(EVERYTHING,))),
        (None, TEMPORAL),
    ],
)
def test_a_person_with_the_requested_capability_may_answer(
    capability: str | None, principal: Principal
) -> None:
    run = asking(capability=capability)
    run.answer("ask", True, principal=principal)

    assert run.settled("ask").by == principal.subject


def test_an_answer_to_what_was_shown_before_is_stale() -> None:
    run = asking()
    shown = run.open("ask")

    refusal = refusal_of(run, {shown.id: True}, digests={shown.id: "sha256:0"})
    assert refusal.code is Code.STALE
    assert refusal.details == {"interrupt_id": shown.id, "digest": shown.digest}
    run.answer("ask", True, digests={shown.id: shown.digest})
    assert run.status == "completed"


def test_a_digest_of_what_is_not_answered_is_stale() -> None:
    run = asking()
    shown = run.open("ask")
    other = f"{shown.id[:-1]}x"
    event = Responded(**run.response({shown.id: True}, digests={other: shown.digest}), now=at(1))

    with pytest.raises(Refusal) as refused:
        refuse_strays(event)
    assert refused.value.code is Code.STALE
    assert refused.value.details == {"interrupt_id": other, "answered": [shown.id]}
    assert repr(other) in refused.value.message
    refuse_strays(Responded(**run.response({shown.id: True}), now=at(1)))


@pytest.mark.parametrize("default", [{"approved": False}, "x" * 600])
def test_an_answer_after_the_default_is_refused_with_the_default(default: Json) -> None:
    run = asking(timeout=10, on_timeout=Default(answer=default))
    id_ = run.open("ask").id
    run.tick(10)

    for answer in ({"approved": True}, default):
        refusal = refusal_of(run, {id_: answer})
        assert refusal.code is Code.ALREADY_ANSWERED
        assert refusal.details == {
            "interrupt_id": id_,
            "answered_by": "timeout",
            "answered_at": rfc3339(at(10)),
            "answer": default,
        }


# answers without an id


def test_an_answer_without_an_id_means_the_only_open_interrupt() -> None:
    run = asking()
    assert addressee(run.state.ledger, None, ADA) == run.open("ask").id

    with pytest.raises(Refusal) as caught:
        addressee(Drive(graph(ways=[(START, END)])).state.ledger, None, ADA)
    assert (caught.value.code, caught.value.details) == (Code.NOTHING_OPEN, {})


@pytest.mark.parametrize(
    ("answer", "is_same"), [({"yes": True}, True), ({"yes": 1}, False), (float("nan"), False)]
)
def test_an_answer_with_nothing_open_is_refused_with_the_last_answer(
    answer: Any, *, is_same: bool
) -> None:
    run = asking()
    id_ = run.open("ask").id
    run.answer("ask", {"yes": True})

    with pytest.raises(Refusal) as caught:
        addressee(run.state.ledger, answer, ADA)

    assert caught.value.code is Code.NOTHING_OPEN
    assert caught.value.details["last"] == {
        "interrupt_id": id_,
        "name": "ask",
        "answered_by": "ada",
        "accepted_at": rfc3339(at(0)),
        "same_answer": is_same,
    }
    told = f"at {rfc3339(at(0))}, with {'the same' if is_same else 'another'} answer."
    assert caught.value.message.endswith(told)


@pytest.mark.parametrize(("principal", "is_told"), [(ADA, False), (CFO, True)])
def test_only_a_person_who_could_have_answered_sees_the_last_answer(
    principal: Principal, *, is_told: bool
) -> None:
    run = asking(capability="refunds:approve")
    run.answer("ask", {"yes": True}, principal=CFO)

    with pytest.raises(Refusal) as caught:
        addressee(run.state.ledger, {"yes": True}, principal)

    assert caught.value.code is Code.NOTHING_OPEN
    assert ("last" in caught.value.details, "by you at" in caught.value.message) == (
        is_told,
        is_told,
    )


def test_an_answer_without_an_id_is_ambiguous_where_several_are_open() -> None:
    names = [f"ask{number}" for number in range(11)]
    run = Drive(graph(*map(gate, names), ways=[(START, name) for name in names]))

    with pytest.raises(Refusal) as caught:
        addressee(run.state.ledger, None, ADA)

    assert caught.value.code is Code.AMBIGUOUS_INTERRUPT
    assert caught.value.details == {
        "open_interrupts": [{"id": run.open(name).id, "name": name} for name in names]
    }
    assert caught.value.message == (
        "11 interrupts are open, so an answer must name the id of one: "
        f"{', '.join(run.open(name).id for name in names[:10])}."
    )


# several at once


def test_one_wrong_answer_refuses_all() -> None:
    run = Drive(
        graph(
            gate("one"),
            gate("two", capability="boss"),
            gate("three", schema={}),
            gate("four", capability="auditor"),
            ways=[(START, name) for name in ("one", "two", "three", "four")],
        )
    )
    one, two, three, four = (run.open(name).id for name in ("one", "two", "three", "four"))

    refusal = refusal_of(run, {one: 1, two: 1, three: 1, four: 1}, schema_faults={})
    assert refusal.code is Code.CAPABILITY_REQUIRED
    assert refusal.details["interrupt_id"] == two
    assert refusal.details["capabilities"] == ["boss"]
    assert run.waiting == ["one", "two", "three", "four"]


def test_a_refusal_is_equal_to_another_of_the_same_content_only() -> None:
    refusal = Refusal(Code.STALE, "old", a=1)

    assert refusal == Refusal(Code.STALE, "old", a=1)
    assert refusal != Refusal(Code.STALE, "old", a=2)
    assert refusal != Refusal(Code.GONE, "old", a=1)
    assert refusal != "old"


def test_the_order_of_answering_is_free_and_branches_do_not_wait_for_each_other() -> None:
    run = Drive(
        graph(
            gate("one"),
            gate("two"),
            "after_one",
            "after_two",
            ways=[(START, "one"), (START, "two"), ("one", "after_one"), ("two", "after_two")],
        )
    )
    run.answer("two")
    assert run.started == ["after_two"]
    assert run.waiting == ["one"]
