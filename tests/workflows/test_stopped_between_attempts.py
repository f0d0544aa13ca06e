"""The outcome of a visit that the run stops just as an attempt has ended and would be retried."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from core_drive import Drive, chain
from temporalio.exceptions import ActivityError, ApplicationError, RetryState

from abeyance import wire
from abeyance.core.effects import VisitInput
from abeyance.core.outcome import Stopped, VisitOutcome
from abeyance.workflows.activity_calls import RunningCode, report_of
from abeyance.workflows.requests import StampChecker


async def outcome(
    visit: VisitInput, details: list[Any], lost: wire.LostAttempts | None
) -> VisitOutcome:
    """Return the outcome that the run assigns to the visit."""
    error = ActivityError(
        "Activity task failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="",
        activity_type="",
        activity_id="",
        retry_state=RetryState.CANCEL_REQUESTED,
    )
    error.__cause__ = ApplicationError("the worker is shutting down", *details, type="node_failed")
    ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    ended.set_exception(error)
    handle: Any = ended
    # `report_of` reads the stamps only for a report, and none has come.
    report = await report_of(
        RunningCode(visit, handle, lost=lost), StampChecker.__new__(StampChecker)
    )
    return report.outcome


@pytest.mark.parametrize("has_read", [True, False])
async def test_a_visit_whose_journal_no_failure_has_room_for_is_stopped_and_does_not_fail(
    monkeypatch: pytest.MonkeyPatch, has_read: bool
) -> None:
    run = Drive(chain("a"))
    (visit,) = run.orders("a")
    monkeypatch.setattr("temporalio.workflow.now", lambda: run.now)
    journal = wire.Journal(visit=wire.Journal.owner("", visit.address), steps={"s": "x" * 2_000})
    lost = wire.LostAttempts(count=0, journal=journal) if has_read else None
    left = await outcome(visit, [], lost)

    assert isinstance(left, Stopped)
    assert (left.begun, left.journal) == (True, {"s": "x" * 2_000} if has_read else None)


async def test_a_visit_whose_failure_has_its_journal_keeps_it() -> None:
    (visit,) = Drive(chain("a")).orders("a")
    journal = wire.Journal(visit=wire.Journal.owner("", visit.address), steps={"s": 1})
    left = await outcome(visit, [journal.model_dump(mode="json")], None)

    assert isinstance(left, Stopped)
    assert left.journal == {"s": 1}
