"""A gate is asked again if what it showed changes before the first code behind it has begun."""

from __future__ import annotations

from typing import Any

import pytest
from core_gated import APPROVER, BOSS, CLERK, Gated, approving, forked, refund, remark
from core_graphs import ask, rule

from abeyance.core import events
from abeyance.core.json import Json
from abeyance.core.outcome import Blocked, Misread
from abeyance.core.spec import AskHuman, Default, FunctionNode, GoTo
from abeyance.core.state import Limits
from abeyance.core.terms import Quorum, Terms
from abeyance.errors import Code

ASKED = {
    "with a capability": approving(),
    "of everybody": approving(capability=None),
    "of several": approving(terms=Terms(quorum=Quorum(count=1)), schema={"type": "boolean"}),
    "with an answer to a field": approving(answer_to="note"),
    "by its deadline": approving(timeout=60, on_timeout=Default(answer=True)),
    "in its reason": approving(prompt="Refund?", reason={"what": ["{amount}", "{order_id}"]}),
}


def beside(asking: Any = None, **about: Any) -> Gated:
    """Start a run of a gate, `pay` behind it, and a branch beside them."""
    return Gated(forked((asking or approving(), "pay"), ("other",), **about))


# before the first code begins


@pytest.mark.parametrize("asking", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("comes", ["before the answer", "after it", "while it waits for a place"])
@pytest.mark.parametrize("who", ["code", "an editor", "an answer"])
def test_a_change_of_what_was_shown_has_it_asked_again_whoever_made_it(
    asking: Any, comes: str, who: str
) -> None:
    branch = remark("other") if who == "an answer" else "other"
    places = 1 if comes == "while it waits for a place" and who == "code" else 50
    run = Gated(forked((asking, "pay"), (branch,)), limits=Limits(max_parallel_visits=places))

    def changes() -> None:
        match who:
            case "code":
                run.finish("other", {"amount": 999})
            case "an editor" if comes == "before the answer":
                # An edit would show the change in the open question, and no gate would be asked again.
                run.finish("other", {"amount": 999})
            case "an editor":
                run.edit(BOSS, amount=999)
            case _:
                run.says(CLERK, "other", 999)

    def says() -> None:
        if asking.question.timeout:
            run.tick(60)
        else:
            run.says(APPROVER, "ask")

    if comes == "before the answer":
        changes()
        says()
    else:
        if who == "an editor":
            run.finish("other")
        if places > 1:
            run.pause()
        says()
        changes()
        if places > 1:
            run.resume()
    assert (run.reopened, run.orders("pay")) == (["ask"], [])
    entry = run.open("ask")
    assert "999" in f"{entry.prompt}{entry.reason}"
    says()

    assert run.ran_with("pay") == [(999, "A-7")]


def test_the_event_of_a_reopened_gate_names_the_code_about_to_begin() -> None:
    run = beside()
    first = run.open("ask")
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "ask")

    assert run.open("ask").id != first.id
    (fact,) = run.facts("interrupt.reopened")
    about = {"node": "ask", "before": "graph:g;node:pay"}
    assert (fact.address, fact.data) == ("graph:g;node:ask", about)


def test_an_edit_of_what_is_shown_is_shown_and_an_answer_to_what_was_shown_is_stale() -> None:
    run = beside()
    run.finish("other")
    before = run.open("ask")
    run.edit(BOSS, amount=999)
    after = run.open("ask")

    assert (after.id, after.prompt) == (before.id, "Refund 999 for A-7?")
    answer = run.response({after.id: True}, principal=APPROVER)
    stale = run.refused(events.Responded, **answer, digests={after.id: before.digest})
    assert stale.code is Code.STALE
    run.says(APPROVER, "ask", digests={after.id: after.digest})
    assert (run.reopened, run.ran_with("pay")) == ([], [(999, "A-7")])


@pytest.mark.parametrize("change", [{"note": "later"}, {"amount": 250}])
def test_changes_of_unshown_values_or_back_again_reopen_no_gate(change: dict[str, Json]) -> None:
    run = beside()
    run.pause()
    run.says(APPROVER, "ask")
    run.finish("other", {"amount": 999} if "amount" in change else {})
    run.edit(BOSS, **change)
    run.resume()

    assert (run.reopened, run.ran_with("pay")) == ([], [(250, "A-7")])


def test_a_field_that_was_not_there_yet_was_not_shown() -> None:
    run = Gated(forked((approving(), "pay"), ("other",)), {"order_id": "A-7"})
    assert run.open("ask").prompt == "Refund {amount} for A-7?"
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "ask")

    assert (run.reopened, run.running) == (["ask"], [])


@pytest.mark.parametrize(
    ("prompt", "again"), [("{order.amount}", []), ("{order}", ["ask"]), ("Go on?", [])]
)
def test_only_the_shown_part_of_a_mapping_counts(prompt: str, again: list[str]) -> None:
    spec = forked((approving(prompt=prompt), "pay"), ("other",), fields={"order": "merge"})
    run = Gated(spec, {"order": {"amount": 250}})
    run.finish("other", {"order": {"note": "some"}})
    run.says(APPROVER, "ask")

    assert run.reopened == again


