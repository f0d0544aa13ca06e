"""The writer of a process writes what runs have told, however long the database was away."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded import batch, fact, run_view
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from temporal_site import eventually

from abeyance.errors import Unavailable
from abeyance.records.database import Database, Scope
from abeyance.records.tables import events
from abeyance.records.writer import News, UnwrittenNews, Writer

SCOPE = Scope("n", "q")


def written(database: Database) -> list[str]:
    """Return the types of all events."""
    with database.reading() as connection:
        return [*connection.execute(select(events.c.type).order_by(events.c.position)).scalars()]


async def test_told_news_is_written_once_the_database_is_back(
    tmp_path: Path,
) -> None:
    door = tmp_path / "folder"
    door.write_text("no folder", encoding="utf-8")
    writer = Writer(Database(f"sqlite:///{door}/records.db"))
    first, more = fact(1), fact(2, "node.retrying")
    writer.tell(lambda: SCOPE, batch(run_view("r"), number=5, facts=[first]))
    waited = await writer.write(SCOPE, batch(run_view("s"), number=5), patience=10)
    # The later batch includes the one told before, and replaces it.
    writer.tell(lambda: SCOPE, batch(run_view("r"), number=6, facts=[first, more]))

    door.unlink()
    door.mkdir()
    database = Database(f"sqlite:///{door}/records.db")

    assert waited.status == "away"
    await eventually(lambda: written(database) == ["node.started", "node.retrying"])


async def test_told_news_is_written_once_the_deployment_is_known(
    database: Database,
) -> None:
    asked: list[str] = []

    def scope() -> Scope:
        asked.append("whose")
        if len(asked) == 1:
            raise Unavailable("Temporal does not answer")
        return SCOPE

    Writer(database).tell(scope, batch(run_view("r"), facts=[fact(1)]))

    await eventually(lambda: written(database) == ["node.started"])
    assert len(asked) == 2


async def test_a_batch_that_cannot_be_written_does_not_hold_back_others(database: Database) -> None:
    writer = Writer(database)
    # No column can hold its number.
    lost = batch(run_view("r"), number=2**70, facts=[fact(1, "lost")])
    writer.tell(lambda: SCOPE, lost)
    writer.tell(lambda: SCOPE, batch(run_view("s"), facts=[fact(1, "told")]))
    with pytest.raises((OverflowError, SQLAlchemyError)):
        await writer.write(SCOPE, lost, patience=10)
    kept = batch(run_view("t"), facts=[fact(1, "kept")])
    after = await writer.write(SCOPE, kept, patience=10)

    assert after.status == "written"
    await eventually(lambda: sorted(written(database)) == ["kept", "told"])


def told(number: int, *, due: float = 0.0) -> News:
    return News(lambda: SCOPE, batch(run_view("r"), number=number, facts=[fact(1)]), due)


@pytest.mark.parametrize(
    ("recorded", "left"),
    [pytest.param(6, 0, id="recorded later"), pytest.param(4, 1, id="recorded before")],
)
def test_told_news_is_not_written_after_a_batch_that_includes_it(recorded: int, left: int) -> None:
    untold = UnwrittenNews()
    untold.add(told(5))

    untold.recorded(batch(run_view("r"), number=recorded, facts=[fact(1)]))

    assert len(untold) == left


def test_news_told_within_a_moment_is_written_together() -> None:
    untold = UnwrittenNews()
    untold.add(told(5, due=100.0))
    too_early = untold.take(now=99.9)
    untold.add(told(6, due=100.1))

    assert too_early == []
    assert untold.due == 100.0
    assert [each.batch.number for each in untold.take(now=100.0)] == [6]
