"""A person decides about a visit that has failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core_drive import ADA, Drive, chain, edge, graph, nested
from core_graphs import ask, rule

from abeyance.core import events
from abeyance.core.bounds import Attempts
from abeyance.core.json import Json
from abeyance.core.outcome import Failed, Finished, Send
from abeyance.core.spec import (
    START,
    AskHuman,
    FunctionNode,
    GoTo,
    GraphSpec,
    Route,
)
from abeyance.core.state import Limits

A = "graph:g;node:a"
WATCHED = FunctionNode(id="a", on_error=AskHuman())


def failed(spec: GraphSpec | None = None, **kwargs: Any) -> Drive:
    """Return a run whose node `a` has failed, so that it asks a person."""
    run = Drive(spec or chain(WATCHED, "b"), **kwargs)
    run.fail("a", "no {x} left")
    return run


def decide(run: Drive, action: str, **patch: Json) -> None:
    run.answer("error", {"action": action, **({"patch": patch} if patch else {})})


def test_the_person_sees_what_failed_and_where() -> None:
    run = failed(values={"x": 1})
    assert run.status == "awaiting-input"
    entry = run.open("error")
    assert (entry.kind, entry.address) == ("error", A)
    assert entry.prompt == (
        "'a' failed: no {x} left (node_failed). Try it again, skip it, or let it fail?"
    )
    assert entry.reason == {"code": "node_failed", "message": "no {x} left", "address": A}


@pytest.mark.parametrize("journal", [{"step": 2}, None])
def test_a_retry_is_the_same_visit_with_its_latest_journal_and_its_answers(journal: Json) -> None:
    run = Drive(chain(WATCHED, "b"))
    run.ask("a", "plan", journal={"step": 1}, user_state=7)
    run.answer("plan", "yes")
    run.end(Failed, visit=A, code="node_failed", message="it broke", journal=journal)
    decide(run, "retry")

    order = run.orders("a")[-1]
    assert (order.address, order.activation, order.journal) == (A, 3, journal or {"step": 1})
    assert (order.own_answers, order.user_state, order.interrupted) == ({"plan": "yes"}, 7, True)
    assert order.answers == {}
    run.finish("a", {"x": 1})
    assert run.running == ["b"]


def test_a_second_failure_of_the_same_visit_is_another_question() -> None:
    run = failed()
    first = run.open("error").id
    decide(run, "retry")
    run.fail("a", "again")

    assert run.open("error").id != first
    assert run.open("error").prompt.startswith("'a' failed: again")
    late = run.response({first: {"action": "fail"}})
    assert run.refused(events.Responded, **late).code == "already_answered"
    decide(run, "retry")
    run.finish("a")
    assert run.running == ["b"]


def test_a_skip_goes_on_with_a_patch_in_place_of_what_the_node_would_have_done() -> None:
    run = failed()
    decide(run, "skip", x="instead")

    assert run.orders("b")[0].values == {"x": "instead"}
    assert run.orders("b")[0].answers == {}
    assert len(run.orders("a")) == 1


def test_answering_fail_ends_the_run_with_the_failure() -> None:
    run = failed()
    decide(run, "fail")

    assert run.error == ("node_failed", "no {x} left", A)


def test_a_skipped_node_s_routes_are_asked_once_its_patch_fits_and_merge_it_once() -> None:
    routes = [Route(source="a", name="r", targets=("b", "c"))]
    run = failed(graph(WATCHED, "b", "c", ways=[(START, "a")], routes=routes))
    decide(run, "skip", log="no list")
    assert (run.open("error").reason["code"], run.decided) == ("invalid_patch", [])
    decide(run, "skip", log=["skipped"])
    assert run.decisions()[0].values == {"log": ["skipped"]}
    run.pause(mode="now")
    run.stopped("a")
    run.read_again()
    run.resume()
    run.finish("a", {"x": "ignored"}, routed=("c",))

    assert (run.running, run.values) == (["c"], {"log": ["skipped"]})


BESIDE = graph(
    replace(WATCHED, to=("b",)),
    *("b", "other"),
    ways=[(START, "a"), (START, "other"), ("a", "b")],
    fields={"x": "last", "sum": "add"},
)


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        ({"patch": {"sum": 1e308}}, "invalid_patch"),
        ({"goto": "nowhere"}, "unknown_node"),
        ({"sends": (Send(node="b", item=float("inf")),)}, "invalid_patch"),
    ],
)
def test_a_refused_outcome_is_retried_with_its_journal_and_current_values(
    refused: dict[str, Any], code: str
) -> None:
    run = Drive(BESIDE)
    run.ask("a", "plan", journal={"one": 1})
    run.answer("plan", "yes")
    run.retry("a", journal={"one": 1})
    run.tick(1)
    run.finish("other", {"sum": 1e308})
    run.end(Finished, visit=A, journal={"one": 1, "two": 2}, **refused)
    assert (run.open("error").reason["code"], run.values) == (code, {"sum": 1e308})
    decide(run, "retry")

    order = run.orders("a")[-1]
    assert (order.journal, order.own_answers) == ({"one": 1, "two": 2}, {"plan": "yes"})
    assert (order.values, order.attempts) == ({"sum": 1e308}, Attempts())
    run.finish("a", {"sum": -1e308})
    assert (run.values, run.running) == ({"sum": 0.0}, ["b"])


@pytest.mark.parametrize("refused", ["its patch", "its question"])
def test_a_refused_outcome_keeps_the_patch_from_before_the_question(refused: str) -> None:
    run = Drive(BESIDE)
    if refused == "its patch":
        run.ask("a", "plan", journal={"one": 1}, patch={"x": "half"})
        run.answer("plan")
        run.finish("a", {"nope": 1})
    else:
        run.ask("a", "plan", "plan", journal={"one": 1}, patch={"x": "half"})
    decide(run, "retry")
    assert run.orders("a")[-1].journal == {"one": 1}
    run.fail("a")
    decide(run, "fail")

    assert run.values == {"x": "half"}


# when the node's own work is done


def conditional(**kwargs: Any) -> GraphSpec:
    return graph(WATCHED, "b", ways=[(START, "a"), edge("a", "b", {"x": 1})], **kwargs)


def test_a_node_that_found_no_way_out_is_not_run_again() -> None:
    run = Drive(conditional())
    run.finish("a", {"log": ["done"]})
    assert run.open("error").reason["code"] == "no_way_out"
    decide(run, "retry")
    assert (run.open("error").reason["code"], len(run.orders("a"))) == ("no_way_out", 1)

    run.edit(ADA, x=1)
    decide(run, "retry")
    assert run.running == ["b"]
    assert run.values == {"x": 1, "log": ["done"]}
    assert run.started == ["a", "b"]


def test_a_skip_finds_the_way_out_by_its_patch() -> None:
    run = Drive(conditional())
    run.finish("a", {"log": ["done"]})
    decide(run, "skip", x=1)

    assert (run.running, run.values) == (["b"], {"x": 1, "log": ["done"]})


def test_routes_of_a_nested_graph_that_failed_are_asked_again_and_it_is_not_walked_again() -> None:
    node = nested("n", chain("deep", name="inner"), on_error=AskHuman())
    spec = graph(
        node, "b", ways=[(START, "n")], routes=[Route(source="n", name="r", targets=("b",))]
    )
    run = Drive(spec)
    run.finish("deep", {"log": ["done"]})
    run.fail("n", "the route broke")
    decide(run, "retry")
    assert (run.started, run.decided) == (["deep"], ["n", "n"])
    run.finish("n", routed=("b",))

    assert (run.running, run.values) == (["b"], {"log": ["done"]})


def test_a_rule_is_held_again_against_what_was_edited_and_asks_under_another_id() -> None:
    asks = ask("look", prompt="?", answer_to="log")
    one = rule("look", "a", asks)
    run = Drive(conditional(rules=[one]))
    run.finish("a")
    first = run.open("look").id
    run.answer("look", ["one"])
    assert run.open("error").reason["code"] == "no_way_out"
    decide(run, "retry")
    assert run.open("look").id != first
    run.edit(ADA, x=1)
    run.answer("look", ["two"])

    assert (run.running, run.values) == (["b"], {"x": 1, "log": ["one", "two"]})


def test_an_answer_to_a_rule_that_does_not_fit_is_asked_for_again() -> None:
    asks = ask("look", prompt="?", answer_to="log")
    one = rule("look", "a", asks)
    run = Drive(chain(WATCHED, "b", rules=[one]))
    run.finish("a")
    run.answer("look", "no list")
    assert run.open("error").reason["code"] == "invalid_patch"
    decide(run, "retry")
    run.answer("look", ["a list"])

    assert (run.running, run.values) == (["b"], {"log": ["a list"]})


def test_a_rule_that_does_not_fire_again_merges_no_old_answer() -> None:
    asks = ask("look", prompt="?", answer_to="log")
    other = ask("other", prompt="?")
    rules = [
        rule("look", "a", asks, x=0),
        rule("other", "a", other),
    ]
    run = Drive(conditional(rules=rules), values={"x": 0})
    run.finish("a")
    run.answer("look", ["one"])
    run.answer("other")
    run.edit(ADA, x=1)
    decide(run, "retry")
    run.answer("other")

    assert (run.running, run.values) == (["b"], {"x": 1, "log": ["one"]})


# nested graphs, loops, deadlines, controls


def test_a_person_inside_is_asked_before_the_node_outside_fails() -> None:
    inner = graph(WATCHED, ways=[(START, "a")], name="inner")
    run = Drive(chain(nested("n", inner, on_error=GoTo(node="b")), "b"))
    run.fail("a")
    assert [parent.address for parent in run.open("error").parents] == ["graph:g;node:n"]
    decide(run, "fail")

    assert run.running == ["b"]


def test_a_decision_starts_the_count_of_visits_anew() -> None:
    node = nested("n", chain("deep", name="inner"), on_error=AskHuman())
    run = Drive(chain(node), limits=Limits(max_visits=1))
    for _ in range(4):
        run.fail("deep")
        decide(run, "retry")

    assert run.running == ["deep"]


def test_the_deadline_of_a_decision_may_be_set_by_a_person() -> None:
    run = failed()
    run.move(ADA, 3600, on_timeout=GoTo(node="b"))
    run.tick(3600)

    assert (run.running, run.settled("error").status) == (["b"], "expired")


def test_a_failure_while_the_run_ends_asks_nobody() -> None:
    run = Drive(chain(WATCHED))
    run.cancel()
    run.fail("a")

    assert (run.status, run.asking) == ("cancelled", [])
    assert [failure.message for failure in run.ending.secondary_errors] == ["it broke"]


def test_the_schema_of_a_decision_knows_the_fields() -> None:
    fields = {"x": {"$ref": "#/$defs/X"}}
    told = {"properties": fields, "$defs": {"X": {"type": "string"}}}
    run = failed(replace(chain(WATCHED), input_schema=told))

    patch = {
        "type": "object",
        "properties": {**fields, "log": True},
        "additionalProperties": False,
    }
    assert run.open("error").response_schema == {
        "type": "object",
        "properties": {"action": {"enum": ["retry", "skip", "fail"]}, "patch": patch},
        "required": ["action"],
        "additionalProperties": False,
        "if": {"properties": {"action": {"enum": ["retry", "fail"]}}},
        "then": {"properties": {"patch": False}},
        "$defs": {"X": {"type": "string"}},
    }
    assert "$defs" not in failed().open("error").response_schema
