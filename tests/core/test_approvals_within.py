"""How far an approval reaches: into nested graphs, and out of them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from core_drive import chain, edge, graph, nested
from core_gated import APPROVER, BOSS, CLERK, FIELDS, Gated, approving, forked, refund, remark
from core_rules import ask, rule

from abeyance.core.json import Json
from abeyance.core.spec import START, Node, SubgraphNode
from abeyance.core.terms import Quorum, Terms

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


@pytest.mark.parametrize("prompt", ["{amount}?", "{amount} for {note}?", "{note}: {amount}?"])
def test_what_code_beside_a_gate_in_a_nested_graph_changes_has_it_asked_again_after_it(
    prompt: str,
) -> None:
    inner = forked(("first", approving(prompt=prompt)), ("beside",), name="inner")
    run = Gated(refund(nested("sub", inner), "pay"))
    run.finish("first", {"note": "a lamp"})
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


@pytest.mark.parametrize(
    "more", [{}, {"terms": Terms(quorum=Quorum(count=1)), "schema": {"type": "boolean"}}]
)
@pytest.mark.parametrize("comes", ["before the answer", "after it", "when it has begun"])
def test_what_a_person_edits_around_a_gated_nested_graph_counts_when_it_is_over(
    comes: str, more: Mapping[str, Any]
) -> None:
    asking = approving(prompt="Refund {sum}?", **more)
    run = Gated(refund(inside(asking, "check", remark(field=None), output={}), "pay"))
    run.pause()
    if comes == "before the answer":
        run.edit(BOSS, amount=999)
    run.says(APPROVER, "ask")
    if comes == "after it":
        run.edit(BOSS, amount=999)
    run.resume()
    run.finish("check")
    if comes == "when it has begun":
        run.edit(BOSS, amount=999)
    run.says(CLERK, "remark")

    assert (run.reopened, run.orders("pay")) == (["sub"], [])
    assert run.open("ask").prompt == "Refund 999?"
    run.says(APPROVER, "ask")
    run.finish("check")
    run.says(CLERK, "remark")
    assert run.ran_with("pay", "amount") == [(999,)]


def test_what_a_person_edits_around_a_graph_two_graphs_above_a_gate_counts_after_them() -> None:
    inner = refund(approving(), "check", name="inner")
    run = Gated(refund(nested("top", refund(nested("sub", inner), name="middle")), "pay"))
    run.edit(BOSS, amount=999)
    run.says(APPROVER, "ask")
    run.finish("check")

    assert (run.reopened, run.orders("pay")) == (["top"], [])


def test_an_edit_around_a_nested_graph_that_a_gate_in_it_did_not_show_changes_nothing() -> None:
    run = Gated(refund(inside(INSIDE, "check", output={}), "pay"))
    run.edit(BOSS, order_id="A-8")
    run.says(APPROVER, "ask")
    run.finish("check")

    assert (run.reopened, run.running) == ([], ["pay"])


@pytest.mark.parametrize("depth", [1, 2])
def test_a_gate_in_nested_graphs_that_shows_nothing_is_asked_again_after_an_edit_around_them(
    depth: int,
) -> None:
    around = refund(approving(prompt="Go on?"), "check", remark(field=None), name="inner")
    for _ in range(depth - 1):
        around = refund(nested("sub", around), name="middle")
    run = Gated(refund(nested("sub", around), "pay"))
    run.pause()
    run.says(APPROVER, "ask")
    run.edit(BOSS, amount=999)
    run.resume()
    assert (run.reopened, run.orders("check")) == (["ask"], [])
    run.says(APPROVER, "ask")
    run.finish("check")
    run.edit(BOSS, amount=998)
    run.says(CLERK, "remark")

    assert (run.reopened, run.running) == (["ask"], ["pay"])


def test_another_s_answer_around_a_nested_graph_has_a_gate_in_it_that_shows_nothing_asked_again() -> (
    None
):
    inner = refund(approving(prompt="Go on?"), "check", name="inner")
    run = Gated(forked((nested("sub", inner), "pay"), (remark(),)))
    run.pause()
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", 999)
    run.resume()

    assert (run.reopened, run.orders("check")) == (["ask"], [])


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
