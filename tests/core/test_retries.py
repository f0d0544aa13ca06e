"""Retries: their number and pauses, and what a visit keeps between two attempts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from core_drive import Drive, at, chain, graph
from core_graphs import rule

from abeyance.core.bounds import Attempts, RetryPolicy
from abeyance.core.outcome import lost_for_good
from abeyance.core.spec import END, START, AskHuman, FunctionNode, Retry
from abeyance.core.state import Limits
from abeyance.core.visit import Ready


def pauses(policy: RetryPolicy, took: float = 0.0) -> Iterator[float]:
    """Yield the pauses until no attempt is left, if each attempt takes so long."""
    attempts = Attempts().with_failed(took)
    while (pause := policy.pause_after(attempts)) is not None:
        yield pause
        attempts = Attempts(count=attempts.count, seconds=attempts.seconds + pause)
        attempts = attempts.with_failed(took)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (RetryPolicy(), [1, 2, 4]),
        (RetryPolicy(retries=0), []),
        (RetryPolicy(retries=8), [1, 2, 4, 8, 16, 32, 60, 60]),
        (RetryPolicy(first=0.5, factor=1, most=0.5), [0.5] * 3),
        (RetryPolicy(first=2, factor=3, most=300, retries=5), [2, 6, 18, 54, 162]),
        # The next attempt would begin after the 14th second.
        (RetryPolicy(retries=None, retry_for=14), [1, 2, 4]),
        (RetryPolicy(retries=None, retry_for=15), [1, 2, 4, 8]),
        # The bound that is reached first counts.
        (RetryPolicy(retries=2, retry_for=15), [1, 2]),
        (RetryPolicy(retries=9, retry_for=3), [1, 2]),
    ],
)
def test_pauses_grow_until_a_bound_is_reached(policy: RetryPolicy, expected: list[float]) -> None:
    assert list(pauses(policy)) == expected


def test_the_time_of_the_attempts_counts_too() -> None:
    assert list(pauses(RetryPolicy(retries=None, retry_for=15), took=3)) == [1, 2]


def test_a_pause_that_is_too_large_for_a_number_is_the_longest() -> None:
    assert RetryPolicy(retries=None).pause_before(100_000) == 60


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (RetryPolicy(retries=0, retry_for=9), "No retries are left (retries=0)."),
        (RetryPolicy(retries=None, retry_for=0.5), "No retries are left (retry_for=0.5 s)."),
    ],
)
def test_the_bound_that_is_reached_is_named(policy: RetryPolicy, why: str) -> None:
    assert policy.why_none_left(Attempts(count=1)) == why


def test_attempts_that_were_lost_count_with_the_time_that_went_by() -> None:
    assert Attempts(count=1, seconds=5).with_lost(3, 7) == Attempts(count=4, seconds=12)
    assert Attempts(count=1, seconds=5).with_lost(0) == Attempts(count=1, seconds=5)


def test_the_span_begins_with_the_first_attempt_and_all_time_takes_of_it() -> None:
    patient = RetryPolicy(retries=None, retry_for=60)
    run = Drive(chain(FunctionNode(id="a", retry=patient)))
    # The first attempt ran for 20 seconds, and the pause of one second took 35.
    run.tick(20)
    run.retry("a", attempts=run.orders("a")[0].attempts.with_failed(20))
    run.tick(35)

    (_, second) = run.orders("a")
    assert second.attempts == Attempts(count=1, seconds=55, since=at(0))
    assert patient.pause_after(second.attempts.with_failed(3)) == 2
    assert patient.pause_after(second.attempts.with_failed(4)) is None


def test_before_an_attempt_counts_no_time_goes_by() -> None:
    assert Attempts().as_of(at(9)) == Attempts()


# The pause between two attempts


def test_a_visit_starts_again_after_its_pause_as_it_was_with_what_it_had_done() -> None:
    run = Drive(chain("a"))
    run.retry("a", 5, journal={"charge": "c1"})
    assert (run.status, run.running, run.state.next_deadline()) == ("running", [], at(5))

    run.tick(4)
    assert run.running == []

    run.tick(1)
    first, second = run.orders("a")
    assert (first.address, first.attempts.count) == (second.address, 0)
    assert second.attempts == Attempts(count=1, seconds=5, since=at(0))
    assert second.journal == {"charge": "c1"}
    assert run.state.next_deadline() is None


def test_other_branches_go_on_and_have_its_place_meanwhile() -> None:
    spec = graph("a", "b", ways=[(START, "a"), (START, "b")])
    run = Drive(spec, limits=Limits(max_parallel_visits=1))
    assert run.running == ["a"]

    run.retry("a", 5)
    assert run.running == ["b"]


def test_a_pause_of_the_run_holds_the_next_attempt_back() -> None:
    run = Drive(chain("a"))
    run.retry("a", 5)
    run.pause()
    run.tick(6)
    assert (run.running, run.state.next_deadline()) == ([], None)

    run.resume()
    assert [order.attempts.count for order in run.orders("a")] == [0, 1]


def test_code_that_is_stopped_keeps_its_attempts_and_those_that_were_lost() -> None:
    run = Drive(chain("a"))
    run.retry("a")
    run.tick(1)
    run.stopped("a")
    kept = run.orders("a")[-1].attempts
    assert kept == Attempts(count=1, seconds=1, since=at(0))

    run.stopped("a", attempts=kept.with_lost(2, 8))
    assert run.orders("a")[-1].attempts == Attempts(count=3, seconds=1, since=at(0))


def test_an_answer_and_an_operator_begin_a_new_count() -> None:
    run = Drive(chain(FunctionNode(id="a", on_error=AskHuman())))
    run.retry("a")
    run.tick(1)
    run.ask("a", "sure", journal={"charge": "c1"})
    run.answer("sure", "yes")
    assert run.orders("a")[-1].attempts == Attempts()

    run.retry("a")
    run.tick(1)
    run.fail("a")
    run.answer("error", {"action": "retry"})
    assert run.orders("a")[-1].attempts == Attempts()


@pytest.mark.parametrize("is_ending", [False, True])
def test_the_patch_of_a_failed_attempt_counts_if_the_run_ends(*, is_ending: bool) -> None:
    run = Drive(chain("a", "b"), values={"x": 0})
    if is_ending:
        run.cancel(actor="ada")
    run.retry("a", patch={"x": 1})
    if not is_ending:
        run.cancel(actor="ada")

    assert (run.status, run.values) == ("cancelled", {"x": 1})


def test_all_attempts_of_a_finally_node_have_the_time_of_one() -> None:
    run = Drive(chain("a", finally_=["tidy"]), limits=Limits(finally_timeout=10))
    run.finish("a")
    run.retry("tidy", 4)
    run.tick(4)

    first, second = run.orders("tidy")
    assert (first.timeout, first.retry.retry_for) == (10, 10)
    assert (second.timeout, second.retry.retry_for) == (6, 10)


def test_a_finally_node_may_bound_its_retries_more_narrowly() -> None:
    node = FunctionNode(id="tidy", timeout=9, retry=RetryPolicy(retries=None, retry_for=3))
    run = Drive(graph("a", node, ways=[(START, "a")], finally_=["tidy"]))
    run.finish("a")

    (order,) = run.orders("tidy")
    assert (order.timeout, order.retry.retry_for) == (9, 3)


# Rules


@pytest.mark.parametrize("node", [None, "b"])
def test_a_rule_tries_its_node_or_another_after_a_pause(node: str | None) -> None:
    again = rule("r", "a", Retry(node=node, backoff=5), x=1)
    spec = (
        chain("a", rules=[again])
        if node is None
        else graph("a", "b", ways=[(START, "a"), ("a", END)], rules=[again])
    )
    run = Drive(spec, values={"x": 1})
    run.finish("a")
    (visit,) = run.state.visits.values()
    address = "graph:g;node:a:2" if node is None else "graph:g;node:b"
    assert (visit.address, visit.state) == (address, Ready(not_before=at(5)))

    run.tick(5)
    assert run.running == [node or "a"]
    assert spec.successors("a") == {node or "a"}


@pytest.mark.parametrize(
    ("lost", "earlier", "text"),
    [
        (0, 9, None),
        (1, 1, None),
        (1, 2, "1 attempt at 'pay' was lost, because the worker died or was silent."),
        (2, 1, "2 attempts at 'pay' were lost, because the worker died or was silent."),
        (3, 0, "3 attempts at 'pay' were lost, because the worker died or was silent."),
    ],
)
def test_lost_attempts_fail_a_visit_when_they_leave_no_retry(
    lost: int, earlier: int, text: str | None
) -> None:
    attempts = Attempts(count=earlier).with_lost(lost)
    failed = lost_for_good("pay", lost, RetryPolicy(retries=2), attempts, journal={"step": 1})

    if text is None:
        assert failed is None
    else:
        assert failed is not None
        assert failed.message == f"{text} No retries are left (retries=2)."
        assert (failed.code, failed.journal) == ("node_failed", {"step": 1})
