"""A run that was written down is the run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_drive import CONTROL, Drive, chain, gate, graph, restored

from abeyance.core import events
from abeyance.core.bounds import RetryPolicy
from abeyance.core.spec import START, Default, FunctionNode, GoTo
from abeyance.core.state import FORMAT, joined, parted


def rich() -> Drive:
    """A run with something in every corner of its state."""
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
    ]

    assert len({spec.version, *(other.version for other in changed)}) == len(changed) + 1
    assert spec.version == chain("a", gate("ask")).version
    assert len(spec.version) == 12
    assert restored(Drive(spec).state).spec.version == spec.version
