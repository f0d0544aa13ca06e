"""How far an approval reaches: into the items of fan-outs, and out of them again."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from core_drive import edge, graph
from core_gated import APPROVER, BOSS, CLERK, FIELDS, Gated, approving, forked, remark

from abeyance.core.spec import START, FunctionNode, GoTo, GraphSpec, Node


def fanned(*nodes: str | Node) -> GraphSpec:
    """`send` sends items to the nodes, one after another; `pay` gathers them, and `other` is beside."""
    names = [node if isinstance(node, str) else node.id for node in nodes]
    send = FunctionNode(id="send", to=(names[0],))
    return forked(
        (send,),
        ("other",),
        ways=[*itertools.pairwise(names), ([names[-1]], "pay")],
        more=(*nodes, "pay"),
    )


@pytest.mark.parametrize("amount", [250, 999])
def test_a_gate_in_front_of_each_item_counts_for_that_item(amount: int) -> None:
    run = Gated(fanned("price", approving(), "book"))
    run.finish("send", sends=[("price", 1), ("price", 2)])
    run.finish("price", {"amount": 1})
    run.finish("price:2", {"amount": 2})
    assert [each.prompt for each in run.state.ledger.open.values()] == [
        "Refund 1 for A-7?",
        "Refund 2 for A-7?",
    ]
    run.finish("other", {"amount": amount})
    run.says(APPROVER, "ask")
    run.says(APPROVER, "ask")

    assert (run.reopened, run.ran_with("book", "amount")) == ([], [(1,), (2,)])


def test_a_gate_of_an_item_is_asked_again_in_its_item() -> None:
    run = Gated(fanned(approving(), "book"))
    run.finish("send", sends=[("ask", 1), ("ask", 2)])
    run.says(APPROVER, "ask")
    assert run.running == ["other", "book"]
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "ask")
    assert (run.reopened, run.running) == (["ask"], ["book"])
    assert run.state.root.fans["graph:g;node:send"].items[1].item == 2
    run.says(APPROVER, "ask")

    assert [order.item for order in run.orders("book")] == [1, 2]


def test_gates_of_items_count_after_all_of_them() -> None:
    run = Gated(fanned(approving()))
    run.finish("send", sends=[("ask", 1), ("ask", 2)])
    run.says(APPROVER, "ask")
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "ask")

    assert (run.reopened, run.orders("pay")) == (["send"], [])
    assert run.running == ["send"]
    run.finish("send", sends=[("ask", 1)])
    run.says(APPROVER, "ask")
    assert run.ran_with("pay") == [(999, "A-7")]


@pytest.mark.parametrize("is_first_late", [False, True])
def test_of_several_items_the_gate_of_one_that_showed_something_else_is_enough(
    is_first_late: bool,
) -> None:
    run = Gated(fanned("price", approving()))
    run.finish("send", sends=[("price", 1), ("price", 2)])
    run.finish("price:2" if is_first_late else "price")
    run.says(APPROVER, "ask")
    run.finish("other", {"amount": 999})
    run.finish("price" if is_first_late else "price:2")
    assert run.open("ask").prompt == "Refund 999 for A-7?"
    run.says(APPROVER, "ask")

    assert (run.reopened, run.orders("pay")) == (["send"], [])


def test_what_was_shown_in_items_and_is_changed_and_changed_back_is_as_approved() -> None:
    run = Gated(fanned(approving()))
    run.finish("send", sends=[("ask", 1), ("ask", 2)])
    run.finish("other", {"amount": 999})
    run.pause()
    run.says(APPROVER, "ask")
    run.says(APPROVER, "ask")
    run.edit(BOSS, amount=250)
    run.resume()

    assert (run.reopened, run.ran_with("pay")) == ([], [(250, "A-7")])


def test_after_an_edit_a_gate_of_an_item_that_names_no_field_has_all_asked_again() -> None:
    run = Gated(fanned(approving(prompt="Go on?")))
    run.finish("send", sends=[("ask", 1), ("ask", 2)])
    run.finish("other")
    run.says(APPROVER, "ask")
    run.edit(BOSS, note="other")
    run.says(APPROVER, "ask")

    assert (run.reopened, run.orders("pay")) == (["send"], [])


@pytest.mark.parametrize(("first", "again"), [("ask", []), ("last", ["send"])])
def test_what_was_allowed_in_items_has_begun_once_it_has_begun_in_all_of_them(
    first: str, again: list[str]
) -> None:
    spec = forked(
        (FunctionNode(id="send", to=("ask", "last")),),
        ("other",),
        ways=[("ask", "book"), (["book"], "pay"), (["last"], "pay")],
        more=(approving(), approving("last"), "book", "pay"),
    )
    run = Gated(spec)
    run.finish("send", sends=[(first, 1), ("ask", 2)])
    run.says(APPROVER, first)
    run.says(APPROVER, "ask")
    run.pause()
    for node in [node for node in run.running if node == "book"]:
        run.finish(node)
    run.finish("other", {"amount": 999})
    run.resume()

    assert (run.reopened, len(run.orders("pay"))) == (again, 1 - len(again))


def test_somebody_else_s_word_beside_an_item_that_is_over_has_its_gate_asked_again() -> None:
    spec = fanned(approving(), "book")
    ways = (*spec.edges, edge(START, "remark"))
    run = Gated(replace(spec, nodes={**spec.nodes, "remark": remark()}, edges=ways))
    run.finish("send", sends=[("ask", 1), ("ask", 2)])
    run.says(APPROVER, "ask")
    run.finish("book")
    run.says(CLERK, "remark", 999)
    run.says(APPROVER, "ask")
    assert run.reopened == ["ask"]
    run.says(APPROVER, "ask")
    run.finish("book")

    assert (run.reopened, run.orders("pay")) == (["ask", "send"], [])


def test_what_items_make_of_what_was_shown_in_them_stands_approved() -> None:
    run = Gated(fanned("price", approving(prompt="Refund {payments}?")))
    run.finish("send", sends=[("price", 1), ("price", 2)])
    run.finish("price", {"payments": [1]})
    run.finish("price:2", {"payments": [2]})
    run.says(APPROVER, "ask")
    run.says(APPROVER, "ask")

    assert (run.reopened, run.ran_with("pay", "payments")) == ([], [([1, 2],)])


def test_somebody_else_s_word_after_gated_items_has_them_all_asked_again() -> None:
    spec = graph(
        FunctionNode(id="send", to=("ask",)),
        approving(prompt="Refund {payments}?"),
        remark(field="payments"),
        "pay",
        ways=[(START, "send"), (["ask"], "remark"), ("remark", "pay")],
        fields=FIELDS,
    )
    run = Gated(spec)
    run.finish("send", sends=[("ask", 1), ("ask", 2)])
    run.says(APPROVER, "ask")
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", [999])

    assert (run.reopened, run.orders("pay")) == (["send"], [])


def test_out_of_an_item_the_sender_is_asked_again() -> None:
    spec = forked(
        (FunctionNode(id="send", to=("ask",)),),
        ("other",),
        ways=[("ask", "leave"), (["leave"], "pay")],
        more=(
            approving(),
            remark("leave", field=None, timeout=60, on_timeout=GoTo(node="later")),
            "pay",
            "later",
        ),
    )
    run = Gated(spec)
    run.finish("send", sends=[("ask", 1), ("ask", 2)])
    run.says(APPROVER, "ask")
    run.finish("other", {"amount": 999})
    run.tick(60)

    assert (run.reopened, run.running, run.asking) == (["send"], ["send"], [])
    assert str(run.settled("ask").settled_reason).startswith("'send' is asked again")
    assert run.orders("later") == []


def test_an_answer_of_an_item_that_comes_to_nothing_allows_nothing() -> None:
    spec = forked(
        (FunctionNode(id="send", to=("ask", "book")),),
        ("other",),
        ways=[(["book"], "pay")],
        more=(approving(), "book", "pay"),
    )
    run = Gated(spec)
    run.finish("send", sends=[("ask", 1), ("book", 2)])
    run.says(APPROVER, "ask")
    run.finish("other", {"amount": 999})
    run.finish("book")

    assert (run.reopened, run.ran_with("pay")) == ([], [(999, "A-7")])
