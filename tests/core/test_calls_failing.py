"""Calls that fail, are stopped or go on in another node, and what their callers are told."""

from __future__ import annotations

from typing import Any

import pytest
from core_agents import (
    CLERK,
    address_of,
    agent_node,
    asks,
    call,
    calls,
    done,
    failed,
    gated,
    helper,
    question,
    results,
    reviewing,
    said,
    tool,
    turn,
)
from core_drive import ADA, Drive, at

from abeyance.core import events
from abeyance.core.items import transcripts
from abeyance.core.json import Json
from abeyance.core.outcome import Asked, Failed, Finished, Interrupted, Stopped
from abeyance.core.spec import END, FunctionNode, GoTo, ReturnErrorToCaller
from abeyance.core.state import Limits

HELPER = f"{CLERK};tool:ask_helper:c1;agent:helper"
YES = {"approved": True}


def test_the_questions_of_a_failing_call_are_withdrawn() -> None:
    run = reviewing()
    turn(run, call("c1"))
    run.end(
        Interrupted,
        visit=run.visit("pay").address,
        interrupts=(question("a", "question", "p"), question("b", "question", "q")),
        composite=True,
    )
    said(run, "c1", 1, "a")
    failed(run, "c1")

    assert run.asking == []
    gone = run.settled("b")
    assert (gone.status, gone.settled_reason) == ("cancelled", "the visit failed")
    assert [result["error"] for result in results(run)] == ["it broke"]


def test_a_patch_that_cannot_be_merged_is_the_result_of_its_call() -> None:
    run = reviewing()
    turn(run, call("c1"))
    done(run, "c1", {"content": 1}, nonsense=1)

    (result,) = results(run)
    assert (result["code"], "nonsense" in result["error"]) == ("invalid_patch", True)
    assert run.orders("model")[-1].values == run.orders("model")[0].values


def test_a_fatal_failure_of_a_call_ends_the_run_without_another_turn() -> None:
    run = reviewing()
    turn(run, call("c1"), gated("c2"))
    failed(run, "c1", "the books are wrong", fatal=True)

    assert run.error == ("node_failed", "the books are wrong", f"{CLERK};tool:pay:c1")
    assert (run.settled("approve").status, len(run.orders("model"))) == ("cancelled", 1)


def test_a_fatal_failure_in_an_agent_of_an_agent_fails_the_run() -> None:
    run = reviewing(helper())
    turn(run, call("c1", "ask_helper", item={"args": {"task": "t"}}))
    turn(run, call("h1"), node="model")
    failed(run, "h1", "the books are wrong", fatal=True)

    assert run.error == ("node_failed", "the books are wrong", f"{HELPER};tool:pay:h1")


def helped(**about: object) -> Drive:
    """Return a run whose clerk has called the helper, which is at its first turn."""
    run = reviewing(helper(**about))
    turn(run, call("c1", "ask_helper", item={"args": {"task": "look"}}), transcript="t1")
    return run


@pytest.mark.parametrize("found", [{"found": 3}, None])
def test_the_output_of_a_called_agent_is_the_result_of_its_call(found: Json) -> None:
    run = helped()
    run.finish("model", {"agent_state": {"own": 1}, **({"output": found} if found else {})})

    assert results(run) == [{"content": found}]
    # The helper's memory stays its own.
    assert "agent_state" not in run.orders("model")[-1].values
    assert run.orders("model")[-1].address == f"{CLERK};node:model:2"


@pytest.mark.parametrize("target", ["model", "pay", "nowhere"])
def test_the_deadline_of_a_call_cannot_lead_to_a_node_of_its_agent(target: str) -> None:
    run = reviewing()
    turn(run, call("c1"), gated("c2"))
    away = question("sure", "question", timeout=60.0, on_timeout=GoTo(node=target))
    run.end(Interrupted, visit=run.visit("pay").address, interrupts=(away,))
    entry = run.open("approve")
    refusal = run.refused(
        events.DeadlineEdited,
        principal=ADA,
        interrupt_id=entry.id,
        moves=True,
        deadline=at(60),
        on_timeout=GoTo(node=target),
    )
    assert refusal.code == "unknown_node"
    said(run, "c2", {"approved": False})

    assert [result.get("code") for result in results(run)] == ["unknown_node", None]


