"""How nested graphs fail, wait, are held up and are ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from core_drive import CONTROL, Drive, asked, chain, edge, gate, graph, nested

from abeyance.core.json import Json
from abeyance.core.outcome import Finished
from abeyance.core.spec import (
    END,
    START,
    AskHuman,
    Default,
    GoTo,
    GraphSpec,
    Reducer,
)
from abeyance.core.state import Limits

FIELDS: Mapping[str, Reducer] = {"x": "last", "log": "append", "sum": "add", "by": "merge"}
DEEP = "graph:g;node:n;graph:inner;node:deep"


def inner(*nodes: Any, **kwargs: Any) -> GraphSpec:
    return chain(*(nodes or ("deep",)), name="inner", fields=FIELDS, **kwargs)


def around(spec: GraphSpec, values: Mapping[str, Json] | None = None, **kwargs: Any) -> Drive:
    """`n` is a graph, `after` comes after it."""
    return Drive(chain(nested("n", spec, **kwargs), "after", fields=FIELDS), values=values)


# failing


def test_the_node_outside_may_go_elsewhere_and_what_ran_inside_is_stopped() -> None:
    spec = graph(
        "deep",
        "too",
        gate("ask"),
        ways=[(START, "deep"), (START, "too"), (START, "ask")],
        name="inner",
    )
    run = around(spec, on_error=GoTo(node="after"))
    id_ = run.open("ask").id
    run.fail("deep")

    assert (run.running, run.asking) == (["after"], [])
    assert run.stops == [("graph:g;node:n;graph:inner;node:too", "ending", True)]
    assert run.settled("ask").settled_reason == "the visit failed"
    assert run.refused_response({id_: 1}).code == "withdrawn"
    run.end(Finished, visit="graph:g;node:n;graph:inner;node:too", patch={"x": 1})
    assert run.values == {}


def test_a_failure_deep_inside_is_dealt_with_by_the_nearest_who_does() -> None:
    middle = graph(
        nested(
            "m",
            chain(nested("k", inner()), name="low", fields=FIELDS),
            on_error=GoTo(node="caught"),
        ),
        "caught",
        ways=[(START, "m")],
        name="middle",
        fields=FIELDS,
    )
    run = around(middle, on_error=GoTo(node="after"))
    run.fail("deep")

    assert run.running == ["caught"]
    run.finish("caught", {"x": "caught"})
    assert run.orders("after")[0].values == {"x": "caught"}


@pytest.mark.parametrize("what", ["start", "join", "max_visits", "no_way_out"])
def test_whatever_fails_a_graph_fails_only_the_node_that_it_is(what: str) -> None:
    specs = {
        "start": graph("deep", ways=[edge(START, "deep", {"x": 1})], name="inner"),
        "join": graph(
            "deep",
            "b",
            "c",
            ways=[
                (START, "deep"),
                edge("deep", "b", {"x": 1}),
                edge("deep", END, "else"),
                (("deep", "b"), "c"),
            ],
            name="inner",
        ),
        "max_visits": graph("deep", ways=[(START, "deep"), ("deep", "deep")], name="inner"),
        "no_way_out": graph(
            "deep", ways=[(START, "deep"), edge("deep", END, {"x": 1})], name="inner"
        ),
    }
    node = nested("n", specs[what], on_error=GoTo(node="after"))
    run = Drive(chain(node, "after"), limits=Limits(max_visits=1))
    if what != "start":
        run.finish("deep")

    assert run.running == ["after"]
    assert (run.state.ending, list(run.state.scopes)) == (None, ["graph:g"])


def test_too_many_visits_inside_stop_all_that_followed_from_the_same_visit() -> None:
    spec = graph(
        "deep",
        "b",
        "c",
        ways=[(START, "deep"), ("deep", "deep"), ("deep", "b"), (("deep", "b"), "c")],
        name="inner",
    )
    node = nested("n", spec, on_error=GoTo(node="after"))
    run = Drive(chain(node, "after"), limits=Limits(max_visits=1))
    run.finish("deep")

    assert (run.running, run.orders("b")) == (["after"], [])


def test_a_join_of_what_arrived_starts_inside() -> None:
    spec = graph(
        "deep",
        "b",
        "c",
        ways=[
            (START, "deep"),
            edge("deep", "b", {"x": 1}),
            edge("deep", END, "else"),
            edge(("deep", "b"), "c", join="arrived"),
        ],
        name="inner",
    )
    run = around(spec)
    run.finish("deep")

    assert run.running == ["c"]


def test_an_operator_may_try_a_nested_graph_again_from_its_beginning() -> None:
    run = around(inner("deep", "deeper"), {"sum": 1}, on_error=AskHuman())
    run.finish("deep", {"sum": 1})
    run.ask("deeper", "plan")
    first = run.open("plan").id
    run.answer("plan")
    run.fail("deeper")
    assert run.asking == [("error", "graph:g;node:n")]
    assert run.status == "awaiting-input"
    run.answer("error", {"action": "retry"})
    assert run.orders("deep")[1].values == {"sum": 1}
    assert run.visit("deep").address == "graph:g;node:n:2;graph:inner;node:deep"
    run.finish("deep", {"sum": 1})
    run.ask("deeper", "plan")
    assert run.open("plan").id != first
    run.answer("plan")
    run.finish("deeper")

    assert run.orders("after")[0].values == {"sum": 2}


# asking


def test_what_is_asked_inside_has_the_nodes_around_it_as_parents() -> None:
    middle = chain(nested("m", inner()), name="middle", fields=FIELDS)
    run = around(middle)
    run.ask("deep", asked("ok", "p1"), composite=True, reason="why")

    entry = run.open("ok")
    assert entry.address.endswith(";graph:inner;node:deep;process:p1")
    assert [(parent.address, parent.reason) for parent in entry.parents] == [
        ("graph:g;node:n;graph:middle;node:m;graph:inner;node:deep", "why"),
        ("graph:g;node:n;graph:middle;node:m", None),
        ("graph:g;node:n", None),
    ]
    for parent in entry.parents:
        refusal = run.refused_response({parent.id: 1})
        assert (refusal.code, refusal.details["root_causes"]) == ("not_root_cause", [entry.id])


def test_an_answer_inside_is_for_the_nodes_inside() -> None:
    run = around(inner(gate("ask", answer_to="x"), "deep"))
    run.answer("ask", "yes")
    assert run.orders("deep")[0].answers == {"ask": "yes"}
    run.finish("deep")

    assert run.orders("after")[0].answers == {}
    assert run.values == {"x": "yes"}


@pytest.mark.parametrize("on_timeout", [GoTo(node="deep"), Default(answer="late")])
def test_a_deadline_inside_leads_on_inside(on_timeout: Any) -> None:
    spec = inner(gate("ask", timeout=60, on_timeout=on_timeout), "deep")
    run = around(spec)
    run.tick(60)

    assert run.visit("deep").address == DEEP


# beside controls


def test_a_pause_holds_what_is_nested_and_lets_it_go_on() -> None:
    run = around(inner("deep", "deeper"))
    run.pause(mode="now")
    run.stopped("deep", {"step": 1})
    assert (run.running, run.ready) == ([], ["deep"])
    run.resume()
    assert run.orders("deep")[1].journal == {"step": 1}

    run.pause()
    run.finish("deep")
    run.resume()
    run.pause()
    run.finish("deeper", {"x": 1})
    assert (run.status, run.values) == ("paused", {})
    run.resume()
    assert (run.running, run.values) == (["after"], {"x": 1})


def test_a_goto_at_the_deadline_of_a_pause_leaves_every_nested_graph() -> None:
    run = around(graph("deep", gate("ask"), ways=[(START, "deep"), (START, "ask")], name="inner"))
    run.pause(capabilities=CONTROL, timeout=60, on_timeout=GoTo(node="after"))
    run.tick(60)

    assert (run.running, run.asking) == (["after"], [])
    assert list(run.state.scopes) == ["graph:g"]
    assert run.stops == [(DEEP, "ending", True)]


def test_an_ending_waits_for_what_runs_inside_and_runs_the_finally_nodes() -> None:
    run = Drive(chain(nested("n", inner("deep", "deeper")), finally_=["tidy"]))
    run.cancel()
    assert run.stops == [(DEEP, "ending", False)]
    run.finish("deep")
    assert run.running == ["tidy"]
    run.finish("tidy")

    assert (run.status, run.orders("deeper")) == ("cancelled", [])


def test_a_message_starts_the_counts_of_every_graph_anew() -> None:
    spec = graph("deep", ways=[(START, "deep"), ("deep", "deep")], name="inner")
    run = Drive(chain(nested("n", spec)), limits=Limits(max_visits=1))
    run.send("m")
    run.finish("deep")

    assert run.running == ["deep"]