def test_a_value_that_the_answer_itself_changes_is_approved() -> None:
    run = beside(approving(answer_to="amount"))
    run.pause()
    run.says(APPROVER, "ask", 90)
    run.finish("other")
    run.resume()
    assert (run.reopened, run.ran_with("pay")) == ([], [(90, "A-7")])


def test_and_what_was_changed_before_it_is_not() -> None:
    run = beside(approving(answer_to="amount"))
    run.finish("other", {"order_id": "B-8"})
    run.says(APPROVER, "ask", 90)

    assert (run.reopened, run.open("ask").prompt) == (["ask"], "Refund 90 for B-8?")


def test_several_gates_are_asked_again_from_the_first_that_showed_something_else() -> None:
    audit = approving("audit", prompt="Is {order_id} known?", capability="audit")
    run = Gated(forked((audit, approving(), "pay"), ("other",)))
    run.says(BOSS, "audit")
    run.pause()
    run.says(APPROVER, "ask")
    run.finish("other", {"order_id": "B-8"})
    run.resume()
    assert (run.reopened, [name for name, _ in run.asking]) == (["audit"], ["audit"])
    run.says(BOSS, "audit")
    run.pause()
    run.says(APPROVER, "ask")
    run.edit(BOSS, amount=999)
    run.resume()
    assert run.reopened == ["audit", "ask"]
    run.says(APPROVER, "ask")

    assert run.ran_with("pay") == [(999, "B-8")]
    # Only the answers that led to the payment count.
    reasons = [(each.name, each.settled_reason) for each in run.state.ledger.settled.values()]
    assert sorted(reasons, key=str) == sorted(
        [
            *[("audit", "asked again"), ("ask", "asked again"), ("ask", "asked again")],
            *[("audit", None), ("ask", None)],
        ],
        key=str,
    )


def test_a_gate_is_asked_again_though_the_run_keeps_no_settled_question_of_it() -> None:
    audit = approving("audit", prompt="Is {order_id} known?", capability="audit")
    graph = forked((audit, approving(), "pay"), ("other",))
    run = Gated(graph, limits=Limits(settled_kept=1))
    run.says(BOSS, "audit")
    run.pause()
    run.says(APPROVER, "ask")
    run.finish("other", {"order_id": "B-8"})
    run.resume()
    run.says(BOSS, "audit")
    run.says(APPROVER, "ask")

    assert run.reopened == ["audit"]
    assert run.ran_with("pay") == [(250, "B-8")]


def test_the_node_of_a_deadline_is_behind_the_gates_before_it() -> None:
    audit = approving("audit", prompt="Is {order_id} known?", capability="audit")
    asking = approving(timeout=60, on_timeout=GoTo(node="other"))
    run = Gated(forked((audit, asking, "pay", "other"), ("beside",)))
    run.says(BOSS, "audit")
    run.pause()
    run.tick(60)
    run.finish("beside", {"order_id": "B-8"})
    run.resume()
    assert (run.reopened, run.orders("other")) == (["audit"], [])
    run.says(BOSS, "audit")
    run.tick(60)

    assert run.ran_with("other") == [(250, "B-8")]


def test_a_gate_that_is_asked_again_too_often_fails_the_run() -> None:
    spec = forked((ASKED["by its deadline"], "pay"), ("other",))
    run = Gated(spec, limits=Limits(max_visits=1))
    run.finish("other", {"amount": 999})
    run.tick(60)

    assert run.error[0] == "max_visits"


# once the code has begun


@pytest.mark.parametrize("who", ["its own code", "another branch", "a person", "an editor"])
def test_once_code_has_begun_the_answer_is_used_up(who: str) -> None:
    run = Gated(forked((approving(), "pay", "book"), ("other",), (remark(),)))
    run.says(APPROVER, "ask")
    if who != "another branch":
        run.finish("other")
    if who != "a person":
        run.says(CLERK, "remark", 250)
    match who:
        case "its own code":
            run.finish("pay", {"amount": 999})
        case "another branch":
            run.finish("other", {"amount": 999})
            run.finish("pay")
        case "a person":
            run.says(CLERK, "remark", 999)
            run.finish("pay")
        case _:
            run.pause()
            run.finish("pay")
            run.edit(BOSS, amount=999)
            run.resume()

    assert (run.reopened, run.ran_with("book")) == ([], [(999, "A-7")])


def test_the_code_of_one_branch_uses_the_answer_up_for_all() -> None:
    spec = forked((approving(), "pay"), ("other",), more=("book",), ways=[("ask", "book")])
    run = Gated(spec, limits=Limits(max_parallel_visits=2))
    run.says(APPROVER, "ask")
    assert (run.running, run.ready) == (["other", "pay"], ["book"])
    run.finish("other", {"amount": 999})

    assert (run.reopened, run.ran_with("book")) == ([], [(999, "A-7")])


