"""Tool calls: the questions before a call runs, the decisions of its approver, and its result."""

from __future__ import annotations

from typing import Any

import pytest
from core_agents import (
    CLERK,
    agent_node,
    asks,
    call,
    calls,
    done,
    gated,
    helper,
    question,
    results,
    reviewing,
    said,
    turn,
)
from core_askers import BOB, lent
from core_drive import ADA, Drive, gate, graph

from abeyance.core.json import Json
from abeyance.core.outcome import Finished
from abeyance.core.spec import START, Default
from abeyance.core.terms import Decision, Terms
from abeyance.core.visit import Running
from abeyance.errors import Code

YES: Json = {"approved": True}


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"approved": False, "reason": "too much"}, {"rejected": "too much"}),
        ({"approved": False}, {"rejected": None}),
        ({"approved": 1}, {"rejected": None}),
        ({"approved": "true"}, {"rejected": None}),
    ],
)
def test_a_call_without_an_approval_is_rejected_and_not_run(
    answer: dict[str, object], result: dict[str, object]
) -> None:
    run = reviewing()
    turn(run, gated("c1"))
    said(run, "c1", answer)

    assert run.orders("pay") == []
    assert results(run) == [result]


def test_the_answer_to_an_approval_that_its_code_asks_for_has_the_same_meaning() -> None:
    run = reviewing()
    turn(run, call("c1", "pay", question("sure", "question", "Hook"), once=True))
    said(run, "c1", "y", "sure")
    asks(run, "c1", question("approve"))
    said(run, "c1", {"approved": False, "reason": "no"})

    assert len(run.orders("pay")) == 1
    assert results(run) == [{"rejected": "no"}]


def test_a_question_of_code_with_the_name_of_an_approval_rejects_nothing() -> None:
    run = reviewing()
    turn(run, call("c1"))
    asks(run, "c1", question("approve", "question"))
    said(run, "c1", {"approved": False})

    assert len(run.orders("pay")) == 2


@pytest.mark.parametrize("order", [("c1", "c2", "c3"), ("c3", "c1", "c2")])
def test_calls_are_answered_in_any_order_and_their_results_stand_in_that_of_the_calls(
    order: tuple[str, ...],
) -> None:
    run = reviewing()
    turn(run, gated("c1"), gated("c2", "delete"), gated("c3"))
    for number, id_ in enumerate(order):
        assert len(run.orders("model")) == 1
        said(run, id_, YES)
        done(run, id_, {"content": f"{id_} of {number}"})

    assert results(run) == [
        {"content": f"{id_} of {order.index(id_)}"} for id_ in ("c1", "c2", "c3")
    ]


def test_two_calls_of_one_id_are_two_visits() -> None:
    run = reviewing()
    turn(run, call("c1~3"), call("c1"), call("c1"), call("c1"))

    addresses = [order.address for order in run.orders("pay")]
    ids = ["c1~3", "c1", "c1~4", "c1~5"]
    assert addresses == [f"{CLERK};tool:pay:{id_}" for id_ in ids]
    for number, address in enumerate(addresses):
        run.end(Finished, visit=address, result={"content": number})
    assert results(run) == [{"content": number} for number in range(4)]


def test_an_id_that_comes_again_in_a_later_turn_is_another_place_to_ask_at() -> None:
    run = reviewing()
    turn(run, gated("c1"))
    first = run.open("approve").id
    said(run, "c1", YES)
    done(run, "c1", {"content": 1})
    turn(run, gated("c1"))
    second = run.open("approve")

    assert second.id != first
    run.respond({first: YES})
    assert run.open("approve") == second
    assert (len(run.orders("pay")), calls(run)) == (1, [])


def test_a_hook_an_approval_and_a_tool_may_ask_under_one_name() -> None:
    run = reviewing()
    turn(run, call("c1", "pay", question("ok", "question", "Hook"), once=True))
    ids = [run.open("ok").id]
    said(run, "c1", 1, "ok")
    asks(run, "c1", question("ok"))
    ids.append(run.open("ok").id)
    said(run, "c1", YES, "ok")
    asks(run, "c1", question("ok", "question"))
    ids.append(run.open("ok").id)
    said(run, "c1", 3, "ok")
    asks(run, "c1", question("ok", "outcome"))
    ids.append(run.open("ok").id)

    assert len(set(ids)) == 4
    assert run.orders("pay")[-1].own_answers == {"Hook/ok": 1, "/approval/ok": YES, "ok": 3}


def test_several_things_may_be_asked_before_a_call_runs() -> None:
    run = reviewing()
    one, two = (question("ok", "question", process) for process in ("One", "Two"))
    turn(run, call("c1", "pay", one, two))
    assert run.asking == [
        ("ok", f"{CLERK};tool:pay:c1;process:One"),
        ("ok", f"{CLERK};tool:pay:c1;process:Two"),
    ]
    run.answer("ok", 1)
    assert run.orders("pay") == []
    run.answer("ok", 2)

    assert run.orders("pay")[-1].own_answers == {"One/ok": 1, "Two/ok": 2}


def test_a_faulty_question_before_a_call_becomes_its_result() -> None:
    run = reviewing()
    turn(run, call("c1", "pay", question("ok"), question("ok")))

    assert run.orders("pay") == []
    (result,) = results(run)
    assert "twice in one pass" in result["error"]


def test_a_deadline_may_reject_a_call() -> None:
    run = reviewing()
    no = {"approved": False, "reason": "nobody answered in time"}
    turn(run, gated("c1", timeout=60.0, on_timeout=Default(answer=no)))
    run.tick(60)

    assert run.orders("pay") == []
    assert results(run) == [{"rejected": "nobody answered in time", "by": "timeout"}]


def test_a_result_without_a_fan_out_goes_nowhere() -> None:
    run = reviewing()
    run.finish("model", result={"content": 1})

    assert (run.status, run.values) == ("completed", {})
    assert not list(run.state.visits_in(Running))


def test_an_answer_about_one_call_does_not_answer_another() -> None:
    run = reviewing()
    turn(run, call("c1"), gated("c2"))
    asks(run, "c1", question("sure", "question"))
    said(run, "c1", "y", "sure")
    assert run.orders("pay")[-1].answers == {}
    done(run, "c1", {"content": 1})
    said(run, "c2", YES)
    assert (run.orders("pay")[-1].answers, run.orders("pay")[-1].own_answers) == (
        {},
        {"/approval/approve": YES},
    )
    done(run, "c2", {"content": 2})

    assert run.orders("model")[-1].answers == {}


# decisions of an approver


CALL = {"tool": "pay", "arguments": {"amount": 5}}
TASK = {"tool": "ask_helper", "arguments": {"task": "look"}}
SAME: Json = {"approved": True, "arguments": {"amount": 5}}
EDIT: Json = {"approved": True, "arguments": {"amount": 3}}
NO: Json = {"approved": False}
RESULT: Json = {"approved": False, "result": None}


def approving(*decisions: Decision, **about: Any) -> Drive:
    """Start a run whose agent wants to call `pay`, which has to be approved."""
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
    """Start a run whose agent calls another agent, and answer the approval of this call."""
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
