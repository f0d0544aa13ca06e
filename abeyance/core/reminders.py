"""Reminders and escalations of open questions: when they come, and what is published then.

Their moments are computed once, when the question opens, and kept as times, so that every replay and
every hand-over knows the same ones. Who may answer from an escalation on is a rule of who answers, and
reads `Interrupt.escalations`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from abeyance.core import ledger
from abeyance.core.business_time import moment
from abeyance.core.json import Json, rfc3339
from abeyance.core.ledger import Interrupt
from abeyance.core.step import Step
from abeyance.core.terms import PLAIN, Span, is_negative
from abeyance.core.votes import Vote


def planned(interrupt: Interrupt, now: datetime) -> Interrupt:
    """Return an interrupt with the reminders and escalations that its terms name, counted from its
    opening. Reminders that would have come by `now`, or only after the deadline, are left out.
    """
    terms = interrupt.terms or PLAIN
    reminders = {_reminder(interrupt, span) for span in terms.remind}
    escalations = tuple(
        moment(interrupt.created_at, each.after, terms.calendar) for each in terms.escalate
    )
    return _with(interrupt, _ahead(interrupt, reminders, now), escalations, now)


def asked_anew(before: Interrupt, after: Interrupt, now: datetime) -> Interrupt:
    """Return an interrupt that shows something else, with the moments of its terms if these differ."""
    was, new = before.terms or PLAIN, after.terms or PLAIN
    same = (was.remind, was.escalate, was.calendar) == (new.remind, new.escalate, new.calendar)
    return after if same else planned(after, now)


def deadline_moved(before: Interrupt, after: Interrupt, now: datetime) -> Interrupt:
    """Return an interrupt whose deadline was edited. Reminders that were sent stay; the others are
    computed again.
    """
    sent = [each for each in before.reminders if each <= now]
    again = {
        _reminder(after, span)
        for span in (before.terms or PLAIN).remind
        if _reminder(before, span) not in sent
    }
    return _with(after, (*sent, *_ahead(after, again, now)), before.escalations, now)


def shifted(interrupt: Interrupt, since: datetime, by: timedelta, now: datetime) -> Interrupt:
    """Return an interrupt whose moments after `since` come so much later: nothing passed meanwhile."""

    def later(moments: tuple[datetime, ...]) -> tuple[datetime, ...]:
        return tuple(each + by if each > since else each for each in moments)

    return _with(interrupt, later(interrupt.reminders), later(interrupt.escalations), now)


def reopened(interrupt: Interrupt, now: datetime, kept: tuple[Vote, ...]) -> Interrupt:
    """Return a held interrupt as it is open again, with these votes: it has the time that it had left."""
    held = interrupt.held
    assert held is not None  # noqa: S101 else it would be open
    return shifted(ledger.reopened(interrupt, now, kept), held.at, now - held.at, now)


def publish_due(step: Step, interrupt: Interrupt) -> None:
    """Publish the reminder and the escalations of the moment that is next, which has come."""
    at, deadline = interrupt.notice_at, interrupt.deadline
    assert at is not None  # noqa: S101 else nothing would be due
    about: dict[str, Json] = {
        "capability": interrupt.requested_capability,
        "at": rfc3339(at),
        "deadline": deadline and rfc3339(deadline),
    }
    if at in interrupt.reminders:
        step.publish_about(interrupt, "interrupt.reminded", **about)
    escalate = (interrupt.terms or PLAIN).escalate
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
    calendar = (interrupt.terms or PLAIN).calendar
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