def test_a_deadline_of_a_call_may_end_it_and_says_what_nobody_answered() -> None:
    run = reviewing()
    turn(run, call("c1"), call("c2"))
    away = question("sure", "question", timeout=60.0, on_timeout=GoTo(node=END))
    run.end(Interrupted, visit=run.visit("pay").address, interrupts=(away,))
    run.pause()
    run.tick(60)
    run.read_again()
    run.resume()
    assert len(run.orders("model")) == 1
    done(run, "c2", {"content": 2})

    assert results(run) == [{"unanswered": "sure"}, {"content": 2}]


@pytest.mark.parametrize("deepest", ["answer", "failure"])
def test_three_levels_of_agents_give_what_the_deepest_came_to(deepest: str) -> None:
    inner = agent_node(
        "ask_expert", name="expert", output={}, result="output", on_error=helper().on_error
    )
    middle = agent_node(
        "ask_helper", inner, name="helper", output={}, result="output", on_error=helper().on_error
    )
    run = reviewing(middle)
    turn(run, call("c1", "ask_helper"))
    turn(run, call("h1", "ask_expert"))
    turn(run, gated("e1", "delete"))
    expert = f"{HELPER};tool:ask_expert:h1;agent:expert"
    (entry,) = run.state.ledger.open.values()

    assert entry.address == f"{expert};tool:delete:e1"
    assert [parent.address for parent in entry.parents] == [
        f"{HELPER};tool:ask_expert:h1",
        f"{CLERK};tool:ask_helper:c1",
        "graph:g;node:review",
    ]
    for parent in entry.parents:
        refusal = run.refused_response({parent.id: YES})
        assert (refusal.code, refusal.details["root_causes"]) == ("not_root_cause", [entry.id])
    said(run, "e1", YES)
    if deepest == "answer":
        done(run, "e1", {"content": "gone"})
    else:
        failed(run, "e1", "locked")
    told = (
        {"content": "gone"} if deepest == "answer" else {"error": "locked", "code": "node_failed"}
    )
    assert results(run) == [told]
    run.finish("model", {"output": "expert's"})
    assert results(run) == [{"content": "expert's"}]
    run.finish("model", {"output": "helper's"})
    assert results(run) == [{"content": "helper's"}]
    run.finish("model", {"output": "clerk's"})
    assert (run.status, run.values) == ("completed", {"x": "clerk's"})


@pytest.mark.parametrize("patch", [{"transcript": "t1"}, {"nonsense": 1}])
def test_the_patch_of_a_failed_turn_is_merged_and_hides_no_failure(patch: Any) -> None:
    run = reviewing()
    model = run.visit("model").address
    run.end(Failed, visit=model, code="max_turns", message="too many", patch=patch)

    error = run.ending.error
    assert error is not None
    assert (run.status, error.code, error.message[:8]) == ("failed", "max_turns", "too many")
    assert ("transcript" in patch) is (transcripts(run.state) == {CLERK: "t1"})
    assert ("nonsense" in patch) is ("cannot be merged" in error.message)


ADMISSION = FunctionNode(id="admission", to=("ask_helper",), on_error=ReturnErrorToCaller())


def admitting() -> Drive:
    """Start a run whose agent has code that asks before it calls another agent."""
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


def test_a_question_asked_again_by_another_node_of_a_call_has_its_own_id() -> None:
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


def test_a_result_that_is_not_a_mapping_replaces_the_earlier_result() -> None:
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


# stopped by a pause, a hand-over, a cancellation, or by being skipped


PAY = f"{CLERK};tool:pay:c1"


def approved() -> Drive:
    """Return a run in which an approved call runs beside a call that needs no approval."""
    run = reviewing()
    turn(run, gated("c1"), call("c2", "delete"), transcript="t1")
    said(run, "c1", YES)
    return run


