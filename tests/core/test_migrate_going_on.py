"""What is under way in a run goes along to another version of its graph."""

from __future__ import annotations

from dataclasses import replace

from core_agents import CLERK, gated, reviewing, said, turn
from core_drive import Drive, chain, gate, graph, reader
from core_fans import fan, sent
from core_renamed import ROOT, migrate, obstacles, renamed, sub

from abeyance.core import events
from abeyance.core.outcome import Blocked, Finished, Send
from abeyance.core.spec import (
    END,
    START,
    Ask,
    FunctionNode,
    GoTo,
    InterruptSpec,
    Matches,
    Parallel,
    Rule,
    SubgraphNode,
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
    assert (fact.actor, fact.data["renames"]) == ("root", {"ask": "confirm", "pay": "payout"})
    assert (fact.data["from_version"], fact.data["to_version"]) == ("v1", "v2")
    run.answer("confirm", "yes", principal=ROOT, digests={after.id: before.digest})
    assert run.started == ["payout"]
    assert dict(run.orders("payout")[0].answers) == {"confirm": "yes"}


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
