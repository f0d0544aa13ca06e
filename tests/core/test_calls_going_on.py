"""Calls that go on in another node, and turns that only hand on the next of their calls."""

from __future__ import annotations

from core_agents import (
    CLERK,
    address_of,
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
    tool,
    turn,
)
from core_drive import Drive, graph

from abeyance.core.outcome import Failed, Finished, Send
from abeyance.core.spec import START, FunctionNode, ReturnErrorToCaller
from abeyance.core.state import Limits

ADMISSION = FunctionNode(id="admission", to=("ask_helper",), on_error=ReturnErrorToCaller())
NO = {"approved": False, "reason": "no"}
YES = {"approved": True}


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


def test_a_call_whose_admission_fails_does_not_go_on() -> None:
    run = admitting()
    said(run, "c1", "y", "sure")
    visit = address_of(run, "c1")
    run.end(Failed, visit=visit, code="node_failed", message="it broke")

    assert results(run) == [{"error": "it broke", "code": "node_failed"}]


def test_a_result_that_is_no_mapping_takes_the_place_of_what_was_known() -> None:
    run = reviewing(FunctionNode(id="first", to=("second",)), tool("second"))
    turn(run, call("c1", "first"))
    run.end(Finished, visit=address_of(run, "c1"), goto="second", result={"a": 1})
    done(run, "c1", 7)

    assert results(run) == [7]


def handing_on(rounds: int, *, limit: int, uncounted: bool = True) -> Drive:
    """An agent whose model hands on one call after another, so many times."""
    run = reviewing(limits=Limits(max_visits=limit))
    turn(run, call("c0"))
    for number in range(1, rounds + 1):
        done(run, f"c{number - 1}")
        if run.status != "running":
            break
        address = run.visit("model").address
        run.end(
            Finished,
            visit=address,
            sends=(call(f"c{number}"),),
            exempt_from_max_visits=uncounted,
        )
    return run


def test_turns_that_only_hand_on_calls_are_no_rounds_of_a_loop() -> None:
    assert handing_on(60, limit=3).status == "running"

    run = handing_on(60, limit=3, uncounted=False)
    assert (run.status, run.error[0]) == ("failed", "max_visits")


def test_turns_that_only_hand_on_calls_do_so_not_for_ever() -> None:
    run = handing_on(200, limit=3)

    # 100 are not counted. The others are the first, the last and one between them.
    code, _, address = run.error
    assert (code, address) == ("max_visits", f"{CLERK};node:model:104")


def test_a_turn_of_the_model_lets_calls_be_handed_on_anew() -> None:
    run = handing_on(90, limit=4)
    done(run, "c90")
    turn(run, call("d0"))
    for number in range(90):
        done(run, f"d{number}")
        address = run.visit("model").address
        sends = (call(f"d{number + 1}"),)
        run.end(Finished, visit=address, sends=sends, exempt_from_max_visits=True)
    assert run.status == "running"
    for number in range(2):
        done(run, f"d{90 + number}")
        turn(run, call(f"d{91 + number}"))
    done(run, "d92")

    assert run.error[0] == "max_visits"


def test_an_answer_in_between_takes_no_visit_off_the_count_twice() -> None:
    run = reviewing(limits=Limits(max_visits=2))
    turn(run, gated("c0"))
    said(run, "c0", YES)
    done(run, "c0")
    address = run.visit("model").address
    run.end(Finished, visit=address, sends=(gated("c1"),), exempt_from_max_visits=True)
    said(run, "c1", YES)
    done(run, "c1")
    for number in range(2, 4):
        turn(run, call(f"c{number}"))
        done(run, f"c{number}")

    assert run.error[0] == "max_visits"


def test_in_a_fan_out_every_visit_is_counted() -> None:
    spec = graph(FunctionNode(id="start", to=("a",)), "a", ways=[(START, "start"), ("a", "a")])
    run = Drive(spec, limits=Limits(max_visits=3))
    run.end(Finished, visit="graph:g;node:start", sends=(Send(node="a"),))
    for _ in range(3):
        run.end(Finished, visit=run.visit("a").address, exempt_from_max_visits=True)

    assert run.error[0] == "max_visits"