@pytest.mark.parametrize("how", ["pause", "rotation"])
def test_a_call_that_may_run_only_once_is_waited_for_where_others_are_stopped(how: str) -> None:
    run = approved()
    if how == "pause":
        run.pause(actor="bob", mode="now")
    else:
        run.feed(events.RotationDue, hard=True)

    assert run.stops == [(f"{CLERK};tool:delete:c2", how, False)]
    done(run, "c1", {"content": 1})
    run.stopped("delete", {"step": 1})
    assert (run.running, run.ready) == ([], ["delete"])
    run.feed(events.Resumed if how == "pause" else events.Restored, **_who(how))
    assert run.orders("delete")[-1].journal == {"step": 1}
    done(run, "c2", {"content": 2})
    assert results(run) == [{"content": 1}, {"content": 2}]
    assert len(run.orders("pay")) == 1


def _who(how: str) -> dict[str, str]:
    return {"actor": "bob"} if how == "pause" else {}


def test_a_call_that_may_run_only_once_is_stopped_when_the_run_is_cancelled() -> None:
    run = approved()
    run.cancel()

    assert run.stops == [
        (PAY, "ending", False),
        (f"{CLERK};tool:delete:c2", "ending", False),
    ]
    run.stopped("pay")
    run.stopped("delete")
    assert run.status == "cancelled"


@pytest.mark.parametrize("when", ["it is stopped", "it asks", "it is answered"])
@pytest.mark.parametrize("patch", [{"transcript": "t1"}, {"nonsense": 1}])
def test_the_patch_of_a_turn_is_merged_when_the_run_is_cancelled(
    when: str, patch: dict[str, Json]
) -> None:
    run = reviewing()
    model = run.visit("model").address
    if when != "it is stopped":
        run.end(Interrupted, visit=model, interrupts=(question("q", "question"),), patch=patch)
        assert transcripts(run.state) == {}
    if when == "it is answered":
        run.answer("q", True)
    run.cancel()
    if when != "it asks":
        run.end(Stopped, visit=model, patch=patch if when == "it is stopped" else {})

    assert run.status == "cancelled"
    assert transcripts(run.state) == ({CLERK: "t1"} if "transcript" in patch else {})
    told = [each.code for each in run.ending.secondary_errors]
    assert told == ([] if "transcript" in patch else ["invalid_patch"])


def test_the_patch_of_a_paused_turn_is_dropped_when_the_turn_begins_again() -> None:
    run = reviewing()
    address = run.visit("model").address
    run.pause(actor="bob", mode="now")
    run.end(Stopped, visit=address, patch={"transcript": "half"})
    run.resume(actor="bob")

    assert run.orders("model")[-1].address == address
    assert "transcript" not in run.orders("model")[-1].values


@pytest.mark.parametrize(
    ("asked", "result"),
    [
        (question("approve"), {"rejected": None}),
        (
            question("which", "question", timeout=60.0, on_timeout=GoTo(node=END)),
            {"unanswered": "which"},
        ),
        (question("which", "question"), {"error": "it broke", "code": "node_failed"}),
    ],
    ids=["is rejected", "is ended by a deadline", "fails"],
)
def test_the_changes_of_an_asking_call_count_if_it_is_dropped(asked: Asked, result: Json) -> None:
    run = reviewing()
    turn(run, call("c1"))
    asks(run, "c1", asked, patch={"agent_state": {"trusted": True}})
    assert "agent_state" not in run.state.scopes[CLERK].values
    run.tick(60)
    if asked.question.timeout is None:
        said(run, "c1", {"approved": False}, asked.question.name)
    if "error" in result:
        failed(run, "c1")

    assert results(run) == [result]
    assert run.orders("model")[-1].values["agent_state"] == {"trusted": True}


def test_changes_of_an_asking_call_that_cannot_be_merged_fail_the_call() -> None:
    run = reviewing()
    turn(run, call("c1"), call("c2"))
    asks(run, "c1", question("approve"), patch={"nonsense": 1})
    late = question("which", "question", timeout=60.0, on_timeout=GoTo(node=END))
    asks(run, "c2", late, patch={"nonsense": 1})
    said(run, "c1", {"approved": False})
    run.tick(60)

    assert [each["code"] for each in results(run)] == ["invalid_patch", "invalid_patch"]
