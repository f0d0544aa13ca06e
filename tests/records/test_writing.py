"""What a run hands over, late, twice, or for a workflow task that comes to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select

from abeyance import views
from abeyance.records.batch import Batch, Fact, Written
from abeyance.records.database import Database, Scope
from abeyance.records.tables import events, questions, runs
from abeyance.records.writing import write

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
SCOPE = Scope("n", "q")
# As runs number them: in microseconds since 1970.
FIRST = int(NOON.timestamp() * 1_000_000)


def asked(name: str, status: str = "open", **fields: Any) -> views.InterruptView:
    about = {"id": name, "name": name, "status": status, "created_at": NOON}
    about |= {"run_id": "r", "graph": "g", "kind": "question", "address": "a", "prompt": "Go on?"}
    return views.InterruptView.model_validate({**about, **fields})


def batch(
    number: int,
    *changed: views.InterruptView,
    after: int,
    told: Sequence[str] = (),
    before: int = 0,
    gone: Sequence[str] = (),
) -> Batch:
    view = views.RunView(
        run_id="r", graph="g", graph_version="", status="running", created_at=NOON, updated_at=NOON
    )
    return Batch(
        number=FIRST + number,
        after=FIRST + after if after else 0,
        origin="first",
        view=view,
        active_at=NOON,
        questions=[*changed],
        gone=[*gone],
        facts_before=before,
        facts=[Fact(number=n, time=NOON, type=type_) for n, type_ in enumerate(told, before + 1)],
    )


def recorded(database: Database, batch: Batch) -> Written:
    with database.writing() as connection:
        (written,) = write(database.transaction(connection, SCOPE), [batch])
    return written


def kept(database: Database) -> tuple[list[str], dict[str, str | None]]:
    """The events, and the statuses of the questions that lists show."""
    with database.reading() as connection:
        told = connection.execute(select(events.c.type).order_by(events.c.number)).scalars().all()
        shown = connection.execute(select(questions.c.interrupt_id, questions.c.listed))
        return [*told], {each.interrupt_id: each.listed for each in shown}


def test_a_batch_that_comes_twice_or_after_a_later_one_changes_nothing(database: Database) -> None:
    first = batch(1, asked("q"), after=0, told=["a"])
    second = batch(2, asked("q", "answered"), after=1, told=["b"], before=1)
    recorded(database, first)
    recorded(database, second)

    again, late = recorded(database, second), recorded(database, first)

    assert kept(database) == (["a", "b"], {"q": None})
    assert again.status == "written"
    assert (late.status, late.latest) == ("outrun", second.number)


def test_what_a_lost_workflow_task_recorded_is_taken_back_by_the_next_batch(
    database: Database,
) -> None:
    recorded(database, batch(1, asked("q"), after=0, told=["a"]))
    lost = batch(2, asked("q", "answered"), asked("x"), after=1, told=["x", "y", "z"], before=1)
    recorded(database, lost)

    written = recorded(database, batch(3, after=1, told=["b"], before=1))
    recorded(database, batch(4, asked("q"), gone=["x"], after=3, before=2))

    assert {*written.strays} == {"q", "x"}
    assert kept(database) == (["a", "b"], {"q": "open"})


def test_a_batch_of_which_nobody_heard_says_again_what_was_changed_without_the_run(
    database: Database,
) -> None:
    recorded(database, batch(1, asked("q"), after=0))
    recorded(database, batch(2, asked("q", "answered"), after=1))
    following = batch(3, after=1)
    recorded(database, following)

    assert recorded(database, following).strays == ["q"]
    assert recorded(database, batch(4, asked("q"), after=3)).strays == []


def test_the_end_of_a_run_that_a_lost_workflow_task_recorded_is_taken_back(
    database: Database,
) -> None:
    recorded(database, batch(1, asked("q"), after=0))
    lost = batch(2, asked("x"), after=1)
    ended = lost.view.model_copy(update={"ended_at": NOON})
    recorded(database, lost.model_copy(update={"view": ended}))

    written = recorded(database, batch(3, after=1))
    recorded(database, batch(4, asked("q"), after=3))

    assert {*written.strays} == {"q", "x"}
    assert kept(database)[1]["q"] == "open"
    with database.reading() as connection:
        assert connection.execute(select(runs.c.ended_at)).scalar_one() is None


def test_a_run_that_ends_is_asked_about_what_a_lost_workflow_task_recorded(
    database: Database,
) -> None:
    recorded(database, batch(1, asked("q"), after=0))
    recorded(database, batch(2, asked("x"), after=1))
    last = batch(3, asked("q", "cancelled"), after=1)
    ended = last.view.model_copy(update={"ended_at": NOON})

    assert recorded(database, last.model_copy(update={"view": ended})).strays == ["x"]


def whole(number: int, *known: views.InterruptView, after: int, before: int) -> Batch:
    """What a run tells once it is replayed."""
    told = batch(number, *known, after=after, before=before)
    return told.model_copy(update={"is_whole": True})


def test_what_a_lost_workflow_task_recorded_is_taken_back_when_the_run_is_replayed(
    database: Database,
) -> None:
    recorded(database, batch(1, asked("p"), asked("q"), after=0, told=["a"]))
    lost = batch(2, asked("q", "answered"), asked("x"), after=1, told=["x", "y"], before=1)
    ended = lost.view.model_copy(update={"ended_at": NOON})
    recorded(database, lost.model_copy(update={"view": ended}))

    written = recorded(database, whole(3, asked("p"), asked("q"), after=1, before=1))

    assert written.strays == []
    assert kept(database) == (["a"], {"p": "open", "q": "open"})
    with database.reading() as connection:
        assert connection.execute(select(runs.c.ended_at)).scalar_one() is None


def test_a_replay_of_a_run_changes_nothing_that_the_run_knows(database: Database) -> None:
    recorded(database, batch(1, asked("q"), after=0, told=["a"]))
    told = whole(2, asked("q", "answered"), after=1, before=1)

    assert recorded(database, told).status == "written"
    assert kept(database) == (["a"], {"q": "open"})
    with database.reading() as connection:
        assert connection.execute(select(runs.c.batch)).scalar_one() == FIRST + 1
