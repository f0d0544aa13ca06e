"""Gates with items and loops: what one person changes, another one approves."""

from __future__ import annotations

from typing import Any

import pytest
from core_drive import edge, gate, nested
from core_gated import APPROVER, BOSS, CLERK, Gated, approving, forked, refund, remark
from core_rules import ask, rule

from abeyance.core.policy import Principal
from abeyance.core.spec import AskHuman, FunctionNode, GraphSpec, InterruptNode, Node
from abeyance.core.terms import Quorum, Terms

AUDITOR = Principal(subject="auditor", capabilities=("audit",))
SEVERAL: dict[str, Any] = {"terms": Terms(quorum=Quorum(count=1)), "schema": {"type": "boolean"}}


def sender(id_: str, *to: str) -> FunctionNode:
    return FunctionNode(id=id_, to=to)


# the items of a fan-out


def of_two(asking: InterruptNode, *behind: str, beside: Node) -> Gated:
    """A gate in an item, with nodes behind it there, something else in another item, then `pay`."""
    last = behind[-1] if behind else asking.id
    spec = forked(
        (sender("send", asking.id, beside.id),),
        ways=[*zip((asking.id, *behind), behind, strict=False), ([last, beside.id], "pay")],
        more=(asking, *behind, beside, "pay"),
    )
    run = Gated(spec)
    run.finish("send", sends=[(asking.id, 1), (beside.id, 2)])
    return run


@pytest.mark.parametrize("prompt", ["Refund {amount}?", "Go on?"])
def test_what_somebody_says_in_another_item_has_the_gate_asked_again_after_the_items(
    prompt: str,
) -> None:
    run = of_two(approving(prompt=prompt), beside=remark())
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", 999)

    assert (run.reopened, run.orders("pay")) == (["send"], [])


def test_so_it_is_where_code_behind_the_gate_has_begun_in_its_item() -> None:
    run = of_two(approving(), "check", beside=remark())
    run.says(APPROVER, "ask")
    run.finish("check")
    run.says(CLERK, "remark", 999)

    assert (run.reopened, run.orders("pay")) == (["send"], [])


def test_what_code_makes_of_it_in_another_item_is_asked_about_before_the_gate_s_own_has_begun() -> (
    None
):
    run = of_two(approving(), beside=FunctionNode(id="beside"))
    run.finish("beside", {"amount": 999})
    run.says(APPROVER, "ask")
    assert (run.reopened, run.orders("pay")) == (["send"], [])

    begun = of_two(approving(), "check", beside=FunctionNode(id="beside"))
    begun.says(APPROVER, "ask")
    begun.finish("check")
    begun.finish("beside", {"amount": 999})
    assert (begun.reopened, begun.running) == ([], ["pay"])


def test_what_somebody_says_in_the_item_of_a_gate_is_no_word_about_another_item() -> None:
    spec = forked(
        (sender("send", "ask", "beside"),),
        ways=[("ask", "check"), ("check", "remark"), (["remark", "beside"], "pay")],
        more=(approving(), "check", remark(field="note"), "beside", "pay"),
    )
    run = Gated(spec)
    run.finish("send", sends=[("ask", 1), ("beside", 2)])
    run.says(APPROVER, "ask")
    run.finish("check")
    run.says(CLERK, "remark", "soon")
    run.finish("beside", {"amount": 999})

    assert (run.reopened, run.running) == ([], ["pay"])


def test_what_changed_nothing_in_the_item_of_a_gate_hides_no_word_in_another_item() -> None:
    spec = forked(
        (sender("send", "ask", "remark"),),
        ways=[("ask", "check"), ("check", "own"), (["own", "remark"], "pay")],
        more=(approving(), "check", remark("own", field=None), remark(), "pay"),
    )
    run = Gated(spec)
    run.finish("send", sends=[("ask", 1), ("remark", 2)])
    run.says(APPROVER, "ask")
    run.finish("check")
    run.says(CLERK, "own")
    run.says(CLERK, "remark", 999)

    assert (run.reopened, run.orders("pay")) == (["send"], [])


def test_an_answer_in_another_item_that_took_the_gate_s_capability_leaves_it_approved() -> None:
    other = approving("two", prompt="How much?", answer_to="amount")
    run = of_two(approving(), "check", beside=other)
    run.says(APPROVER, "ask")
    run.finish("check")
    run.says(APPROVER, "two", 90)

    assert (run.reopened, run.ran_with("pay", "amount")) == ([], [(90,)])


