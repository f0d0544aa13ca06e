"""After a migration everything in a run has the new names of its nodes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from core_agents import agent_node, question, tool
from core_askers import ADA
from core_drive import ROOT, Drive, asked, chain, edge, gate, graph, nested, reader, written
from core_graphs import ask, rule
from core_renamed import migrate, moved, obstacles, renamed, rest

from abeyance.core.json import Json
from abeyance.core.mailbox import size_of
from abeyance.core.outcome import Call, Finished, Send
from abeyance.core.renaming import Places
from abeyance.core.spec import (
    END,
    START,
    AskHuman,
    FunctionNode,
    GoTo,
    Parallel,
    Retry,
)
from abeyance.core.state import RunState
from abeyance.core.terms import Terms
from abeyance.core.visit import RoutingDecision

APPROVE: dict[str, Any] = {"prompt": "Refund {x}?", "capability": "approve"}


def items() -> Drive:
    """Start a run with items of items: over, asking, approved, and at work."""
    code = FunctionNode(id="Code", to=("Collect", END), asks=("approve",))
    spec = graph(
        *(FunctionNode(id="Outer", to=("Inner",)), FunctionNode(id="Inner", to=("Ask",))),
        *(gate("Ask", **APPROVE), code, "Collect", "All", "Side", "Last"),
        ways=[
            *((START, "Outer"), ("Ask", "Code")),
            *(edge(["Code"], "Collect"), edge(["Collect"], "All")),
            *((START, "Side"), ("Side", "Last")),
        ],
    )
    run = Drive(spec)
    run.finish("Outer", sends=[("Inner", 1), ("Inner", 2)])
    for number in range(2):
        run.finish("Inner", sends=[("Ask", each) for each in range(3 - number)])
    for _ in range(4):
        run.answer("Ask", principal=ROOT)
    run.finish("Code", {"x": 1})
    run.ask("Code", asked("own", requested_capability="approve"), "other")
    run.answer("own", principal=ROOT)
    run.finish("Side")
    return run


def joins() -> Drive:
    """Start a run with approvals that joins have taken along, waiting tokens, and decisions of rules."""
    late = gate("Late", timeout=60, on_timeout=GoTo(node="End"))
    spec = graph(
        *(gate("Ask", **APPROVE), "Slow", "Pay", "Ship", late, gate("Now"), "Never"),
        *("Left", FunctionNode(id="Right", to=("End",)), "Back", "End"),
        ways=[
            *(
                (START, "Ask"),
                (START, "Slow"),
                edge((START, "Ask", "Slow"), "Pay"),
                ("Pay", "Ship"),
            ),
            *((START, "Late"), (START, "Now"), (START, "Left"), (START, "Right"), (START, "Back")),
            *(edge(("Ship", "Late"), "Never"), ("Never", "End")),
        ],
        rules=[
            rule("one", "Left", ask("yes", capability="approve"), GoTo(node="End")),
            rule("two", "Right", ask("no"), Parallel(nodes=("Never", END))),
            rule("three", "Right", ask("go", timeout=9.0, on_timeout=GoTo(node="Left"))),
            rule("four", "Back", ask("again"), Retry(node="Left")),
        ],
    )
    run = Drive(spec)
    run.answer("Ask", principal=ROOT)
    for node in ("Slow", "Pay", "Ship", "Left", "Back"):
        run.finish(node)
    run.finish("Right", goto="End")
    run.pause(actor="root", capabilities=("*",), timeout=9, on_timeout=GoTo(node="End"))
    run.answer("yes", principal=ROOT)
    run.answer("Now")
    return run


def inside() -> Drive:
    """Start a run of agents and calls in nested graphs, with visits, answers, messages and memory."""
    talk = agent_node("Talk", name="talk", remembers=("output",), output={})
    desk = agent_node("Desk", tool("Tool"), agent_node("Help", talk, name="helper", output={}))
    inner = chain("First", gate("Sure", **APPROVE), desk, name="inner", fields={"x": "last"})
    broken = nested("Broken", chain("Fails", name="broken"), on_error=AskHuman())
    ways = [(START, "Before"), ("Before", "Sub"), ("Before", "Broken"), ("Broken", "Reads")]
    run = Drive(graph("Before", nested("Sub", inner), broken, reader("Reads"), ways=ways))
    run.finish("Before", {"x": 1})
    run.fail("Fails")
    run.finish("First")
    run.answer("Sure", principal=ROOT)
    # One call of the helper is over, another is not.
    calls(run, ("Help", "Help", "c0"))
    run.ask("model", "why")
    run.answer("why", principal=ROOT)
    run.finish("model", {"transcript": "t1"})
    calls(run, ("Tool", "book", "c1"), ("Tool", "book", "c2"), ("Help", "call", "c/3"))
    run.answer("approve", {"approved": True})
    calls(run, ("Talk", "talk", "c4"))
    run.finish("model", {"output": 1})
    address = run.visit("model").address
    for number, target in enumerate(("Sub", "First", address, "graph:g")):
        run.send(f"m{number}", target=target)
    return run


def calls(run: Drive, *each: tuple[str, str, str]) -> None:
    """Have the oldest running model call these nodes, each under a name and with an id."""
    asks = question("approve", timeout=60.0, on_timeout=GoTo(node=END))
    sends = (
        Send(node=node, call=Call(tool=name, id=id_, interrupts=(asks,) * (name == "book")))
        for node, name, id_ in each
    )
    run.end(Finished, visit=run.visit("model").address, sends=tuple(sends))


@pytest.mark.parametrize("run", [items, joins, inside])
def test_everything_in_a_run_has_the_new_names_of_its_nodes(run: Callable[[], Drive]) -> None:
    driven = run()
    rest(driven)
    state = driven.state
    spec, names = renamed(state.spec, "_x")
    there = moved(state, spec, names)
    own = "|".join(name.rpartition(".")[2] for name in names)

    def new(text: str) -> str:
        # A call keeps the name under which a model made it.
        return re.sub(rf"(?<!tool:)\b({own})\b", r"\1_x", text)

    expected = json.loads(new(json.dumps(parts(state))))
    for visit in state.visits.values():
        known = visit.first_address or (visit.address if visit.activations else None)
        expected["visits"][new(visit.address)]["first_address"] = known
    for scope in state.scopes.values():
        for address, each in scope.fans.items():
            there_is = expected["scopes"][new(scope.address)]["fans"][new(address)]
            there_is["first_address"] = each.first_address
    # Longer names of targets make larger messages.
    expected["mailbox"]["queued_bytes"] = sum(map(size_of, there.mailbox.queue))
    assert parts(there) == expected

    old_names = {new: old for old, new in names.items()}
    back = moved(there, state.spec, old_names)
    assert (back.visits, back.scopes) == (state.visits, state.scopes)


@pytest.mark.parametrize(
    ("run", "found"),
    [
        (items, {"visit": 5, "approval": 5, "join": 2}),
        (joins, {"visit": 5, "approval": 2, "join": 2, "goto": 7, "question": 3}),
        (inside, {"visit": 2, "message": 3}),
    ],
)
def test_everything_in_a_run_needs_its_place(
    run: Callable[[], Drive], found: dict[str, int]
) -> None:
    driven = run()
    spec, _ = renamed(driven.state.spec, "_x")

    assert Counter(what for what, _ in obstacles(driven, spec)) == found


def parts(state: RunState) -> Json:
    """Return all that a run holds, but not its graph, and not what people have seen."""
    held = json.loads(written(state))
    del held["spec"]
    for entry in held["ledger"]["settled"].values():
        del entry["name"]
    for entry in held["ledger"]["open"].values():
        del entry["prompt"], entry["reason"]
    return held


def test_a_question_bars_who_answers_another_one_under_its_new_name() -> None:
    """`one` is asked in the question's own graph, `two` around it, `three` in both."""
    eyes = Terms(not_by=("one", "two", "three", "@starter"))
    asking = (gate("one"), gate("three"), gate("ask", terms=eyes))
    inner = graph(*asking, ways=[(START, each.id) for each in asking], name="inner")
    ways = [(START, "sub"), (START, "two"), (START, "three")]
    run = Drive(graph(nested("sub", inner), gate("two"), gate("three"), ways=ways))
    run.answer("two", principal=ROOT)
    spec, names = renamed(run.state.spec, "X")
    migrate(run, spec, renames=names)

    (question,) = [each for each in run.state.ledger.open.values() if each.name == "askX"]
    assert question.terms == Terms(not_by=("oneX", "twoX", "threeX", "@starter"))
    assert question.barred == {"root": "twoX"}
    run.answer("oneX", principal=ADA)
    assert run.open("askX").barred == {"root": "twoX", "ada": "oneX"}


