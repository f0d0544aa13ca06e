"""Events that are recorded from outside, about a run that cannot record them itself."""

from __future__ import annotations

from recorded import Recorded, at, batch, fact, question, run_view

from abeyance import wire
from abeyance.filters import EventFilter
from abeyance.records import events, outside, questions
from abeyance.records.batch import Fact, Rewound

FAILED = wire.NotificationFailed(
    about="run.completed",
    undelivered=(
        wire.Undelivered(receiver="ada", reason="gone", attempts=1),
        wire.Undelivered(receiver="bob", reason="busy", attempts=9),
    ),
    interrupt="a.pay",
)


def tell(recorded: Recorded, run_id: str, minutes: float) -> None:
    recorded.change(outside.undelivered, run_id, FAILED, at=at(minutes))


def ended(recorded: Recorded, *facts: Fact) -> None:
    asked = question("a", "pay", requested_capability="payments:approve")
    recorded.write(batch(run_view("a", status="completed"), asked, facts=facts))


def test_a_failed_notification_after_the_end_is_recorded_once(
    recorded: Recorded,
) -> None:
    ended(recorded, fact(1, "run.started"), fact(2, "run.completed"))
    for minutes in (5, 5, 6):
        tell(recorded, "a", minutes)
        tell(recorded, "nobody", minutes)

    told = recorded.read(events.of_run, "a", after=2)
    assert [(event.type, event.id, event.time) for event in told] == [
        ("notification.failed", f"{number:012}", at(minutes))
        for number, minutes in ((3, 5), (4, 5), (5, 6), (6, 6))
    ]
    assert told[0].data == {
        "event": "run.completed",
        "receiver": "ada",
        "reason": "gone",
        "attempts": 1,
        "id": "a.pay",
    }
    only = EventFilter(capabilities=("payments:*",))
    assert len(recorded.read(events.of_all, only).items) == 4


def test_a_notification_is_about_the_question_as_it_was_asked_after_a_rewind(
    recorded: Recorded,
) -> None:
    ended(recorded, fact(1, "run.started"), fact(2, "run.completed"))
    again = question("a", "pay", requested_capability="refunds:approve", status="answered")
    rewound = {"after": 0, "rewound": Rewound(at=1, salt="b", execution="b")}
    recorded.write(
        batch(run_view("a"), number=2).model_copy(update=rewound),
        batch(run_view("a", status="completed"), again, number=3),
    )
    tell(recorded, "a", 5)

    only = EventFilter(capabilities=("refunds:*",))
    assert len(recorded.read(events.of_all, only).items) == 2
    discarded = recorded.read(questions.of_run, "a", status="all", discarded=True)
    assert [each.requested_capability for each in discarded] == ["payments:approve"]


def test_a_failed_notification_of_an_open_run_is_not_recorded_from_outside(
    recorded: Recorded,
) -> None:
    recorded.write(batch(run_view("a"), facts=[fact(1, "run.started")]))
    tell(recorded, "a", 5)

    assert [event.type for event in recorded.read(events.of_run, "a")] == ["run.started"]


def test_a_run_that_goes_on_counts_what_was_recorded_after_its_end(recorded: Recorded) -> None:
    ended(recorded, fact(1, "run.started"), fact(2, "run.failed"))
    tell(recorded, "a", 5)
    again = batch(run_view("a"), facts=[fact(5, "run.retried")], number=3)
    recorded.write(again.model_copy(update={"after": 1}))

    assert [event.type for event in recorded.read(events.of_run, "a")] == [
        "run.started",
        "run.failed",
        *(["notification.failed"] * 2),
        "run.retried",
    ]
