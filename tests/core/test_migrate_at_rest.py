"""A run is migrated at rest: while none of its code is under way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from core_drive import ROOT, Drive, chain, gate, graph
from core_renamed import migrate, renamed, rest, sub

from abeyance.core import events, machine
from abeyance.core.outcome import Blocked, Call, Finished, Send
from abeyance.core.spec import END, START, FunctionNode, Route
from abeyance.core.visit import Unroutable

A: str = "graph:g;node:a"


def asks() -> Drive:
    return Drive(chain(gate("ask"), "a"))


def waits_for_a_retry() -> Drive:
    run = Drive(chain("a"))
    run.retry("a", pause=60)
    return run


def is_paused() -> Drive:
    run = Drive(chain("a"))
    rest(run)
    return run


def has_nowhere_to_go() -> Drive:
    run = Drive(chain("a"))
    run.end(Finished, visit=A, goto="new", unpinned=("new",))
    return run


def has_more_work_than_a_task_may_start() -> Drive:
    run = Drive(graph("a", "b", ways=[(START, "a"), ("a", "b")]))
    run.feed(events.RotationDue, hard=True)
    run.stopped("a")
    return run


def was_blocked_when_it_was_paused() -> Drive:
    run = blocked()
    run.pause()
    run.end(Blocked, visit=A, code="code_missing", message="deploy it")
    return run


@pytest.mark.parametrize(
    "begin",
    [
        asks,
        waits_for_a_retry,
        is_paused,
        has_nowhere_to_go,
        has_more_work_than_a_task_may_start,
        was_blocked_when_it_was_paused,
    ],
)
def test_a_run_none_of_whose_code_is_under_way_is_at_rest(begin: Callable[[], Drive]) -> None:
    run = begin()
    spec, names = renamed(run.state.spec, "_x")
    run.feed(events.Migrated, principal=ROOT, spec=spec, renames=names)

    assert run.state.is_at_rest
    assert len(run.facts("run.migrated")) == 1


def runs() -> Drive:
    return Drive(chain("a"))


def runs_locally() -> Drive:
    return Drive(chain(FunctionNode(id="a", local=True)))


def was_told_to_stop() -> Drive:
    run = Drive(chain("a"))
    run.pause(mode="now")
    return run


def chooses_a_way() -> Drive:
    routes = [Route(source="a", name="choose", targets=("b", END))]
    spec = graph(gate("a"), "b", ways=[(START, "a")], routes=routes)
    run = Drive(spec)
    run.answer("a")
    return run


def calls_a_tool() -> Drive:
    run = Drive(graph(FunctionNode(id="m", to=("a",)), "a", ways=[(START, "m")]))
    sends = (Send(node="a", call=Call(tool="a", id="c1", once=True)),)
    run.end(Finished, visit="graph:g;node:m", sends=sends)
    run.pause(mode="now")
    return run


def blocked() -> Drive:
    run = Drive(chain("a"))
    run.feed(events.VisitBlocked, visit=A, code="code_missing", message="deploy it")
    return run


@pytest.mark.parametrize(
    ("begin", "why"),
    [
        *((each, "it is under way") for each in (runs, runs_locally, was_told_to_stop)),
        *((each, "it is under way") for each in (chooses_a_way, calls_a_tool)),
        (blocked, "it is blocked, and tried again"),
    ],
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
    assert "`--pause`" in refusal.message
    (obstacle,) = refusal.details["obstacles"]
    assert (obstacle["what"], obstacle["name"], obstacle["why"]) == ("code", "a", why)


def test_code_in_a_nested_graph_is_named_by_its_path() -> None:
    run = Drive(chain(sub("x")))
    refusal = run.refused(events.Migrated, principal=ROOT, spec=run.state.spec)

    (obstacle,) = refusal.details["obstacles"]
    address = "graph:g;node:sub;graph:inner;node:x"
    assert (obstacle["name"], obstacle["address"]) == ("sub.x", address)


def test_what_a_migration_would_do_may_be_asked_while_code_runs() -> None:
    run = runs()
    machine.check(
        run.state,
        events.Migrated(now=run.now, principal=ROOT, spec=run.state.spec, dry_run=True),
    )


def test_what_code_came_to_while_its_run_ended_takes_the_way_of_another_graph() -> None:
    run = Drive(chain(FunctionNode(id="a", to=("b",)), "b"))
    run.cancel()
    run.end(Finished, visit=A, patch={"x": 1}, goto="b")
    run.start_again(
        spec=chain(FunctionNode(id="pay", to=("c",)), "c"), renames={"a": "pay", "b": "c"}
    )

    assert (run.values, run.running) == ({"x": 1}, ["c"])


def test_what_it_chose_and_the_other_graph_does_not_let_it_choose_blocks_it_and_fails_nothing() -> (
    None
):
    ways = [(START, "a"), ("b", END)]
    goes = FunctionNode(id="a", to=("b",))
    run = Drive(graph(goes, "b", ways=ways))
    run.cancel()
    run.end(Finished, visit=A, goto="b")
    run.start_again(spec=graph("a", "b", ways=[(START, "a"), (START, "b")]))

    assert isinstance(run.state.visits[A].state, Unroutable)
    migrate(run, graph(goes, "b", ways=ways))
    assert run.running == ["b"]
