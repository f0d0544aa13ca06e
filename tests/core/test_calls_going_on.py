"""Calls that go on in another node."""

from __future__ import annotations

from core_agents import (
    CLERK,
    address_of,
    asks,
    call,
    calls,
    done,
    helper,
    question,
    results,
    reviewing,
    said,
    tool,
    turn,
)
from core_drive import Drive

from abeyance.core.outcome import Finished
from abeyance.core.spec import FunctionNode, ReturnErrorToCaller
from abeyance.core.state import Limits

ADMISSION = FunctionNode(id="admission", to=("ask_helper",), on_error=ReturnErrorToCaller())
NO = {"approved": False, "reason": "no"}


def admitting() -> Drive:
    """A run whose agent asks, in code of its own, before another agent is called."""
    run = reviewing(ADMISSION, helper())
    turn(run, call("c1", "admission", question("sure", "question", "Hook"), once=True))
    return run


def admitted(run: Drive, **event: object) -> None:
    visit = address_of(run, "c1")
    run.end(Finished, visit=visit, goto="ask_helper", **event)


def test_a_call_that_goes_on_in_another_node_is_the_same_call_at_the_same_address() -> None:
    run = admitting()
    said(run, "c1", "y", "sure")
    admitted(run, result={"args": {"task": "look"}}, patch={"agent_state": {"trusted": True}})

    inner = f"{CLERK};tool:admission:c1;agent:helper"
    (order,) = [each for each in run.orders("model") if each.address.startswith(inner)]
    assert order.values["input"]["result"] == {"args": {"task": "look"}}
    run.end(Finished, visit=order.address, patch={"output": "looked"})

    assert results(run) == [{"args": {"task": "look"}, "content": "looked"}]
    assert run.orders("model")[-1].values["agent_state"] == {"trusted": True}


def test_what_a_call_asks_again_in_another_node_has_an_id_of_its_own() -> None:
    run = reviewing(FunctionNode(id="first", to=("second",)), tool("second"))
    turn(run, call("c1", "first"))
    asks(run, "c1", question("sure", "question"))
    before = run.open("sure").id
    said(run, "c1", "y", "sure")
    run.end(Finished, visit=address_of(run, "c1"), goto="second")
    assert calls(run) == ["c1"]
    (order,) = run.orders("second")
    assert order.ordinals == {"sure": 2}
    asks(run, "c1", question("sure", "question"))

    assert run.open("sure").id != before


def test_a_call_that_a_person_rejects_does_not_go_on() -> None:
    run = admitting()
    said(run, "c1", "y", "sure")
    asks(run, "c1", question("approve"))
    said(run, "c1", NO)

    assert len(run.orders("admission")) == 1
    assert results(run) == [{"rejected": "no"}]


def test_a_result_that_is_no_mapping_takes_the_place_of_what_was_known() -> None:
    run = reviewing(FunctionNode(id="first", to=("second",)), tool("second"))
    turn(run, call("c1", "first"))
    run.end(Finished, visit=address_of(run, "c1"), goto="second", result={"a": 1})
    done(run, "c1", 7)

    assert results(run) == [7]


def test_the_turns_of_an_agent_are_not_bounded_by_max_visits() -> None:
    run = reviewing(limits=Limits(max_visits=1))
    for number in range(3):
        turn(run, call(f"c{number}"))
        done(run, f"c{number}")

    assert run.running == ["model"]
