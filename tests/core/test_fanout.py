"""Fan-outs: one visit for each item of a list, and the join that gathers the items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from core_drive import Drive, edge
from core_graphs import fan, results, sending, sent

from abeyance.core.spec import END, START, AskHuman, FunctionNode, GoTo, GraphSpec

# items


@pytest.mark.parametrize("count", [0, 1, 50])
def test_every_item_is_a_visit_and_the_join_waits_for_all(count: int) -> None:
    run = sent(fan(), list(range(count)))
    assert [order.item for order in run.orders("one")] == list(range(count))
    for number in reversed(range(count)):
        assert run.orders("c") == []
        run.finish("one" if number == 0 else f"one:{number + 1}", {"log": [number], "sum": 1})

    assert run.running == ["c"]
    assert results(run) == [(number, "arrived") for number in range(count)]
    assert run.values.get("log", []) == list(range(count))
    # The patch of each item makes one version.
    assert (run.values.get("sum", 0), run.state.root.version) == (count, 1 + count)
    run.finish("c")
    assert run.status == "completed"


def test_an_item_sees_its_own_patches_and_nobody_else_does_before_the_join() -> None:
    spec = sending(
        "one",
        "two",
        "c",
        "beside",
        ways=[(START, "beside"), ("one", "two"), (["two"], "c")],
    )
    run = sent(spec, ["a", "b"], values={"log": ["0"]})
    run.finish("one", {"log": ["a1"], "x": "a"})
    assert run.orders("two")[0].values == {"log": ["0", "a1"], "x": "a"}
    assert run.orders("two")[0].item == "a"
    assert run.values == {"log": ["0"]}

    run.finish("beside", {"log": ["beside"], "x": "beside"})
    run.finish("one", {"log": ["b1"]})
    assert run.orders("two")[1].values == {"log": ["0", "beside", "b1"], "x": "beside"}
    run.finish("two:2", {"log": ["b2"]})
    run.finish("two", {"log": ["a2"]})
    assert run.values == {"log": ["0", "beside", "a1", "a2", "b1", "b2"], "x": "a"}


@pytest.mark.parametrize("target", ["c", END, "nowhere"])
def test_a_fan_out_replaces_the_edges_and_goes_to_declared_nodes_only(target: str) -> None:
    run = Drive(sending("one", "never", ways=[("s", "never")]))
    run.finish("s", {"x": 1}, sends=[("one", 7)])
    assert (run.running, run.orders("one")[0].values) == (["one"], {"x": 1})

    run = Drive(fan(to=("one", END)))
    run.finish("s", {"x": 1}, sends=[("one", 1), (target, 2)])
    assert (run.error[0], run.values) == ("unknown_node", {})
    assert f"'s' chose to go to {target!r}" in run.error[1]


def test_items_that_are_not_json_or_cannot_be_merged_fail_the_run() -> None:
    run = sent(fan(), [1, float("inf")])
    assert (run.error[0], "the item 1 that 's' sends is not JSON" in run.error[1]) == (
        "invalid_patch",
        True,
    )

    run = sent(fan(), ["a", "b"], values={"sum": 1e308})
    run.finish("one", {"sum": 5e307})
    run.finish("one", {"sum": 5e307})
    code, message, address = run.error
    assert (code, address) == ("invalid_patch", "graph:g;node:s")
    assert "the items of the fan-out of graph:g;node:s cannot be merged" in message
    assert run.values["sum"] == 1e308


# items that do not arrive


def elsewhere(**kwargs: Any) -> GraphSpec:
    """Return a graph in which an item may end, or leave for `away`, which has no way to the join."""
    return sending(
        FunctionNode(id="one", to=("away",), **kwargs),
        "away",
        "c",
        ways=[edge(["one"], "c", {"x": "go"}), edge("one", END, "else")],
    )


def skips(run: Drive) -> None:
    run.fail("one")
    run.answer("error", {"action": "skip"})


@pytest.mark.parametrize(
    ("on_error", "leave", "status"),
    [
        (None, lambda run: run.finish("one", {"log": ["lost"]}), "ended"),
        (None, lambda run: run.finish("one", {"log": ["lost"]}, goto=END), "ended"),
        (None, lambda run: run.finish("one", {"log": ["lost"]}, goto="away"), "left"),
        (GoTo(node="away"), lambda run: run.fail("one"), "left"),
        (AskHuman(), skips, "skipped"),
    ],
    ids=["ends", "ends by a goto", "leaves", "fails and leaves", "is skipped and ends"],
)
def test_an_item_that_does_not_arrive_has_its_status_and_no_patch(
    on_error: Any, leave: Callable[[Drive], None], status: str
) -> None:
    spec = elsewhere(**({} if on_error is None else {"on_error": on_error}))
    run = sent(spec, ["a", "b"])
    leave(run)
    if status == "left":
        assert run.orders("away")[0].item is None
        run.finish("away", {"log": ["away"]})
    assert run.running == ["one"]
    run.finish("one", {"x": "go"})

    assert results(run) == [("a", status), ("b", "arrived")]
    assert run.values == ({"log": ["away"], "x": "go"} if status == "left" else {"x": "go"})
    alone = sent(spec, ["a"])
    leave(alone)
    if status == "left":
        alone.finish("away")
    assert results(alone) == [("a", status)]


def test_a_goto_past_the_join_leaves_the_item_though_it_comes_to_the_join_s_target() -> None:
    spec = sending(
        FunctionNode(id="one", to=("away",)),
        "away",
        "c",
        ways=[(["one"], "c"), ("away", "c")],
    )
    run = sent(spec, ["a", "b"])
    run.finish("one", goto="away")
    run.finish("away")
    assert run.orders("c")[0].results is None
    run.finish("one")

    assert results(run) == [("a", "left"), ("b", "arrived")]


# without a join, and with two


def test_patches_without_a_join_are_merged_when_the_last_item_ends() -> None:
    spec = sending("one", "two", ways=[("one", "two")])
    run = sent(spec, ["a", "b"])
    run.finish("one", {"log": ["a1"]})
    run.finish("two", {"log": ["a2"]})
    assert run.values == {}
    run.finish("one", {"log": ["b1"]})
    run.finish("two")

    assert (run.status, run.values) == ("completed", {"log": ["a1", "a2", "b1"]})
    assert sent(spec, []).status == "completed"


def test_each_of_two_joins_is_entered_once_if_an_item_reached_it() -> None:
    both = sending("one", "c", "d", ways=[(["one"], "c"), (["one"], "d")])
    run = sent(both, [1, 2])
    run.finish("one")
    run.finish("one")
    assert run.running == ["c", "d"]
    assert run.orders("d")[0].results == run.orders("c")[0].results
    assert sent(both, []).running == ["c", "d"]

    ways = [edge(["one"], "c", {"x": 1}), edge(["one"], "d", "else")]
    run = sent(sending("one", "c", "d", ways=ways), [1, 2])
    run.finish("one", {"x": 1})
    run.finish("one", {"x": 1})
    assert run.running == ["c"]


def test_an_item_with_two_branches_arrives_once_when_both_are_over() -> None:
    ways: list[Any] = [("one", "l"), ("one", "r"), ("one", "r"), (["l", "r"], "c")]
    run = sent(sending("one", "l", "r", "c", ways=ways), ["a", "b"])
    run.finish("one")
    run.finish("one")
    run.finish("l", {"x": "l"})
    assert run.orders("r")[0].values == {}
    run.finish("r", {"log": ["r"]})
    for node in ("r", "l", "r", "r"):
        assert run.started.count("c") == 0
        run.finish(node)

    assert results(run) == [("a", "arrived"), ("b", "arrived")]
    assert run.values == {"x": "l", "log": ["r"]}
    assert run.started.count("c") == 1


@pytest.mark.parametrize(
    ("nodes", "ways"),
    [
        (("one",), []),
        # An item could come back to `one`.
        ((FunctionNode(id="one", to=("fix",)), "fix"), [("fix", "one")]),
    ],
)
def test_an_empty_list_enters_only_its_own_join_and_one_outside_counts_its_tokens(
    nodes: tuple[Any, ...], ways: list[Any]
) -> None:
    ways = [(START, "z"), *ways, (["one"], "c"), (("c", "z"), "end")]
    run = sent(sending(*nodes, "c", "z", "end", ways=ways), [])
    for left in (["z", "c"], ["z"]):
        assert run.running == left
        run.finish(left[-1])
    assert run.running == ["end"]


def test_an_empty_list_enters_no_join_of_a_fan_out_that_begins_behind_its_own() -> None:
    behind = FunctionNode(id="c", to=("two",))
    spec = sending("one", behind, "two", "end", ways=[(["one"], "c"), (["two"], "end")])

    assert sent(spec, []).running == ["c"]