def test_a_gate_whose_values_no_other_item_has_changed_has_begun_after_the_items_too() -> None:
    spec = forked(
        (sender("send", "ask", "remark"),),
        ("beside",),
        ways=[("ask", "check"), (["check", "remark"], "pay")],
        more=(approving(), "check", remark(field="note"), "pay"),
    )
    run = Gated(spec)
    run.finish("send", sends=[("ask", 1), ("remark", 2)])
    run.says(APPROVER, "ask")
    run.finish("check")
    run.pause()
    run.says(CLERK, "remark", "soon")
    run.finish("beside", {"amount": 999})
    run.resume()

    assert (run.reopened, run.running) == ([], ["pay"])


def test_what_a_reducer_adds_from_other_items_stays_approved() -> None:
    run = of_two(approving(prompt="Refund {payments}?"), beside=remark(field="payments"))
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", [5])

    assert (run.reopened, run.running) == ([], ["pay"])


def barring(*ways: Any, more: tuple[Node | str, ...], to: tuple[str, ...]) -> Gated:
    review = gate("review", terms=Terms(not_by=("draft",)))
    spec = forked((sender("send", *to),), ways=ways, more=(gate("draft"), review, *more))
    run = Gated(spec)
    run.finish("send", sends=[(name, 1) for name in to])
    return run


def test_who_answered_in_an_item_that_leaves_its_fan_out_is_barred_outside() -> None:
    leaves = FunctionNode(id="leaves", to=("review",))
    run = barring(
        ("draft", "leaves"),
        (["other"], "met"),
        more=(leaves, "other", "met"),
        to=("draft", "other"),
    )
    run.says(APPROVER, "draft")
    run.finish("leaves", goto="review")

    assert run.open("review").barred == {"approver": "draft"}


def test_who_answered_in_an_item_that_did_not_arrive_is_barred_after_the_others() -> None:
    run = barring((["other"], "review"), more=("other",), to=("draft", "other"))
    run.says(APPROVER, "draft")
    run.finish("other")

    assert run.open("review").barred == {"approver": "draft"}


# loops


@pytest.mark.parametrize("comes", ["before the second answer", "after it"])
@pytest.mark.parametrize("prompt", ["Again {amount}?", "Again?"])
def test_a_gate_of_a_loop_that_is_asked_again_leaves_the_gates_before_it_in_force(
    prompt: str, comes: str
) -> None:
    again = approving("again", prompt=prompt, capability="audit", answer_to="note")
    spec = forked(
        (approving(prompt="Refund {amount}?"), "check", again),
        (remark(),),
        ways=[edge("again", "ask", {"note": True}), edge("again", "pay", "else")],
        more=("pay",),
    )
    run = Gated(spec)
    run.says(APPROVER, "ask")
    run.finish("check")
    run.says(AUDITOR, "again", True)
    if comes == "before the second answer":
        run.says(CLERK, "remark", 999)
    run.says(APPROVER, "ask")
    if comes == "after it":
        run.says(CLERK, "remark", 999)
        run.finish("check")
    assert run.asking[-1][0] == "again"
    run.says(AUDITOR, "again", False)
    assert run.orders("pay") == []
    run.says(APPROVER, "ask")
    run.finish("check")
    run.says(AUDITOR, "again", False)

    assert run.ran_with("pay", "amount") == [(999,)]


def test_in_a_loop_each_gate_is_asked_once_a_round_whatever_it_showed_before() -> None:
    more = approving("more", prompt="How much?", capability="audit", answer_to="amount")
    spec = forked((approving(prompt="Refund {amount}?"), "check", more), ways=[("more", "ask")])
    run = Gated(spec)
    for amount in (90, 80, 70, 60):
        run.says(APPROVER, "ask")
        run.finish("check")
        run.says(AUDITOR, "more", amount)

    assert (run.reopened, run.open("ask").prompt) == ([], "Refund 60?")
    (visit,) = run.state.visits.values()
    assert len(visit.approvals) <= 3


# edits


def in_a_graph(asking: InterruptNode, *inner: str | Node, **about: Any) -> Gated:
    """A gate, then a nested graph, then `pay`."""
    sub: GraphSpec = refund(*inner, name="inner", **about)
    return Gated(refund(asking, nested("sub", sub), "pay"))


