"""The schedule: which ready visits start, when, and with which input."""

from __future__ import annotations

import pytest
from core_drive import T0, Drive, at, chain, gate, graph, nested
from core_graphs import AFTER, edit, rule, sending, sent

from abeyance.core import events
from abeyance.core.bounds import Attempts
from abeyance.core.effects import RunNode, StopNode, VisitInput, Yield
from abeyance.core.json import Json, size
from abeyance.core.ledger import Answerer
from abeyance.core.outcome import Stopped
from abeyance.core.spec import START, Clips, FunctionNode, GoTo, HaltRun, Route, Rule
from abeyance.core.state import Limits
from abeyance.core.visit import Running


def wide(
    count: int, *, limits: Limits | None = None, values: dict[str, Json] | None = None
) -> Drive:
    """Start a run of so many nodes side by side: n0, n1, ..."""
    names = [f"n{number}" for number in range(count)]
    spec = graph(*names, ways=[(START, name) for name in names])
    return Drive(spec, limits=limits, values=values)


# starting


def test_an_order_carries_all_that_the_code_needs() -> None:
    spec = chain(gate("ask"), FunctionNode(id="a", timeout=9, heartbeat=2, asks=("approve",)))
    run = Drive(spec, values={"x": 1})
    run.answer("ask", "yes")

    assert run.orders("a") == [
        VisitInput(
            run_id="r",
            graph="g",
            node="a",
            address="graph:g;node:a",
            values={"x": 1},
            answers={"ask": "yes"},
            answerers={"ask": Answerer(by="ada", at=T0)},
            asks=("approve",),
            timeout=9,
        )
    ]
    assert [each.heartbeat for each in run.wanted(RunNode)] == [2]
    visit = run.visit("a")
    assert (visit.state, visit.activations) == (
        Running(answered_keys=tuple(visit.questions.answers)),
        1,
    )


def test_the_input_of_a_visit_that_asked_has_its_answers_and_journal() -> None:
    spec = sending("one", "c", ways=[(["one"], "c")])
    run = sent(spec, ["item"], values={"x": 1})
    run.ask("one", "plan", journal={"step": 1}, user_state=[7])
    run.answer("plan", "yes")

    order = run.orders("one")[-1]
    assert order == VisitInput(
        run_id="r",
        graph="g",
        node="one",
        address="graph:g;node:one",
        first_address="graph:g;node:s;item:0;node:one",
        activation=2,
        values={"x": 1},
        own_answers={"plan": "yes"},
        answerers={"plan": Answerer(by="ada", at=T0)},
        journal={"step": 1},
        user_state=[7],
        interrupted=True,
        item="item",
    )
    run.finish("one")
    assert run.orders("c")[0].results == [{"item": "item", "status": "arrived"}]
    assert run.orders("c")[0].item is None


def test_an_order_to_ask_routes_carries_what_they_look_at() -> None:
    inner = graph(
        gate("ask"),
        ways=[(START, "ask")],
        routes=[Route(source="ask", name="r", targets=("END",))],
        name="inner",
    )
    run = Drive(chain(nested("n", inner)), values={"x": 1})
    run.answer("ask", "yes")

    (order,) = run.decisions()
    assert (order.root, order.graph) == ("g", "inner")
    assert run.decisions() == [
        VisitInput(
            kind="routes",
            run_id="r",
            path=("n",),
            graph="inner",
            node="ask",
            address="graph:g;node:n;graph:inner;node:ask",
            values={"x": 1},
            answers={"ask": "yes"},
            local=True,
            routes=("r",),
            targets=("END",),
        )
    ]


def test_routes_that_fail_are_asked_again_with_their_attempts() -> None:
    spec = graph(
        gate("ask"),
        ways=[(START, "ask")],
        routes=[Route(source="ask", name="r", targets=("END",))],
    )
    run = Drive(spec)
    run.answer("ask")
    run.retry("ask", 5)
    run.tick(5)

    assert [order.attempts for order in run.decisions()] == [
        Attempts(),
        Attempts(count=1, seconds=5, since=at(0)),
    ]


def test_routes_that_are_stopped_leave_read_what_the_code_before_them_has_read() -> None:
    spec = graph(
        gate("first"),
        FunctionNode(id="a", reads_inbox=True),
        "b",
        ways=[(START, "first"), ("first", "a")],
        routes=[Route(source="a", name="r", targets=("b",))],
        after=["a"],
    )
    run = Drive(spec)
    run.send("m")
    run.answer("first")
    run.finish("a", routed=("b",))
    run.answer(AFTER, edit(1, x=2))
    assert run.decided == ["a"]
    run.cancel()
    run.end(Stopped, visit="graph:g;node:a", begun=False)

    assert (run.status, run.state.mailbox.undelivered) == ("cancelled", ())


