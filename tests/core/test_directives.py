"""Messages that the run itself carries out: when, for which branch, and why not."""

from __future__ import annotations

from typing import Any

import pytest
from core_drive import Drive, chain, edge, gate, graph, restored

from abeyance.core import events
from abeyance.core.json import Json
from abeyance.core.outcome import Finished, Send, Stopped
from abeyance.core.spec import START, FunctionNode, Route
from abeyance.core.state import Limits

ROOT = "graph:g"


def held(*nodes: Any) -> Drive:
    """A chain that is paused before its second node."""
    run = Drive(chain(*nodes))
    run.feed(events.Paused, actor="bob")
    run.finish(nodes[0], {"x": 1, "log": [nodes[0]]})
    return run


def why(run: Drive) -> list[str]:
    """What is told of each directive that came to nothing."""
    return [str(fact.data["reason"]) for fact in run.facts("message.rejected")]


# Which words there are


def test_continue_changes_nothing_but_is_delivered() -> None:
    run = held("a", "b")
    run.direct("continue")

    (fact,) = run.facts("message.delivered")
    assert (fact.address, fact.actor) == ("graph:g;node:b", "ada")
    assert fact.data == {"message_id": "d1", "action": "continue"}
    assert run.ready == ["b"]
    assert run.state.counters.messages_delivered == 1


def test_skip_lets_the_next_node_out_and_goes_to_its_successor() -> None:
    run = held("a", "b", "c")
    run.direct("skip")
    run.feed(events.Resumed, actor="bob")

    assert (run.started, run.running) == (["a", "c"], ["c"])
    assert run.values == {"x": 1, "log": ["a"]}


def test_skip_asks_the_routes_of_the_node_that_is_not_run() -> None:
    spec = graph(
        "a",
        "b",
        "c",
        "d",
        ways=[(START, "a"), ("a", "b")],
        routes=[Route(source="b", name="pick", targets=("c", "d"))],
    )
    run = Drive(spec)
    run.direct("skip", target="b")
    run.finish("a")
    assert (run.started, run.decided) == (["a"], ["b"])

    run.finish("b", routed=("d",))
    assert run.running == ["d"]


def test_rerun_takes_the_patch_back_and_hands_on_the_guidance() -> None:
    run = held("a", "b")
    run.direct("rerun", "be kinder")
    run.feed(events.Resumed, actor="bob")

    assert run.values == {}
    again = run.orders("a")[-1]
    assert (again.address, again.guidance) == ("graph:g;node:a:2", "be kinder")
    assert run.orders("a")[0].guidance is None
    (fact,) = run.facts("run.went_back")
    assert (fact.address, fact.actor) == ("graph:g;node:a", "ada")
    assert fact.data == {
        "node": "a",
        "steps": 0,
        "effects": "what the visits did outside the run is not undone",
    }

    run.finish("a", {"x": 2})
    assert run.orders("b")[-1].guidance is None
    assert run.values == {"x": 2}


@pytest.mark.parametrize(
    ("params", "node", "values"),
    [
        ({}, "b", {"log": ["a"]}),
        ({"steps": 1}, "b", {"log": ["a"]}),
        ({"steps": 2}, "a", {}),
    ],
)
def test_go_back_counts_from_the_visit_that_finished_last(
    params: dict[str, Json], node: str, values: dict[str, Json]
) -> None:
    run = Drive(chain("a", "b", "c", "d"))
    for name in ("a", "b", "c"):
        run.direct("pause") if name == "c" else None
        run.finish(name, {"log": [name]})
    assert (run.status, run.ready) == ("paused", ["d"])
    run.direct("go_back", params=params)
    run.feed(events.Resumed, actor="bob")

    assert run.running == [node]
    assert run.values == values


@pytest.mark.parametrize("steps", [0, -1, 21, 1.5, "1", True, None])
def test_steps_that_are_no_steps_are_rejected(steps: Json) -> None:
    run = held("a", "b")
    run.direct("go_back", params={"steps": steps})

    assert run.rejected() == [("d1", "invalid_params")]
    assert run.ready == ["b"]
    assert "1 to 20" in why(run)[0]


@pytest.mark.parametrize(
    ("action", "params"),
    [("go_back", {"step": 2}), ("rerun", {"steps": 2}), ("update_state", {"patch": {}, "x": 1})],
)
def test_a_parameter_that_a_directive_does_not_take_has_it_rejected(
    action: str, params: dict[str, Json]
) -> None:
    run = held("a", "b")
    run.direct(action, params=params)

    assert (run.rejected(), run.ready) == ([("d1", "invalid_params")], ["b"])
    assert f"{action!r} takes no parameter {list(params)[-1]!r}" in why(run)[0]


