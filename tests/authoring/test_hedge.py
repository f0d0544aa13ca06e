"""Asking again while the first question may still be answered."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.service import RPCError, RPCStatusCode

from abeyance.temporal import retry
from abeyance.temporal.retry import MAX_HEDGED, hedged


def busy(message: str) -> RPCError:
    return RPCError(message, RPCStatusCode.RESOURCE_EXHAUSTED, b"")


class Worker:
    """What becomes of each question, in order: an answer, an error, or None for silence."""

    def __init__(self, *outcomes: str | Exception | None) -> None:
        self.outcomes = outcomes
        self.asked = 0
        self.given_up = 0

    async def __call__(self) -> str:
        outcome = self.outcomes[self.asked]
        self.asked += 1
        if outcome is None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.given_up += 1
                raise
        if isinstance(outcome, Exception):
            raise outcome
        return str(outcome)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "HEDGE_INTERVAL", 0.01)


async def test_what_is_answered_at_once_is_asked_once() -> None:
    worker = Worker("answer", "another")

    assert await hedged(worker) == "answer"
    assert worker.asked == 1


async def test_a_question_that_was_lost_is_asked_again_and_then_given_up() -> None:
    worker = Worker(None, None, "answer")

    assert await hedged(worker) == "answer"
    await asyncio.sleep(0)
    assert (worker.asked, worker.given_up) == (3, 2)


@pytest.mark.parametrize("error", [busy("no room"), ValueError("no room")])
async def test_an_error_is_raised_at_once_where_nothing_else_is_under_way(error: Exception) -> None:
    worker = Worker(error, "answer")

    with pytest.raises(type(error), match="no room"):
        await hedged(worker)
    assert worker.asked == 1


async def test_what_a_worker_could_not_tell_is_not_waited_for_any_longer() -> None:
    worker = Worker(None, ValueError("ask again"), "answer")

    with pytest.raises(ValueError, match="ask again"):
        await hedged(worker)
    assert worker.asked == 2


async def test_a_slow_answer_is_waited_for_though_the_questions_after_it_fail() -> None:
    told = asyncio.Event()
    asked = 0

    async def ask() -> str:
        nonlocal asked
        asked += 1
        if asked > 1:
            told.set()
            raise busy("no room")
        await told.wait()
        return "answer"

    assert await hedged(ask) == "answer"


async def test_nobody_is_asked_for_ever_and_who_gives_up_leaves_nothing_behind() -> None:
    worker = Worker(*[None] * MAX_HEDGED)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(hedged(worker), 0.3)
    assert (worker.asked, worker.given_up) == (MAX_HEDGED, MAX_HEDGED)


async def test_the_last_error_is_raised_if_all_questions_fail() -> None:
    failed = asyncio.Event()
    asked = 0

    async def ask() -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            await failed.wait()
            raise busy("the first")
        failed.set()
        raise busy("the second")

    with pytest.raises(RPCError, match="the second"):
        await hedged(ask)
