"""A history that has grown too long, and the hand-over to a new one by a snapshot."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_drive import CONTROL, Drive, chain, gate, graph, restored
from core_graphs import rule

from abeyance.core import events, machine
from abeyance.core.bounds import RetryPolicy
from abeyance.core.effects import Yield
from abeyance.core.spec import START, Default, FunctionNode, GoTo, HaltRun
from abeyance.core.state import FORMAT, Limits, joined, parted


def test_a_soft_rotation_waits_for_a_moment_in_which_nothing_runs() -> None:
    ways = [(START, "a"), (START, "b"), ("a", "c"), ("c", "d")]
    run = Drive(graph("a", "b", "c", "d", ways=ways))
    run.feed(events.RotationDue, hard=False)
    run.finish("a")
    assert (run.running, machine.may_rotate(run.state)) == (["b", "c"], False)
    run.finish("b")
    assert not machine.may_rotate(run.state)

    run.finish("c")
    assert (run.running, run.ready) == ([], ["d"])
    assert machine.may_rotate(run.state)
    run.feed(events.Restored)
    assert (run.running, run.state.rotation) == (["d"], None)


def test_a_hard_rotation_stops_code_and_starts_it_again_after_the_hand_over() -> None:
    run = Drive(graph("a", gate("ask"), "b", ways=[(START, "a"), (START, "ask"), ("ask", "b")]))
    run.feed(events.RotationDue, hard=True)
    assert run.stops == [("graph:g;node:a", "rotation", False)]
    run.answer("ask")
    assert (run.ready, machine.may_rotate(run.state)) == (["ask"], False)

    run.stopped("a", {"steps": 1})
    assert machine.may_rotate(run.state)
    run.feed(events.Restored)
    assert run.running == ["a", "b"]
    assert [(order.activation, order.journal) for order in run.orders("a")] == [
        (1, None),
        (2, {"steps": 1}),
    ]


def test_a_soft_rotation_becomes_a_hard_one_and_never_the_other_way() -> None:
    run = Drive(chain("a"))
    for hard, rotation in ((False, "soft"), (False, "soft"), (True, "hard"), (False, "hard")):
        run.feed(events.RotationDue, hard=hard)
        assert run.state.rotation == rotation

    before = run.seen()
    run.wait(1)
    run.feed(events.RotationDue, hard=True)
    assert run.seen() == before
    assert len(run.stops) == 1


def test_a_waiting_run_rotates_at_once_and_asks_nobody_again() -> None:
    run = Drive(chain(gate("ask"), "a"))
    opened = run.open("ask")
    assert not machine.may_rotate(run.state)
    run.feed(events.RotationDue, hard=False)
    assert machine.may_rotate(run.state)
    run.feed(events.Restored)

    assert run.open("ask") == opened
    assert (run.status, run.last) == ("awaiting-input", ())
    run.answer("ask")
    assert run.running == ["a"]


def test_a_rotation_never_stops_a_finally_node() -> None:
    run = Drive(chain("a", finally_=["first", "second"]))
    run.finish("a")
    run.feed(events.RotationDue, hard=True)
    assert (run.stops, run.running) == ([], ["first"])

    run.finish("first")
    assert (run.ready, machine.may_rotate(run.state)) == (["second"], True)
    run.feed(events.Restored)
    run.finish("second")
    assert run.status == "completed"
    assert not machine.may_rotate(run.state)


def test_the_first_task_after_a_continue_as_new_may_send_as_much_as_any() -> None:
    nodes = ("n0", "n1", "n2")
    spec = graph(*nodes, ways=[(START, node) for node in nodes])
    run = Drive(spec, limits=Limits(task_bytes=5_000))
    assert (run.ready, run.state.yielding) == (["n2"], True)
    run.feed(events.RotationDue, hard=True)
    run.stopped("n0")
    run.stopped("n1")
    run.feed(events.Restored)

    assert run.running == ["n0", "n1"]
    assert len(run.wanted(Yield)) == 2


def test_a_run_is_idle_while_it_waits_for_people_or_for_a_time_alone() -> None:
    run = Drive(graph("a", "b", gate("ask"), ways=[(START, "a"), (START, "ask"), ("ask", "b")]))
    assert not machine.is_idle(run.state)
    run.finish("a")
    assert machine.is_idle(run.state)
    run.pause()
    run.answer("ask")
    assert (run.ready, machine.is_idle(run.state)) == (["ask"], True)
    run.resume()
    assert not machine.is_idle(run.state)
    run.finish("b")
    assert not machine.is_idle(run.state)


def test_a_run_that_only_waits_for_its_next_task_is_not_idle() -> None:
    nodes = ("n0", "n1", "n2")
    run = Drive(graph(*nodes, ways=[(START, n) for n in nodes]), limits=Limits(task_bytes=5_000))
    run.finish("n0")
    run.finish("n1")

    assert (run.running, run.ready, run.state.yielding) == ([], ["n2"], True)
    assert not machine.is_idle(run.state)


@pytest.mark.parametrize("hard", [False, True])
def test_a_run_that_temporal_cancels_ends_in_the_history_in_which_it_is_cancelled(
    *, hard: bool
) -> None:
    run = Drive(graph("a", "b", ways=[(START, "a"), (START, "b")], finally_=["tidy"]))
    run.feed(events.RotationDue, hard=hard)
    run.cancel(native=True)
    run.stopped("a")
    run.stopped("b")
    run.feed(events.RotationDue, hard=True)

    assert (run.running, run.state.rotation) == (["tidy"], None)
    run.finish("tidy")
    assert run.status == "cancelled"


# the snapshot


def rich() -> Drive:
    """Return a run with something in every corner of its state."""
    run = Drive(
        graph(
            gate(
                "ask", timeout=60, on_timeout=Default(answer={"a": [1, None]}), reason={"x": "{x}"}
            ),
            gate("done", on_timeout=GoTo(node="b"), timeout=5),
            FunctionNode(id="a", on_error=GoTo(node="b")),
            "b",
            ways=[(START, "ask"), (START, "done"), (START, "a"), (("a", "b"), "b"), ("done", "a")],
        ),
        values={"x": {"deep": [1.5, "é"]}},
    )
    run.answer("done", {"ok": True})
    run.send("m", "hello")
    run.send("m", "conflict", signalled=True)
    run.feed(events.RotationDue, hard=False)
    run.finish("a", {"log": ["a"]})
    run.pause(capabilities=CONTROL, timeout=30, on_timeout=GoTo(node="b"))
    return run


def test_a_run_taken_apart_and_put_together_is_the_run() -> None:
    run = rich()
    snapshot, spec, values = parted(run.state)
    assert snapshot.spec.nodes == {}
    assert [dict(scope.values) for scope in snapshot.scopes.values()] == [{}]
    assert joined(restored(snapshot), spec, values) == run.state

    run.cancel(mode="now")
    snapshot, spec, values = parted(run.state)
    assert snapshot.ending is not None
    assert snapshot.ending.before is not None
    assert snapshot.ending.before.spec.nodes == {}
    assert joined(restored(snapshot), spec, values) == run.state


def test_a_snapshot_of_a_later_format_is_refused_with_the_way_out() -> None:
    snapshot, spec, values = parted(Drive(chain("a")).state)

    with pytest.raises(ValueError, match="deploy the version that wrote it") as error:
        joined(replace(snapshot, format=FORMAT + 1), spec, values)

    assert f"format {FORMAT + 1}" in str(error.value)


def test_the_version_of_a_graph_changes_with_anything_in_it() -> None:
    spec = chain("a", gate("ask"))
    changed = [
        replace(spec, name="h"),
        replace(spec, description="other"),
        chain("a", gate("ask", prompt="other")),
        chain("a", gate("ask", timeout=1)),
        chain(FunctionNode(id="a", retry=RetryPolicy(retries=1)), gate("ask")),
        chain(gate("ask"), "a"),
        chain("a", gate("ask"), rules=[rule("r", "a", HaltRun(reason="x"))]),
    ]

    assert len({spec.version, *(other.version for other in changed)}) == len(changed) + 1
    assert spec.version == chain("a", gate("ask")).version
    assert len(spec.version) == 12
    assert restored(Drive(spec).state).spec.version == spec.version