@pytest.mark.parametrize("steps", [1, 20])
def test_one_cannot_go_back_farther_than_the_trail(steps: int) -> None:
    run = held("a", "b")
    run.direct("go_back", params={"steps": steps})

    assert run.rejected() == [("d1", "not_linear")]
    assert f"has 1 visits that can be undone, and {steps + 1} are needed" in why(run)[0]


def test_pause_is_the_operation_and_waits_for_the_boundary() -> None:
    run = Drive(chain("a", "b"))
    run.direct("pause", "look first")
    assert (run.status, run.state.pause) == ("running", None)
    run.finish("a")

    assert (run.status, run.ready) == ("paused", ["b"])
    assert run.state.pause is not None
    assert (run.state.pause.actor, run.state.pause.reason) == ("ada", "look first")
    (fact,) = run.facts("run.paused")
    assert fact.data["reason"] == "look first"
    assert run.state.counters.pause_count == 1


def test_pause_changes_nothing_in_a_run_that_is_paused_but_counts() -> None:
    run = held("a", "b")
    run.direct("pause")

    assert run.state.pause is not None
    assert run.state.pause.actor == "bob"
    assert run.state.counters.pause_count == 2
    assert run.rejected() == []


def test_pause_holds_a_run_that_has_nothing_left() -> None:
    run = Drive(chain("a"))
    run.direct("pause")
    run.finish("a")
    assert run.status == "paused"

    run.feed(events.Resumed, actor="bob")
    assert run.status == "completed"


def test_defer_keeps_it_for_later_and_no_more_than_the_queue_may_hold() -> None:
    run = Drive(chain(gate("ask")), limits=Limits(max_queue_size=2))
    for text in ("one", "two", "three"):
        run.direct("defer", text, metadata={"about": text})

    assert [(todo.text, todo.metadata) for todo in run.state.todos] == [
        ("two", {"about": "two"}),
        ("three", {"about": "three"}),
    ]
    assert (run.state.todos[0].message_id, run.state.todos[0].sender) == ("d2", "ada")
    assert run.state.todos[0].deferred_at == run.now


def test_update_state_merges_by_the_reducers_and_says_which_fields() -> None:
    run = held("a", "b")
    run.direct("update_state", params={"patch": {"x": 5, "log": ["ada"]}})

    assert run.values == {"x": 5, "log": ["a", "ada"]}
    (fact,) = run.facts("run.values_edited")
    assert (fact.address, fact.actor, fact.data) == (ROOT, "ada", {"fields": ["log", "x"]})


@pytest.mark.parametrize(
    ("params", "code", "told"),
    [
        ({}, "invalid_params", "{patch: {field: value, ...}}"),
        ({"patch": {}}, "invalid_params", "{patch: {field: value, ...}}"),
        ({"patch": [1]}, "invalid_params", "{patch: {field: value, ...}}"),
        ({"patch": {"nope": 1}}, "invalid_patch", "'nope'"),
        ({"patch": {"log": 1}}, "invalid_patch", "'log'"),
    ],
)
def test_a_patch_that_cannot_be_merged_is_rejected(
    params: dict[str, Json], code: str, told: str
) -> None:
    run = held("a", "b")
    before = run.values
    run.direct("update_state", params=params)

    assert (run.rejected(), run.values) == ([("d1", code)], before)
    assert told in why(run)[0]


def test_update_state_inside_an_item_is_that_items_own() -> None:
    spec = graph(
        FunctionNode(id="split", to=("one",)),
        "one",
        "two",
        "collect",
        ways=[(START, "split"), ("one", "two"), edge(("two",), "collect")],
    )
    run = Drive(spec)
    run.end(
        Finished,
        visit=run.visit("split").address,
        sends=(Send(node="one", item=1), Send(node="one", item=2)),
    )
    first, second = [visit.address for visit in run.state.visits.values()]
    run.direct("update_state", target=second, params={"patch": {"x": 7}})
    assert run.state.mailbox.queue
    run.feed(events.Paused, actor="bob")
    run.end(Finished, visit=first)
    run.end(Finished, visit=second)
    run.direct("update_state", params={"patch": {"x": 7}})

    assert "x" not in run.values
    run.feed(events.Resumed, actor="bob")
    assert [order.values.get("x") for order in run.orders("two")] == [None, 7]


def test_rerun_is_not_possible_inside_an_item() -> None:
    spec = graph(
        FunctionNode(id="split", to=("one",)), "one", "two", ways=[(START, "split"), ("one", "two")]
    )
    run = Drive(spec)
    run.end(
        Finished,
        visit=run.visit("split").address,
        sends=(Send(node="one", item=1),),
    )
    run.direct("rerun")
    run.finish("one")

    assert run.rejected() == [("d1", "not_linear")]
    assert run.running == ["two"]


