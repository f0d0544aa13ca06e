"""Batches that a run hands over late, twice, or for a workflow task that comes to nothing."""

from __future__ import annotations

from typing import Any

import pytest
from recorded import NOON, Recorded, question, run_view
from recorded import handed as batch
from sqlalchemy import select

from abeyance.records.batch import Batch, Written
from abeyance.records.tables import events, questions, runs

Q, P, X = (question("r", name) for name in "qpx")
ANSWERED = question("r", "q", status="answered")
ENDED = run_view("r").model_copy(update={"ended_at": NOON})


def written(recorded: Recorded, batch: Batch) -> Written:
    (done,) = recorded.write(batch)
    return done


def kept(recorded: Recorded) -> tuple[list[str], dict[str, str | None], Any]:
    """Return the events, the questions' statuses in lists, and the time of the run's end."""
    with recorded.database.reading() as connection:
        told = connection.execute(select(events.c.type).order_by(events.c.number)).scalars().all()
        shown = connection.execute(select(questions.c.interrupt_id, questions.c.listed))
        ended = connection.execute(select(runs.c.ended_at)).scalar_one()
        return [*told], {each.interrupt_id: each.listed for each in shown}, ended


def test_a_batch_that_comes_twice_or_after_a_later_one_changes_nothing(recorded: Recorded) -> None:
    first = batch(1, Q, after=0, types=["a"])
    second = batch(2, ANSWERED, after=1, types=["b"], before=1)
    recorded.write(first, second)

    again, late = written(recorded, second), written(recorded, first)

    assert kept(recorded) == (["a", "b"], {"r.q": None}, None)
    assert again.status == "written"
    assert (late.status, late.latest) == ("outrun", second.number)


@pytest.mark.parametrize("end", [{}, {"view": ENDED}], ids=["goes on", "ends"])
def test_what_a_lost_workflow_task_recorded_is_taken_back_by_the_next_batch(
    recorded: Recorded, end: dict[str, Any]
) -> None:
    lost = batch(2, ANSWERED, X, after=1, types=["x", "y", "z"], before=1, **end)
    recorded.write(batch(1, Q, after=0, types=["a"]), lost)

    done = written(recorded, batch(3, after=1, types=["b"], before=1))
    recorded.write(batch(4, Q, gone=["r.x"], after=3, before=2))

    assert {*done.strays} == {"r.q", "r.x"}
    assert kept(recorded) == (["a", "b"], {"r.q": "open"}, None)


def test_an_end_alone_that_a_lost_workflow_task_recorded_is_taken_back(recorded: Recorded) -> None:
    recorded.write(batch(1, Q, after=0), batch(2, X, after=1, view=ENDED))

    assert {*written(recorded, batch(3, after=1)).strays} == {"r.q", "r.x"}
    recorded.write(batch(4, Q, gone=["r.x"], after=3))
    assert kept(recorded) == ([], {"r.q": "open"}, None)


def test_a_batch_of_which_nobody_heard_says_again_what_was_changed_without_the_run(
    recorded: Recorded,
) -> None:
    following = batch(3, after=1)
    recorded.write(batch(1, Q, after=0), batch(2, ANSWERED, after=1), following)

    assert written(recorded, following).strays == ["r.q"]
    assert written(recorded, batch(4, Q, after=3)).strays == []


def test_a_run_that_ends_is_asked_about_what_a_lost_workflow_task_recorded(
    recorded: Recorded,
) -> None:
    recorded.write(batch(1, Q, after=0), batch(2, X, after=1))
    last = batch(3, question("r", "q", status="cancelled"), after=1, view=ENDED)

    assert written(recorded, last).strays == ["r.x"]


def test_what_a_lost_workflow_task_recorded_is_taken_back_when_the_run_is_replayed(
    recorded: Recorded,
) -> None:
    lost = batch(2, ANSWERED, X, after=1, types=["x", "y"], before=1, view=ENDED)
    recorded.write(batch(1, P, Q, after=0, types=["a"]), lost)

    done = written(recorded, batch(3, P, Q, after=1, before=1, is_whole=True))

    assert done.strays == []
    assert kept(recorded) == (["a"], {"r.p": "open", "r.q": "open"}, None)


def test_a_replay_of_a_run_changes_nothing_that_the_run_knows(recorded: Recorded) -> None:
    told = batch(2, ANSWERED, after=1, before=1, is_whole=True)
    recorded.write(batch(1, Q, after=0, types=["a"]))

    assert written(recorded, told).status == "written"
    assert kept(recorded) == (["a"], {"r.q": "open"}, None)
    with recorded.database.reading() as connection:
        assert connection.execute(select(runs.c.batch)).scalar_one() == 1
