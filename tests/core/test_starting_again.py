"""A visit that starts again: after a failure, after an answer, and after its gate is asked again."""

from __future__ import annotations

from core_agents import call, reviewing, turn
from core_drive import Drive, asked, chain, gate, nested
from core_gated import APPROVER, BOSS, CLERK, OPERATOR, Gated, approving, forked, refund
from core_graphs import results, sending, sent

from abeyance.core.bounds import RetryPolicy
from abeyance.core.outcome import Call
from abeyance.core.spec import AskHuman, FunctionNode, GoTo

ONCE = FunctionNode(id="pay", retry=RetryPolicy(retries=0))


def needed_to_retry(run: Gated) -> list[str]:
    """The capabilities that are missing to somebody who may only control runs."""
    refusal = run.refused_answer("error", {"action": "retry"}, principal=OPERATOR)
    missing: list[str] = refusal.details["capabilities"]
    return missing


def test_a_skipped_item_of_an_inner_fan_out_is_none_of_the_outer_one() -> None:
    leaf = FunctionNode(id="leaf", on_error=AskHuman())
    ways = [(["leaf"], "inner"), (["inner"], "c")]
    run = sent(
        sending(FunctionNode(id="one", to=("leaf",)), leaf, "inner", "c", ways=ways), ["outer"]
    )
    run.finish("one", sends=[("leaf", 1)])
    run.fail("leaf")
    # The values of an item are nobody's to edit.
    assert run.open("error").response_schema == {
        "type": "object",
        "properties": {"action": {"enum": ["retry", "skip", "fail"]}},
        "required": ["action"],
        "additionalProperties": False,
    }
    run.answer("error", {"action": "skip"})
    assert run.orders("inner")[0].results == [{"item": 1, "status": "skipped"}]
    run.finish("inner")

    assert results(run) == [("outer", "arrived")]


def test_a_nested_graph_that_is_tried_again_is_still_that_of_its_item() -> None:
    one = nested("one", chain("deep", name="inner"), on_error=AskHuman())
    run = sent(sending(one, "c", ways=[(["one"], "c")]), ["item"])
    run.fail("deep")
    run.answer("error", {"action": "retry"})
    run.finish("deep")

    assert results(run) == [("item", "arrived")]


def test_where_the_failure_of_a_question_leads_is_entered_at_once() -> None:
    ask = gate("ask", capability="approve:{x}")
    sub = nested("sub", chain(ask, name="inner"), on_error=GoTo(node="after"))

    assert Drive(chain(sub, "after")).running == ["after"]


def test_a_nested_graph_that_is_tried_again_is_covered_by_the_gate_before_it() -> None:
    sub = nested("sub", refund(ONCE, name="inner"), on_error=AskHuman())
    run = Gated(refund(approving(), sub))
    run.says(APPROVER, "ask")
    for _ in range(2):
        run.fail("pay")
        assert needed_to_retry(run) == ["approve"]
        run.says(BOSS, "error", {"action": "retry"})


def test_a_gate_that_is_asked_again_is_still_behind_the_gates_before_it() -> None:
    first = approving("first", prompt="Order {order_id}?")
    run = Gated(forked((first, approving(prompt="Refund {amount}?"), "pay"), ("one",), ("two",)))
    run.says(APPROVER, "first")
    run.finish("one", {"amount": 999})
    run.says(APPROVER, "ask")
    assert run.reopened == ["ask"]
    run.finish("two", {"order_id": "B-8"})
    run.says(APPROVER, "ask")

    assert (run.reopened, run.running) == (["ask", "first"], [])


def test_a_question_that_is_open_is_not_asked_anew_by_code_that_starts_with_another_answer() -> (
    None
):
    run = Gated(refund("pay"))
    run.ask("pay", "one", "two", composite=True)
    run.says(CLERK, "one")

    assert (run.orders("pay")[-1].own_answers, run.orders("pay")[-1].ordinals) == (
        {"one": True},
        {},
    )


def test_the_code_of_a_tool_is_told_which_call_it_carries_out() -> None:
    run = reviewing()
    turn(run, call("c1"))

    assert run.orders("pay")[0].call == Call(tool="pay", id="c1")


def test_code_that_has_taken_a_message_compares_what_it_showed_with_values_of_since_then() -> None:
    sure = asked("sure", prompt="Refund 250?", requested_capability="approve")
    run = Gated(forked((FunctionNode(id="pay", asks=("approve",)),), ("other",)))
    run.send("m")
    run.take("pay")
    run.ask("pay", sure)
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "sure")

    assert list(run.orders("pay")[-1].shown_hashes) == ["sure"]


def test_code_that_anybody_may_answer_is_bound_to_what_it_showed() -> None:
    run = Gated(forked(("pay",), ("other",)))
    run.ask("pay", asked("sure", prompt="Refund 250?"))
    run.finish("other", {"amount": 999})
    run.says(CLERK, "sure")

    assert [*run.orders("pay")[-1].shown_hashes] == ["sure"]
