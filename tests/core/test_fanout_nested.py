"""Fan-outs in fan-outs, and in nested graphs."""

from __future__ import annotations

from dataclasses import replace

from core_drive import Drive, chain, gate, nested
from core_fans import FIELDS, fan, results, sending, sent

from abeyance.core.policy import Principal
from abeyance.core.spec import START, FunctionNode, GoTo
from abeyance.core.state import Limits

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


def test_an_empty_inner_list_is_gathered_in_its_item() -> None:
    run = sent(NESTED, ["a"])
    run.finish("one", sends=[])
    assert [(order.item, order.results) for order in run.orders("inner")] == [("a", [])]
    run.finish("inner")

    assert results(run) == [("a", "arrived")]


def test_an_empty_outer_list_is_gathered_at_its_own_join() -> None:
    run = sent(NESTED, [])

    assert run.running == ["c"]
    assert results(run) == []


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


def test_a_goto_may_leave_only_the_inner_fan_out() -> None:
    spec = sending(
        FunctionNode(id="one", to=("leaf",)),
        FunctionNode(id="leaf", to=("away",)),
        *("inner", "c", "away"),
        ways=[(["leaf"], "inner"), ("away", "inner"), (["inner"], "c")],
    )
    run = sent(spec, ["a"])
    run.finish("one", sends=[("leaf", 1)])
    run.finish("leaf", goto="away")

    assert [order.item for order in run.orders("away")] == ["a"]


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


def test_a_nested_graph_fans_out_for_itself() -> None:
    inner = sending(
        "one",
        ways=[],
        name="inner",
    )
    run = Drive(chain(nested("n", inner), "after", fields=FIELDS))
    run.finish("s", sends=[("one", 1), ("one", 2)])
    run.finish("one", {"log": [1]})
    run.finish("one", {"log": [2]})

    assert run.running == ["after"]
    assert run.values == {"log": [1, 2]}


def test_a_fan_out_that_fails_in_a_nested_graph_fails_its_node() -> None:
    inner = sending(
        "one",
        ways=[(START, "one")],
        name="inner",
    )
    outer = nested("n", inner, on_error=GoTo(node="after"))
    run = Drive(chain(outer, "after", fields=FIELDS), limits=Limits(max_visits=1))
    run.finish("s", sends=[("one", 1)])

    assert run.running == ["after"]
    assert list(run.state.scopes) == ["graph:g"]


def test_items_that_do_not_go_together_fail_the_nested_graph_that_they_are_in() -> None:
    inner = fan(name="inner")
    outer = nested("n", inner, on_error=GoTo(node="after"))
    run = Drive(chain(outer, "after", fields=FIELDS), values={"sum": 1e308})
    run.finish("s", sends=[("one", 1), ("one", 2)])
    run.finish("one", {"sum": 5e307})
    run.finish("one", {"sum": 5e307})

    assert run.running == ["after"]
    assert list(run.state.scopes) == ["graph:g"]


def test_an_item_that_goes_round_too_often_reaches_no_join_of_the_graph_that_failed() -> None:
    inner = sending("one", "c", ways=[("one", "one"), (["one"], "c")], name="inner")
    outer = nested("n", inner, on_error=GoTo(node="after"))
    run = Drive(chain(outer, "after", fields=FIELDS), limits=Limits(max_visits=1))
    run.finish("s", sends=[("one", 1)])
    run.finish("one")

    assert (run.running, run.orders("c")) == (["after"], [])
