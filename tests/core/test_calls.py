"""Calls of tools: what is asked before one runs, what it comes to, and where it is."""

from __future__ import annotations

from itertools import permutations

import pytest
from core_agents import (
    CLERK,
    asks,
    call,
    calls,
    done,
    gated,
    question,
    results,
    reviewing,
    said,
    turn,
)

from abeyance.core.outcome import Finished
from abeyance.core.visit import Running

YES = {"approved": True}


def test_a_gated_call_is_asked_about_before_its_code_is_ordered() -> None:
    run = reviewing()
    turn(run, gated("c1"))

    assert run.asking == [("approve", f"{CLERK};tool:pay:c1")]
    assert (run.status, run.orders("pay")) == ("awaiting-input", [])
    said(run, "c1", YES)
    assert [order.own_answers for order in run.orders("pay")] == [{"/approval/approve": YES}]


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"approved": False, "reason": "too much"}, {"rejected": "too much"}),
        ({"approved": False}, {"rejected": None}),
        ({"approved": 1}, {"rejected": None}),
        ({"approved": "true"}, {"rejected": None}),
    ],
)
def test_what_is_not_approved_is_not_run_and_says_so(
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


@pytest.mark.parametrize("order", list(permutations(["c1", "c2", "c3"])))
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


def test_what_cannot_be_asked_before_a_call_is_its_result() -> None:
    run = reviewing()
    turn(run, call("c1", "pay", question("ok"), question("ok")))

    assert run.orders("pay") == []
    (result,) = results(run)
    assert "twice in one pass" in result["error"]


def test_a_deadline_may_reject_a_call() -> None:
    run = reviewing()
    no = {"approved": False, "reason": "nobody answered in time"}
    from abeyance.core.spec import Default

    turn(run, gated("c1", timeout=60.0, on_timeout=Default(answer=no)))
    run.tick(60)

    assert run.orders("pay") == []
    assert results(run) == [{"rejected": "nobody answered in time", "by": "timeout"}]


def test_a_result_without_a_fan_out_goes_nowhere() -> None:
    run = reviewing()
    run.finish("model", result={"content": 1})

    assert (run.status, run.values) == ("completed", {})
    assert not list(run.state.visits_in(Running))


def test_what_is_answered_about_one_call_is_no_answer_to_another() -> None:
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