@pytest.mark.parametrize("left", ["stopped", "blocked"])
def test_code_that_was_ordered_and_did_not_begin_uses_nothing_up(left: str) -> None:
    run = beside()
    run.says(APPROVER, "ask")
    run.pause(mode="now")
    if left == "stopped":
        run.stopped("pay", begun=False)
    else:
        run.end(Blocked, visit=run.visit("pay").address, code="code_missing", message="missing")
    run.stopped("other")
    run.edit(BOSS, amount=999)
    run.resume()

    assert (run.reopened, run.running) == (["ask"], ["other"])


def test_a_loop_keeps_only_the_gate_of_its_latest_answer() -> None:
    run = Gated(refund(approving(), FunctionNode(id="pay", to=("ask",))))
    for amount in (250, 300, 350):
        assert run.open("ask").prompt == f"Refund {amount} for A-7?"
        run.says(APPROVER, "ask")
        run.finish("pay", {"amount": amount + 50}, goto="ask")

    assert run.ran_with("pay") == [(250, "A-7"), (300, "A-7"), (350, "A-7")]
    (visit,) = run.state.visits.values()
    assert (run.reopened, len(visit.gates), len(run.state.gates)) == ([], 1, 3)

    run.feed(events.Restored)
    assert len(run.state.gates) == 1
    run.says(APPROVER, "ask")
    run.finish("pay")
    assert run.status == "completed"


# failed code


@pytest.mark.parametrize(("patch", "paid"), [({}, 250), ({"amount": 5}, 5)])
def test_skipping_a_failed_visit_behind_a_gate_runs_on_with_the_patch(
    patch: dict[str, Json], paid: int
) -> None:
    pay = FunctionNode(id="pay", on_error=AskHuman())
    run = Gated(refund(approving(), pay, "notify"))
    run.says(APPROVER, "ask")
    run.fail("pay")
    run.says(BOSS, "error", {"action": "skip", "patch": patch})

    assert run.ran_with("notify") == [(paid, "A-7")]


def test_nobody_needs_a_permission_because_of_an_answer_that_everybody_could_give() -> None:
    run = Gated(refund(approving(capability=None), FunctionNode(id="pay", on_error=AskHuman())))
    run.says(CLERK, "ask")
    run.fail("pay")
    run.says(CLERK, "error", {"action": "retry"})

    assert (run.running, run.state.spec.guarded_by) == (["pay"], ())


# answers that code cannot read


def unreadable(field: str = "note", **about: Any) -> Gated:
    """Start a run whose gate writes its answer to a field, which the code behind it cannot read."""
    return Gated(refund(approving(answer_to=field, **about), "check", "pay"))


def test_an_answer_that_its_code_cannot_read_is_asked_for_again_with_the_fault() -> None:
    run = unreadable()
    first = run.open("ask").id
    run.says(APPROVER, "ask", 7)
    assert run.orders("check")[0].answered == ("note",)
    run.end(Misread, visit=run.visit("check").address, faults={"note": "/note: not a text"})

    again = run.open("ask")
    hint = "(Asked again, because the answer does not fit: /note: not a text)"
    assert (again.id == first, again.prompt) == (False, f"Refund 250 for A-7? {hint}")
    (fact,) = run.facts("interrupt.reopened")
    assert fact.data["reason"] == "the answer cannot be read any more: /note: not a text"
    run.says(APPROVER, "ask", "seven")
    assert run.ran_with("check", "note") == [(7,), ("seven",)]


def test_the_answer_to_a_rule_that_code_cannot_read_is_asked_again() -> None:
    rules = [rule("sure", "assess", ask("sure", prompt="Sure?", answer_to="note"))]
    run = Gated(refund("assess", "pay", rules=rules))
    run.finish("assess")
    run.says(CLERK, "sure", 7)
    run.end(Misread, visit=run.visit("pay").address, faults={"note": "not a text"})

    assert (run.open("sure").prompt[:18], len(run.orders("assess"))) == ("Sure? (Asked again", 1)


def test_an_answer_that_code_has_used_or_that_was_added_to_others_is_not_asked_for_again() -> None:
    run = unreadable()
    run.says(APPROVER, "ask", 7)
    run.finish("check")
    added = unreadable("payments")
    added.says(APPROVER, "ask", [7])

    assert (run.orders("pay")[0].answered, added.orders("check")[0].answered) == ((), ())


@pytest.mark.parametrize("ends", [False, True])
def test_code_that_cannot_read_anything_else_is_blocked(*, ends: bool) -> None:
    run = unreadable()
    run.says(APPROVER, "ask", 7)
    if ends:
        run.cancel()
    field = "note" if ends else "amount"
    run.end(Misread, visit=run.visit("check").address, faults={field: "not a number"})
    if ends:
        assert run.status == "cancelled"
        return

    (fact,) = run.facts("node.blocked")
    assert fact.data == {"code": "values_incompatible", "message": "not a number"}
    assert run.reopened == []