def test_a_visit_and_all_that_it_has_asked_get_their_new_names() -> None:
    run = Drive(chain(gate("ask")))
    (visit,) = run.state.visits.values()
    visit.misfits = {"ask": "not a number", "/rule/r": "not a number either"}
    places = Places(run.state, chain(gate("check")), {"ask": "check"})
    moved = places.row(visit, (), visit.address, ("ask",))

    assert (moved.address, moved.node) == ("graph:g;node:check", "check")
    assert moved.misfits == {"check": "not a number", "/rule/r": "not a number either"}
    assert moved.questions.ask_counts == {"check": 1}


def test_chosen_targets_are_renamed_and_calls_are_not() -> None:
    run = Drive(graph("a", "b", ways=[(START, "a"), ("a", "b"), ("b", END)]))
    other = graph("a", "c", ways=[(START, "a"), ("a", "c"), ("c", END)])
    places = Places(run.state, other, {"b": "c"})
    call = Call(tool="b", id="1", interrupts=(asked("b", on_timeout=GoTo(node="b")),))
    outcome = Finished(
        goto="b", route_targets=("b", END), sends=(Send(node="b", item="b", call=call),)
    )
    route = RoutingDecision(outcome=outcome, decision=GoTo(node="b"))
    moved = places.row(route, (), "graph:g;node:a")

    assert moved == replace(
        route,
        outcome=replace(
            outcome,
            goto="c",
            route_targets=("c", END),
            sends=(Send(node="c", item="b", call=call),),
        ),
        decision=GoTo(node="c"),
    )
    assert places.obstacles == []
