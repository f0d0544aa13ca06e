"""Batches of a rewound run: events and questions that it no longer knows stay, and are marked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from recorded import NOON, Recorded, at, fact, question, run_view
from recorded import handed as batch
from sqlalchemy import delete

from abeyance import views
from abeyance.filters import ApprovalsFilter, EventFilter, InboxFilter
from abeyance.records import approvals, discards
from abeyance.records import events as told
from abeyance.records import questions as asked
from abeyance.records.batch import Batch, Rewound, Written, known_before
from abeyance.records.tables import runs
from abeyance.records.writing import fill

OPENED = "interrupt.opened"


def rewound(at: int, salt: str = "b") -> Rewound:
    return Rewound(at=at, salt=salt, execution="b", actor="ada", time=NOON, data={"to": "r.q"})


def written(recorded: Recorded, batch: Batch) -> Written:
    (done,) = recorded.write(batch)
    return done


def events(recorded: Recorded, **options: bool) -> list[tuple[int, str, int | None]]:
    found = recorded.read(told.of_run, "r", **options)
    return [(int(event.id), event.type, event.rewound_by) for event in found]


def statuses(recorded: Recorded, *, discarded: bool = False) -> dict[str, str]:
    found = recorded.read(asked.of_run, "r", status="all", discarded=discarded)
    return {view.id: view.status for view in found}


def run_once(recorded: Recorded) -> None:
    """Record a run that answers a question, asks another one, answers that too, and ends."""
    recorded.write(
        batch(1, question("r", "q"), after=0, types=["run.started", OPENED]),
        batch(
            2,
            question("r", "q", status="answered", settled_at=NOON),
            question("r", "later"),
            after=1,
            types=["interrupt.answered", OPENED],
            before=2,
        ),
        batch(
            3,
            question("r", "later", status="answered", settled_at=NOON),
            after=2,
            types=["interrupt.answered", "run.completed"],
            before=4,
            view=run_view("r", status="completed"),
        ),
    )


def test_discarded_events_stay_readable_and_are_marked(recorded: Recorded) -> None:
    run_once(recorded)

    done = written(recorded, batch(4, question("r", "q"), after=1, before=2, rewound=rewound(2)))

    kept = [(1, "run.started", None), (2, OPENED, None), (7, "run.rewound", None)]
    assert events(recorded) == kept
    discarded = [
        (3, "interrupt.answered", 7),
        (4, OPENED, 7),
        (5, "interrupt.answered", 7),
        (6, "run.completed", 7),
    ]
    assert events(recorded, discarded=True) == [*kept[:2], *discarded, kept[2]]
    assert done.shift == 5
    assert statuses(recorded) == {"r.q": "open"}
    assert statuses(recorded, discarded=True) == {"r.q": "answered", "r.later": "answered"}
    later = recorded.read(asked.question, "r", "r.later")
    assert later is not None
    assert later.rewound_by == 7
    (listed,) = recorded.read(asked.inbox, InboxFilter()).items
    assert listed.id == "r.q"
    assert [event.type for event in recorded.read(told.of_all, EventFilter()).items] == [
        "run.started",
        OPENED,
        "run.rewound",
    ]
    said = recorded.read(told.of_run, "r")[-1]
    assert (said.actor, said.time, said.data) == ("ada", NOON, {"to": "r.q", "kept": 2})


def test_a_replay_that_does_not_know_of_the_rewind_yet_takes_back_nothing(
    recorded: Recorded,
) -> None:
    run_once(recorded)
    again = batch(4, question("r", "q"), after=1, before=2, rewound=rewound(2))
    written(recorded, again)
    before = events(recorded, discarded=True)

    # The task that recorded the rewind came to nothing, and the next one replays the history before it.
    whole = batch(5, question("r", "q"), after=1, before=2, is_whole=True)
    assert written(recorded, whole).status == "written"
    assert events(recorded, discarded=True) == before
    written(recorded, again.model_copy(update={"number": 6}))

    assert events(recorded, discarded=True) == before
    stands = recorded.read(discards.standing, "r")
    assert stands is not None
    assert stands.rewound_by == 7


def test_the_report_has_each_answer_to_a_question_that_is_asked_again(recorded: Recorded) -> None:
    def answered(number: int, by: str, before: int) -> Batch:
        answer: dict[str, Any] = {"status": "answered", "settled_at": NOON, "answer": True}
        answer["answered_by"] = by
        about: dict[str, Any] = {"types": ["interrupt.answered"], "after": number - 1}
        return batch(number, question("r", "q", **answer), before=before, **about)

    recorded.write(batch(1, question("r", "q"), after=0, types=["run.started", OPENED]))
    recorded.write(answered(2, "ada", before=2))
    for _ in range(2):
        written(recorded, batch(3, question("r", "q"), after=1, before=2, rewound=rewound(2)))
    recorded.write(answered(4, "bob", before=4))
    written(recorded, batch(5, question("r", "q"), after=3, before=4, rewound=rewound(4, "c")))

    reported = ApprovalsFilter(since=NOON - timedelta(days=1), until=at(60))
    page = recorded.read(approvals.page, reported)
    assert [(row.id, row.by, row.answer, row.rewound_by) for row in page.items] == [
        ("r.q", "bob", True, 6),
        ("r.q", "ada", True, 4),
    ]
    now = recorded.read(asked.question, "r", "r.q")
    assert now is not None
    assert (now.status, now.rewound_by) == ("open", None)


def test_events_from_before_the_point_that_were_not_recorded_then_keep_their_numbers(
    recorded: Recorded,
) -> None:
    recorded.write(batch(1, after=0, types=["run.started"]))
    recorded.write(batch(2, after=1, types=["node.started", "node.finished"], before=1))

    # The run had noted the start of the node, but not handed it over yet.
    types = ["node.started", "run.paused"]
    written(recorded, batch(3, after=1, types=types, before=1, rewound=rewound(2)))

    assert events(recorded) == [
        (1, "run.started", None),
        (2, "node.started", None),
        (4, "run.rewound", None),
        (5, "run.paused", None),
    ]


def test_events_of_before_the_point_that_are_handed_over_after_the_rewind_take_nothing_back(
    recorded: Recorded,
) -> None:
    run_once(recorded)
    written(recorded, batch(4, after=1, before=1, rewound=rewound(2)))
    # At that point the run had a batch under way that lacked this event.
    again = [fact(2, OPENED)]
    written(recorded, batch(5, after=4, before=known_before(7, again), facts=again))
    both = [*again, fact(8, "interrupt.answered")]
    # The workflow task of the batch before came to nothing.
    done = written(recorded, batch(6, after=4, before=known_before(8, both), facts=both))

    assert (done.status, known_before(7, again), known_before(8, both)) == ("written", 7, 7)
    assert [number for number, *_ in events(recorded, discarded=True)] == [*range(1, 9)]
    assert events(recorded)[-2:] == [(7, "run.rewound", None), (8, "interrupt.answered", None)]


def test_the_first_batch_after_a_rewind_may_come_again_or_be_of_a_task_that_came_to_nothing(
    recorded: Recorded,
) -> None:
    run_once(recorded)
    first = batch(
        4, question("r", "q"), after=1, types=["run.paused"], before=2, rewound=rewound(2)
    )
    done = written(recorded, first)
    seen = events(recorded, discarded=True)

    again = written(recorded, first)
    assert (again.status, again.shift) == (done.status, done.shift)
    assert events(recorded, discarded=True) == seen

    other = first.model_copy(update={"number": 5, "facts": [fact(3, "run.cancelled")]})
    assert written(recorded, other).shift == done.shift
    assert events(recorded)[2:] == [(7, "run.rewound", None), (8, "run.cancelled", None)]
    assert statuses(recorded, discarded=True) == {"r.q": "answered", "r.later": "answered"}


def test_a_run_is_rewound_again_before_or_after_the_first_rewind(recorded: Recorded) -> None:
    run_once(recorded)
    first = batch(
        4, question("r", "q"), after=1, types=["run.paused"], before=2, rewound=rewound(2)
    )
    recorded.write(first, batch(5, after=4, types=["run.resumed"], before=8))

    # After it: the run knows of the first rewind, and how it shifted the numbers.
    recorded.write(batch(6, after=4, before=8, rewound=rewound(8, "c")))
    assert events(recorded)[2:] == [
        (7, "run.rewound", None),
        (8, "run.paused", None),
        (10, "run.rewound", None),
    ]

    recorded.write(batch(7, after=1, before=1, rewound=rewound(1, "d")))
    assert events(recorded) == [(1, "run.started", None), (11, "run.rewound", None)]
    marks = [by for _, _, by in events(recorded, discarded=True)]
    assert marks == [None, 11, 7, 7, 7, 7, 11, 11, 10, 11, None]


def test_a_question_that_was_open_when_it_was_discarded_is_withdrawn(recorded: Recorded) -> None:
    first = batch(1, question("r", "q"), after=0, types=["run.started", OPENED])
    recorded.write(first, batch(2, question("r", "later"), after=1, types=[OPENED], before=2))
    recorded.write(batch(3, question("r", "q"), after=1, before=2, rewound=rewound(2)))

    found = recorded.read(asked.question, "r", "r.later")

    assert found is not None
    assert (found.status, found.settled_reason) == ("cancelled", "the run was rewound")
    assert recorded.read(asked.of_run, "r", status="open", discarded=True) == []
    assert statuses(recorded) == {"r.q": "open"}

    recorded.write(batch(4, question("r", "later"), after=3, types=[OPENED], before=4))
    again = recorded.read(asked.question, "r", "r.later")
    assert again is not None
    assert (again.status, again.rewound_by) == ("open", None)
    assert statuses(recorded, discarded=True) == {"r.later": "cancelled"}


def test_a_reindex_beside_the_records_reports_each_answer_once(
    recorded: Recorded,
) -> None:
    answer: dict[str, Any] = {"status": "answered", "settled_at": NOON, "answer": True}
    told = [
        batch(1, question("r", "q"), after=0, types=["run.started", OPENED]),
        batch(2, question("r", "q", **answer), after=1, types=["interrupt.answered"], before=2),
        batch(3, question("r", "p"), after=0, types=[OPENED], before=1, rewound=rewound(1)),
    ]
    for each in told:
        written(recorded, each)
    for each in told:
        recorded.change(fill, each)
        assert statuses(recorded) == {"r.p": "open"}

    reported = ApprovalsFilter(since=NOON - timedelta(days=1), until=at(60))
    page = recorded.read(approvals.page, reported)
    assert [(row.id, row.rewound_by) for row in page.items] == [("r.q", 4)]


def test_a_reindexed_discarded_end_takes_no_question_off_the_lists(
    recorded: Recorded,
) -> None:
    completed = run_view("r", status="completed")
    end = batch(2, after=1, types=["run.completed"], before=2, view=completed)
    recorded.write(batch(1, question("r", "q"), after=0, types=["run.started", OPENED]), end)
    recorded.write(batch(3, question("r", "q"), after=1, before=2, rewound=rewound(2)))

    recorded.change(fill, end)

    assert [each.id for each in recorded.read(asked.inbox, InboxFilter()).items] == ["r.q"]


@pytest.mark.parametrize("lost", [2, 3])
def test_an_answer_that_a_rewind_has_discarded_before_it_was_recorded_is_made_anew_once(
    recorded: Recorded, lost: int
) -> None:
    def answered(number: int, by: str, before: int) -> Batch:
        answer: dict[str, Any] = {"status": "answered", "settled_at": NOON, "answered_by": by}
        about: dict[str, Any] = {"types": ["interrupt.answered"], "after": number - 1}
        return batch(number, question("r", "q", **answer), before=before, **about)

    told = [
        batch(1, question("r", "q"), after=0, types=["run.started", OPENED]),
        answered(2, "ada", before=2),
        answered(3, "bob", before=3),
        batch(4, question("r", "p"), after=0, types=[OPENED], before=1, rewound=rewound(1)),
    ]
    recorded.write(*(each for each in told if each.number < lost or each.number == 4))
    for _ in range(2):
        for each in told:
            recorded.change(fill, each)

    reported = ApprovalsFilter(since=NOON - timedelta(days=1), until=at(60))
    page = recorded.read(approvals.page, reported)
    assert [(row.id, row.by) for row in page.items] == [("r.q", "bob")]
    assert statuses(recorded) == {"r.p": "open"}
    assert statuses(recorded, discarded=True) == {"r.q": "answered"}


def test_records_that_are_made_anew_have_the_rewind_under_its_number(recorded: Recorded) -> None:
    first = batch(1, question("r", "q"), after=0, types=["run.started", OPENED])
    second = batch(2, question("r", "later"), after=1, types=["interrupt.answered"], before=2)
    third = batch(
        3, question("r", "q"), after=1, types=["run.paused"], before=2, rewound=rewound(2)
    )
    recorded.write(first, second, third)
    seen = events(recorded, discarded=True)

    # Each execution hands over all events of its history.
    for each in (first, second, first, third):
        recorded.change(fill, each)

    assert events(recorded, discarded=True) == seen
    assert statuses(recorded) == {"r.q": "open"}
    assert statuses(recorded, discarded=True) == {"r.later": "cancelled"}


def test_a_rewind_keeps_its_number_where_what_it_has_discarded_is_lost(recorded: Recorded) -> None:
    first = batch(1, question("r", "q"), after=0, types=["run.started", OPENED])
    told = rewound(2).model_copy(update={"by": 7})
    rewind = batch(4, question("r", "q"), after=1, types=["run.paused"], before=2, rewound=told)

    for each in (first, rewind, batch(5, after=4, types=["run.resumed"], before=8)):
        recorded.change(fill, each)

    assert events(recorded) == [
        (1, "run.started", None),
        (2, OPENED, None),
        (7, "run.rewound", None),
        (8, "run.paused", None),
        (9, "run.resumed", None),
    ]


def test_rewinds_that_lie_behind_a_run_which_goes_on_without_its_records_are_made_anew(
    recorded: Recorded,
) -> None:
    first = batch(1, question("r", "q"), after=0, types=["run.started", OPENED])
    second = batch(2, question("r", "later"), after=1, types=["interrupt.answered"], before=2)
    about = rewound(2).model_copy(update={"by": 4})
    third = batch(3, question("r", "q"), after=1, types=["run.paused"], before=2, rewound=about)
    about = rewound(5, "c").model_copy(update={"by": 6})
    fourth = batch(4, after=3, before=5, rewound=about)
    last = batch(5, question("r", "q"), after=4, types=["run.resumed"], before=6)
    recorded.write(first, second, third, fourth, last)
    seen = events(recorded, discarded=True), statuses(recorded, discarded=True)
    recorded.change(lambda tx: tx.connection.execute(delete(runs)))

    recorded.write(last)
    for each in (first, second, first, third, fourth, last):
        recorded.change(fill, each)

    assert (events(recorded, discarded=True), statuses(recorded, discarded=True)) == seen
    assert statuses(recorded) == {"r.q": "open"}
    standing = recorded.read(discards.standing, "r")
    assert standing is not None
    assert standing.rewound_by == 6


def test_events_after_an_untold_rewind_are_not_added_under_unknown_numbers(
    recorded: Recorded,
) -> None:
    first = batch(1, after=0, types=["run.started", OPENED])
    recorded.write(first, batch(9, after=8, types=["run.resumed"], before=30))

    for number, salt in ((3, "b"), (4, "c")):
        made = batch(number, after=1, types=["run.paused"], before=2, rewound=rewound(2, salt))
        recorded.change(fill, made)

    assert [number for number, *_ in events(recorded)] == [1, 2, 31]


def told_of(*events: tuple[str, str]) -> list[views.Event]:
    return [
        views.Event(id=f"{number:012}", time=NOON, type=type_, run_id="r", address=address)
        for number, (type_, address) in enumerate(events, 1)
    ]


@pytest.mark.parametrize(
    ("before", "after", "ran"),
    [
        ([], ["node.started pay", "node.finished pay"], {"pay": 1}),
        ([], ["node.started pay", "node.retrying pay", "node.started pay"], {"pay": 2}),
        (["node.started pay", "node.finished pay"], ["node.started mail"], {"mail": 1}),
        # Code that was under way begins again.
        (["node.started pay"], [], {"pay": 1}),
        (["node.started pay"], ["node.finished pay"], {"pay": 1}),
        (["node.started pay"], ["node.retrying pay", "node.started pay"], {"pay": 1}),
        # Code that has asked and waits is not under way.
        (["node.started pay", "interrupt.opened pay"], [], {}),
        (["node.started pay", "interrupt.opened pay;process:x"], [], {}),
        (["node.started pay", "interrupt.opened pay2"], [], {"pay": 1}),
        (["node.started pay", "node.blocked pay"], [], {"pay": 1}),
        ([], ["interrupt.answered pay", "run.completed"], {}),
    ],
)
def test_the_code_that_has_run_since_a_point(
    before: list[str], after: list[str], ran: dict[str, int]
) -> None:
    def event(text: str) -> tuple[str, str]:
        type_, _, where = text.partition(" ")
        return type_, f"graph:g;node:{where}"

    told = told_of(*map(event, [*before, *after]))
    effects = discards.effects(told, len(before))

    assert {each.address.removeprefix("graph:g;node:"): each.attempts for each in effects} == ran


def test_made_anew_a_rewind_has_its_number_before_which_less_was_recorded(
    recorded: Recorded,
) -> None:
    """The database was away until the run was rewound to its start, which it recorded first."""
    recorded.change(fill, batch(1, question("r", "q"), after=0, types=["run.started", OPENED]))
    told_by = rewound(0).model_copy(update={"by": 1})
    again = batch(2, question("r", "q"), after=0, types=["run.started", OPENED], rewound=told_by)

    recorded.change(fill, again)

    assert events(recorded, discarded=True) == [
        *((1, "run.rewound", None), (2, "run.started", None), (3, OPENED, None))
    ]
    assert statuses(recorded) == {"r.q": "open"}
