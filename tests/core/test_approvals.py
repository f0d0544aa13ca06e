"""What was shown is what runs: an answer counts for the values that it was given to."""

from __future__ import annotations

from typing import Any

import pytest
from core_gated import APPROVER, BOSS, CLERK, Gated, approving, forked, refund, remark

from abeyance.core import events
from abeyance.core.json import Json
from abeyance.core.policy import TIMEOUT
from abeyance.core.spec import AskHuman, Default, FunctionNode, GoTo
from abeyance.core.state import Limits
from abeyance.errors import Code


def assessed(*more: Any, **about: Any) -> Gated:
    """The refund of the first page of the documentation, which waits at its gate."""
    spec = refund("assess", approving(), "pay", *more, "notify", **about)
    run = Gated(spec, {"order_id": "A-7"})
    run.finish("assess", {"amount": 250})
    return run


def beside(*branch: Any, **about: Any) -> Gated:
    """A gate and what it allows, and a branch beside it."""
    return Gated(forked((approving(), "pay"), branch or ("other",), **about))


def test_what_was_shown_runs() -> None:
    run = assessed()
    assert run.open("ask").prompt == "Refund 250 for A-7?"
    run.says(APPROVER, "ask")
    run.finish("pay", {"note": "paid"})
    run.finish("notify")

    assert run.ran_with("pay") == run.ran_with("notify") == [(250, "A-7")]
    assert (run.status, run.reopened) == ("completed", [])


# while the question is open


def test_an_edit_of_what_is_shown_is_shown_and_an_answer_to_what_was_shown_is_stale() -> None:
    run = assessed()
    before = run.open("ask")
    run.edit(BOSS, amount=999)
    after = run.open("ask")

    assert (after.id, after.prompt) == (before.id, "Refund 999 for A-7?")
    (changed,) = run.facts("interrupt.changed")
    assert changed.data["id"] == before.id
    assert changed.shown is not None
    assert changed.shown["digest"] == run.state.ledger.open[before.id].digest != before.digest
    answer = run.response({after.id: True}, principal=APPROVER)
    stale = run.refused(events.Responded, **answer, digests={after.id: before.digest})
    assert stale.code is Code.STALE
    run.says(APPROVER, "ask", digests={after.id: after.digest})
    assert run.ran_with("pay") == [(999, "A-7")]
    assert run.reopened == []


def test_an_edit_of_what_is_not_shown_leaves_the_question_as_it_is() -> None:
    run = assessed()
    before = run.open("ask")
    run.edit(BOSS, note="later")

    assert run.open("ask") == before
    assert run.facts("interrupt.changed") == []
    run.says(APPROVER, "ask", digests={before.id: before.digest})
    assert run.running == ["pay"]


def test_what_a_branch_beside_it_changes_has_an_answered_gate_asked_again() -> None:
    run = beside()
    first = run.open("ask")
    run.finish("other", {"amount": 999})
    assert run.open("ask") == first
    run.says(APPROVER, "ask")

    second = run.open("ask")
    assert second.id != first.id
    assert (second.prompt, run.orders("pay")) == ("Refund 999 for A-7?", [])
    (fact,) = run.facts("interrupt.reopened")
    assert (fact.address, fact.data) == (
        "graph:g;node:ask",
        {"node": "ask", "before": "graph:g;node:pay"},
    )
    run.says(APPROVER, "ask")
    assert run.ran_with("pay") == [(999, "A-7")]
    assert run.reopened == ["ask"]


def test_a_field_that_was_not_there_yet_was_not_shown() -> None:
    run = Gated(forked((approving(), "pay"), ("other",)), {"order_id": "A-7"})
    assert run.open("ask").prompt == "Refund {amount} for A-7?"
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "ask")

    assert (run.reopened, run.running) == (["ask"], [])


@pytest.mark.parametrize(
    ("prompt", "again"), [("{order.amount}", []), ("{order}", ["ask"]), ("Go on?", [])]
)
def test_of_a_mapping_counts_what_is_shown_of_it(prompt: str, again: list[str]) -> None:
    spec = forked((approving(prompt=prompt), "pay"), ("other",), fields={"order": "merge"})
    run = Gated(spec, {"order": {"amount": 250}})
    run.finish("other", {"order": {"note": "some"}})
    run.says(APPROVER, "ask")

    assert run.reopened == again


def test_what_the_reason_shows_counts_as_well() -> None:
    asking = approving(prompt="Refund?", reason={"what": ["{amount}"]})
    run = Gated(forked((asking, "pay"), ("other",)))
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "ask")

    assert (run.open("ask").reason, run.running) == ({"what": [999]}, [])


# between the answer and what it allows


