"""What the visits of items do: go round, ask, fail, be looked at by rules, and be stopped."""

from __future__ import annotations

import pytest
from core_drive import CONTROL, Drive, asked, edge, gate
from core_fans import fan, results, sending, sent
from core_rules import rule

from abeyance.core.spec import (
    START,
    Ask,
    GoTo,
    InterruptSpec,
    Parallel,
    Retry,
    Route,
)
from abeyance.core.state import Limits

# what items do


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


def test_a_fan_out_counts_once_however_many_items_it_has() -> None:
    spec = sending(
        "one",
        "c",
        ways=[(["one"], "c"), ("c", "s")],
    )
    run = sent(spec, [1, 2, 3], limits=Limits(max_visits=2))
    for _ in range(3):
        run.finish("one")
    run.finish("c")
    assert run.running == ["s"]
    run.finish("s", sends=[("one", 4)])
    run.finish("one")
    run.finish("c")

    assert run.error[0] == "max_visits"


def test_a_fan_out_may_be_one_too_many() -> None:
    spec = sending(
        "one",
        ways=[(START, "s"), (START, "one")],
    )
    run = Drive(spec, limits=Limits(max_visits=2))
    run.finish("s", sends=[("one", 1), ("one", 2)])
    assert run.status == "running"
    run.finish("s", sends=[("one", 3), ("one", 4)])

    assert run.ending.error is not None
    assert (run.ending.error.code, run.ending.error.address) == ("max_visits", "graph:g;node:s:2")
    assert run.running == ["one", "one", "one"]


@pytest.mark.parametrize("how", ["answer", "message"])
def test_people_start_the_counts_within_items_anew(how: str) -> None:
    spec = sending("one", ways=[("one", "one")])
    run = sent(spec, ["a"], limits=Limits(max_visits=1))
    for number in range(3):
        if how == "answer":
            run.ask("one", "plan")
            run.answer("plan")
        else:
            run.send(f"m{number}")
        run.finish("one")

    assert run.running == ["one"]


def test_items_ask_people_each_for_itself() -> None:
    run = sent(fan(gate("one", answer_to="x")), ["a", "b"])
    assert len(set(run.state.ledger.open)) == 2
    assert run.asking == [("one", "graph:g;node:one"), ("one", "graph:g;node:one:2")]
    run.answer("one", "yes")
    assert run.status == "awaiting-input"
    run.answer("one", "no")

    assert results(run) == [("a", "arrived"), ("b", "arrived")]
    assert run.values["x"] == "no"


def test_a_prompt_in_an_item_shows_the_item_s_values() -> None:
    spec = sending(
        "one",
        gate("ask", prompt="{x}?"),
        ways=[("one", "ask")],
    )
    run = sent(spec, ["a", "b"], values={"x": "?"})
    run.finish("one", {"x": "A"})
    run.finish("one", {"x": "B"})

    assert [each.prompt for each in run.state.ledger.open.values()] == ["A?", "B?"]


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


def test_rules_hold_within_an_item() -> None:
    question = InterruptSpec(name="look", prompt="{x}?")
    spec = fan(
        "extra",
        rules=[
            rule("again", "one", Retry(), x="a"),
            rule("look", "one", Ask(question=question, answer_to="x"), x="b"),
            rule("both", "one", Parallel(nodes=("extra",)), x="c"),
        ],
    )
    run = sent(spec, ["a", "b", "c"])
    run.finish("one", {"x": "a"})
    assert [order.item for order in run.orders("one")] == ["a", "b", "c", "a"]
    run.finish("one", {"x": "b"})
    assert run.open("look").prompt == "b?"
    run.finish("one", {"x": "c"})
    assert run.orders("extra")[0].item == "c"
    run.finish("extra")
    run.answer("look", "seen")
    run.finish("one:4", {"x": "done"})

    assert results(run) == [("a", "arrived"), ("b", "arrived"), ("c", "ended")]
    assert run.values["x"] == "seen"


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


def test_code_in_items_asks_and_reads_its_own_answers() -> None:
    run = sent(fan(), ["a", "b"])
    run.ask("one", "plan")
    run.ask("one:2", "plan", asked("plan", "p"), composite=True)
    run.answer("plan", "first")

    order = run.orders("one")[-1]
    assert (order.item, order.own_answers, order.answers) == ("a", {"plan": "first"}, {})
    assert run.state.root.answers == {}


# beside the run's controls


def test_a_pause_holds_items_and_gathers_nothing_new_into_motion() -> None:
    run = sent(fan(), ["a", "b"], limits=Limits(max_parallel_visits=1))
    run.pause()
    run.finish("one", {"log": ["a"]})
    assert (run.running, run.ready) == ([], ["one"])
    run.resume()
    run.pause()
    run.finish("one", {"log": ["b"]})
    assert run.running == []
    run.resume()

    assert run.running == ["c"]


def test_a_goto_at_the_deadline_of_a_pause_withdraws_every_item() -> None:
    run = sent(fan(), ["a", "b"])
    run.pause(capabilities=CONTROL, timeout=60, on_timeout=GoTo(node="c"))
    run.finish("one", {"log": ["a"]})
    run.tick(60)

    assert (run.running, run.values) == (["c"], {})
    assert run.state.root.fans == {}
    assert run.orders("c")[0].results is None
