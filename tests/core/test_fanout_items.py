"""The visits of items, and fan-outs in fan-outs and in nested graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core_drive import CONTROL, Drive, chain, edge, gate, nested
from core_graphs import FIELDS, fan, results, sending, sent

from abeyance.core.policy import Principal
from abeyance.core.spec import (
    START,
    FunctionNode,
    GoTo,
    Route,
)
from abeyance.core.state import Limits

# visits of items


def test_an_item_goes_round_by_itself_within_its_own_bound() -> None:
    spec = sending(
        "one",
        "c",
        ways=[
            edge("one", "one", {"x": "again"}),
            edge(["one"], "c", "else"),
        ],
    )
    run = sent(spec, ["a", "b", "c"], limits=Limits(max_visits=2))
    for _ in range(3):
        run.finish("one", {"x": "again"})
    for _ in range(3):
        run.finish("one", {"x": "done"})
    assert results(run) == [(item, "arrived") for item in "abc"]

    run = sent(spec, ["a"], limits=Limits(max_visits=2))
    run.finish("one", {"x": "again"})
    run.finish("one", {"x": "again"})
    assert run.error[0] == "max_visits"


def test_a_fan_out_counts_once_however_many_items_it_has_and_may_be_one_too_many() -> None:
    spec = sending("one", "c", ways=[(["one"], "c"), ("c", "s")])
    run = sent(spec, [1, 2, 3], limits=Limits(max_visits=2))
    for node in ("one", "one", "one", "c"):
        run.finish(node)
    assert run.running == ["s"]
    run.finish("s", sends=[("one", 4)])
    run.finish("one")
    run.finish("c")
    assert run.error[0] == "max_visits"

    spec = sending("one", ways=[(START, "s"), (START, "one")])
    run = Drive(spec, limits=Limits(max_visits=2))
    run.finish("s", sends=[("one", 1), ("one", 2)])
    assert run.status == "running"
    run.finish("s", sends=[("one", 3), ("one", 4)])
    assert run.ending.error is not None
    assert (run.ending.error.code, run.ending.error.address) == ("max_visits", "graph:g;node:s:2")
    assert run.running == ["one", "one", "one"]


def test_items_ask_people_each_for_itself_and_show_their_own_values() -> None:
    ask = gate("ask", prompt="{x}?", answer_to="x")
    spec = sending("one", ask, "c", ways=[("one", "ask"), (["ask"], "c")])
    run = sent(spec, ["a", "b"], values={"x": "?"})
    run.finish("one", {"x": "A"})
    run.finish("one", {"x": "B"})
    assert [each.prompt for each in run.state.ledger.open.values()] == ["A?", "B?"]
    assert run.asking == [("ask", "graph:g;node:ask"), ("ask", "graph:g;node:ask:2")]
    run.answer("ask", "yes")
    assert run.status == "awaiting-input"
    run.answer("ask", "no")

    assert results(run) == [("a", "arrived"), ("b", "arrived")]
    assert run.values["x"] == "no"


def test_a_deadline_in_an_item_leads_out_of_it_or_to_its_join() -> None:
    ask = gate("ask", timeout=60, on_timeout=GoTo(node="one"))
    out = gate("out", timeout=60, on_timeout=GoTo(node="away"))
    spec = sending(
        ask,
        out,
        "one",
        "away",
        "c",
        to=("ask", "out"),
        ways=[(["one", "ask", "out"], "c")],
    )
    run = Drive(spec)
    run.finish("s", sends=[("ask", 1), ("out", 2)])
    run.tick(60)
    assert [order.item for order in (*run.orders("one"), *run.orders("away"))] == [1, None]
    run.finish("one")

    assert results(run) == [(1, "arrived"), (2, "left")]


def test_routes_are_asked_with_the_item_s_values() -> None:
    spec = sending(
        gate("one", answer_to="x"),
        "l",
        ways=[],
        routes=[Route(source="one", name="r", targets=("l",))],
    )
    run = sent(spec, ["a", "b"])
    run.answer("one", "A")
    run.answer("one", "B")
    assert [order.values for order in run.decisions()] == [{"x": "A"}, {"x": "B"}]
    run.finish("one:2", routed=("l",))
    assert run.orders("l")[0].values == {"x": "B"}


# pauses


def test_a_goto_at_the_deadline_of_a_pause_withdraws_every_item() -> None:
    run = sent(fan(), ["a", "b"])
    run.pause(capabilities=CONTROL, timeout=60, on_timeout=GoTo(node="c"))
    run.finish("one", {"log": ["a"]})
    run.tick(60)

    assert (run.running, run.values) == (["c"], {})
    assert run.state.root.fans == {}
    assert run.orders("c")[0].results is None


# fan-outs in fan-outs


NESTED = sending(
    FunctionNode(id="one", to=("leaf",)),
    "leaf",
    "inner",
    "c",
    ways=[(["leaf"], "inner"), (["inner"], "c")],
)


def test_fan_outs_stand_in_each_other() -> None:
    # Each item counts its own visits.
    run = sent(NESTED, ["a", "b"], limits=Limits(max_visits=1))
    run.finish("one", {"log": ["a"]}, sends=[("leaf", 1), ("leaf", 2)])
    run.finish("one", {"log": ["b"]}, sends=[("leaf", 3)])
    assert [order.item for order in run.orders("leaf")] == [1, 2, 3]
    assert run.orders("leaf")[0].values == {"log": ["a"]}
    run.finish("leaf:3", {"log": [3]})
    assert [order.item for order in run.orders("inner")] == ["b"]
    assert run.orders("inner")[0].results == [{"item": 3, "status": "arrived"}]
    run.finish("inner")
    run.finish("leaf:2", {"log": [2]})
    run.finish("leaf", {"log": [1]})
    assert run.orders("inner")[1].values == {"log": ["a", 1, 2]}
    assert run.values == {}
    run.finish("inner", {"log": ["end"]})

    assert results(run) == [("a", "arrived"), ("b", "arrived")]
    assert run.values == {"log": ["a", 1, 2, "end", "b", 3]}
    assert run.state.root.fans == {}


def test_an_empty_list_is_gathered_at_its_own_join_inside_and_outside() -> None:
    run = sent(NESTED, ["a"])
    run.finish("one", sends=[])
    assert [(order.item, order.results) for order in run.orders("inner")] == [("a", [])]
    run.finish("inner")
    assert results(run) == [("a", "arrived")]

    outer = sent(NESTED, [])
    assert (outer.running, results(outer)) == (["c"], [])


def test_an_answer_inside_is_read_outside_after_the_join() -> None:
    spec = sending(
        FunctionNode(id="one", to=("ask",)),
        gate("ask"),
        *("inner", "then", "c"),
        ways=[(["ask"], "inner"), ("inner", "then"), (["then"], "c")],
    )
    run = sent(spec, ["a", "b"])
    run.finish("one", sends=[("ask", 1)])
    run.finish("one", sends=[("ask", 2)])
    run.answer("ask", "for a")
    assert run.orders("inner")[0].answers == {"ask": "for a"}
    run.answer("ask", "for b", principal=Principal(subject="bob"))
    assert run.orders("inner")[1].answers == {"ask": "for b"}
    for node in ("inner", "inner", "then", "then"):
        run.finish(node)

    seen = [(each.answers["ask"], each.answerers["ask"].by) for each in run.orders("then")]
    assert seen == [("for a", "ada"), ("for b", "bob")]
    assert run.orders("c")[0].answers == {"ask": "for b"}


def test_a_breakpoint_in_an_inner_item_shows_what_the_items_around_it_have_added() -> None:
    spec = replace(NESTED, interrupt_before=("leaf", "inner"))
    run = sent(spec, ["a"], values={"log": ["0"]})
    run.finish("one", {"log": ["a"]}, sends=[("leaf", 1)])
    run.answer("interrupt_before")
    run.finish("leaf", {"log": [1]})

    assert run.open("interrupt_before").payload["values"]["log"] == ["0", "a", 1]


def test_a_goto_may_leave_two_fan_outs_at_once() -> None:
    spec = sending(
        FunctionNode(id="one", to=("leaf",)),
        FunctionNode(id="leaf", on_error=GoTo(node="away")),
        "inner",
        "c",
        "away",
        ways=[(["leaf"], "inner"), (["inner"], "c")],
    )
    run = sent(spec, ["a"])
    run.finish("one", sends=[("leaf", 1)])
    run.fail("leaf")
    assert run.orders("away")[0].item is None
    run.finish("away")

    assert [order.results for order in run.orders("inner")] == [[{"item": 1, "status": "left"}]]
    run.finish("inner")
    assert run.orders("c")


# fan-outs and nested graphs


def test_a_nested_graph_is_walked_in_every_item() -> None:
    inner = chain("deep", name="inner", fields=FIELDS)
    run = sent(fan(nested("one", inner)), ["a", "b"], values={"log": ["0"]})
    run.finish("deep", {"log": ["a"]})
    run.finish("deep", {"log": ["b"]})

    assert run.orders("c")[0].results == [{"item": each, "status": "arrived"} for each in "ab"]
    assert run.values["log"] == ["0", "a", "b"]


@pytest.mark.parametrize("order", [("", ":2"), (":2", "")], ids=["as sent", "second first"])
def test_an_item_is_known_to_other_services_by_itself_whichever_comes_first(
    order: tuple[str, ...],
) -> None:
    # After a rewind another item may come first: its payment must not pass for that of the item before.
    spec = sending(
        "one",
        "pay",
        nested("check", chain("deep", name="inner", fields=FIELDS)),
        FunctionNode(id="split", to=("leaf",)),
        "leaf",
        "left",
        "c",
        ways=[
            *[("one", target) for target in ("pay", "check", "split")],
            edge("pay", "pay", {"x": "again"}),
            edge(["pay"], "c", "else"),
            ("leaf", "left"),
            (["left"], "c"),
            (["check"], "c"),
        ],
    )
    run = sent(spec, ["a", "b"])
    for number in order:
        run.finish(f"one{number}")
        run.finish("pay", {"x": "again"})
        run.finish("pay", {"x": "done"})
        run.finish("split", sends=[("leaf", 0), ("leaf", 1)])
        run.finish("leaf")
        run.finish("leaf")
        for node in ("left", "left", "deep"):
            run.finish(node)

    visits = ("one", "pay", "deep", "split", "leaf", "left")
    known = [(each.first_address, each.item) for node in visits for each in run.orders(node)]
    within = ["one", "pay", "pay:2", "check;graph:inner;node:deep", "split"]
    inside = [f"split;item:{index};node:{node}" for index in (0, 1) for node in ("leaf", "left")]
    assert sorted(address for address, _ in known) == sorted(
        f"graph:g;node:s;item:{index};node:{node}" for index in (0, 1) for node in within + inside
    )
    first = {item for address, item in known if address.endswith((":0;node:one", ":0;node:pay:2"))}
    assert first == {"a"}


@pytest.mark.parametrize(
    ("ways", "most", "finishes"),
    [
        ([(START, "one"), (["one"], "c")], 1, 0),
        ([(["one"], "c")], 100, 2),
        ([("one", "one"), (["one"], "c")], 1, 1),
    ],
    ids=["too many visits", "cannot be merged", "an item goes round too often"],
)
def test_a_fan_out_that_fails_in_a_nested_graph_fails_its_node_and_reaches_no_join(
    ways: list[Any], most: int, finishes: int
) -> None:
    inner = sending("one", "c", ways=ways, name="inner")
    outer = nested("n", inner, on_error=GoTo(node="after"))
    spec = chain(outer, "after", fields=FIELDS)
    run = Drive(spec, limits=Limits(max_visits=most), values={"sum": 1e308})
    run.finish("s", sends=[("one", 1), ("one", 2)])
    for _ in range(finishes):
        run.finish("one", {"sum": 5e307} if finishes == 2 else {})

    assert (run.running, run.orders("c")) == (["after"], [])
    assert list(run.state.scopes) == ["graph:g"]
