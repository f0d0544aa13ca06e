"""Gates, and what people say, in the items of fan-outs that are in each other."""

from __future__ import annotations

import pytest
from core_drive import edge
from core_gated import APPROVER, CLERK, Gated, approving, forked, remark

from abeyance.core.spec import END, FunctionNode, Node


def sender(id_: str, *to: str) -> FunctionNode:
    return FunctionNode(id=id_, to=to)


def test_a_gate_that_is_asked_again_takes_the_fan_outs_behind_it_and_leaves_those_beside() -> None:
    spec = forked(
        (approving(), sender("send", "one")),
        (sender("beside", "each"),),
        ways=[("remark", "check"), (["check"], "met"), (["met"], "pay")],
        more=(sender("one", "remark"), remark(), "check", "met", "pay", "each"),
    )
    run = Gated(spec)
    run.says(APPROVER, "ask")
    run.finish("beside", sends=[("each", 1)])
    run.finish("send", sends=[("one", 1)])
    run.finish("one", sends=[("remark", 1), ("remark", 2)])
    run.says(CLERK, "remark", 999)

    assert (run.reopened, run.running) == (["ask"], ["each"])
    assert [*run.state.root.fans] == ["graph:g;node:beside"]
    reason = "'ask' is asked again: its values have changed since it was answered"
    assert run.settled("remark").settled_reason == reason


@pytest.mark.parametrize("is_inner", [False, True])
def test_an_item_has_not_arrived_by_what_a_gate_had_allowed_that_now_allows_something_else(
    is_inner: bool,
) -> None:
    spec = forked(
        (sender("send", "ask", "fork"),),
        ways=[
            *(("fork", "there"), ("fork", "inner"), (["there"], "end")),
            *(edge("ask", "book", {"note": True}), edge("ask", "wait", {"note": True})),
            *(edge("ask", END, "else"), ("wait", "check"), (["book"], "pay")),
        ],
        more=(
            *("fork", "there", sender("inner", "ask"), approving(answer_to="note")),
            *("book", remark("wait"), "check", "pay", "end"),
        ),
    )
    run = Gated(spec)
    if is_inner:
        run.finish("send", sends=[("fork", 1)])
        run.finish("fork")
        run.finish("there")
        run.finish("inner", sends=[("ask", 2)])
    else:
        run.finish("send", sends=[("ask", 2)])
    run.says(APPROVER, "ask", True)
    run.finish("book")
    run.says(CLERK, "wait", 999)
    assert run.reopened == ["ask"]
    run.says(APPROVER, "ask", False)

    assert run.orders("pay")[0].results == [{"item": 2, "status": "ended"}]
    if is_inner:
        run.finish("pay")
        assert run.orders("end")[0].results == [{"item": 1, "status": "arrived"}]


def inside(leaf: Node, *before: Node) -> Gated:
    """An item comes to `pay`, and in a fan-out of its own asks somebody; `other` is beside."""
    spec = forked(
        (*before, sender("send", "one")),
        ("other",),
        ways=[("one", "there"), ("one", "inner"), (["there"], "pay")],
        more=("one", "there", sender("inner", leaf.id), leaf, "pay"),
    )
    run = Gated(spec)
    for each in before:
        run.says(APPROVER, each.id)
    run.finish("send", sends=[("one", 1)])
    run.finish("one")
    run.finish("there")
    run.finish("inner", sends=[(leaf.id, 2)])
    return run


def test_somebody_else_s_word_in_an_inner_item_has_the_gate_before_all_of_them_asked_again() -> (
    None
):
    run = inside(remark(), approving())
    run.says(CLERK, "remark", 999)

    assert (run.reopened, run.orders("pay")) == (["ask"], [])


def test_a_gate_in_an_inner_item_counts_after_all_of_them() -> None:
    run = inside(approving())
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "ask")

    assert (run.reopened, run.orders("pay")) == (["send"], [])


def test_somebody_else_s_word_in_an_item_is_compared_on_the_other_branches_of_the_item() -> None:
    spec = forked(
        (approving(), sender("send", "one")),
        ways=[("one", "remark"), ("one", "check"), ("check", "book"), (["book"], "pay")],
        more=("one", remark(), "check", "book", "pay"),
    )
    run = Gated(spec)
    run.says(APPROVER, "ask")
    run.finish("send", sends=[("one", 1)])
    run.finish("one")
    run.says(CLERK, "remark", 999)
    run.finish("check")

    assert (run.reopened, run.orders("book")) == (["ask"], [])


def test_somebody_else_s_word_in_an_item_is_no_matter_to_a_gate_in_another_item() -> None:
    spec = forked(
        (sender("send", "remark", "inner"),),
        ways=[(["ask"], "met"), (["met", "remark"], "pay")],
        more=(remark(), sender("inner", "ask"), approving(prompt="Go on?"), "met", "pay"),
    )
    run = Gated(spec)
    run.finish("send", sends=[("remark", 1), ("inner", 2)])
    run.finish("inner", sends=[("ask", 3), ("ask", 4)])
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", 999)
    run.says(APPROVER, "ask")

    assert (run.reopened, run.running) == ([], ["met"])
