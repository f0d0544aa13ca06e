"""Reminders and escalations of an open question: each comes once, in its time; and business time."""

from __future__ import annotations

import sys
import time
import zoneinfo
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from core_drive import ADA, Drive, asked, at, chain, gate

from abeyance.core import events, run_retry
from abeyance.core.deadlines import moment
from abeyance.core.effects import Publish
from abeyance.core.json import rfc3339
from abeyance.core.policy import Principal
from abeyance.core.spec import GraphSpec, Halt
from abeyance.core.state import RunState
from abeyance.core.terms import BusinessTime, Calendar, Escalation, Span, Terms, is_zone

HOUR = 3600.0
BOSS = Principal(subject="boss", capabilities=(*ADA.capabilities, "direct"))
DIRECTORS = Escalation(after=24 * HOUR, to=("group:directors",), requested_capability="direct")


def asking(timeout: Any = 48 * HOUR, **terms: Any) -> GraphSpec:
    """Return a graph of a gate with terms, then `next`."""
    ask = gate("ask", timeout=timeout)
    return chain(replace(ask, question=replace(ask.question, terms=Terms(**terms))), "next")


def told(run: Drive) -> list[tuple[str, Any]]:
    """Return the reminders and escalations of the last step, with their moments."""
    return [
        (fact.type.removeprefix("interrupt."), fact.data["at"])
        for fact in run.last
        if isinstance(fact, Publish) and "at" in fact.data
    ]


def test_reminders_come_after_the_opening_and_before_the_deadline() -> None:
    run = Drive(asking(remind=(24 * HOUR, -2 * HOUR)))
    ask = run.open("ask")
    assert ask.reminders == (at(24 * HOUR), at(46 * HOUR))

    assert run.state.next_deadline() == at(24 * HOUR)
    run.tick(24 * HOUR)
    (fact,) = run.facts("interrupt.reminded")
    assert (fact.address, fact.actor) == ("graph:g;node:ask", None)
    assert fact.data == {
        "id": ask.id,
        "name": "ask",
        "capability": None,
        "at": rfc3339(at(24 * HOUR)),
        "deadline": rfc3339(at(48 * HOUR)),
    }
    assert run.state.next_deadline() == at(46 * HOUR)
    run.tick(22 * HOUR)
    assert told(run) == [("reminded", rfc3339(at(46 * HOUR)))]
    assert run.state.next_deadline() == at(48 * HOUR)
    assert run.open("ask").reminders == ask.reminders


def test_reminders_that_lie_in_the_past_or_after_the_deadline_are_left_out() -> None:
    run = Drive(asking(HOUR, remind=(-2 * HOUR, 2 * HOUR, HOUR, 60.0, 0.5)))

    assert run.open("ask").reminders == (at(0.5), at(60))


def test_an_escalation_says_who_may_answer_too() -> None:
    run = Drive(asking(None, escalate=(DIRECTORS,)))
    assert run.open("ask").escalations == (at(24 * HOUR),)
    run.tick(24 * HOUR)

    (fact,) = run.facts("interrupt.escalated")
    assert fact.data["to"] == ["group:directors"]
    assert fact.data["requested_capability"] == "direct"
    assert (fact.data["at"], fact.data["deadline"]) == (rfc3339(at(24 * HOUR)), None)
    assert run.state.next_deadline() is None
    run.tick(240 * HOUR)
    assert told(run) == []


def test_several_that_are_due_at_once_all_come_in_their_order_and_before_the_deadline() -> None:
    run = Drive(asking(remind=(24 * HOUR, -HOUR, HOUR), escalate=(DIRECTORS,)))
    run.tick(50 * HOUR)

    published = [fact.type for fact in run.wanted(Publish) if fact.type.startswith("interrupt.")]
    assert published == [
        "interrupt.opened",
        "interrupt.reminded",
        "interrupt.reminded",
        "interrupt.escalated",
        "interrupt.reminded",
        "interrupt.expired",
    ]


def test_a_due_reminder_is_published_before_the_answer() -> None:
    run = Drive(asking(remind=(HOUR,)))
    run.wait(2 * HOUR)
    run.answer("ask")

    types = [fact.type for fact in run.wanted(Publish) if fact.type.startswith("interrupt.")]
    assert types == ["interrupt.opened", "interrupt.reminded", "interrupt.answered"]


def test_a_pause_does_not_hold_reminders_up() -> None:
    run = Drive(asking(remind=(HOUR,)))
    run.pause(actor="boss")
    run.tick(HOUR)

    assert told(run) == [("reminded", rfc3339(at(HOUR)))]


