"""What a worker knows while it goes on from one fused visit to the next: the same as the run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_drive import ADA, Drive, Ways, asked, chain, gate, graph, nested
from core_fusing import abc, address, comes_back, fused, log, nodes, order, ran, walk

from abeyance.core.effects import VisitInput
from abeyance.core.hops import MAX_BYTES, following
from abeyance.core.json import size
from abeyance.core.outcome import Finished, Stopped, VisitOutcome
from abeyance.core.spec import START, Default
from abeyance.core.state import Limits


def test_a_visit_in_a_hop_is_given_what_the_run_would_have_given_it() -> None:
    inner = chain(gate("ask"), fused("i1"), fused("i2"), name="inner")
    drive = Drive(chain(nested("sub", inner), fused("b")), values={"x": 1})
    drive.state = replace(drive.state, salt="s")
    drive.answer("ask", "yes", principal=ADA)
    late = [asked("ok", process, timeout=60.0, on_timeout=Default(answer=7)) for process in "pq"]
    drive.ask("i1", asked("ok", timeout=60.0, on_timeout=Default(answer=7)), *late)
    drive.tick(60.0)
    first = replace(order(drive), execution="this", origin="first")
    done = ran(first.address, log("i1"), 60.0)
    second = following(first, [done])
    drive.end(Finished, visit=first.address, patch={"log": ["i1"]})

    assert second == replace(order(drive), execution="this", origin="first", hop=None)
    assert second is not None
    assert second.answers == {"ask": "yes", "ok": 7}


def test_a_hop_goes_through_a_join_to_which_another_branch_has_come() -> None:
    ways: Ways = [(START, "slow"), (START, "w"), ("w", "a"), ("a", "b"), (("slow", "b"), "c")]
    drive = Drive(graph("slow", "w", fused("a"), fused("b"), fused("c"), ways=ways))
    drive.finish("slow")
    drive.finish("w")

    assert nodes(walk(order(drive))) == ["a", "b", "c"]


def test_the_visits_before_a_hop_count_in_it() -> None:
    ways = [(START, "a"), ("a", "b"), ("b", "a")]
    drive = Drive(graph(fused("a"), fused("b"), ways=ways), limits=Limits(max_visits=2))

    def stopped(it: VisitInput) -> VisitOutcome:
        return Stopped() if it.node == "b" else Finished()

    comes_back(drive, walk(order(drive), stopped))
    assert nodes(walk(order(drive))) == ["b", "a:2", "b:2"]


def test_a_hop_ends_before_a_visit_whose_input_is_too_large() -> None:
    drive = Drive(abc(), limits=Limits(visit_bytes=1_000))
    done = walk(order(drive), lambda _: Finished(patch={"log": ["x" * 600]}))

    assert nodes(done) == ["a", "b"]
    comes_back(drive, done)
    assert drive.error[0] == "visit_too_large"


@pytest.mark.parametrize(("more", "expected"), [(0, "c"), (1, None)])
def test_a_hop_ends_once_what_its_visits_have_changed_is_too_large_together(
    more: int, expected: str | None
) -> None:
    first = order(Drive(abc(), limits=Limits(visit_bytes=2 * MAX_BYTES)))
    rest = size([{"log": [""]}, None, []])

    def large(length: int) -> Finished:
        return Finished(patch={"log": ["x" * (length - rest)]})

    done = [ran(address("a"), large(100_000)), ran(address("b"), large(MAX_BYTES - 100_000 + more))]
    third = following(first, done)
    assert (third and third.node) == expected