def test_the_failure_route_of_an_answer_that_does_not_fit_starts_at_once() -> None:
    ask = gate("ask", answer_to="sum")
    route = Route(source="ask", name="r", targets=("END",))
    inner = graph(ask, ways=[(START, "ask")], routes=[route], fields={"sum": "add"}, name="inner")
    run = Drive(chain(nested("n", inner, on_error=GoTo(node="after")), "after"))
    run.answer("ask", "many")

    assert run.running == ["after"]


def test_rules_in_clips_are_evaluated_by_a_worker_after_a_gate_and_only_there() -> None:
    clips = Rule(id="r", condition=Clips(node="ask", text="x"), actions=(HaltRun(reason="no"),))
    other = rule("s", "next", HaltRun(reason="no"))
    run = Drive(chain(gate("ask"), "next", rules=[clips, other]))
    run.answer("ask")
    assert [order.rules for order in run.decisions()] == [(clips,)]
    run.finish("ask")

    assert [order.rules for order in run.orders("next")] == [()]


# how many at once


def test_asking_a_route_takes_the_place_of_code() -> None:
    spec = graph(
        gate("ask"),
        "a",
        "b",
        ways=[(START, "ask"), (START, "a")],
        routes=[Route(source="ask", name="r", targets=("b",))],
    )
    run = Drive(spec, limits=Limits(max_parallel_visits=1))
    run.answer("ask")
    assert (run.running, run.ready, run.decided) == (["a"], ["ask"], [])

    run.finish("a")
    assert (run.running, run.decided) == (["ask"], ["ask"])


# how much at once


def test_a_task_sends_a_bounded_number_of_bytes_and_asks_for_another() -> None:
    run = wide(5, limits=Limits(task_bytes=9_000), values={"x": "y" * 1_000})
    assert (run.running, run.ready) == (["n0", "n1"], ["n2", "n3", "n4"])
    assert run.wanted(Yield) == [Yield()]

    run.tick(1)
    assert run.last == ()
    run.feed(events.TaskBegan)
    assert (run.running, run.ready) == (["n0", "n1", "n2", "n3"], ["n4"])
    assert len(run.wanted(Yield)) == 2
    run.feed(events.TaskBegan)
    assert run.ready == []
    assert len(run.wanted(Yield)) == 2


def test_a_task_sends_as_many_bytes_as_the_bound_allows() -> None:
    one = wide(1, values={"x": "y"}).state.task_bytes
    for bound, count in ((2 * one, 2), (2 * one - 1, 1)):
        run = wide(3, limits=Limits(task_bytes=bound), values={"x": "y"})
        assert len(run.running) == count


def test_a_single_order_above_the_bound_goes_alone() -> None:
    run = wide(2, limits=Limits(task_bytes=9_000), values={"x": "y" * 10_000})
    assert run.running == ["n0"]

    run.feed(events.TaskBegan)
    assert run.running == ["n0", "n1"]


def test_a_task_in_which_nothing_was_sent_begins_without_a_trace() -> None:
    run = Drive(chain(gate("ask")))
    before = run.seen()
    run.feed(events.TaskBegan)

    assert run.seen() == before


def test_a_later_visit_does_not_overtake_one_too_large_for_this_task() -> None:
    run = wide(3, limits=Limits(max_parallel_visits=2, task_bytes=9_000), values={"x": "y" * 6_000})
    assert (run.running, run.ready) == (["n0"], ["n1", "n2"])
    run.finish("n0", {"x": ""})
    assert (run.running, run.ready) == ([], ["n1", "n2"])
    run.feed(events.TaskBegan)
    assert run.running == ["n1", "n2"]


@pytest.mark.parametrize("what", ["values", "answers", "journal"])
def test_everything_that_an_order_carries_counts(what: str) -> None:
    limits = Limits(task_bytes=9_000)
    heavy = "y" * 8_000
    spec = graph(gate("ask"), "a", "b", ways=[(START, "ask"), ("ask", "a"), ("ask", "b")])
    run = Drive(spec, limits=limits, values={"x": heavy} if what == "values" else {})
    run.answer("ask", heavy if what == "answers" else None)
    if what == "journal":
        assert run.running == ["a", "b"]
        run.pause(mode="now")
        run.stopped("a", heavy)
        run.stopped("b", heavy)
        run.feed(events.TaskBegan)
        run.resume()

    assert (run.running, run.ready) == (["a"], ["b"])


