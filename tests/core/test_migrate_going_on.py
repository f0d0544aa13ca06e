"""A run is migrated at rest, and its visits, questions, messages and approvals go along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from core_drive import ROOT, Drive, chain, gate, graph, nested, reader
from core_graphs import rule
from core_renamed import migrate, obstacles, renamed, sub

from abeyance.core import events, machine
from abeyance.core.ledger import interrupt_id
from abeyance.core.outcome import Blocked, Finished, Stopped
from abeyance.core.spec import (
    END,
    START,
    Ask,
    FunctionNode,
    InterruptSpec,
    Rule,
)
from abeyance.core.visit import Unroutable


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
    renames = {"ask": "confirm", "pay": "payout"}
    assert (fact.address, fact.actor, fact.data["renames"]) == ("graph:g", "root", renames)
    assert (fact.data["from_version"], fact.data["to_version"]) == ("v1", "v2")
    run.answer("confirm", "yes", principal=ROOT, digests={after.id: before.digest})
    assert run.started == ["payout"]
    assert dict(run.orders("payout")[0].answers) == {"confirm": "yes"}


def test_answers_to_rules_are_not_merged_twice_when_a_visit_goes_on() -> None:
    question = InterruptSpec(name="r", prompt="?")
    one = rule("r", "a", Ask(question=question, answer_to="log"))
    run = Drive(chain("a", rules=[one]))
    run.end(Finished, visit="graph:g;node:a", goto="new", unpinned=("new",))
    run.answer("r", ["x"])
    assert run.values == {"log": ["x"]}
    spec = graph(
        FunctionNode(id="a", to=("new",)),
        "new",
        ways=[(START, "a"), ("a", END), ("new", END)],
        rules=[one],
    )
    migrate(run, spec)

    assert (run.values, run.started) == ({"log": ["x"]}, ["a", "new"])


def test_blocked_visits_are_stopped_by_a_pause_and_tried_again_under_their_new_names() -> None:
    run = Drive(chain("pay"))
    run.feed(
        events.VisitBlocked, visit="graph:g;node:pay", code="code_missing", message="deploy it"
    )
    run.pause()
    assert run.stops == [("graph:g;node:pay", "pause", False)]
    run.end(
        Blocked,
        visit="graph:g;node:pay",
        code="code_missing",
        message="deploy it",
        journal={"s": 1},
    )
    migrate(run, chain("payout"), renames={"pay": "payout"})
    run.resume()

    order = run.orders("payout")[0]
    assert (order.address, order.journal) == ("graph:g;node:payout", {"s": 1})


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


@pytest.mark.parametrize("kind", ["graph", "agent"])
def test_a_graph_inside_may_have_another_name(kind: str) -> None:
    options: dict[str, Any] = {"agent": kind == "agent", "input": {}}
    run = Drive(chain(sub(gate("ask"), **options), "b"))
    run.send("m1", target="inner" if kind == "agent" else "b")
    inner = chain(gate("ask"), name="renamed", fields={"input": "last"})
    migrate(run, chain(nested("sub", inner, **options), "b"))

    assert run.asking == [("ask", f"graph:g;node:sub;{kind}:renamed;node:ask")]
    assert run.state.mailbox.queue[0].target == ("renamed" if kind == "agent" else "b")
    run.answer("ask")
    assert run.running == ["b"]


def rule_asking(name: str, node: str | None = "a") -> Rule:
    question = InterruptSpec(name=name, prompt="?", requested_capability="approve")
    return rule(name, node, Ask(question=question))


def test_the_question_of_a_rule_needs_the_rule() -> None:
    run = Drive(chain("a", "b", rules=[rule_asking("one")]))
    run.finish("a")
    assert obstacles(run, chain("a", "b")) == [("question", "one")]
    assert obstacles(run, chain("a", "b", rules=[rule_asking("two")])) == [("question", "one")]
    spec, names = renamed(run.state.spec, "_x")
    migrate(run, spec, renames=names)
    run.answer("one", principal=ROOT)

    assert run.started == ["a", "b_x"]


def test_an_approval_goes_along_and_its_gate_needs_a_place() -> None:
    old = chain(gate("ask", prompt="Pay {x}?", capability="approve"), "pay")
    run = Drive(old, values={"x": 1})
    run.pause()
    run.answer("ask", principal=ROOT)
    assert ("approval", "ask") in obstacles(run, chain(gate("other", capability="approve"), "pay"))
    spec, names = renamed(old, "_x")
    migrate(run, spec, renames=names)
    run.edit(ROOT, x=2)
    run.resume()

    assert [(name, run.open(name).prompt) for name, _ in run.asking] == [("ask_x", "Pay 2?")]


def test_a_node_named_like_an_earlier_one_asks_under_another_id() -> None:
    run = Drive(chain(gate("ask"), gate("other")))
    first = run.open("ask").id
    run.answer("ask")
    run.state.root.ordinals = {"other": 1}
    migrate(run, chain(gate("other"), gate("ask")))
    run.answer("other")

    assert run.asking == [("ask", "graph:g;node:ask")]
    assert run.open("ask").id == interrupt_id("r", "graph:g;node:ask", "ask", 2) != first


def test_a_breakpoint_at_a_gate_that_is_named_like_it_keeps_its_name() -> None:
    run = Drive(chain(gate("interrupt_before"), before=["interrupt_before"]))
    spec, names = renamed(run.state.spec, "_x")
    migrate(run, spec, renames=names)

    assert run.asking == [("interrupt_before", "graph:g;node:interrupt_before_x")]


def test_the_memory_of_an_agent_is_renamed_with_its_node() -> None:
    talk = sub("m", id_="talk", agent=True, remembers=("x",))
    run = Drive(chain(talk, "b"))
    run.finish("m", {"x": 1})
    assert run.state.agent_memory == {"graph:g/talk": {"x": 1}}
    assert ("agent memory", "talk") in obstacles(run, chain("b"))
    migrate(run, chain(replace(talk, id="speak"), "b"), renames={"talk": "speak"})

    assert run.state.agent_memory == {"graph:g/speak": {"x": 1}}


def test_renamed_code_keeps_the_address_at_which_it_first_ran() -> None:
    run = Drive(chain(nested("n", chain("a", "b", name="inner"))))
    run.pause(mode="now")
    run.end(Stopped, visit="graph:g;node:n;graph:inner;node:a")
    for suffix in ("_x", "_y"):
        spec, names = renamed(run.state.spec, suffix)
        migrate(run, spec, renames=names)
    run.resume()
    run.finish("a_x_y")

    again, new = run.orders("a_x_y")[0], run.orders("b_x_y")[0]
    assert again.address == "graph:g;node:n_x_y;graph:inner;node:a_x_y"
    assert again.first_address == "graph:g;node:n;graph:inner;node:a"
    assert new.first_address == "graph:g;node:n;graph:inner;node:b_x_y"


def test_code_that_has_not_run_yet_was_nowhere_before() -> None:
    run = Drive(chain(gate("ask"), "pay"))
    run.pause()
    run.answer("ask", "yes")
    migrate(run, chain(gate("ask"), "payout"), renames={"pay": "payout"})
    run.resume()

    assert run.orders("payout")[0].first_address == ""


A: str = "graph:g;node:a"


def waits_for_a_retry() -> Drive:
    run = Drive(chain("a"))
    run.retry("a", pause=60)
    return run


def has_more_work_than_a_task_may_start() -> Drive:
    run = Drive(graph("a", "b", ways=[(START, "a"), ("a", "b")]))
    run.feed(events.RotationDue, hard=True)
    run.stopped("a")
    return run


def has_nowhere_to_go() -> Drive:
    run = Drive(chain("a"))
    run.end(Finished, visit=A, goto="new", unpinned=("new",))
    return run


@pytest.mark.parametrize(
    "begin", [waits_for_a_retry, has_more_work_than_a_task_may_start, has_nowhere_to_go]
)
def test_a_run_none_of_whose_code_is_under_way_is_at_rest(begin: Callable[[], Drive]) -> None:
    run = begin()
    spec, names = renamed(run.state.spec, "_x")
    run.feed(events.Migrated, principal=ROOT, spec=spec, renames=names)

    assert run.state.is_at_rest
    assert (len(run.facts("run.migrated")), run.facts("node.unblocked")) == (1, [])


def runs() -> Drive:
    return Drive(chain("a"))


def blocked() -> Drive:
    run = Drive(chain("a"))
    run.feed(events.VisitBlocked, visit=A, code="code_missing", message="deploy it")
    return run


@pytest.mark.parametrize(
    ("begin", "why"),
    [(runs, "it is under way"), (blocked, "it is blocked, and will be tried again")],
)
def test_a_run_whose_code_is_under_way_is_not_migrated(
    begin: Callable[[], Drive], why: str
) -> None:
    run = begin()
    spec = run.state.spec
    refusal = run.refused(events.Migrated, principal=ROOT, spec=spec)

    assert not run.state.is_at_rest
    assert refusal.code == "cannot_migrate"
    assert "while its code is under way ('a')" in refusal.message
    assert "Migrate it with `pause`" in refusal.message
    (obstacle,) = refusal.details["obstacles"]
    assert (obstacle["what"], obstacle["name"], obstacle["why"]) == ("code", "a", why)


def test_code_in_a_nested_graph_is_named_by_its_path() -> None:
    run = Drive(chain(sub("x")))
    refusal = run.refused(events.Migrated, principal=ROOT, spec=run.state.spec)

    (obstacle,) = refusal.details["obstacles"]
    address = "graph:g;node:sub;graph:inner;node:x"
    assert (obstacle["name"], obstacle["address"]) == ("sub.x", address)


def test_a_dry_run_of_a_migration_is_possible_while_code_runs() -> None:
    run = runs()
    machine.check(
        run.state,
        events.Migrated(now=run.now, principal=ROOT, spec=run.state.spec, dry_run=True),
    )


def test_code_that_ended_with_the_run_follows_the_new_graph() -> None:
    run = Drive(chain(FunctionNode(id="a", to=("b",)), "b"))
    run.cancel()
    run.end(Finished, visit=A, patch={"x": 1}, goto="b")
    run.start_again(
        spec=chain(FunctionNode(id="pay", to=("c",)), "c"), renames={"a": "pay", "b": "c"}
    )

    assert (run.values, run.running) == ({"x": 1}, ["c"])


def test_a_target_that_the_new_graph_forbids_blocks_the_visit() -> None:
    ways = [(START, "a"), ("b", END)]
    goes = FunctionNode(id="a", to=("b",))
    run = Drive(graph(goes, "b", ways=ways))
    run.cancel()
    run.end(Finished, visit=A, goto="b")
    run.start_again(spec=graph("a", "b", ways=[(START, "a"), (START, "b")]))

    assert isinstance(run.state.visits[A].state, Unroutable)
    migrate(run, graph(goes, "b", ways=ways))
    assert run.running == ["b"]
