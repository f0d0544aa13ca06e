"""What a question showed still stands when the first code behind it begins, whoever may answer it."""

from __future__ import annotations

from typing import Any

import pytest
from core_drive import asked, gate, nested
from core_gated import CLERK, OPERATOR, Gated, forked, refund, remark
from core_rules import ask, rule

from abeyance.core.outcome import Blocked, Stopped
from abeyance.core.spec import AskHuman, Default, FunctionNode, InterruptNode


def showing(id_: str = "ask", prompt: str = "Pay {amount}?", **about: Any) -> InterruptNode:
    """A question that anybody may answer, about the amount."""
    return gate(id_, prompt=prompt, **about)


def paying(*more: Any, **about: Any) -> Gated:
    return Gated(refund(showing(**about), "pay", *more))


def test_an_edit_between_the_answer_and_the_code_has_the_question_asked_again() -> None:
    run = paying()
    run.pause()
    run.says(CLERK, "ask")
    run.edit(OPERATOR, amount=999_999)
    run.resume()

    assert (run.reopened, run.orders("pay")) == (["ask"], [])
    assert run.open("ask").prompt == "Pay 999999?"
    run.says(CLERK, "ask")
    assert run.ran_with("pay", "amount") == [(999_999,)]


def test_a_default_answer_counts_for_what_was_shown_alone_too() -> None:
    run = paying(timeout=60, on_timeout=Default(answer=True))
    run.pause()
    run.tick(60)
    run.edit(OPERATOR, amount=999_999)
    run.resume()

    assert (run.reopened, run.orders("pay")) == (["ask"], [])


@pytest.mark.parametrize("patch", [{"note": "later"}, {"amount": 250}])
def test_an_edit_of_nothing_that_was_shown_changes_nothing(patch: dict[str, Any]) -> None:
    run = paying()
    run.pause()
    run.says(CLERK, "ask")
    run.edit(OPERATOR, **patch)
    run.resume()

    assert (run.reopened, run.running) == ([], ["pay"])


def test_a_question_that_shows_nothing_is_not_asked_again() -> None:
    run = paying(prompt="Go on?")
    run.pause()
    run.says(CLERK, "ask")
    run.edit(OPERATOR, amount=999_999)
    run.resume()

    assert (run.reopened, run.running) == ([], ["pay"])


def test_what_another_branch_changes_before_the_code_begins_counts_too() -> None:
    run = Gated(forked((showing(), "pay"), ("other",)))
    run.finish("other", {"amount": 999_999})
    run.says(CLERK, "ask")

    assert (run.reopened, run.orders("pay")) == (["ask"], [])


def test_what_the_answer_itself_changes_is_what_was_answered() -> None:
    run = Gated(refund(showing(answer_to="amount"), "pay"))
    run.says(CLERK, "ask", 300)

    assert (run.reopened, run.ran_with("pay", "amount")) == ([], [(300,)])


def test_what_the_answer_to_a_later_question_changes_has_the_first_asked_again() -> None:
    run = Gated(refund(showing(), remark(), "pay"))
    run.says(CLERK, "ask")
    run.says(CLERK, "remark", 300)
    assert (run.reopened, run.orders("pay")) == (["ask"], [])

    run.says(CLERK, "ask")
    run.says(CLERK, "remark", 300)
    assert (run.reopened, run.ran_with("pay", "amount")) == (["ask"], [(300,)])


def test_once_the_code_has_begun_the_answer_is_used_up() -> None:
    run = paying("notify")
    run.says(CLERK, "ask")
    run.pause()
    run.finish("pay", {"amount": 0})
    run.edit(OPERATOR, amount=1)
    run.resume()
    run.finish("notify")

    assert (run.reopened, run.status) == ([], "completed")


def test_the_first_code_of_several_branches_uses_an_answer_up_for_all() -> None:
    later: list[Any] = [remark("remark", None), "log"]
    run = Gated(forked((showing(), "pay"), more=later, ways=[("ask", "remark"), ("remark", "log")]))
    run.says(CLERK, "ask")
    run.finish("pay", {"amount": 0})
    run.says(CLERK, "remark")

    assert (run.reopened, run.running) == ([], ["log"])


@pytest.mark.parametrize("left", ["stopped", "blocked"])
def test_code_that_was_ordered_and_did_not_begin_uses_nothing_up(left: str) -> None:
    run = paying()
    run.says(CLERK, "ask")
    run.pause(mode="now")
    if left == "stopped":
        run.end(Stopped, visit=run.visit("pay").address, begun=False)
    else:
        run.end(Blocked, visit=run.visit("pay").address, code="code_missing", message="missing")
    run.edit(OPERATOR, amount=999_999)
    run.resume()

    assert run.reopened == ["ask"]
    assert run.open("ask").prompt == "Pay 999999?"


def test_a_question_of_a_rule_is_held_against_the_values_too() -> None:
    rules = [rule("sure", "work", ask("sure", prompt="Pay {amount}?"))]
    run = Gated(refund("work", "pay", rules=rules))
    run.finish("work")
    run.pause()
    run.says(CLERK, "sure")
    run.edit(OPERATOR, amount=999_999)
    run.resume()

    assert (run.reopened, run.orders("pay"), len(run.orders("work"))) == (["work"], [], 1)
    assert run.open("sure").prompt == "Pay 999999?"


def test_code_that_asks_is_told_what_it_has_shown_until_it_has_gone_on() -> None:
    run = Gated(refund("pay"))
    run.ask("pay", asked("sure", prompt="Pay 250?"))
    run.pause()
    run.says(CLERK, "sure")
    run.edit(OPERATOR, amount=999_999)
    run.resume()
    assert list(run.orders("pay")[-1].shown_hashes) == ["sure"]

    run.ask("pay", asked("sure", prompt="Pay 999999?"))
    run.says(CLERK, "sure")
    run.ask("pay", asked("which"))
    run.pause()
    run.says(CLERK, "which")
    run.edit(OPERATOR, amount=1)
    run.resume()
    assert list(run.orders("pay")[-1].shown_hashes) == ["which"]


def test_a_question_in_a_nested_graph_counts_until_the_first_code_behind_the_graph() -> None:
    run = Gated(refund(nested("sub", refund(showing(), name="inner")), "pay"))
    run.pause()
    run.says(CLERK, "ask")
    run.edit(OPERATOR, amount=999_999)
    run.resume()

    assert (run.reopened, run.orders("pay")) == (["sub"], [])


def test_nobody_needs_a_permission_because_of_such_an_answer() -> None:
    pay = FunctionNode(id="pay", on_error=AskHuman())
    run = Gated(refund(showing(), pay))
    run.says(CLERK, "ask")
    run.fail("pay")
    run.says(CLERK, "error", {"action": "retry"})

    assert run.running == ["pay"]
    assert run.state.spec.guarded_by == ()
