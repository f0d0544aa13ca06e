"""How far an approval reaches: into nested graphs and the items of fan-outs, and out of them again."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from core_drive import chain, edge, graph, nested
from core_gated import APPROVER, BOSS, CLERK, FIELDS, Gated, approving, forked, refund, remark
from core_rules import ask, rule

from abeyance.core.json import Json
from abeyance.core.spec import START, FunctionNode, GoTo, GraphSpec, Node, SubgraphNode

# nested graphs


INSIDE = approving(prompt="Refund {sum}?", answer_to="ok")


def inside(*nodes: str | Node, output: Mapping[str, str], source: str = "amount") -> SubgraphNode:
    """A nested graph of these nodes, one after another, which calls the amount a sum."""
    spec = chain(*nodes, fields={"sum": "last", "ok": "last"}, name="inner")
    return nested("sub", spec, input={"sum": source}, output=output)


def gated_inside() -> Gated:
    """A gate in a nested graph, and `pay` after that."""
    return Gated(forked((inside(INSIDE, output={"note": "ok"}), "pay"), ("other",)))


def test_what_is_shown_before_a_nested_graph_counts_in_it_by_its_names_there() -> None:
    run = Gated(refund(approving(), inside(remark("how_much", field="sum"), "pay", output={})))
    run.says(APPROVER, "ask")
    run.says(CLERK, "how_much", 999)
    assert (run.reopened, run.orders("pay")) == (["ask"], [])
    run.says(APPROVER, "ask")
    run.says(CLERK, "how_much", 250)

    assert run.ran_with("pay", "sum") == [(250,)]


def test_what_is_not_handed_in_means_something_else_in_a_nested_graph() -> None:
    inner = refund(remark("how_much"), "pay", name="inner")
    run = Gated(refund(approving(), nested("sub", inner, input={}, output={})))
    run.says(APPROVER, "ask")
    run.says(CLERK, "how_much", 999)

    assert (run.reopened, run.ran_with("pay", "amount")) == ([], [(999,)])


def test_what_was_not_there_may_have_a_default_in_a_nested_graph() -> None:
    inner = refund("pay", name="inner")
    asking = approving(prompt="Refund {amount}? {note}")
    run = Gated(refund(asking, nested("sub", inner, defaults={"note": "none"})))
    run.says(APPROVER, "ask")

    assert (run.reopened, run.ran_with("pay", "note")) == ([], [("none",)])


def test_what_was_not_there_was_not_shown_in_a_nested_graph_either() -> None:
    inner = refund(remark(field="note"), "pay", name="inner")
    run = Gated(refund(approving(prompt="Refund {amount}? {note}"), nested("sub", inner)))
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", "to somebody else")

    assert (run.reopened, run.orders("pay")) == (["ask"], [])


def test_what_was_not_there_in_a_nested_graph_may_not_come_before_what_follows_it() -> None:
    sub = inside(approving(prompt="Refund {sum}?"), output={}, source="note")
    run = Gated(forked((sub, "pay"), ("other",)))
    run.finish("other", {"note": "to somebody else"})
    run.says(APPROVER, "ask")

    assert (run.reopened, run.orders("pay")) == (["sub"], [])


def test_what_changes_around_a_nested_graph_before_anything_has_begun_in_it() -> None:
    sub = nested("sub", refund(remark(field="note"), "check", name="inner"))
    run = Gated(forked((approving(), sub, "pay"), ("other",)))
    run.says(APPROVER, "ask")
    run.finish("other", {"amount": 999})
    run.says(CLERK, "remark", "fine")

    assert (run.reopened, run.orders("check")) == (["ask"], [])
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", "fine")
    assert run.ran_with("check") == [(999, "A-7")]


def test_what_somebody_says_around_a_nested_graph_stops_it_where_it_is() -> None:
    sub = nested("sub", refund("check", "book", name="inner"))
    run = Gated(forked((approving(), sub, "pay"), (remark(),)))
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", 999)
    run.finish("check")

    assert (run.reopened, run.orders("book")) == (["ask"], [])


def test_a_nested_graph_that_only_asks_begins_nothing() -> None:
    sub = nested("sub", refund(remark(field="note"), name="inner"), output={"note": "note"})
    run = Gated(forked((approving(), sub, "pay"), ("other",)))
    run.says(APPROVER, "ask")
    run.finish("other", {"amount": 999})
    run.says(CLERK, "remark", "fine")

    assert (run.reopened, run.orders("pay")) == (["ask"], [])


def test_a_gate_in_a_nested_graph_counts_after_it() -> None:
    run = gated_inside()
    run.finish("other", {"amount": 999})
    assert run.open("ask").prompt == "Refund 250?"
    run.says(APPROVER, "ask")
    assert (run.reopened, run.orders("pay")) == (["sub"], [])
    assert run.open("ask").prompt == "Refund 999?"
    run.says(APPROVER, "ask")

    assert run.ran_with("pay", "amount", "note") == [(999, True)]


def test_what_an_approver_has_changed_in_a_nested_graph_is_not_changed_back_after_it() -> None:
    sub = nested("sub", refund(approving(answer_to="amount"), remark(field=None), name="inner"))
    run = Gated(refund(sub, remark("later"), "pay"))
    run.says(APPROVER, "ask", 90)
    run.says(CLERK, "remark")
    run.says(CLERK, "later", 250)

    assert (run.reopened, run.orders("pay")) == (["sub"], [])
    assert run.open("ask").prompt == "Refund 250 for A-7?"


def test_what_an_approver_has_changed_in_a_nested_graph_counts_also_if_it_was_so_around_it() -> (
    None
):
    sub = nested("sub", refund(approving(answer_to="amount"), "check", name="inner"))
    run = Gated(refund(sub, remark("later"), "pay"))
    run.edit(BOSS, amount=90)
    run.says(APPROVER, "ask", 90)
    run.finish("check")
    run.says(CLERK, "later", 250)

    assert (run.reopened, run.orders("pay")) == (["sub"], [])


def test_what_code_beside_a_gate_in_a_nested_graph_changes_has_it_asked_again_after_it() -> None:
    sub = nested("sub", forked((approving(),), ("beside",), name="inner"))
    run = Gated(refund(sub, "pay"))
    run.finish("beside", {"amount": 999})
    run.says(APPROVER, "ask")

    assert (run.reopened, run.orders("pay")) == (["sub"], [])


def test_a_gate_in_a_nested_graph_that_nobody_is_in_the_way_of_is_asked_once() -> None:
    run = gated_inside()
    run.says(APPROVER, "ask")

    assert (run.reopened, run.ran_with("pay", "amount", "note")) == ([], [(250, True)])


@pytest.mark.parametrize("output", [{"amount": "sum"}, {"note": "sum"}, {"order_id": "ok"}])
def test_what_the_code_of_a_nested_graph_makes_of_it_needs_nobodys_word(
    output: Mapping[str, str],
) -> None:
    run = Gated(refund(inside(INSIDE, "fee", output=output), "pay"))
    run.says(APPROVER, "ask")
    run.finish("fee", {"sum": 245})

    assert (run.reopened, run.running) == ([], ["pay"])


@pytest.mark.parametrize(
    ("output", "fee"), [({"note": "ok"}, {"sum": 245}), ({"amount": "sum"}, {})]
)
def test_what_somebody_says_in_a_nested_graph_without_changing_what_was_shown(
    output: Mapping[str, str], fee: dict[str, Json]
) -> None:
    run = Gated(refund(inside("fee", INSIDE, remark(field=None), output=output), "pay"))
    run.finish("fee", fee)
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark")

    assert (run.reopened, run.running) == ([], ["pay"])


def test_what_was_shown_in_a_nested_graph_and_is_one_of_many_after_it_counts_as_shown() -> None:
    sub = inside(INSIDE, output={"payments": "sum"})
    run = Gated(refund(sub, "pay"), {"amount": [1], "payments": [5]})
    run.says(APPROVER, "ask")

    assert (run.reopened, run.ran_with("pay", "payments")) == ([], [([5, 1],)])


def test_what_a_nested_graph_has_made_and_shown_counts_after_it() -> None:
    sub = inside("fee", INSIDE, output={"amount": "sum"}, source="order_id")
    run = Gated(refund(sub, remark(), "pay"))
    run.finish("fee", {"sum": 245})
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", 999)
    assert (run.reopened, run.orders("pay")) == (["sub"], [])
    run.finish("fee", {"sum": 245})
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", 245)

    assert run.ran_with("pay", "amount") == [(245,)]


def test_what_was_approved_in_a_nested_graph_and_has_begun_there_has_begun() -> None:
    sub = inside(INSIDE, "pay", output={})
    run = Gated(forked((sub, "book"), ("other",)))
    run.says(APPROVER, "ask")
    run.finish("other", {"amount": 999})
    run.finish("pay")

    assert (run.reopened, run.running) == ([], ["book"])


def test_after_a_nested_graph_an_answer_of_somebody_else_counts_as_after_a_gate() -> None:
    sub = inside(INSIDE, "pay", output={})
    run = Gated(forked((sub, "wait", "book"), (remark(),)))
    run.says(APPROVER, "ask")
    run.finish("pay")
    run.says(CLERK, "remark", 999)
    run.finish("wait")
    assert (run.reopened, run.orders("book")) == (["sub"], [])


def test_what_somebody_says_around_a_gated_nested_graph_counts_when_it_is_over() -> None:
    run = Gated(forked((inside(INSIDE, "check", output={}), "pay"), (remark(),)))
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", 999)
    run.finish("check")

    assert (run.reopened, run.orders("pay")) == (["sub"], [])


@pytest.mark.parametrize("about", [{"field": "note"}, {"capability": "approve"}])
def test_what_is_no_matter_to_a_gated_nested_graph_changes_nothing(about: Any) -> None:
    run = Gated(forked((inside(INSIDE, "check", output={}), "pay"), (remark(**about),)))
    run.says(APPROVER, "ask")
    run.says(APPROVER, "remark", 999)
    run.finish("check")

    assert (run.reopened, run.running) == ([], ["pay"])


def test_what_a_gate_shows_of_a_nested_graph_s_own_counts_in_there_alone() -> None:
    asking = approving(prompt="Refund {ok}?")
    run = Gated(forked((inside(asking, output={}), "pay"), ("other",)))
    run.says(APPROVER, "ask")

    assert (run.reopened, run.running) == ([], ["other", "pay"])


def test_a_gate_deep_inside_counts_outside() -> None:
    inner = refund(approving(), name="inner")
    middle = refund(nested("sub", inner), name="middle")
    run = Gated(forked((nested("top", middle), "pay"), ("other",)))
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "ask")

    assert (run.reopened, run.orders("pay")) == (["top"], [])
    run.says(APPROVER, "ask")
    assert run.ran_with("pay") == [(999, "A-7")]


def test_a_gate_deep_inside_is_asked_again_from_the_graph_that_what_it_allows_is_in() -> None:
    inner = refund(approving(), name="inner")
    middle = refund(nested("sub", inner), remark(), "pay", name="middle")
    run = Gated(refund(nested("top", middle)))
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", 999)

    assert (run.reopened, run.orders("pay")) == (["sub"], [])


def test_the_question_of_a_rule_in_a_nested_graph_is_asked_again_with_all_of_it() -> None:
    sure = rule("sure", "assess", ask("sure", prompt="Refund {amount}?", capability="approve"))
    sub = nested("sub", refund("assess", name="inner", rules=[sure]))
    run = Gated(forked((sub, "pay"), ("other",)))
    run.finish("assess")
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "sure")
    assert (run.reopened, run.running) == (["sub"], ["assess"])
    run.finish("assess")
    run.says(APPROVER, "sure")

    assert run.ran_with("pay") == [(999, "A-7")]


def test_what_met_in_a_nested_graph_meets_there_anew_where_its_gate_is_asked_again() -> None:
    inner = graph(
        *(approving(), "slow", "check"),
        ways=[(START, "ask"), (START, "slow"), edge(("ask", "slow"), "check")],
        fields=FIELDS,
        name="inner",
    )
    run = Gated(refund(nested("sub", inner), remark(), "pay"))
    for amount in (999, 250):
        run.says(APPROVER, "ask")
        run.finish("slow")
        run.finish("check")
        run.says(CLERK, "remark", amount)
        assert run.state.root.tokens == {}
    run.says(APPROVER, "ask")

    assert (run.reopened, run.running) == (["sub", "sub"], ["slow"])


# fan-outs


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