def test_neither_is_a_patch_by_which_a_failure_in_it_is_skipped() -> None:
    run = in_a_graph(approving(**SEVERAL), FunctionNode(id="check", on_error=AskHuman()))
    run.says(APPROVER, "ask")
    run.fail("check")
    run.says(BOSS, "error", {"action": "skip", "patch": {"amount": 999}})

    assert (run.reopened, run.orders("pay")) == (["ask"], [])


def test_such_a_patch_is_an_edit_on_every_branch() -> None:
    spec = forked(
        (approving(**SEVERAL), "check", remark(field=None), "pay"),
        (FunctionNode(id="other", on_error=AskHuman()),),
    )
    run = Gated(spec)
    run.says(APPROVER, "ask")
    run.finish("check")
    run.fail("other")
    run.says(BOSS, "error", {"action": "skip", "patch": {"amount": 999}})
    run.says(CLERK, "remark")

    assert (run.reopened, run.orders("pay")) == (["ask"], [])


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("terms", [Terms(hold=600.0), Terms(quorum=Quorum(count=2))])
@pytest.mark.parametrize("who", [BOSS, CLERK])
def test_what_was_said_at_a_gate_that_shows_nothing_is_said_again_after_a_change(
    who: Principal, terms: Terms, depth: int
) -> None:
    asking = approving(prompt="Go on?", terms=terms, schema={"type": "boolean"})
    around: Node = asking if not depth else nested("sub", refund(asking, name="inner"))
    run = Gated(forked((around, "pay"), (remark(),)))
    run.says(APPROVER, "ask", True)
    if who is BOSS:
        run.edit(BOSS, amount=999)
    else:
        run.says(CLERK, "remark", 999)
    run.tick(600)

    assert (run.open("ask").status, run.open("ask").votes, run.running) == ("open", (), [])
    (fact,) = run.facts("interrupt.reopened")
    assert fact.data["reason"] == "the values have changed since"


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("changes", ["by code", "with a capability", "nothing"])
def test_what_was_said_at_it_stays_if_nobody_else_has_changed_anything(
    changes: str, depth: int
) -> None:
    asking = approving(prompt="Go on?", terms=Terms(hold=600.0), schema={"type": "boolean"})
    around: Node = asking if not depth else nested("sub", refund(asking, "check", name="inner"))
    besides: dict[str, Node | str] = {
        "by code": "code",
        "with a capability": approving("remark", capability="audit", answer_to="amount"),
        "nothing": remark(field=None),
    }
    run = Gated(forked((around, "pay"), (besides[changes],)))
    run.says(APPROVER, "ask", True)
    if changes == "by code":
        run.finish("code", {"amount": 999})
    else:
        run.says(BOSS if changes == "with a capability" else CLERK, "remark", 999)
    run.tick(600)

    assert (run.reopened, run.running) == ([], ["check" if depth else "pay"])


@pytest.mark.parametrize("changes", ["with a capability", "nothing"])
def test_a_gate_in_a_nested_graph_that_shows_nothing_is_not_asked_again_for_less(
    changes: str,
) -> None:
    asking = approving(prompt="Go on?")
    beside = (
        approving("remark", capability="audit", answer_to="amount")
        if changes == "with a capability"
        else remark(field=None)
    )
    run = Gated(forked((nested("sub", refund(asking, "check", name="inner")),), (beside,)))
    run.pause()
    run.says(APPROVER, "ask")
    run.says(BOSS, "remark", 999)
    run.resume()

    assert (run.reopened, run.running) == ([], ["check"])


def test_so_is_what_was_said_at_the_question_of_a_rule() -> None:
    about: dict[str, Any] = {"terms": Terms(hold=600.0), "schema": {"type": "boolean"}}
    sure = rule("sure", "assess", ask("sure", prompt="Go on?", capability="approve", **about))
    run = Gated(refund("assess", "pay", rules=[sure]))
    run.finish("assess")
    run.says(APPROVER, "sure", True)
    run.edit(BOSS, amount=999)

    assert run.open("sure").status == "open"


def test_what_was_said_at_a_gate_that_shows_a_field_stays() -> None:
    asking = approving(terms=Terms(hold=600.0), schema={"type": "boolean"})
    run = Gated(forked((asking, "pay"), (remark(field="note"),)))
    run.says(APPROVER, "ask", True)
    run.says(CLERK, "remark", "later")
    run.tick(600)

    assert run.running == ["pay"]