def test_what_a_branch_beside_it_changes_after_the_answer_counts_too() -> None:
    run = beside()
    run.pause()
    run.says(APPROVER, "ask")
    run.finish("other", {"amount": 999})
    run.resume()

    assert (run.reopened, run.orders("pay")) == (["ask"], [])
    assert run.open("ask").prompt == "Refund 999 for A-7?"


def test_a_change_that_is_taken_back_is_none() -> None:
    run = beside()
    run.pause()
    run.says(APPROVER, "ask")
    run.finish("other", {"amount": 999})
    run.edit(BOSS, amount=250)
    run.resume()

    assert (run.reopened, run.ran_with("pay")) == ([], [(250, "A-7")])


def test_what_waits_for_a_place_is_looked_at_when_it_gets_one() -> None:
    run = Gated(forked((approving(), "pay"), ("other",)), limits=Limits(max_parallel_visits=1))
    run.says(APPROVER, "ask")
    assert (run.running, run.ready) == (["other"], ["pay"])
    run.finish("other", {"amount": 999})

    assert (run.reopened, run.orders("pay")) == (["ask"], [])


def test_an_edit_by_who_may_approve_is_asked_about_too() -> None:
    run = assessed()
    run.pause()
    run.says(APPROVER, "ask")
    run.edit(BOSS, amount=999)
    run.resume()

    assert (run.reopened, run.orders("pay")) == (["ask"], [])
    run.says(APPROVER, "ask")
    assert run.ran_with("pay") == [(999, "A-7")]


def test_an_edit_of_something_else_has_nothing_asked_again() -> None:
    run = assessed()
    run.pause()
    run.says(APPROVER, "ask")
    run.edit(BOSS, note="later")
    run.resume()

    assert (run.reopened, run.ran_with("pay")) == ([], [(250, "A-7")])


def test_after_an_edit_a_gate_that_names_no_field_is_asked_again() -> None:
    run = Gated(refund(approving(prompt="Go on?"), "pay"))
    run.pause()
    run.says(APPROVER, "ask")
    run.edit(BOSS, note="other")
    run.resume()
    assert (run.reopened, run.running) == (["ask"], [])

    run.says(APPROVER, "ask")
    run.finish("pay")
    assert run.status == "completed"


@pytest.mark.parametrize(("capability", "again"), [(None, ["ask"]), ("approve", [])])
def test_an_answer_beside_a_gate_that_names_no_field_may_be_about_it(
    capability: str | None, again: list[str]
) -> None:
    said = remark(field="note", capability=capability)
    run = Gated(forked((approving(prompt="Go on?"), "pay"), (said,)))
    run.pause()
    run.says(APPROVER, "ask")
    run.says(APPROVER, "remark", "other")
    run.resume()

    assert (run.reopened, len(run.orders("pay"))) == (again, 1 - len(again))


def test_an_answer_behind_a_gate_that_names_no_field_is_what_it_allows() -> None:
    run = Gated(refund(approving(prompt="Go on?"), remark(field="note"), "pay"))
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", "other")

    assert (run.reopened, run.running) == ([], ["pay"])


def test_an_answer_beside_a_gate_that_names_no_field_comes_too_late_once_it_has_begun() -> None:
    branch = (approving(prompt="Go on?"), "check", "pay")
    run = Gated(forked(branch, (remark(field="note"),)))
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", "other")
    run.finish("check")

    assert (run.reopened, run.running) == ([], ["pay"])


def test_what_the_code_changes_on_the_way_needs_nobodys_word() -> None:
    run = assessed("book")
    run.says(APPROVER, "ask")
    run.finish("pay", {"amount": 245})
    run.finish("book", {"amount": 244})
    run.finish("notify")

    assert (run.ran_with("book"), run.ran_with("notify")) == ([(245, "A-7")], [(244, "A-7")])
    assert (run.status, run.reopened) == ("completed", [])


def test_once_it_has_begun_what_others_are_allowed_to_change_is_theirs() -> None:
    run = Gated(forked((approving(), "pay", "notify"), ("other",)))
    run.says(APPROVER, "ask")
    run.finish("other", {"amount": 999})
    run.finish("pay")
    run.pause()
    run.finish("notify")

    assert run.ran_with("notify") == [(999, "A-7")]
    assert run.reopened == []


def test_several_gates_are_asked_again_from_the_first_that_showed_something_else() -> None:
    audit = approving("audit", prompt="Is {order_id} known?", capability="audit")
    run = Gated(forked((audit, approving(), "pay"), ("other",)))
    run.says(BOSS, "audit")
    run.pause()
    run.says(APPROVER, "ask")
    run.finish("other", {"order_id": "B-8"})
    run.resume()
    assert run.reopened == ["audit"]
    run.says(BOSS, "audit")
    assert run.open("ask").prompt == "Refund 250 for B-8?"
    run.says(APPROVER, "ask")

    assert run.ran_with("pay") == [(250, "B-8")]


