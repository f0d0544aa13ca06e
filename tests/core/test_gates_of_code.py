"""What was shown is what runs, where code asks: it is told what it has shown, and asks anew."""

from __future__ import annotations

from typing import Any

import pytest
from core_drive import asked
from core_gated import APPROVER, BOSS, Gated, forked, refund

from abeyance.core.json import Json
from abeyance.core.spec import FunctionNode
from abeyance.core.terms import Quorum, Terms


def code_gate(amount: Json) -> Any:
    return asked("sure", prompt=f"Refund {amount}?", requested_capability="approve")


def asking_code() -> Gated:
    """`pay` asks itself, with what it reads, before it pays."""
    return Gated(forked((FunctionNode(id="pay", asks=("approve",)),), ("other",)))


@pytest.mark.parametrize("changes", ["before it is shown", "after it is shown", "never"])
def test_code_is_told_what_it_has_shown_where_the_values_are_others(changes: str) -> None:
    run = asking_code()
    if changes == "before it is shown":
        run.finish("other", {"amount": 999})
    run.ask("pay", code_gate(250))
    if changes == "after it is shown":
        run.finish("other", {"amount": 999})
    first = run.open("sure")
    run.says(APPROVER, "sure")
    order = run.orders("pay")[-1]
    if changes == "never":
        assert (order.shown_hashes, order.own_answers) == ({}, {"sure": True})
        return
    assert (run.ran_with("pay")[-1], [*order.shown_hashes]) == ((999, "A-7"), ["sure"])
    run.ask("pay", code_gate(999))

    old = run.state.ledger.settled[first.id]
    assert (old.status, old.answer, old.settled_reason) == ("answered", True, "asked again")
    assert run.open("sure").id != first.id
    run.says(APPROVER, "sure")
    assert run.settled("sure").settled_reason is None
    order = run.orders("pay")[-1]
    assert (order.shown_hashes, order.own_answers) == ({}, {"sure": True})


def test_code_that_was_stopped_before_it_looked_is_told_once_more() -> None:
    run = asking_code()
    run.ask("pay", code_gate(250))
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "sure")
    run.pause(mode="now")
    run.stopped("pay", begun=False)
    run.resume()

    assert list(run.orders("pay")[-1].shown_hashes) == ["sure"]


@pytest.mark.parametrize("capability", [None, "approve"])
@pytest.mark.parametrize("is_restricted", [False, True])
def test_once_code_has_gone_on_its_answer_is_used_up(
    capability: str | None, *, is_restricted: bool
) -> None:
    terms = Terms(quorum=Quorum(count=1)) if is_restricted else None
    about: dict[str, Any] = {"requested_capability": capability, "terms": terms}
    asks = () if capability is None else (capability,)
    run = Gated(refund(FunctionNode(id="pay", asks=asks), "book"))
    run.ask("pay", asked("sure", prompt="Refund 250?", **about))
    run.says(APPROVER, "sure", {"approved": True})
    run.ask("pay", asked("which"))
    run.edit(BOSS, amount=999)
    run.ask("pay", asked("which"))
    run.says(APPROVER, "which")

    told = {"sure"} if is_restricted else set()
    assert {*run.orders("pay")[-1].shown_hashes} - {"which"} == told
    run.finish("pay")
    assert (run.reopened, run.running) == ([], ["book"])


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
