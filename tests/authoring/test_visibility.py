"""What a run shows of itself in Temporal, within what the server allows."""

from __future__ import annotations

from typing import Any

from core_drive import Drive, gate, graph

from abeyance.core.spec import START, Default, GoTo
from abeyance.workflows import visibility


def asking(*gates: Any) -> Drive:
    return Drive(graph(*gates, ways=[(START, each.id) for each in gates]))


# Search attributes


def test_a_timer_says_what_it_is_for() -> None:
    goto = asking(gate("a", timeout=60), gate("b", timeout=30, on_timeout=GoTo(node="a")))
    default = asking(gate("c", timeout=30, on_timeout=Default(answer={"secret": 1})))
    paused = Drive(graph("n", ways=[(START, "n")]))
    paused.pause(timeout=60)
    ending = Drive(graph("n", ways=[(START, "n")]))
    ending.cancel()

    assert visibility.timer_summary(goto.state) == "deadline of b: goto:a"
    assert visibility.timer_summary(default.state) == "deadline of c: default"
    assert visibility.timer_summary(paused.state) == "deadline of the pause"
    assert visibility.timer_summary(ending.state) == "grace of the ending"


# The failure
