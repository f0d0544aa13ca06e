"""A run moves to another version of its graph, or says what has no place there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from core_agents import CLERK, gated, reviewing, said, turn
from core_drive import ADA, Drive, asked, chain, gate, graph, nested, reader, restored
from core_fans import fan, sent
from core_renamed import renamed

from abeyance.core import authority, events
from abeyance.core.json import Json
from abeyance.core.outcome import Blocked, Finished, Send
from abeyance.core.policy import Principal
from abeyance.core.snapshots import migrated
from abeyance.core.spec import (
    END,
    START,
    Ask,
    FieldSpec,
    FunctionNode,
    GoTo,
    GraphSpec,
    InterruptSpec,
    Matches,
    Parallel,
    Rule,
    SubgraphNode,
)
from abeyance.core.state import Limits
from abeyance.core.visit import Unroutable
from abeyance.errors import Refusal

ROOT = Principal(subject="root", capabilities=("*",))


def migrate(run: Drive, spec: GraphSpec, **fields: Any) -> None:
    given: dict[str, Any] = {"principal": ROOT, **fields}
    run.feed(events.Migrated, spec=spec, **given)
    assert restored(run.state) == run.state


def obstacles(run: Drive, spec: GraphSpec, **fields: Any) -> list[tuple[str, str]]:
    given: dict[str, Any] = {"principal": ROOT, **fields}
    refusal = run.refused(events.Migrated, spec=spec, **given)
    assert refusal.code == "cannot_migrate"
    found = refusal.details["obstacles"]
    assert all(each["why"] and each["remedy"] for each in found)
    return [(each["what"], each["name"]) for each in found]


def test_a_question_that_waits_keeps_what_people_have_seen_and_its_answer_takes_the_new_way() -> (
    None
):
    run = Drive(chain(gate("ask", prompt="Old?", capability="approve"), "pay"))
    before = run.open("ask")
    spec = chain(gate("confirm", prompt="New?", capability="approve"), "payout")
    migrate(run, spec, renames={"ask": "confirm", "pay": "payout"})

    after = run.open("confirm")
    assert after == replace(
        before, name="confirm", key="confirm", address=after.address, visit=after.visit
    )
    assert (after.prompt, after.digest, after.address) == (
        "Old?",
        before.digest,
        "graph:g;node:confirm",
    )
    (fact,) = run.facts("run.migrated")
    assert (fact.actor, fact.data["renames"]) == ("root", {"ask": "confirm", "pay": "payout"})
    assert (fact.data["from_version"], fact.data["to_version"]) != (spec.version, spec.version)
    assert fact.data["to_version"] == spec.version
    run.answer("confirm", "yes", principal=ROOT, digests={after.id: before.digest})
    assert run.started == ["payout"]
    assert dict(run.orders("payout")[0].answers) == {"confirm": "yes"}


def test_a_migration_to_the_same_graph_changes_nothing() -> None:
    run = Drive(chain("a"))
    before = run.state
    migrate(run, chain("a"))

    assert (run.state, run.last) == (before, ())


def test_code_that_runs_goes_on_and_the_new_graph_routes_its_result() -> None:
    run = Drive(chain("a", "b"))
    migrate(run, chain("a", "c"))
    assert (run.last[-1], run.stops) == (run.facts("run.migrated")[0], [])
    run.finish("a")

    assert run.started == ["a", "c"]


def test_code_that_runs_under_its_old_name_is_known_by_it() -> None:
    old = chain(FunctionNode(id="a", to=("b",)), reader("b"))
    run = Drive(old)
    spec, names = renamed(old, "_x")
    migrate(run, spec, renames=names)
    assert run.running == ["a_x"]
    run.send("m1")
    run.feed(events.MessagesTaken, visit="graph:g;node:a", upto=1)
    run.feed(events.VisitBlocked, visit="graph:g;node:a", code="code_missing", message="deploy")
    run.feed(events.WorkerStarted)
    assert [stop[0] for stop in run.stops] == ["graph:g;node:a"]
    run.end(Finished, visit="graph:g;node:a", goto="b")

    assert run.started == ["a", "b_x"]
    assert run.state.counters.messages_delivered == 1


def test_items_that_old_code_sends_go_to_the_new_nodes() -> None:
    old = graph(FunctionNode(id="a", to=("b",)), "b", ways=[(START, "a"), ("b", END)])
    run = Drive(old)
    spec, names = renamed(old, "_x")
    migrate(run, spec, renames=names)
    run.end(Finished, visit="graph:g;node:a", sends=(Send(node="b", item=1),))

    assert run.started == ["a", "b_x"]


def test_what_old_code_chose_and_the_new_graph_lacks_blocks_the_visit_and_fails_nothing() -> None:
    run = Drive(graph(FunctionNode(id="a", to=("b",)), "b", ways=[(START, "a"), ("b", END)]))
    migrate(run, chain("a"))
    run.finish("a", goto="b")

    assert isinstance(run.state.visits["graph:g;node:a"].state, Unroutable)
    migrate(run, graph(FunctionNode(id="a", to=("b",)), "b", ways=[(START, "a"), ("b", END)]))
    assert (run.started, run.facts("node.unblocked") != []) == (["a", "b"], True)


def test_a_visit_that_chose_a_newer_node_waits_on_in_a_graph_that_lacks_it_too() -> None:
    run = Drive(graph("a", "z", ways=[(START, "a"), (START, "z")]))
    run.end(Finished, visit="graph:g;node:a", goto="new", unpinned=("new",))
    migrate(run, graph("a", "z", ways=[(START, "a"), (START, "z"), ("a", "z")]))

    assert isinstance(run.state.visits["graph:g;node:a"].state, Unroutable)


def test_answers_to_rules_are_not_merged_twice_when_a_visit_goes_on() -> None:
    question = InterruptSpec(name="r", prompt="?")
    rule = Rule(
        id="r", condition=Matches(node="a"), actions=(Ask(question=question, answer_to="log"),)
    )
    run = Drive(chain("a", rules=[rule]))
    run.end(Finished, visit="graph:g;node:a", goto="new", unpinned=("new",))
    run.answer("r", ["x"])
    assert run.values == {"log": ["x"]}
    spec = graph(
        FunctionNode(id="a", to=("new",)),
        "new",
        ways=[(START, "a"), ("a", END), ("new", END)],
        rules=[rule],
    )
    migrate(run, spec)

    assert (run.values, run.started) == ({"log": ["x"]}, ["a", "new"])


def test_blocked_visits_are_tried_again_at_once_under_their_new_names() -> None:
    run = Drive(chain("pay"))
    run.feed(
        events.VisitBlocked, visit="graph:g;node:pay", code="code_missing", message="deploy it"
    )
    migrate(run, chain("payout"), renames={"pay": "payout"})
    assert run.stops == [("graph:g;node:pay", "worker-started", False)]
    run.end(
        Blocked,
        visit="graph:g;node:pay",
        code="code_missing",
        message="deploy it",
        journal={"s": 1},
    )

    order = run.orders("payout")[0]
    assert (order.address, order.journal) == ("graph:g;node:payout", {"s": 1})


def test_a_patch_sets_fields_that_the_new_graph_has_and_asks_what_showed_them_anew() -> None:
    run = Drive(chain(gate("ask", prompt="Pay {x}?")), values={"x": 1})
    before = run.open("ask")
    spec = replace(run.state.spec, fields={**run.state.spec.fields, "new": FieldSpec()})
    assert obstacles(run, spec, patch={"nope": 1}) == [("field", "nope")]
    migrate(run, spec, patch={"x": 2, "new": 3})

    assert run.values == {"x": 2, "new": 3}
    assert (run.open("ask").prompt, run.open("ask").id) == ("Pay 2?", before.id)
    assert run.facts("run.migrated")[0].data["fields"] == ["new", "x"]


def test_a_patch_alone_is_an_edit() -> None:
    run = Drive(chain(gate("ask")))
    migrate(run, run.state.spec, patch={"x": 2})

    assert run.values == {"x": 2}


def test_values_that_the_new_graph_has_no_field_for_are_obstacles_unless_it_takes_any() -> None:
    run = Drive(chain(gate("ask")), values={"x": 1})
    spec = chain(gate("ask"), fields={})

    assert obstacles(run, spec) == [("field", "x")]
    migrate(run, replace(spec, open_values=True))
    assert run.values == {"x": 1}


@pytest.mark.parametrize("value", ["text", float("inf")])
def test_a_patch_that_does_not_fit_is_an_obstacle(value: Json) -> None:
    run = Drive(chain(gate("ask")))
    spec = replace(run.state.spec, fields={"x": FieldSpec(kinds=("integer", "number"))})

    assert obstacles(run, spec, patch={"x": value}) == [("patch", "g")]


def test_a_patch_that_a_visit_could_not_be_given_is_refused() -> None:
    run = Drive(chain(gate("ask")), limits=Limits(visit_bytes=1_000))
    refusal = run.refused(
        events.Migrated, principal=ROOT, spec=run.state.spec, patch={"x": "y" * 2_000}
    )

    assert refusal.code == "payload_too_large"


def sub(*nodes: Any, id_: str = "sub", name: str = "inner", **kwargs: Any) -> SubgraphNode:
    return nested(id_, chain(*nodes, name=name), **kwargs)


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
def test_what_has_no_place_is_an_obstacle(case: str) -> None:
    old, new, found = CASES[case]
    run = Drive(old)
    if found:
        assert obstacles(run, new) == found
    else:
        migrate(run, new)


def test_a_node_that_runs_at_the_end_only_in_one_graph_is_an_obstacle() -> None:
    run = Drive(graph("a", "b", ways=[(START, "a"), (START, "b")]))

    assert obstacles(run, graph("b", ways=[(START, "b")], finally_=["a"])) == [("visit", "a")]


def test_all_obstacles_are_told_at_once_each_with_what_to_do() -> None:
    run = Drive(graph("a", gate("ask"), ways=[(START, "a"), (START, "ask")]))
    refusal = run.refused(events.Migrated, principal=ROOT, spec=chain("b"))

    assert [each["name"] for each in refusal.details["obstacles"]] == ["a", "ask"]
    first = refusal.details["obstacles"][0]
    assert first["address"] == "graph:g;node:a"
    assert "graph.retired('a')" in first["remedy"]
    assert "no node 'ask'" in refusal.message


@pytest.mark.parametrize(
    ("new", "renames"),
    [
        (chain("a", "b"), {"x": "b"}),
        (chain("a", "b"), {"a": "z"}),
        (chain("b", "c"), {"a": "b"}),
        (chain("a", "c"), {"a": "c"}),
        (chain("c", "d"), {"a": "c", "b": "c"}),
    ],
)
def test_a_rename_that_cannot_be_is_an_obstacle(new: GraphSpec, renames: Mapping[str, str]) -> None:
    run = Drive(chain("a", "b"))

    assert obstacles(run, new, renames=renames)[0][0] == "rename"


def test_the_name_of_a_node_that_was_visited_is_not_given_to_another() -> None:
    run = Drive(chain("old", "a"))
    run.finish("old")
    migrate(run, chain("older", "a"), renames={"old": "older"})
    run = Drive(chain("old", "a"))
    run.finish("old")
    run.state = replace(run.state, scopes={"graph:g": replace(run.state.root, trail=())})
    migrate(run, chain("a"))

    assert obstacles(run, chain("old"), renames={"a": "old"}) == [("rename", "a")]


def test_a_finished_visit_that_can_be_gone_back_to_needs_its_place() -> None:
    run = Drive(chain("a", "b"))
    run.finish("a")
    assert obstacles(run, chain("b")) == [("finished visit", "a")]
    migrate(run, chain("first", "b"), renames={"a": "first"})
    run.ask("b", "q")
    run.direct("rerun")

    assert run.orders("first")[-1].address == "graph:g;node:first:2"


def test_tokens_at_joins_and_fan_outs_go_along() -> None:
    old = graph("a", "b", "c", ways=[(START, "a"), (START, "b"), (("a", "b"), "c")])
    run = Drive(old)
    run.finish("a")
    lost = graph("a", "b", "c", ways=[(START, "a"), (START, "b"), ("a", "c"), ("b", "c")])
    assert obstacles(run, lost) == [("join", "a+b>c")]
    spec, names = renamed(old, "_x")
    migrate(run, spec, renames=names)
    run.end(Finished, visit="graph:g;node:b")

    assert run.running == ["c_x"]


def test_items_under_way_are_gathered_in_the_new_graph() -> None:
    run = sent(fan(), [1, 2])
    spec, names = renamed(run.state.spec, "_x")
    running = [visit.address for visit in run.state.visits.values()]
    run.end(Finished, visit=running[0])
    migrate(run, spec, renames=names)
    run.end(Finished, visit=running[1])

    assert len(run.running) == 1
    assert run.orders(run.running[0])[0].results is not None


def test_messages_for_nodes_go_to_their_new_names() -> None:
    old = chain("a", sub(reader("in"), id_="sub"))
    run = Drive(old)
    for number, target in enumerate(
        ["in", "sub", "graph:g;node:sub;graph:inner;node:in", "graph:g", None]
    ):
        run.send(f"m{number}", target=target)
    lost = chain("a", sub("else", id_="sub"))
    assert obstacles(run, lost) == [("message", "m0"), ("message", "m2")]
    spec, names = renamed(old, "_x")
    migrate(run, spec, renames=names)

    assert [message.target for message in run.state.mailbox.queue] == [
        "in_x",
        "sub_x",
        "graph:g;node:sub_x;graph:inner;node:in_x",
        "graph:g",
        None,
    ]
    run.send("m0", target="in")
    assert len(run.state.mailbox.queue) == 5


def test_a_graph_inside_may_have_another_name() -> None:
    run = Drive(chain(sub(gate("ask"))))
    migrate(run, chain(sub(gate("ask"), name="renamed")))

    assert run.asking == [("ask", "graph:g;node:sub;graph:renamed;node:ask")]
    run.answer("ask")
    assert run.status == "completed"


def test_an_agent_at_work_goes_along_with_its_calls_and_its_memory() -> None:
    run = reviewing()
    turn(run, gated("c1", timeout=60.0, on_timeout=GoTo(node=END)), transcript="t1")
    spec = run.state.spec
    node = next(n for n in spec.nodes.values() if isinstance(n, SubgraphNode))
    others = {name: each for name, each in spec.nodes.items() if name != node.id}
    moved = replace(
        renamed(replace(spec, nodes={**others}), "")[0],
        nodes={**others, "desk": replace(node, id="desk")},
        edges=tuple(
            replace(
                each,
                sources=tuple("desk" if s == node.id else s for s in each.sources),
                target="desk" if each.target == node.id else each.target,
            )
            for each in spec.edges
        ),
    )
    migrate(run, moved, renames={node.id: "desk"})
    assert [address for _, address in run.asking] == [
        CLERK.replace(f";node:{node.id}", ";node:desk") + ";tool:pay:c1"
    ]
    said(run, "c1", {"approved": True})

    assert run.running == ["pay"]


def test_the_capabilities_of_both_graphs_guard_the_run_from_then_on() -> None:
    run = Drive(chain("a", gate("ask", capability="approve")))
    run.finish("a")
    before = authority.guarded_by(run.state)
    migrate(run, chain("a", gate("ask", capability="audit")))
    assert (before, authority.guarded_by(run.state)) == (("approve",), ("approve", "audit"))
    migrate(run, chain("a", gate("ask", capability="approve")))

    assert authority.guarded_by(run.state) == ("approve", "audit")


def test_a_migration_takes_every_capability_of_the_run_and_an_open_run() -> None:
    run = Drive(chain(gate("ask", capability="approve")))
    spec = chain(gate("ask", capability="approve"), "b")
    refusal = run.refused(events.Migrated, principal=ADA, spec=spec)
    assert refusal.details["capabilities"] == ["approve"]
    run.cancel()

    assert run.refused(events.Migrated, principal=ROOT, spec=spec).code == "not_running"


def test_a_repeated_call_migrates_once_also_if_the_worker_has_another_graph_by_then() -> None:
    run = Drive(chain(gate("ask")))
    migrate(run, chain(gate("ask"), "b"), key="k")
    version = run.state.spec.version
    migrate(run, chain(gate("ask"), "c"), key="k")

    assert run.state.spec.version == version


def rule_asking(name: str, node: str | None = "a") -> Rule:
    question = InterruptSpec(name=name, prompt="?", requested_capability="approve")
    return Rule(id=name, condition=Matches(node=node), actions=(Ask(question=question),))


def test_the_question_of_a_rule_needs_the_rule() -> None:
    run = Drive(chain("a", "b", rules=[rule_asking("one")]))
    run.finish("a")
    assert obstacles(run, chain("a", "b")) == [("question", "one")]
    assert obstacles(run, chain("a", "b", rules=[rule_asking("two")])) == [("question", "one")]
    spec, names = renamed(run.state.spec, "_x")
    migrate(run, spec, renames=names)
    run.answer("one", principal=ROOT)

    assert run.started == ["a", "b_x"]


def test_where_finished_visits_and_pauses_go_later_has_new_names() -> None:
    actions = (Parallel(nodes=("b", END)), *rule_asking("one").actions)
    rules = [Rule(id="one", condition=Matches(node="a"), actions=actions)]
    old = graph("a", "b", ways=[(START, "a"), ("b", END)], rules=rules)
    run = Drive(old)
    run.feed(events.Paused, actor="root", capabilities=("*",), timeout=9, on_timeout=GoTo(node="b"))
    run.finish("a")
    spec, names = renamed(old, "_x")
    migrate(run, spec, renames=names)
    assert run.state.pause is not None
    assert run.state.pause.on_timeout == GoTo(node="b_x")
    run.feed(events.Resumed, actor="ada")
    run.answer("one", principal=ROOT)

    assert run.started == ["a", "b_x"]


def test_a_goto_of_a_rule_goes_to_the_new_name() -> None:
    actions = (GoTo(node="b"), *rule_asking("one").actions)
    old = graph(
        "a",
        "b",
        ways=[(START, "a"), ("b", END)],
        rules=[Rule(id="one", condition=Matches(node="a"), actions=actions)],
    )
    run = Drive(old)
    run.finish("a")
    spec, names = renamed(old, "_x")
    migrate(run, spec, renames=names)
    run.answer("one", principal=ROOT)

    assert run.started == ["a", "b_x"]


def test_an_approval_goes_along_and_its_gate_needs_a_place() -> None:
    old = chain(gate("ask", prompt="Pay {x}?", capability="approve"), "pay")
    run = Drive(old, values={"x": 1})
    run.feed(events.Paused, actor="ada")
    run.answer("ask", principal=ROOT)
    assert ("approval", "ask") in obstacles(run, chain(gate("other", capability="approve"), "pay"))
    spec, names = renamed(old, "_x")
    migrate(run, spec, renames=names)
    run.feed(events.ValuesEdited, principal=ROOT, patch={"x": 2}, version=run.state.root.version)
    run.feed(events.Resumed, actor="ada")

    assert [(name, run.open(name).prompt) for name, _ in run.asking] == [("ask_x", "Pay 2?")]


def test_a_node_named_like_an_earlier_one_asks_under_another_id() -> None:
    run = Drive(chain(gate("ask"), gate("other")))
    first = run.open("ask").id
    run.answer("ask")
    run.state = replace(
        run.state, scopes={"graph:g": replace(run.state.root, trail=(), ordinals={"other": 1})}
    )
    migrate(run, chain(gate("other"), gate("ask")))
    run.answer("other")

    assert run.asking == [("ask", "graph:g;node:ask")]
    assert run.open("ask").id != first


def test_a_dry_migration_is_a_value() -> None:
    run = Drive(chain(gate("ask")))
    before = run.state
    spec = chain(gate("ask"), "b")
    after = migrated(run.state, spec, patch={"x": 1}, renames={}, now=run.now)

    assert (run.state is before, after.spec, after.root.values) == (True, spec, {"x": 1})
    with pytest.raises(Refusal):
        migrated(run.state, chain("b"), patch={}, renames={}, now=run.now)


def test_an_obstacle_is_told_once_and_questions_of_processes_go_along() -> None:
    run = Drive(chain(gate("ask", capability="approve"), "pay", FunctionNode(id="ship")))
    run.answer("ask", principal=ROOT)
    run.finish("pay")
    run.ask("ship", asked("q", "first"), composite=True)
    found = obstacles(run, chain(gate("other"), "pay", "ship"))
    assert sorted(found) == [("approval", "ask"), ("finished visit", "ask")]
    spec, names = renamed(run.state.spec, "_x")
    migrate(run, spec, renames=names)

    assert run.asking == [("q", "graph:g;node:ship_x;process:first")]
    run.answer("q")
    assert run.running == ["ship_x"]


def test_code_that_runs_is_known_by_its_first_name_after_many_migrations() -> None:
    run = Drive(chain("a", "b"))
    migrate(run, chain("c", "b"), renames={"a": "c"})
    migrate(run, chain("d", "b"), renames={"c": "d"})
    assert run.state.visits["graph:g;node:d"].code_address == "graph:g;node:a"
    run.end(Finished, visit="graph:g;node:a")

    assert run.started == ["a", "b"]


def test_what_an_agent_remembers_goes_along() -> None:
    talk = sub("m", id_="talk", agent=True, remembers=("x",))
    run = Drive(chain(talk, "b"))
    run.finish("m", {"x": 1})
    assert run.state.agent_memory == {"graph:g/talk": {"x": 1}}
    migrate(run, chain(replace(talk, id="speak"), "b"), renames={"talk": "speak"})

    assert run.state.agent_memory == {"graph:g/speak": {"x": 1}}
