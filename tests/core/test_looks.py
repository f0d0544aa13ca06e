"""Static interrupts: a person looks at the values before or after a node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core_drive import ADA, Drive, chain, edge, gate, graph, nested
from core_graphs import AFTER, BEFORE, ask, before, edit, fan, routed, rule, sending, sent

from abeyance.core import events
from abeyance.core.json import Json
from abeyance.core.spec import (
    END,
    START,
    AskHuman,
    Clips,
    FunctionNode,
    GoTo,
    HaltRun,
    Rule,
)
from abeyance.core.state import Limits

# before


def test_a_person_is_shown_the_values_before_the_node_runs() -> None:
    run = Drive(before(), values={"x": "{x}"})
    assert (run.status, run.started) == ("awaiting-input", [])
    entry = run.open(BEFORE)
    assert (entry.kind, entry.address) == ("static", "graph:g;node:a")
    assert entry.payload == {"values": {"x": "{x}"}, "version": 1, "node": "a"}
    assert entry.prompt == "Before 'a': let the run go on, or edit its values first?"
    assert entry.requested_capability is None

    run.answer(BEFORE, None)
    (order,) = run.orders("a")
    assert (order.own_answers, order.answers, order.values) == ({}, {}, {"x": "{x}"})
    run.finish("a")
    assert (run.running, run.facts("run.values_edited")) == (["b"], [])


def test_the_answer_may_be_edited_values() -> None:
    run = Drive(before(), values={"x": 1, "log": ["0"]})
    run.answer(BEFORE, edit(1, x=2, log=[]))

    assert run.orders("a")[0].values == {"x": 2, "log": []}
    (fact,) = run.facts("run.values_edited")
    assert (fact.address, fact.actor) == ("graph:g;node:a", "ada")
    assert fact.data == {"fields": ["log", "x"]}
    assert run.facts("interrupt.changed") == []


@pytest.mark.parametrize(
    ("before_", "given", "after", "fields"),
    [
        (1, {}, 1, []),
        (1, {"x": 1.0}, 1, []),
        (True, {"x": 1}, 1, ["x"]),
        ("not set", {"x": None}, None, ["x"]),
    ],
)
def test_an_edit_is_one_if_it_changes_something(
    before_: Json, given: dict[str, Json], after: Json, fields: list[str]
) -> None:
    run = Drive(before(), values={} if before_ == "not set" else {"x": before_})
    run.answer(BEFORE, edit(1, **given))

    assert [fact.data["fields"] for fact in run.facts("run.values_edited")] == [fields] * bool(
        fields
    )
    assert run.state.root.version == 1 + bool(fields)
    (order,) = run.orders("a")
    assert (order.values["x"], type(order.values["x"])) == (after, type(after))


def test_a_node_that_is_stopped_or_asks_is_not_looked_at_again() -> None:
    run = Drive(before())
    run.answer(BEFORE)
    run.pause(mode="now")
    run.stopped("a")
    run.resume()
    run.ask("a", "plan")
    run.answer("plan", 1)

    assert run.running == ["a"]
    assert [fact.data["name"] for fact in run.facts("interrupt.opened")] == [BEFORE, "plan"]


def test_a_gate_and_a_nested_graph_are_looked_at_like_any_node() -> None:
    spec = chain(
        gate("ask", prompt="{x}?"), nested("n", chain("deep", name="in")), before=["ask", "n"]
    )
    run = Drive(spec, values={"x": 1})
    run.answer(BEFORE, edit(1, x=2))
    assert run.open("ask").prompt == "2?"
    run.answer("ask")
    assert run.asking == [(BEFORE, "graph:g;node:n")]
    run.answer(BEFORE, edit(2, x=3))
    run.answer(BEFORE)
    assert run.open("ask").prompt == "3?"
    run.answer("ask")
    run.answer(BEFORE)

    assert run.orders("deep")[0].values == {"x": 3}


def test_a_look_asks_for_no_place_but_the_node_does() -> None:
    spec = graph("a", "b", ways=[(START, "b"), (START, "a")], before=["a"])
    run = Drive(spec, limits=Limits(max_parallel_visits=1))
    assert (run.running, run.waiting) == (["b"], ["a"])
    run.answer(BEFORE)
    assert (run.running, run.ready) == (["b"], ["a"])
    run.finish("b")

    assert run.running == ["a"]


# stale


def test_an_edit_of_values_that_have_changed_since_is_stale() -> None:
    spec = graph("a", "b", ways=[(START, "a"), (START, "b")], before=["a"])
    run = Drive(spec)
    run.finish("b", {"x": 1})
    id_ = run.open(BEFORE).id

    refusal = run.refused_response({id_: edit(1, x=2)})
    assert (refusal.code, refusal.details) == (
        "stale",
        {"interrupt_id": id_, "version": 2, "values": {"x": 1}},
    )
    assert "The edit is of version 1 of the values, which are at version 2" in refusal.message
    unedited = run.copy()
    unedited.answer(BEFORE, None)
    assert unedited.running == ["a"], "who edits nothing is never stale"
    run.answer(BEFORE, edit(2, x=2))
    assert run.values == {"x": 2}


def two_looks() -> Drive:
    return Drive(graph("a", "b", ways=[(START, "a"), (START, "b")], before=["a", "b"]))


def test_the_second_of_two_edits_of_the_same_version_is_stale() -> None:
    run = two_looks()
    one, two = run.state.ledger.open
    both = run.response({one: edit(1, x=1), two: edit(1, x=2)})
    refusal = run.refused(events.Responded, **both)
    assert (refusal.code, refusal.details["interrupt_id"]) == ("stale", two)
    assert "are at version 2" in refusal.message

    run.respond({one: edit(1, x=1)})
    assert run.refused_response({two: edit(1, x=2)}).code == "stale"
    run.respond({two: edit(2, x=2)})
    assert run.values == {"x": 2}


def test_an_edit_while_paused_holds_at_once_against_what_others_edit() -> None:
    run = two_looks()
    one, two = run.state.ledger.open
    run.pause()
    run.respond({one: edit(1, x=1)})
    assert (run.status, run.values) == ("paused", {"x": 1})
    assert run.refused_response({two: edit(1, x=2)}).code == "stale"

    run.edit(ADA, x=9)
    run.resume()
    assert run.orders("a")[0].values == {"x": 9}


# within a fan-out


def test_within_a_fan_out_the_values_of_the_item_are_shown_and_the_run_may_only_go_on() -> None:
    spec = sending("one", "two", "c", ways=[("one", "two"), (["two"], "c")], before=["two"])
    run = sent(spec, ["a"], values={"log": ["0"], "sum": 1})
    run.finish("one", {"log": ["a"], "x": "a", "sum": 1})
    question = run.open(BEFORE)
    values = {"log": ["0", "a"], "x": "a", "sum": 2}
    assert question.payload == {"values": values, "node": "two"}
    assert question.response_schema == {"type": "null"}
    run.answer(BEFORE)
    assert run.orders("two")[0].values == values


# the schema of an answer


def schema(run: Drive) -> dict[str, Any]:
    found = run.open(BEFORE).response_schema
    assert isinstance(found, dict)
    return found


def test_the_schema_of_an_answer_knows_the_fields_and_what_they_are() -> None:
    fields = {"x": {"$ref": "#/$defs/X"}}
    told = {"type": "object", "properties": fields, "$defs": {"X": {"type": "string"}}}
    shown = schema(Drive(replace(before(), input_schema=told)))

    values = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/X"}, "log": True},
        "additionalProperties": False,
    }
    assert shown == {
        "if": {"type": "object"},
        "then": {
            "type": "object",
            "properties": {"values": values, "version": {"type": "integer"}},
            "required": ["values", "version"],
            "additionalProperties": False,
        },
        "else": {"type": "null"},
        "$defs": {"X": {"type": "string"}},
    }
    assert "$defs" not in schema(Drive(before()))


# after


def test_a_person_looks_after_the_node_and_before_its_ways() -> None:
    spec = graph(
        "a",
        "b",
        "c",
        ways=[(START, "a"), edge("a", "b", {"x": 1}), edge("a", "c", "else")],
        after=["a"],
    )
    run = Drive(spec)
    run.finish("a", {"x": 1})
    assert (run.status, run.open(AFTER).payload["values"]) == ("awaiting-input", {"x": 1})
    assert run.open(AFTER).prompt.startswith("After 'a': let the run go on")
    run.answer(AFTER, edit(2, x=5))

    assert run.running == ["c"]


def test_rules_look_at_the_edited_values() -> None:
    one = rule("h", "a", HaltRun(reason="5"), x=5)
    run = Drive(chain("a", "b", after=["a"], rules=[one]))
    run.finish("a", {"x": 1})
    run.answer(AFTER, edit(2, x=5))

    assert (run.status, run.ending.reason) == ("halted", "5")


def test_a_route_holds_if_nothing_was_edited_and_is_asked_again_after_an_edit() -> None:
    run = Drive(routed())
    run.finish("a", {"x": 1}, routed=("b",))
    unedited = run.copy()
    unedited.answer(AFTER, None)
    assert (unedited.running, unedited.decided) == (["b"], [])

    run.answer(AFTER, edit(2, x=5))
    (order,) = run.decisions()
    assert (order.address, order.values) == ("graph:g;node:a", {"x": 5})
    run.finish("a", {"x": "ignored"}, routed=("c",))
    assert (run.running, run.values) == (["c"], {"x": 5})


def test_a_fan_out_of_the_code_holds_also_after_an_edit() -> None:
    run = Drive(fan(after=["s"]))
    run.finish("s", sends=[("one", 1)])
    run.answer(AFTER, edit(1, x=5))

    assert run.orders("one")[0].values == {"x": 5}


def test_rules_of_clips_are_asked_again_after_an_edit_and_keep_a_goto() -> None:
    rules = [
        Rule(id="k", condition=Clips(node="a", text="(x)"), actions=(HaltRun(reason="k"),)),
    ]
    run = Drive(routed(rules=rules))
    run.finish("a", goto="d", fired=("k",))
    run.answer(AFTER, edit(1, x=5))
    assert run.decided == ["a"]
    # The routes of the code may be newer than the run's graph, and do not count.
    run.finish("a", routed=("elsewhere",))

    assert run.running == ["d"]


def test_a_route_to_nowhere_fails_also_when_asked_again() -> None:
    run = Drive(routed())
    run.finish("a", routed=("b",))
    run.answer(AFTER, edit(1, x=5))
    run.finish("a", routed=("nowhere",))

    assert run.error[0] == "unknown_node"


def test_reevaluated_routes_have_no_effect_once_the_run_ends() -> None:
    one = rule("ask", "a", ask("ask", prompt="?"))
    run = Drive(routed(rules=[one]))
    run.finish("a", routed=("b",))
    run.answer(AFTER, edit(1, x=5))
    run.cancel()
    run.finish("a", routed=("c",))

    assert (run.status, run.asking, run.values) == ("cancelled", [], {"x": 5})


def test_a_node_that_fails_or_ends_the_run_is_not_looked_at() -> None:
    run = Drive(chain("a", after=["a"]))
    run.cancel()
    run.finish("a", {"x": 1})
    assert (run.status, run.values) == ("cancelled", {"x": 1})

    run = Drive(chain(FunctionNode(id="a", on_error=GoTo(node="b")), "b", after=["a"]))
    run.fail("a")
    assert run.running == ["b"]


def test_a_look_is_not_asked_again_when_the_way_out_is_sought_again() -> None:
    spec = graph(
        FunctionNode(id="a", on_error=AskHuman()),
        "b",
        ways=[(START, "a"), edge("a", "b", {"x": 1})],
        after=["a"],
    )
    run = Drive(spec)
    run.finish("a", {"log": ["done"]})
    run.answer(AFTER)
    assert run.open("error").reason["code"] == "no_way_out"
    run.edit(ADA, x=1)
    run.answer("error", {"action": "retry"})

    assert (run.started, run.values) == (["a", "b"], {"x": 1, "log": ["done"]})
    assert END not in run.running


def test_the_patch_of_an_asking_visit_is_not_merged_twice() -> None:
    run = Drive(chain("a", "b", after=["a"]))
    run.ask("a", "plan", patch={"log": ["half"]})
    run.answer("plan", "yes")
    run.finish("a", {"log": ["half", "done"]})
    assert run.asking == [(AFTER, "graph:g;node:a")]

    run.cancel(actor="ada")
    assert run.state.root.values["log"] == ["half", "done"]