def test_rerun_is_not_possible_while_there_are_several_branches() -> None:
    run = Drive(graph("a", gate("ask"), "b", ways=[(START, "a"), (START, "ask"), ("a", "b")]))
    run.direct("rerun", target="ask")

    assert run.rejected() == [("d1", "not_linear")]
    assert why(run)[0] == (
        "graph:g has several branches, a fan-out or an open join, so the order of its visits is "
        "ambiguous"
    )
    assert (run.running, run.waiting) == (["a"], ["ask"])


def test_rerun_is_not_possible_while_a_join_waits() -> None:
    spec = graph("a", "b", "c", ways=[(START, "a"), (START, "b"), edge(("a", "b"), "c")])
    run = Drive(spec)
    run.finish("a")
    run.feed(events.Paused, actor="bob")
    run.end(Stopped, visit=run.visit("b").address)
    run.direct("rerun")
    assert run.rejected() == []
    run.feed(events.Resumed, actor="bob")
    run.finish("b")
    assert run.rejected() == [("d1", "not_linear")]


# When


def test_a_directive_waits_while_the_code_of_its_branch_runs() -> None:
    run = Drive(chain("a", "b", "c"))
    run.direct("skip")
    assert len(run.state.mailbox.queue) == 1
    run.finish("a")

    assert run.running == ["c"]


def test_a_visit_that_was_stopped_in_its_code_is_no_boundary() -> None:
    run = Drive(chain("a", "b"))
    run.feed(events.Paused, actor="bob", mode="now")
    run.stopped("a", {"step": 1})
    run.direct("skip")
    assert run.ready == ["a"]
    run.feed(events.Resumed, actor="bob")
    run.finish("a")

    assert run.status == "completed"
    assert run.started == ["a", "a"]


def test_several_directives_at_one_boundary_are_taken_in_their_order() -> None:
    run = Drive(chain("a", "b", "c"))
    run.direct("update_state", params={"patch": {"log": ["low"]}}, priority="low")
    run.direct("update_state", params={"patch": {"log": ["normal"]}})
    run.direct("update_state", params={"patch": {"log": ["high"]}}, priority="high")
    run.finish("a")

    assert run.values == {"log": ["high", "normal", "low"]}
    assert [fact.data["message_id"] for fact in run.facts("message.delivered")] == [
        "d3",
        "d2",
        "d1",
    ]
    assert run.state.counters.messages_delivered == 3


def test_no_visit_is_handed_a_directive() -> None:
    run = Drive(chain("a", "b"))
    run.direct("continue")
    run.send("m", action="sing")

    assert run.take("a", upto=9) == ["m"]


def test_a_directive_at_nothing_left_is_taken_before_the_run_completes() -> None:
    run = Drive(chain("a"))
    run.direct("rerun", "once more")
    run.finish("a", {"x": 1})

    assert (run.running, run.values) == (["a"], {})
    assert run.orders("a")[-1].guidance == "once more"
    run.finish("a", {"x": 2})
    assert (run.status, run.values) == ("completed", {"x": 2})


def test_there_is_nothing_to_skip_where_nothing_is_left() -> None:
    run = Drive(chain("a"))
    run.direct("skip")
    run.finish("a")

    assert (run.status, run.rejected()) == ("completed", [("d1", "no_branch")])
    assert why(run) == ["'skip' found no branch to act on"]
    assert run.state.mailbox.undelivered == ()


def test_update_state_where_nothing_is_left_changes_the_result() -> None:
    run = Drive(chain("a"))
    run.direct("update_state", params={"patch": {"x": 9}})
    run.finish("a", {"x": 1})

    assert (run.status, run.values) == ("completed", {"x": 9})


def test_a_run_that_ends_carries_out_nothing_more() -> None:
    run = Drive(chain("a", "b"))
    run.direct("skip")
    run.cancel()

    assert [left.reason for left in run.state.mailbox.undelivered] == ["cancelled"]
    assert run.facts("message.delivered") == []


def test_a_run_that_is_handed_over_carries_out_its_directives_afterwards() -> None:
    run = Drive(chain("a", "b", "c"))
    run.direct("skip")
    run.feed(events.RotationDue, hard=False)
    run.finish("a")
    assert (run.ready, len(run.state.mailbox.queue)) == (["b"], 1)

    run.state = restored(run.state)
    run.feed(events.Restored)
    assert run.running == ["c"]
