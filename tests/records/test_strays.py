"""Records of a workflow task that came to nothing are taken back if no history of the run has them."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from recorded import NOON, Recorded, handed, question, run_view

from abeyance import views
from abeyance.records import events as told
from abeyance.records import questions as asked
from abeyance.records import runs
from abeyance.records.batch import Batch, Rewound
from abeyance.records.outside import End, end
from abeyance.records.tables import micros
from abeyance.records.writing import take_back

OPENED, ANSWERED = "interrupt.opened", "interrupt.answered"
EXECUTION = "e"


def batch(
    second: int,
    *questions: views.InterruptView,
    after: int,
    task: str = f"{EXECUTION}/3",
    **about: Any,
) -> Batch:
    """Return a batch that a workflow task made so many seconds after noon."""
    return handed(number(second), *questions, after=number(after), task=task, **about)


def number(second: int) -> int:
    return micros(NOON + timedelta(seconds=second))


FIRST = batch(1, question("r", "q"), question("r", "p"), after=0, types=["run.started", OPENED])
LOST = batch(
    2,
    question("r", "q", status="answered", settled_at=NOON),
    question("r", "x"),
    after=1,
    types=[ANSWERED, OPENED],
    before=2,
    task=f"{EXECUTION}/9",
)


def mend(
    recorded: Recorded, *, until: float, over: float = math.inf, latest: Batch = FIRST
) -> None:
    recorded.change(
        take_back,
        latest,
        [question("r", "q"), question("r", "p")],
        over={EXECUTION: over},
        until=NOON + timedelta(seconds=until),
    )


def kept(recorded: Recorded) -> tuple[list[str], dict[str, str]]:
    found = recorded.read(asked.of_run, "r", status="all")
    events = recorded.read(told.of_run, "r")
    return [event.type for event in events], {view.id: view.status for view in found}


KNOWN = (["run.started", OPENED], {"r.q": "open", "r.p": "open"})


def test_records_that_no_history_has_are_taken_back(recorded: Recorded) -> None:
    recorded.write(FIRST, LOST)
    assert kept(recorded) != KNOWN

    mend(recorded, until=3)

    assert kept(recorded) == KNOWN
    # The run itself goes on as if the task had never been.
    recorded.write(batch(4, after=1, types=["run.paused"], before=2))
    assert kept(recorded)[0] == [*KNOWN[0], "run.paused"]


def test_the_end_of_a_run_that_no_history_has_is_taken_back(recorded: Recorded) -> None:
    ended = LOST.view.model_copy(update={"status": "completed", "ended_at": NOON})
    recorded.write(FIRST, LOST.model_copy(update={"view": ended}))

    mend(recorded, until=3)

    assert kept(recorded) == KNOWN
    view = recorded.read(runs.run, "r")
    assert view is not None
    assert (view.status, view.ended_at) == ("awaiting-input", None)


def test_records_newer_than_the_history_stay(recorded: Recorded) -> None:
    recorded.write(FIRST, LOST)
    seen = kept(recorded)

    mend(recorded, until=1.5)

    assert kept(recorded) == seen


@pytest.mark.parametrize(("over", "is_known"), [(8, False), (9, True)])
def test_records_of_a_task_begun_after_a_clock_went_back_stay(
    recorded: Recorded, *, over: int, is_known: bool
) -> None:
    recorded.write(FIRST, LOST)
    seen = kept(recorded)

    mend(recorded, until=3, over=over)

    assert kept(recorded) == (KNOWN if is_known else seen)


def test_records_of_an_execution_that_temporal_lacks_stay(recorded: Recorded) -> None:
    elsewhere = [each.model_copy(update={"task": "other/3"}) for each in LOST.facts]
    recorded.write(FIRST, LOST.model_copy(update={"facts": elsewhere}))
    seen = kept(recorded)

    mend(recorded, until=3)

    assert kept(recorded) == seen


@pytest.mark.parametrize("status", ["terminated", "timed-out"])
def test_an_end_that_was_recorded_from_outside_stays(recorded: Recorded, status: str) -> None:
    recorded.write(FIRST)
    view = run_view("r", status=status, ended_at=NOON, degraded=True)
    recorded.change(end, [End(origin="r-first", view=view)])
    seen = kept(recorded)
    assert seen[0][-1] == f"run.{status}".replace("-", "_")

    mend(recorded, until=3)

    assert kept(recorded) == seen


@pytest.mark.parametrize("is_recorded", [True, False])
def test_strays_after_a_rewind_are_taken_back(recorded: Recorded, *, is_recorded: bool) -> None:
    recorded.write(FIRST, LOST)
    rewound = Rewound(at=2, salt="b", execution=EXECUTION, time=NOON)
    rewind = batch(3, question("r", "q"), question("r", "p"), after=1, before=2)
    rewind = rewind.model_copy(update={"rewound": rewound})
    if is_recorded:
        recorded.write(rewind)
    since = batch(4, question("r", "y"), after=3, types=[OPENED], before=5, task=f"{EXECUTION}/12")
    recorded.write(since)
    seen = kept(recorded)

    mend(recorded, until=5, latest=rewind)

    if is_recorded:
        assert kept(recorded) == ([*KNOWN[0], "run.rewound"], KNOWN[1])
    else:
        assert kept(recorded) == seen


def test_the_batch_left_by_an_ended_run_takes_back_strays(
    recorded: Recorded,
) -> None:
    recorded.write(FIRST, LOST)
    known = (question("r", "q", status="cancelled"), question("r", "p", status="cancelled"))
    ended = ["interrupt.cancelled", "interrupt.cancelled", "run.cancelled"]
    view = run_view("r", status="cancelled")
    left = batch(3, *known, after=1, types=ended, before=2, task=f"{EXECUTION}/11", view=view)

    assert recorded.change(end, [left]) == 1
    once = kept(recorded)
    assert recorded.change(end, [left]) == 0

    assert once == (["run.started", OPENED, *ended], {"r.q": "cancelled", "r.p": "cancelled"})
    assert kept(recorded) == once


@pytest.mark.parametrize("by", ["itself", "Temporal"])
def test_the_end_of_an_earlier_execution_is_not_that_of_the_run(
    recorded: Recorded, by: str
) -> None:
    recorded.write(FIRST)
    assert recorded.read(runs.unsettled, {"r": EXECUTION}) == {"r"}
    if by == "itself":
        view = run_view("r", status="failed")
        recorded.write(batch(2, after=1, types=["run.failed"], before=2, view=view))
    else:
        view = run_view("r", status="terminated")
        recorded.change(end, [End(origin="r-first", view=view, execution=EXECUTION)])

    assert recorded.read(runs.unsettled, {"r": EXECUTION}) == set()
    assert recorded.read(runs.unsettled, {"r": "retried or rewound"}) == {"r"}
    assert recorded.read(runs.ended, "r", execution=EXECUTION) is not None
    assert recorded.read(runs.ended, "r", execution="retried or rewound") is None
