"""A run moves to another version of its graph, or the refusal names what has no place there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from core_drive import ADA, ROOT, Drive, asked, chain, gate, graph
from core_renamed import migrate, obstacles, renamed, rest, sub

from abeyance.core import events, policy
from abeyance.core.json import Json
from abeyance.core.spec import (
    START,
    FieldSpec,
    FunctionNode,
    GoTo,
    GraphSpec,
)
from abeyance.core.state import Limits

CORRECT = "correct the name in `map`"
DISTINGUISH = "give the node a name of its own"


def test_a_migration_to_the_same_graph_changes_nothing() -> None:
    run = Drive(chain(gate("a")))
    before = run.seen()
    migrate(run, chain(gate("a")))

    assert (run.seen(), run.last) == (before, ())


def test_a_patch_sets_fields_that_the_new_graph_has_and_asks_what_showed_them_anew() -> None:
    run = Drive(chain(gate("ask", prompt="Pay {x}?")), values={"x": 1})
    before = run.open("ask")
    spec = replace(run.state.spec, fields={**run.state.spec.fields, "new": FieldSpec()})
    assert obstacles(run, spec, patch={"nope": 1}) == [("patch", "nope")]
    migrate(run, spec, patch={"x": 2, "new": 3})

    assert run.values == {"x": 2, "new": 3}
    assert (run.open("ask").prompt, run.open("ask").id) == ("Pay 2?", before.id)
    assert run.facts("run.migrated")[0].data["fields"] == ["new", "x"]


def test_values_that_the_new_graph_has_no_field_for_are_obstacles_unless_it_takes_any() -> None:
    run = Drive(chain(gate("ask")), values={"x": 1})
    spec = chain(gate("ask"), fields={})

    assert obstacles(run, spec) == [("field", "x")]
    migrate(run, replace(spec, open_values=True))
    assert run.values == {"x": 1}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("text", "it takes integer or number, and not string"),
        (float("inf"), "it is not JSON: Out of range"),
    ],
)
def test_a_patch_that_does_not_fit_is_an_obstacle(value: Json, why: str) -> None:
    run = Drive(chain(gate("ask")))
    spec = replace(run.state.spec, fields={"x": FieldSpec(kinds=("integer", "number"))})

    assert obstacles(run, spec, patch={"x": value}) == [("patch", "x")]
    refusal = run.refused(events.Migrated, principal=ROOT, spec=spec, patch={"x": value})
    assert f"the patch 'x': {why}" in refusal.message


def test_a_patch_that_a_visit_could_not_be_given_is_refused() -> None:
    run = Drive(chain(gate("ask")), limits=Limits(visit_bytes=1_000))
    refusal = run.refused(
        events.Migrated, principal=ROOT, spec=run.state.spec, patch={"x": "y" * 2_000}
    )

    assert refusal.code == "payload_too_large"


CASES: dict[str, tuple[GraphSpec, GraphSpec, list[tuple[str, str]]]] = {
    "a visit": (chain(gate("ask")), chain("other"), [("visit", "ask")]),
    "another kind": (chain(gate("ask")), chain("ask"), [("visit", "ask")]),
    "an agent": (chain(sub("in")), chain(sub("in", agent=True)), [("visit", "sub")]),
    "finally": (
        chain(gate("g"), "a"),
        graph(gate("g"), ways=[(START, "g")], finally_=["a"]),
        [],
    ),
    "a nested visit": (chain(sub("in")), chain(sub("other")), [("visit", "sub.in")]),
    "all around": (chain(sub("in")), chain("other"), [("visit", "sub")]),
    "goto": (
        chain(gate("ask", timeout=9, on_timeout=GoTo(node="b")), "b"),
        chain(gate("ask"), "c"),
        [("goto", "b")],
    ),
    "the graph": (chain(gate("ask")), chain(gate("ask"), name="h"), [("graph", "g")]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_part_of_the_run_without_a_place_is_an_obstacle(case: str) -> None:
    old, new, found = CASES[case]
    run = Drive(old)
    if found:
        assert obstacles(run, new) == found
    else:
        migrate(run, new)


def test_a_node_that_runs_at_the_end_only_in_one_graph_is_an_obstacle() -> None:
    run = Drive(graph("a", "b", ways=[(START, "a"), (START, "b")]))

    assert obstacles(run, graph("b", ways=[(START, "b")], finally_=["a"])) == [("visit", "a")]


def test_a_refused_migration_lists_all_obstacles_with_remedies() -> None:
    run = Drive(graph("a", gate("ask"), ways=[(START, "a"), (START, "ask")]))
    rest(run)
    refusal = run.refused(events.Migrated, principal=ROOT, spec=chain("b"))

    assert [each["name"] for each in refusal.details["obstacles"]] == ["a", "ask"]
    first = refusal.details["obstacles"][0]
    assert first["address"] == "graph:g;node:a"
    assert first["remedy"].startswith("give its new name in `map`, or keep 'a' in the graph")
    assert "no node 'ask'" in refusal.message


@pytest.mark.parametrize(
    ("new", "renames", "name", "why", "remedy"),
    [
        (chain("a", "b"), {"x": "b"}, "x", "the run's graph has no such node", CORRECT),
        (chain("a", "b"), {"a": "z"}, "a", "the other graph has no node 'z'", CORRECT),
        (
            chain("b", "c"),
            {"a": "b"},
            "a",
            "the run's graph has, or had, another node 'b'",
            DISTINGUISH,
        ),
        (chain("a", "c"), {"a": "c"}, "a", "the other graph has a node 'a' too", DISTINGUISH),
        (
            chain("c", "d"),
            {"a": "c", "b": "c"},
            "a",
            "the run's graph has, or had, another node 'c'",
            DISTINGUISH,
        ),
    ],
)
def test_a_rename_that_cannot_be_is_an_obstacle(
    new: GraphSpec, renames: Mapping[str, str], name: str, why: str, remedy: str
) -> None:
    run = Drive(chain("a", "b"))
    rest(run)
    refusal = run.refused(events.Migrated, principal=ROOT, spec=new, renames=renames)

    first = refusal.details["obstacles"][0]
    assert first == {"what": "rename", "name": name, "why": why, "remedy": remedy}


def test_the_name_of_a_node_that_was_visited_is_not_given_to_another() -> None:
    run = Drive(chain("old", "a"))
    run.finish("old")
    migrate(run, chain("older", "a"), renames={"old": "older"})
    run = Drive(chain(sub(sub("old", "a"))))
    run.finish("old")
    migrate(run, chain(sub(sub("a"))))
    migrate(run, chain(sub(sub("a", "b"))))

    renames = {"sub.sub.a": "sub.sub.old"}
    found = obstacles(run, chain(sub(sub("old"))), renames=renames)
    assert found == [("rename", "sub.sub.a")]


def test_the_capabilities_of_both_graphs_guard_the_run_from_then_on() -> None:
    run = Drive(chain("a", gate("ask", capability="approve")))
    run.finish("a")
    before = policy.guarded_by(run.state)
    migrate(run, chain("a", gate("ask", capability="audit")))
    assert (before, policy.guarded_by(run.state)) == (("approve",), ("approve", "audit"))
    migrate(run, chain("a", gate("ask", capability="approve")))

    assert policy.guarded_by(run.state) == ("approve", "audit")


def test_a_migration_takes_every_capability_of_the_run_and_an_open_run() -> None:
    run = Drive(chain(gate("ask", capability="approve")))
    spec = chain(gate("ask", capability="approve"), "b")
    refusal = run.refused(events.Migrated, principal=ADA, spec=spec)
    assert refusal.message.startswith("You may not migrate the run: missing ")
    assert refusal.details["capabilities"] == ["approve"]
    run.cancel()

    assert run.refused(events.Migrated, principal=ROOT, spec=spec).code == "not_running"


def test_a_repeated_call_migrates_once_also_if_the_worker_has_another_graph_by_then() -> None:
    run = Drive(chain(gate("ask")))
    migrate(run, chain(gate("ask"), "b"), key="k")
    version = run.state.spec.version
    migrate(run, chain(gate("ask"), "c"), key="k")

    assert run.state.spec.version == version


def test_an_obstacle_is_listed_once_and_process_questions_are_renamed() -> None:
    run = Drive(chain(gate("ask", capability="approve"), "pay", FunctionNode(id="ship")))
    run.answer("ask", principal=ROOT)
    run.finish("pay")
    run.ask("ship", asked("q", "first"), composite=True)
    found = obstacles(run, chain(gate("other"), "pay", "ship"))
    assert found == [("approval", "ask")]
    spec, names = renamed(run.state.spec, "_x")
    migrate(run, spec, renames=names)

    assert run.asking == [("q", "graph:g;node:ship_x;process:first")]
    run.answer("q")
    assert run.running == ["ship_x"]
