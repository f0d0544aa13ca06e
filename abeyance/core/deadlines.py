"""The moments of a question: its deadline, its reminders and its escalations.

A length of time is counted by the clock, or in the working days and hours of a calendar. The moments are
computed when the question opens, and kept as times, so that every replay and every hand-over knows the
same ones. `who_may_answer` decides who may answer after an escalation, by `Interrupt.escalations`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

from abeyance.core.json import Json, rfc3339
from abeyance.core.ledger import Interrupt, Vote
from abeyance.core.step import FARTHEST, Step
from abeyance.core.terms import BusinessTime, Calendar, Span, is_negative

_EVERY_DAY: Final = Calendar(name="")


def moment(start: datetime, span: Span, calendar: Calendar | None = None) -> datetime:
    """Return the moment in UTC that is a `span` after `start`, or before it if the span is negative.

    Business days keep the time of day in the calendar's zone. Business hours are counted within the
    hours of working days; from outside of them, counting begins at their next start, or, backwards, at
    their last end.
    """
    if not isinstance(span, BusinessTime):
        return start + timedelta(seconds=max(-FARTHEST, min(FARTHEST, span)))
    if span.amount == 0:
        return start
    calendar = calendar or _EVERY_DAY
    # UTC needs no data about zones, which a small image does not have.
    zone = UTC if calendar.timezone == "UTC" else ZoneInfo(calendar.timezone)
    local = start.astimezone(zone)
    if span.unit == "bd":
        following = _working_days(local.date(), span.amount, calendar, inclusive=False)
        day = next(islice(following, abs(span.amount) - 1, None))
        return datetime.combine(day, local.time(), local.tzinfo).astimezone(UTC)
    return _after_hours(local, span.amount, calendar)


def _after_hours(local: datetime, hours: int, calendar: Calendar) -> datetime:
    left = timedelta(hours=abs(hours))
    here = local.astimezone(UTC)
    days = _working_days(local.date(), hours, calendar, inclusive=True)
    while True:
        midnight = datetime.combine(next(days), time(), local.tzinfo)
        begin, end = (
            (midnight + timedelta(minutes=at)).astimezone(UTC)
            for at in (calendar.opens, calendar.closes)
        )
        if hours > 0:
            begin = max(begin, here)
        else:
            end = min(end, here)
        if end - begin >= left:
            return begin + left if hours > 0 else end - left
        left -= max(end - begin, timedelta())


def _working_days(
    day: date, direction: int, calendar: Calendar, *, inclusive: bool
) -> Iterator[date]:
    step = timedelta(days=1 if direction > 0 else -1)
    day = day if inclusive else day + step
    while True:
        if day.weekday() in calendar.days and day.isoformat() not in calendar.holidays:
            yield day
        day += step


def planned(interrupt: Interrupt, now: datetime) -> Interrupt:
    """Return an interrupt with the reminders and escalations that its terms name, counted from its
    opening. Reminders that would have come by `now`, or only after the deadline, are left out.
    """
    terms = interrupt.effective_terms
    reminders = {_reminder(interrupt, span) for span in terms.remind}
    escalations = tuple(
        moment(interrupt.created_at, each.after, terms.calendar) for each in terms.escalate
    )
    return _with(interrupt, _ahead(interrupt, reminders, now), escalations, now)


def asked_anew(before: Interrupt, after: Interrupt, now: datetime) -> Interrupt:
    """Return the interrupt `after` a change, planned anew if the terms of its moments have changed."""
    was, new = before.effective_terms, after.effective_terms
    same = (was.remind, was.escalate, was.calendar) == (new.remind, new.escalate, new.calendar)
    return after if same else planned(after, now)


def deadline_moved(before: Interrupt, after: Interrupt, now: datetime) -> Interrupt:
    """Return an interrupt whose deadline was edited. Reminders that were sent stay; the others are
    computed again if it moves.
    """
    if after.deadline == before.deadline:
        return after
    sent = [each for each in before.reminders if each <= now]
    again = {
        _reminder(after, span)
        for span in before.effective_terms.remind
        if _reminder(before, span) not in sent
    }
    return _with(after, (*sent, *_ahead(after, again, now)), before.escalations, now)


def with_time_left(interrupt: Interrupt, since: datetime, now: datetime) -> Interrupt:
    """Return an open question with the time that it had left at `since`, or its whole time if none.

    Reminders and escalations after `since` move by the same time.
    """
    deadline = interrupt.deadline
    if deadline is not None:
        since = interrupt.created_at if deadline <= since else since
        interrupt = replace(interrupt, deadline=deadline + (now - since))

    def later(moments: tuple[datetime, ...]) -> tuple[datetime, ...]:
        return tuple(each + (now - since) if each > since else each for each in moments)

    return _with(interrupt, later(interrupt.reminders), later(interrupt.escalations), now)


def reopened(interrupt: Interrupt, now: datetime, kept: tuple[Vote, ...]) -> Interrupt:
    """Return a held interrupt, open again with the votes `kept` and the time that it had left."""
    held = interrupt.held
    assert held is not None  # noqa: S101 else it would be open
    again = replace(interrupt, status="open", votes=kept, held=None, held_until=None)
    return with_time_left(again, held.at, now)


def publish_due(step: Step, interrupt: Interrupt) -> None:
    """Publish the reminder and the escalations of the moment `notice_at`, which has come."""
    at, deadline = interrupt.notice_at, interrupt.deadline
    assert at is not None  # noqa: S101 else nothing would be due
    about: dict[str, Json] = {
        "capability": interrupt.requested_capability,
        "at": rfc3339(at),
        "deadline": deadline and rfc3339(deadline),
    }
    if at in interrupt.reminders:
        step.publish_about(interrupt, "interrupt.reminded", **about)
    escalate = interrupt.effective_terms.escalate
    for escalation, comes in zip(escalate, interrupt.escalations, strict=True):
        if comes == at:
            step.publish_about(
                interrupt,
                "interrupt.escalated",
                **about,
                to=list(escalation.to),
                requested_capability=escalation.requested_capability,
            )
    step.run.ledger.open[interrupt.id] = _with(
        interrupt, interrupt.reminders, interrupt.escalations, at
    )


def _reminder(interrupt: Interrupt, span: Span) -> datetime | None:
    start = interrupt.deadline if is_negative(span) else interrupt.created_at
    calendar = interrupt.effective_terms.calendar
    return None if start is None else moment(start, span, calendar)


def _ahead(
    interrupt: Interrupt, moments: set[datetime | None], now: datetime
) -> tuple[datetime, ...]:
    known = sorted(each for each in moments if each is not None)
    return tuple(each for each in known if now < each and _is_open_at(interrupt, each))


def _with(
    interrupt: Interrupt,
    reminders: tuple[datetime, ...],
    escalations: tuple[datetime, ...],
    now: datetime,
) -> Interrupt:
    if not (reminders or escalations or interrupt.reminders or interrupt.escalations):
        return interrupt
    ahead = [
        each for each in (*reminders, *escalations) if each > now and _is_open_at(interrupt, each)
    ]
    return replace(
        interrupt,
        reminders=reminders,
        escalations=escalations,
        notice_at=min(ahead, default=None),
    )


def _is_open_at(interrupt: Interrupt, at: datetime) -> bool:
    return interrupt.deadline is None or at < interrupt.deadline