def test_business_time_is_counted_by_the_calendar_of_the_question() -> None:
    calendar = Calendar(name="DE", timezone="Europe/Berlin", holidays=("2026-03-03",))
    # Monday, March 2, at 10:00 in Berlin.
    run = Drive(
        asking(
            BusinessTime(2, "bd"),
            calendar=calendar,
            remind=(BusinessTime(-1, "bh"),),
            escalate=(Escalation(after=BusinessTime(8, "bh"), to=("boss",)),),
        )
    )
    ask = run.open("ask")

    assert ask.deadline == at(72 * HOUR)
    assert ask.reminders == (at(71 * HOUR),)
    assert ask.escalations == (at(48 * HOUR),)


def retried(run: Drive) -> RunState:
    return run_retry.retried(
        run.state,
        now=at(5 * HOUR),
        principal=BOSS,
        versions=("1", "1"),
        patch={},
        renames={},
    )


def test_an_edited_deadline_moves_the_reminders_before_it_that_have_not_come() -> None:
    run = Drive(asking(remind=(-24 * HOUR, -2 * HOUR, 47 * HOUR)))
    run.tick(24 * HOUR)
    run.move(BOSS, 60 * HOUR)

    assert run.open("ask").reminders == (at(24 * HOUR), at(47 * HOUR), at(58 * HOUR))
    assert run.state.next_deadline() == at(47 * HOUR)
    # An edit of what happens at the deadline moves no reminder.
    about = {"interrupt_id": run.open("ask").id, "moves": False, "on_timeout": Halt()}
    run.feed(events.DeadlineEdited, principal=BOSS, **about)
    assert run.open("ask").reminders == (at(24 * HOUR), at(47 * HOUR), at(58 * HOUR))
    run.move(BOSS, 26 * HOUR)
    assert run.open("ask").reminders == (at(24 * HOUR),)
    run.move(BOSS, None)
    assert run.open("ask").reminders == (at(24 * HOUR), at(47 * HOUR))


def test_an_escalation_does_not_come_once_the_deadline_is_before_it() -> None:
    run = Drive(asking(escalate=(DIRECTORS,)))
    run.move(BOSS, 12 * HOUR)
    assert run.state.next_deadline() == at(12 * HOUR)
    run.move(BOSS, 36 * HOUR)
    assert run.state.next_deadline() == at(24 * HOUR)


def test_a_retried_run_takes_its_reminders_up_where_they_were() -> None:
    run = Drive(asking(remind=(HOUR, 10 * HOUR), escalate=(DIRECTORS,)))
    run.tick(2 * HOUR)
    run.cancel(actor="boss")
    again = retried(run)
    (ask,) = again.ledger.open.values()

    assert ask.reminders == (at(HOUR), at(13 * HOUR))
    assert ask.escalations == (at(27 * HOUR),)
    assert again.next_deadline() == at(13 * HOUR)


def test_a_retry_after_the_deadline_begins_all_again() -> None:
    run = Drive(asking(2 * HOUR, remind=(HOUR,)))
    run.tick(3 * HOUR)
    again = retried(run)
    (ask,) = again.ledger.open.values()

    assert (ask.reminders, ask.deadline) == ((at(6 * HOUR),), at(7 * HOUR))


def test_nobody_is_reminded_while_a_yes_is_held_and_what_is_ahead_moves_when_it_is_taken_back() -> (
    None
):
    ask = gate("ask", timeout=48 * HOUR, schema={"type": "boolean"})
    terms = Terms(remind=(HOUR, 2 * HOUR, -2 * HOUR), escalate=(DIRECTORS,), hold=10 * HOUR)
    run = Drive(chain(replace(ask, question=replace(ask.question, terms=terms)), "next"))
    run.wait(HOUR)
    run.answer("ask", True)
    run.tick(2 * HOUR)
    assert told(run) == []

    run.feed(events.TakenBack, principal=BOSS, interrupt_id=run.open("ask").id)
    ask_again = run.open("ask")
    assert ask_again.reminders == (at(HOUR), at(4 * HOUR), at(48 * HOUR))
    assert (ask_again.escalations, ask_again.deadline) == ((at(26 * HOUR),), at(50 * HOUR))
    assert run.state.next_deadline() == at(4 * HOUR)