def test_a_gate_after_another_is_asked_again_alone() -> None:
    audit = approving("audit", prompt="Is {order_id} known?", capability="audit")
    run = Gated(forked((audit, approving(), "pay"), ("other",)))
    run.says(BOSS, "audit")
    run.pause()
    run.says(APPROVER, "ask")
    run.finish("other", {"amount": 999})
    run.resume()
    assert run.reopened == ["ask"]
    run.says(APPROVER, "ask")

    assert run.ran_with("pay") == [(999, "A-7")]


def test_gates_beside_each_other_are_asked_again_each_for_its_own() -> None:
    audit = approving("audit", prompt="Is {order_id} known?", capability="audit")
    run = Gated(forked((approving(prompt="Refund {amount}?"), "pay"), (audit, "ship"), ("other",)))
    run.pause()
    run.says(APPROVER, "ask")
    run.says(BOSS, "audit")
    run.finish("other", {"amount": 999, "order_id": "B-8"})
    run.resume()

    assert (run.reopened, run.running) == (["ask", "audit"], [])


# answers that nobody gave


def test_a_default_answer_counts_for_what_was_shown_too() -> None:
    asking = approving(timeout=60, on_timeout=Default(answer=True))
    run = Gated(forked((asking, "pay"), ("other",)))
    run.finish("other", {"amount": 999})
    run.tick(60)
    assert (run.reopened, run.orders("pay")) == (["ask"], [])
    run.tick(60)

    assert [each.by for each in run.state.ledger.settled.values()] == [TIMEOUT, TIMEOUT]
    assert run.ran_with("pay") == [(999, "A-7")]


def test_where_a_deadline_leads_is_the_authors_and_still_behind_the_gates_before_it() -> None:
    audit = approving("audit", prompt="Is {order_id} known?", capability="audit")
    asking = approving(timeout=60, on_timeout=GoTo(node="other"))
    spec = forked((audit, asking, "pay", "other"), ("beside",))
    run = Gated(spec)
    run.says(BOSS, "audit")
    run.pause()
    run.tick(60)
    run.finish("beside", {"order_id": "B-8"})
    run.resume()
    assert (run.reopened, run.orders("other")) == (["audit"], [])

    run.says(BOSS, "audit")
    run.tick(60)
    assert run.ran_with("other") == [(250, "B-8")]


# loops


def test_in_a_loop_only_the_latest_answer_counts() -> None:
    spec = refund(approving(), FunctionNode(id="pay", to=("ask",)))
    run = Gated(spec)
    for amount in (250, 300, 350):
        assert run.open("ask").prompt == f"Refund {amount} for A-7?"
        run.says(APPROVER, "ask")
        run.finish("pay", {"amount": amount + 50}, goto="ask")

    assert run.ran_with("pay") == [(250, "A-7"), (300, "A-7"), (350, "A-7")]
    assert run.reopened == []


def test_a_loop_behind_a_gate_is_covered_by_it() -> None:
    run = Gated(refund(approving(), FunctionNode(id="pay", to=("pay",))))
    run.says(APPROVER, "ask")
    for amount in (200, 150):
        run.finish("pay", {"amount": amount}, goto="pay")

    assert run.ran_with("pay") == [(250, "A-7"), (200, "A-7"), (150, "A-7")]
    assert run.reopened == []


# what has failed


def failing(**about: Any) -> Gated:
    pay = FunctionNode(id="pay", on_error=AskHuman())
    run = Gated(refund(approving(), pay, "notify"), **about)
    run.says(APPROVER, "ask")
    run.fail("pay")
    return run


def test_an_approved_visit_that_failed_may_be_let_fail_by_anybody() -> None:
    run = failing()
    run.says(CLERK, "error", {"action": "fail"})

    assert run.status == "failed"


def test_what_was_not_approved_is_tried_again_by_anybody() -> None:
    run = Gated(refund(FunctionNode(id="assess", on_error=AskHuman()), approving(), "pay"))
    run.fail("assess")
    run.says(CLERK, "error", {"action": "retry"})

    assert run.running == ["assess"]


@pytest.mark.parametrize(("patch", "paid"), [({}, 250), ({"amount": 5}, 5)])
def test_what_is_skipped_is_left_to_who_may_approve(patch: dict[str, Json], paid: int) -> None:
    run = failing()
    run.says(BOSS, "error", {"action": "skip", "patch": patch})

    assert run.ran_with("notify") == [(paid, "A-7")]


# where a gate has too many rounds


def test_a_gate_that_is_asked_again_too_often_fails_the_run() -> None:
    asking = approving(timeout=60, on_timeout=Default(answer=True))
    spec = forked((asking, "pay"), ("other",))
    run = Gated(spec, limits=Limits(max_visits=1))
    run.finish("other", {"amount": 999})
    run.tick(60)

    assert run.error[0] == "max_visits"
