"""What an approver decides about a call: which decisions are allowed, and what the result says."""

from __future__ import annotations

from typing import Any

import pytest
from core_agents import (
    CLERK,
    agent_node,
    done,
    gated,
    helper,
    results,
    reviewing,
    said,
    turn,
)
from core_askers import BOB, lent
from core_drive import ADA, Drive, gate, graph

from abeyance.core.json import Json
from abeyance.core.outcome import Finished
from abeyance.core.spec import START
from abeyance.core.terms import Decision, Terms
from abeyance.errors import Code

CALL = {"tool": "pay", "arguments": {"amount": 5}}
TASK = {"tool": "ask_helper", "arguments": {"task": "look"}}
YES: Json = {"approved": True}
SAME: Json = {"approved": True, "arguments": {"amount": 5}}
EDIT: Json = {"approved": True, "arguments": {"amount": 3}}
NO: Json = {"approved": False}
RESULT: Json = {"approved": False, "result": None}


def approving(*decisions: Decision, **about: Any) -> Drive:
    """A run whose agent wants to call `pay`, which has to be approved."""
    terms: dict[str, Any] = {"terms": Terms(decisions=decisions)} if decisions else {}
    run = reviewing()
    turn(run, gated("c1", reason=CALL, **terms, **about))
    return run


@pytest.mark.parametrize(
    ("answer", "decision"),
    [(YES, "approve"), (SAME, "approve"), (EDIT, "edit"), (NO, "reject"), (RESULT, "respond")],
)
def test_only_the_decisions_of_its_terms_are_answers_to_an_approval(
    answer: Json, decision: Decision
) -> None:
    every: tuple[Decision, ...] = ("approve", "edit", "reject", "respond")
    others = [each for each in every if each != decision]
    run = approving(*others)
    id_ = run.open("approve").id
    refusal = run.refused_response({id_: answer})

    assert refusal.code is Code.DECISION_NOT_ALLOWED
    assert refusal.details == {"interrupt_id": id_, "decision": decision, "decisions": others}
    assert f"It allows: {', '.join(others)}." in refusal.message
    said(approving(decision), "c1", answer)


@pytest.mark.parametrize(("terms", "limit"), [({}, 100_000), ({"terms": Terms(max_result=9)}, 9)])
def test_a_result_in_place_of_a_call_may_be_as_large_as_one_of_the_call(
    terms: dict[str, Any], limit: int
) -> None:
    run = reviewing()
    turn(run, gated("c1", reason=CALL, **terms))
    large: Json = {"approved": False, "result": "x" * (limit - 1)}
    before, id_ = run.state, run.open("approve").id
    refusal = run.refused_response({id_: large})

    assert refusal.code is Code.PAYLOAD_TOO_LARGE
    assert refusal.details == {"interrupt_id": id_, "limit": limit, "actual": limit + 1}
    assert f"takes {limit + 1} bytes" in refusal.message
    assert run.seen() == before
    said(run, "c1", {"approved": False, "result": "x" * (limit - 2)})


def test_a_plain_question_has_no_decisions() -> None:
    run = Drive(graph(agent_node(), gate("ask"), ways=[(START, "review"), (START, "ask")]))
    turn(run, gated("c1", reason=CALL, terms=Terms(decisions=("reject",))))
    plain, approval = run.open("ask").id, run.open("approve").id
    refusal = run.refused_response({"r.unknown": YES})
    assert refusal.code is Code.UNKNOWN_INTERRUPT
    refusal = run.refused_response({plain: YES, approval: YES})
    assert refusal.details["interrupt_id"] == approval
    run.respond({plain: YES, approval: NO})


def test_equal_arguments_are_left_out_of_what_the_code_is_given() -> None:
    run = approving()
    said(run, "c1", SAME)
    (order,) = run.orders("pay")
    assert order.own_answers == {"/approval/approve": YES}
    assert order.approver == {"by": ADA.subject}

    run = approving()
    said(run, "c1", EDIT)
    (order,) = run.orders("pay")
    assert order.own_answers == {"/approval/approve": EDIT}


def test_code_learns_who_approved_it_in_whose_place() -> None:
    run = approving()
    about = {"principal": BOB, "on_behalf_of": "ada", "delegations": (lent("ada"),)}
    run.answer("approve", YES, **about)

    assert run.orders("pay")[0].approver == {"by": "bob", "on_behalf_of": "ada"}


def test_a_result_in_place_of_the_call_is_its_result_with_who_gave_it() -> None:
    run = approving()
    said(run, "c1", RESULT)

    assert results(run) == [{"content": None, "decision": "respond", "by": ADA.subject}]
    assert run.orders("pay") == []


def called(answer: Json) -> Drive:
    """A run whose agent calls another, with the answer to its approval."""
    run = reviewing(helper())
    turn(run, gated("c1", "ask_helper", reason=TASK))
    said(run, "c1", answer)
    inner = next(v for v in run.state.visits.values() if v.address.startswith(f"{CLERK};tool"))
    assert inner.call is not None
    return run


def test_the_result_of_an_agent_says_that_its_task_was_edited() -> None:
    edited = {"task": "find"}
    run = called({"approved": True, "arguments": edited})
    run.finish("model", {"output": 3})
    assert results(run) == [{"content": 3, "decision": "edit", "edited": edited, "by": ADA.subject}]

    run = called(YES)
    run.finish("model", {"output": 3})
    assert results(run) == [{"content": 3}]


def test_a_call_without_an_approval_has_no_approver() -> None:
    run = reviewing()
    turn(run, gated("c1", reason=CALL))
    said(run, "c1", YES)
    done(run, "c1", {"content": 1})
    run.end(Finished, visit=run.visit("model").address, sends=())

    assert run.orders("model")[-1].approver == {}