def test_code_that_asks_anew_with_other_terms_has_other_reminders() -> None:
    run = Drive(chain("work"))

    def ask(prompt: str, *remind: float) -> tuple[datetime, ...]:
        terms = Terms(remind=remind) if remind else None
        run.ask("work", asked("sure", prompt=prompt, terms=terms))
        return run.open("sure").reminders

    ask("?", HOUR)
    run.tick(2 * HOUR)
    assert told(run) == [("reminded", rfc3339(at(HOUR)))]
    both = (HOUR, 5 * HOUR)
    for number, (remind, reminders) in enumerate(
        [((HOUR,), (HOUR,)), (both, (5 * HOUR,)), ((), ()), (both, (5 * HOUR,))], start=1
    ):
        edit: dict[str, Any] = {"principal": BOSS, "patch": {"x": number}, "version": number}
        run.feed(events.ValuesEdited, **edit)
        assert ask(f"Pay {number}?", *remind) == tuple(map(at, reminders))


# business time


BERLIN = Calendar(name="DE-BY", timezone="Europe/Berlin", holidays=("2026-04-03", "2026-04-06"))


@pytest.fixture(autouse=True)
def _far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the machine in Tokyo, which must change nothing."""
    monkeypatch.setenv("TZ", "JST-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def _without_zones(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take the data about time zones from the machine, as in a small image."""
    loaded = [name for name in sys.modules if name.startswith("tzdata.")]
    for module in ("tzdata", *loaded):
        monkeypatch.setitem(sys.modules, module, None)
    zoneinfo.reset_tzpath([])
    zoneinfo.ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath()


def berlin(start: str, span: Span, calendar: Calendar | None = BERLIN) -> str:
    """Return the moment in Berlin so long after `start`, which is UTC."""
    ends = moment(datetime.fromisoformat(start).replace(tzinfo=UTC), span, calendar)
    assert ends.tzinfo == UTC
    return f"{ends:%m-%d %H:%M}"


@pytest.mark.parametrize(
    ("start", "span", "ends"),
    [
        ("2026-03-02T08:00", BusinessTime(2, "bd"), "03-04 08:00"),
        ("2026-03-05T08:00", BusinessTime(2, "bd"), "03-09 08:00"),
        # Good Friday and Easter Monday, and summer time begins in between.
        ("2026-03-27T08:00", BusinessTime(1, "bd"), "03-30 07:00"),
        ("2026-04-02T08:00", BusinessTime(1, "bd"), "04-07 08:00"),
        ("2026-03-07T08:00", BusinessTime(1, "bd"), "03-09 08:00"),
        ("2026-03-09T08:00", BusinessTime(-1, "bd"), "03-06 08:00"),
        ("2026-03-09T08:00", BusinessTime(0, "bd"), "03-09 08:00"),
        ("2026-03-02T08:00", BusinessTime(3, "bh"), "03-02 11:00"),
        ("2026-03-02T09:30", BusinessTime(3, "bh"), "03-02 12:30"),
        ("2026-03-02T15:00", BusinessTime(3, "bh"), "03-03 10:00"),
        ("2026-03-02T05:00", BusinessTime(3, "bh"), "03-02 11:00"),
        ("2026-03-06T18:00", BusinessTime(8, "bh"), "03-09 16:00"),
        ("2026-03-07T12:00", BusinessTime(1, "bh"), "03-09 09:00"),
        ("2026-03-09T09:00", BusinessTime(-3, "bh"), "03-06 14:00"),
        ("2026-03-02T12:30", BusinessTime(-3, "bh"), "03-02 09:30"),
        ("2026-03-02T08:00", 90.0, "03-02 08:01"),
        ("2026-03-02T08:00", -3600.0, "03-02 07:00"),
    ],
)
def test_business_time_is_counted_on_working_days_and_in_their_hours(
    start: str, span: Span, ends: str
) -> None:
    assert berlin(start, span) == ends


def test_business_time_is_written_as_its_author_wrote_it() -> None:
    assert str(BusinessTime(-2, "bd")) == "-2bd"


@pytest.mark.parametrize(
    ("name", "is_known"),
    [("UTC", True), ("Europe/Berlin", True), ("Europe/Atlantis", False), ("../zone", False)],
)
def test_a_zone_is_known_by_its_name(name: str, is_known: bool) -> None:
    assert is_zone(name) is is_known


@pytest.mark.usefixtures("_without_zones")
def test_utc_is_known_where_no_other_zone_is() -> None:
    assert [is_zone(name) for name in ("UTC", "Europe/Berlin")] == [True, False]
    assert berlin("2026-03-06T16:30", BusinessTime(1, "bh"), None) == "03-09 09:30"
