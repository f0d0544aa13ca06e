"""How far an answer reaches: over joins and rules, into nested graphs, and out of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from core_drive import chain, edge, graph, nested
from core_gated import (
    APPROVER,
    BOSS,
    CLERK,
    FIELDS,
    SEVERAL,
    Gated,
    approving,
    forked,
    refund,
    remark,
)
from core_graphs import ask, rule

from abeyance.core.outcome import Misread
from abeyance.core.spec import (
    END,
    START,
    FunctionNode,
    GoTo,
    GraphSpec,
    Node,
    Route,
    SubgraphNode,
)

# joins


def joined(*after: str | Node, **about: Any) -> GraphSpec:
    """Return a graph whose `pay` joins the gate and `slow`; `other` is a branch of its own."""
    names = [each if isinstance(each, str) else each.id for each in after]
    more = about.pop("more", ())
    asking = about.pop("asking", None) or approving()
    ways: list[Any] = [
        (START, "ask"),
        (START, "slow"),
        (START, "other"),
        edge(("ask", "slow"), "pay", **about),
    ]
    ways += [*zip(["pay", *names], names, strict=False), *more]
    return graph(asking, "slow", "other", "pay", *after, ways=ways, fields=FIELDS)


@pytest.mark.parametrize("first", ["ask", "slow"])
@pytest.mark.parametrize("join", ["all", "arrived"])
def test_a_join_waits_until_a_reopened_gate_is_answered(first: str, join: str) -> None:
    run = Gated(joined(join=join))
    run.finish("other", {"amount": 999})
    if first == "ask":
        run.says(APPROVER, "ask")
        run.finish("slow")
    else:
        run.finish("slow")
        run.says(APPROVER, "ask")
    assert (run.reopened, run.running) == (["ask"], [])
    run.says(APPROVER, "ask")
    assert (run.started.count("slow"), run.ran_with("pay")) == (1, [(999, "A-7")])
    run.finish("pay")

    assert run.status == "completed"


def test_tokens_of_the_other_branch_keep_their_order_at_a_join() -> None:
    run = Gated(joined(more=[("slow", "slow")]))
    run.finish("slow")
    run.finish("slow", {"amount": 999})
    run.says(APPROVER, "ask")
    assert run.reopened == ["ask"]

    (waiting,) = run.state.root.tokens.values()
    came = [token.visit for token in waiting["slow"]]
    assert came == ["graph:g;node:slow", "graph:g;node:slow:2"]


def test_all_branches_that_were_taken_on_the_way_of_one_answer_are_not_lost() -> None:
    spec = graph(
        approving(**SEVERAL),
        *("one", "two", "left", "right", remark(field=None), "pay"),
        ways=[
            *((START, "ask"), (START, "one"), (START, "two")),
            edge(("ask", "one"), "left"),
            edge(("ask", "two"), "right"),
            edge(("left", "right"), "remark"),
            ("remark", "pay"),
        ],
        fields=FIELDS,
    )
    run = Gated(spec)
    run.says(APPROVER, "ask")
    for node in ("one", "two", "left", "right"):
        run.finish(node)
    run.edit(BOSS, amount=999)
    assert (run.reopened, run.running) == (["ask"], [])
    run.says(APPROVER, "ask")

    assert run.running == ["left", "right"]


def test_two_gates_that_meet_are_asked_again_each_for_its_own_and_meet_again_once() -> None:
    audit = approving("audit", prompt="Is {order_id} known?", capability="audit")
    spec = graph(
        approving(prompt="Refund {amount}?"),
        *(audit, "other", "pay"),
        ways=[(START, "ask"), (START, "audit"), (START, "other"), edge(("ask", "audit"), "pay")],
        fields=FIELDS,
    )
    run = Gated(spec)
    run.says(APPROVER, "ask")
    run.pause()
    run.says(BOSS, "audit")
    run.finish("other", {"order_id": "B-8"})
    run.resume()
    assert (run.reopened, [name for name, _ in run.asking]) == (["audit"], ["audit"])
    run.pause()
    run.says(BOSS, "audit")
    run.edit(BOSS, amount=999)
    run.resume()
    assert (run.reopened, [name for name, _ in run.asking]) == (["audit", "ask"], ["ask"])
    run.says(APPROVER, "ask")
    run.finish("pay")

    assert (run.status, run.ran_with("pay")) == ("completed", [(999, "B-8")])


@pytest.mark.parametrize("is_left_done", [False, True])
def test_all_that_an_answer_led_to_is_left_when_the_gate_is_asked_again(
    is_left_done: bool,
) -> None:
    spec = graph(
        approving(**SEVERAL),
        *("left", remark("wait", field=None), "right", "pay"),
        FunctionNode(id="send", to=("each",)),
        "each",
        ways=[
            *((START, "ask"), ("ask", "left"), ("ask", "wait"), ("wait", "right"), ("ask", "send")),
            edge(("left", "right"), "pay"),
        ],
        fields=FIELDS,
    )
    run = Gated(spec)
    run.says(APPROVER, "ask")
    run.finish("send", sends=[("each", 1)])
    run.pause(mode="now")
    run.stopped("left")
    run.stopped("each")
    run.resume()
    if is_left_done:
        run.finish("left")
        run.finish("each")
    else:
        run.pause(mode="now")
        run.stopped("left")
        run.stopped("each")
    run.edit(BOSS, amount=999)
    if not is_left_done:
        run.resume()
    assert (run.reopened, run.running) == (["ask"], [])
    assert (run.state.root.tokens, run.state.root.fans) == ({}, {})
    run.says(APPROVER, "ask")
    run.finish("send", sends=[])
    run.finish("left")
    run.says(CLERK, "wait")
    run.finish("right")
    run.finish("pay")

    assert (run.status, run.ran_with("pay")) == ("completed", [(999, "A-7")])


# rules that ask


def ruled(**about: Any) -> Gated:
    asks = ask("sure", prompt="Refund {amount}?", capability="approve", **about)
    rules = [rule("sure", "assess", asks)]
    return Gated(forked(("assess", "pay"), ("other",), rules=rules))


def test_the_question_of_a_rule_is_a_gate_and_asking_it_again_runs_no_code_again() -> None:
    run = ruled()
    run.finish("assess")
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "sure")
    assert (run.reopened, run.running) == (["assess"], [])
    assert run.open("sure").prompt == "Refund 999?"
    run.says(APPROVER, "sure")

    assert (run.ran_with("assess"), run.ran_with("pay")) == ([(250, "A-7")], [(999, "A-7")])


def test_the_way_that_a_route_found_is_sought_again_with_the_gate() -> None:
    asks = ask("sure", prompt="Refund {amount}?", capability="approve")
    spec = graph(
        *("assess", "pay", "other"),
        ways=[(START, "assess"), (START, "other")],
        routes=[Route(source="assess", name="r", targets=("pay",))],
        rules=[rule("sure", "assess", asks)],
        fields=FIELDS,
    )
    run = Gated(spec)
    run.finish("assess", routed=("pay",))
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "sure")
    assert (run.reopened, run.decided) == (["assess"], ["assess"])
    run.finish("assess", routed=("pay",))
    run.says(APPROVER, "sure")

    assert (len(run.orders("assess")), run.ran_with("pay")) == (1, [(999, "A-7")])


def test_an_answer_to_one_rule_reopens_another_that_showed_the_changed_value() -> None:
    asks = [
        ask("one", prompt="Refund {amount}?", capability="approve"),
        ask("two", prompt="How much?", answer_to="amount"),
    ]
    rules = [rule(each.question.name, "assess", each) for each in asks]
    run = Gated(refund("assess", "pay", rules=rules))
    run.finish("assess")
    run.says(APPROVER, "one")
    run.says(CLERK, "two", 999)
    assert (run.reopened, run.orders("pay")) == (["assess"], [])
    assert run.open("one").prompt == "Refund 999?"
    run.says(APPROVER, "one")
    run.says(CLERK, "two", 999)

    assert run.ran_with("pay") == [(999, "A-7")]


def test_an_answer_about_a_visit_that_is_left_since_leads_to_nothing() -> None:
    asks = [
        ask("one", prompt="Refund {amount}?", capability="approve"),
        ask("two", prompt="Sure?", timeout=60, on_timeout=GoTo(node=END)),
    ]
    rules = [rule(each.question.name, "assess", each) for each in asks]
    inner = forked(("assess",), ("beside",), rules=rules, name="inner")
    run = Gated(refund(nested("sub", inner), "pay"))
    run.finish("assess")
    run.says(APPROVER, "one")
    run.finish("beside", {"amount": 999})
    run.tick(60)

    assert (run.reopened, run.running) == ([], ["pay"])


# nested graphs

INSIDE = approving(prompt="Refund {sum}?", answer_to="ok")


def inside(*nodes: str | Node, output: Mapping[str, str], source: str = "amount") -> SubgraphNode:
    """Return a nested graph of these nodes, one after another, which calls the amount a sum."""
    spec = chain(*nodes, fields={"sum": "last", "ok": "last"}, name="inner")
    return nested("sub", spec, input={"sum": source}, output=output)


def test_values_shown_before_a_nested_graph_count_by_their_names_inside() -> None:
    run = Gated(refund(approving(), inside(remark("how_much", field="sum"), "pay", output={})))
    run.says(APPROVER, "ask")
    run.says(CLERK, "how_much", 999)
    assert (run.reopened, run.orders("pay")) == (["ask"], [])
    run.says(APPROVER, "ask")
    run.says(CLERK, "how_much", 250)

    assert run.ran_with("pay", "sum") == [(250,)]


def test_a_field_that_is_not_mapped_in_is_another_one_in_a_nested_graph() -> None:
    inner = refund(remark("how_much"), "pay", name="inner")
    run = Gated(refund(approving(), nested("sub", inner, input={}, output={})))
    run.says(APPROVER, "ask")
    run.says(CLERK, "how_much", 999)

    assert (run.reopened, run.ran_with("pay", "amount")) == ([], [(999,)])


@pytest.mark.parametrize(("defaults", "again"), [({"note": "none"}, []), ({}, ["ask"])])
def test_a_missing_value_may_get_its_default_in_a_nested_graph(
    defaults: dict[str, Any], again: list[str]
) -> None:
    inner = refund(remark(field="note" if again else "order_id"), "pay", name="inner")
    asking = approving(prompt="Refund {amount}? {note}")
    run = Gated(refund(asking, nested("sub", inner, defaults=defaults)))
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", "to somebody else")

    assert run.reopened == again


def test_a_change_around_a_nested_graph_reopens_a_gate_before_code_begins_in_it() -> None:
    sub = nested("sub", refund(remark(field="note"), "check", name="inner"))
    run = Gated(forked((approving(), sub, "pay"), ("other",)))
    run.says(APPROVER, "ask")
    run.finish("other", {"amount": 999})
    run.says(CLERK, "remark", "fine")

    assert (run.reopened, run.orders("check")) == (["ask"], [])
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", "fine")
    assert run.ran_with("check") == [(999, "A-7")]


def test_code_in_a_nested_graph_uses_up_the_answer_before_it() -> None:
    sub = nested("sub", refund("check", "book", name="inner"))
    run = Gated(forked((approving(), sub, "pay"), ("other",)))
    run.says(APPROVER, "ask")
    run.finish("other", {"amount": 999})
    run.finish("check")
    run.finish("book")

    assert (run.reopened, run.running) == ([], ["pay"])


def test_a_gate_in_a_nested_graph_counts_after_it() -> None:
    run = Gated(forked((inside(INSIDE, output={"note": "ok"}), "pay"), ("other",)))
    run.finish("other", {"amount": 999})
    assert run.open("ask").prompt == "Refund 250?"
    run.says(APPROVER, "ask")
    assert (run.reopened, run.orders("pay")) == (["sub"], [])
    assert run.open("ask").prompt == "Refund 999?"
    run.says(APPROVER, "ask")

    assert run.ran_with("pay", "amount", "note") == [(999, True)]


def test_a_change_in_a_nested_graph_reopens_its_gate_inside() -> None:
    inner = forked(("first", approving()), ("beside",), name="inner")
    run = Gated(refund(nested("sub", inner), "pay"))
    run.finish("first", {"note": "a lamp"})
    run.says(APPROVER, "ask")
    run.finish("beside", {"amount": 999})
    assert (run.reopened, run.orders("pay")) == (["ask"], [])
    run.says(APPROVER, "ask")

    assert (len(run.orders("first")), run.ran_with("pay")) == (1, [(999, "A-7")])


@pytest.mark.parametrize("output", [{"amount": "sum"}, {"note": "sum"}, {"order_id": "ok"}])
def test_changes_by_code_of_a_nested_graph_after_the_answer_reopen_no_gate(
    output: Mapping[str, str],
) -> None:
    run = Gated(refund(inside(INSIDE, "fee", output=output), "pay"))
    run.says(APPROVER, "ask")
    run.finish("fee", {"sum": 245})

    assert (run.reopened, run.running) == ([], ["pay"])


@pytest.mark.parametrize(
    ("output", "shown"),
    [({"amount": "sum"}, 245), ({"payments": "sum"}, [245]), ({"note": "ok"}, 245)],
)
def test_a_shown_value_made_by_a_nested_graph_may_not_change_after_it(
    output: Mapping[str, str], shown: Any
) -> None:
    run = Gated(refund(inside("fee", INSIDE, output=output), remark(), "pay"))
    run.finish("fee", {"sum": shown})
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", 999)
    assert (run.reopened, run.orders("pay")) == (["sub"], [])


def test_a_nested_graphs_own_shown_field_counts_only_inside() -> None:
    run = Gated(forked((inside(approving(prompt="{ok}?"), output={}), "pay"), ("other",)))
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "ask")

    assert (run.reopened, run.running) == ([], ["pay"])


@pytest.mark.parametrize("several", [False, True])
def test_an_edit_around_a_nested_graph_whose_code_has_begun(several: bool) -> None:
    asking = approving(prompt="Refund {sum}?", **(SEVERAL if several else {}))
    run = Gated(refund(inside(asking, "check", output={}), remark(field=None), "pay"))
    run.says(APPROVER, "ask")
    run.finish("check")
    run.edit(BOSS, amount=999)
    if not several:
        run.says(CLERK, "remark")

    assert run.reopened == (["sub"] if several else [])


def test_a_gate_deep_inside_is_asked_again_from_the_graph_that_what_it_leads_to_is_in() -> None:
    inner = refund(approving(), name="inner")
    middle = refund(nested("sub", inner), remark(field="note"), name="middle")
    run = Gated(forked((nested("top", middle), "pay"), ("other",)))
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", "fine")
    assert run.running == ["other", "pay"]
    run = Gated(forked((nested("top", middle), "pay"), ("other",)))
    run.finish("other", {"amount": 999})
    run.says(APPROVER, "ask")
    run.says(CLERK, "remark", "fine")
    assert (run.reopened, run.orders("pay")) == (["top"], [])


def test_an_answer_in_a_nested_graph_that_code_after_it_cannot_read_is_asked_for_again() -> None:
    run = Gated(refund(inside(INSIDE, output={"note": "ok"}), "pay"))
    run.says(APPROVER, "ask", 7)
    assert run.orders("pay")[0].answered == ("note",)
    run.end(Misread, visit=run.visit("pay").address, faults={"note": "not a text"})

    assert (run.reopened, run.open("ask").prompt) == (["sub"], "Refund 250?")
