"""What was shown is what runs, where code asks: it is told what it has shown, and asks anew."""

from __future__ import annotations

from typing import Any

from core_drive import asked
from core_gated import APPROVER, BOSS, Gated, forked

from abeyance.core.json import Json
from abeyance.core.outcome import Finished
from abeyance.core.spec import AskHuman, FunctionNode


def code_gate(amount: Json) -> Any:
    return asked("sure", prompt=f"Refund {amount}?", requested_capability="approve")


def asking_code() -> Gated:
    """`pay` asks itself, with what it reads, before it pays."""
    return Gated(forked((FunctionNode(id="pay", asks=("approve",)),), ("other",)))


def test_code_is_told_what_it_has_shown_where_the_values_are_others() -> None:
    run = asking_code()
    run.ask("pay", code_gate(250))
    run.finish("other", {"amount": 999})
    first = run.open("sure")
    run.says(APPROVER, "sure")
    assert list(run.orders("pay")[-1].shown_hashes) == ["sure"]
    run.ask("pay", code_gate(999))

    second = run.open("sure")
    assert second.id != first.id
    run.says(APPROVER, "sure")
    assert (run.orders("pay")[-1].shown_hashes, run.orders("pay")[-1].own_answers) == (
        {},
        {"sure": True},
    )


def test_code_goes_on_where_it_shows_the_same() -> None:
    run = asking_code()
    run.ask("pay", code_gate(250))
    run.says(APPROVER, "sure")

    assert (run.orders("pay")[-1].shown_hashes, run.orders("pay")[-1].own_answers) == (
        {},
        {"sure": True},
    )


def test_values_that_change_while_the_code_makes_up_its_question() -> None:
    run = asking_code()
    run.finish("other", {"amount": 999})
    run.ask("pay", code_gate(250))
    run.says(APPROVER, "sure")

    assert run.ran_with("pay")[-1] == (999, "A-7")
    assert list(run.orders("pay")[-1].shown_hashes) == ["sure"]


def test_code_that_was_stopped_before_it_looked_is_told_once_more() -> None:
    run = asking_code()
    run.ask("pay", code_gate(250))
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "sure")
    run.pause(mode="now")
    run.stopped("pay")
    run.resume()

    assert list(run.orders("pay")[-1].shown_hashes) == ["sure"]


def test_a_later_question_of_the_same_code_hides_no_change() -> None:
    run = asking_code()
    run.ask("pay", code_gate(250))
    run.says(APPROVER, "sure")
    run.finish("other", {"amount": 999})
    run.ask("pay", asked("which", requested_capability="approve"))
    run.says(APPROVER, "which", "main")

    assert list(run.orders("pay")[-1].shown_hashes) == ["sure", "which"]


def test_messages_that_code_asked_for_have_it_compare_too() -> None:
    run = asking_code()
    run.ask("pay", code_gate(250))
    run.says(APPROVER, "sure")
    run.send("m1", sender="clerk")
    assert run.take("pay") == ["m1"]
    run.ask("pay", asked("which", requested_capability="approve"))
    run.says(APPROVER, "which", "main")

    assert list(run.orders("pay")[-1].shown_hashes) == ["sure", "which"]


def test_code_is_run_again_where_the_values_are_edited_while_it_waits() -> None:
    run = asking_code()
    run.finish("other")
    run.ask("pay", code_gate(250))
    first = run.open("sure")
    run.edit(BOSS, amount=999)
    assert run.ran_with("pay") == [(250, "A-7"), (999, "A-7")]
    assert run.open("sure") == first
    run.ask("pay", code_gate(999))

    second = run.open("sure")
    assert (second.id, second.prompt) == (first.id, "Refund 999?")
    assert second.digest != first.digest
    run.says(APPROVER, "sure")
    assert (run.orders("pay")[-1].shown_hashes, run.orders("pay")[-1].own_answers) == (
        {},
        {"sure": True},
    )


def test_an_answer_that_comes_while_the_code_makes_up_its_question_anew() -> None:
    run = asking_code()
    run.finish("other")
    run.ask("pay", code_gate(250))
    first = run.open("sure")
    run.edit(BOSS, amount=999)
    run.says(APPROVER, "sure")
    run.ask("pay", code_gate(999))

    assert run.open("sure").id != first.id
    assert run.running == []


def test_what_asked_by_code_is_asked_again_after_an_edit_that_comes_before_the_next_node() -> None:
    run = Gated(forked((FunctionNode(id="review", asks=("approve",)), "pay"), ("other",)))
    run.finish("other")
    run.ask("review", code_gate(250))
    run.says(APPROVER, "sure")
    run.pause()
    run.finish("review")
    run.edit(BOSS, amount=999)
    run.resume()

    assert (run.reopened, run.running) == (["review"], ["review"])
    assert run.orders("pay") == []


def test_code_that_was_answered_before_an_edit_looks_itself_and_what_follows_is_covered() -> None:
    run = Gated(forked((FunctionNode(id="review", asks=("approve",)), "pay"), ("other",)))
    run.finish("other")
    run.ask("review", code_gate(250))
    run.pause()
    run.says(APPROVER, "sure")
    run.edit(BOSS, amount=999)
    run.resume()
    assert (run.reopened, list(run.orders("review")[-1].shown_hashes)) == ([], ["sure"])
    run.finish("review")

    assert (run.reopened, run.ran_with("pay")) == ([], [(999, "A-7")])


def test_what_code_has_asked_anew_counts_for_what_follows_it_and_not_what_it_asked_before() -> None:
    run = Gated(forked((FunctionNode(id="review", asks=("approve",)), "pay"), ("other",)))
    run.ask("review", code_gate(250))
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "sure")
    run.ask("review", code_gate(999))
    run.says(APPROVER, "sure")
    run.finish("review")

    assert (run.reopened, run.ran_with("pay")) == ([], [(999, "A-7")])


def test_code_that_is_tried_again_with_fewer_messages_and_other_values_compares() -> None:
    pay = FunctionNode(id="pay", asks=("approve",), on_error=AskHuman())
    run = Gated(forked((pay,), ("other", "book")))
    run.send("m1", sender="clerk")
    assert run.take("pay") == ["m1"]
    run.pause(mode="now")
    run.stopped("pay")
    run.stopped("other")
    run.resume()
    run.ask("pay", code_gate(250), messages_read=0)
    run.says(APPROVER, "sure")
    assert run.orders("pay")[-1].shown_hashes == {}
    run.end(Finished, visit=run.visit("pay").address, patch={"nope": 1}, messages_read=0)
    run.finish("other", {"amount": 999})
    run.says(BOSS, "error", {"action": "retry"})

    assert list(run.orders("pay")[-1].shown_hashes) == ["sure"]