def test_an_answer_that_is_written_to_a_field_before_its_route_is_asked_counts_twice() -> None:
    routes = [Route(source="ask", name="r", targets=("END",))]

    def sent_for(field: str | None) -> int:
        spec = graph(gate("ask", answer_to=field), ways=[(START, "ask")], routes=routes)
        run = Drive(spec)
        run.answer("ask", "y" * 1_000)
        return run.state.task_bytes

    assert sent_for("x") - sent_for(None) == size({"x": "y" * 1_000}) - size({})


def test_an_answer_is_merged_once_though_asking_its_route_waits_for_another_task() -> None:
    names = ["one", "two"]
    spec = graph(
        *(gate(name, answer_to="log") for name in names),
        ways=[(START, name) for name in names],
        routes=[Route(source=name, name="r", targets=("END",)) for name in names],
    )
    run = Drive(spec, limits=Limits(task_bytes=9_000))
    run.answer("one", ["y" * 4_000])
    run.answer("two", ["z"])
    assert (run.running, run.ready) == (["one"], ["two"])
    assert run.values == {"log": ["y" * 4_000, "z"]}

    run.feed(events.TaskBegan)
    assert run.decisions()[1].values == run.values == {"log": ["y" * 4_000, "z"]}


# pause


def test_a_pause_lets_finish_what_runs_and_starts_nothing() -> None:
    run = Drive(chain("a", "b"))
    run.pause(reason="lunch")
    assert (run.status, run.stops) == ("paused", [])
    run.finish("a")
    assert (run.status, run.running, run.ready) == ("paused", [], ["b"])

    assert run.state.pause is not None
    assert run.state.pause.reason == "lunch"
    run.resume(actor="bob", reason="go")
    assert (run.status, run.running) == ("running", ["b"])
    (paused,) = run.facts("run.paused")
    assert (paused.actor, paused.data["reason"], paused.data["mode"]) == (
        "ada",
        "lunch",
        "after-node",
    )
    (resumed,) = run.facts("run.resumed")
    assert (resumed.actor, resumed.data) == ("bob", {"reason": "go"})


def test_a_paused_run_asks_nobody_and_does_not_complete() -> None:
    asks = Drive(chain("a", gate("ask")))
    asks.pause()
    asks.finish("a")
    assert asks.waiting == []
    asks.resume()
    assert asks.waiting == ["ask"]

    ends = Drive(chain("a"))
    ends.pause()
    ends.finish("a")
    assert ends.status == "paused"
    ends.resume()
    assert ends.status == "completed"


def test_a_repeated_pause_or_resume_is_counted_and_changes_nothing_else() -> None:
    run = Drive(chain("a"))
    run.pause(reason="first")
    run.wait(1)
    before = run.seen()
    run.pause(mode="now", reason="second", timeout=1)
    assert (run.state.pause, run.state.events_published, run.last) == (
        before.pause,
        before.events_published,
        (),
    )

    run.resume()
    run.wait(1)
    before = run.seen()
    run.resume()
    assert (run.state.visits, run.state.events_published, run.last) == (
        before.visits,
        before.events_published,
        (),
    )
    assert (run.state.counters.pause_count, run.state.counters.resume_count) == (2, 2)


def test_a_pause_now_stops_code_and_goes_on_with_it_as_the_same_visit_with_its_journal() -> None:
    run = Drive(graph("a", "b", ways=[(START, "a"), (START, "b")]))
    run.pause(mode="now")

    assert run.last[-2:] == (
        StopNode(visit="graph:g;node:a", reason="pause"),
        StopNode(visit="graph:g;node:b", reason="pause"),
    )
    run.stopped("a", {"steps": {"score": 0.7}})
    run.finish("b")
    run.tick(60)
    assert (run.running, run.ready) == ([], ["a"])
    run.resume()
    # This time the code is stopped before it begins, so it reports no journal.
    run.pause(mode="now")
    run.stopped("a", None)
    run.resume()
    first, *again = run.orders("a")
    kept = {"steps": {"score": 0.7}}
    assert [(each.address, each.activation, each.journal) for each in again] == [
        (first.address, 2, kept),
        (first.address, 3, kept),
    ]
    assert run.state.counters.visits == 2


def test_code_is_asked_to_stop_once_and_goes_on_at_once_after_the_resume() -> None:
    run = Drive(chain("a"))
    for _ in range(2):
        run.pause(mode="now")
        run.resume()
    assert run.stops == [("graph:g;node:a", "pause", False)]
    assert (run.running, run.state.counters.resume_count) == (["a"], 2)

    run.stopped("a")
    assert (run.running, [order.activation for order in run.orders("a")]) == (["a"], [1, 2])
