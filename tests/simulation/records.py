"""The records' database as workers reach it: writes are late or lost, or it is away for a while."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import BindParameter, Connection, bindparam, create_engine, insert, select
from sqlalchemy.pool import StaticPool
from temporalio import activity

from abeyance import views
from abeyance.errors import RecordsUnavailable
from abeyance.keyring import Keyring
from abeyance.records.batch import Batch, Written
from abeyance.records.database import Scope
from abeyance.records.documents import Documents, Transaction
from abeyance.records.tables import deployments, events, metadata, questions, runs
from abeyance.records.writing import write
from tests.simulation.payloads import KEYS

if TYPE_CHECKING:
    from tests.simulation.server import Server

T = TypeVar("T")

_FATES: Final = ("written", "written later", "lost", "away", "hangs", "hangs, and is written")
_LIKELY: Final = (24, 1, 1, 1, 0.3, 0.3)
_AWAY: Final = (0.3, 3.0, 60.0)
_LATER: Final = (0.05, 1.0, 15.0, 100.0)
_TOLD_AFTER: Final = (0.001, 0.001, 0.05, 15.0, 0.0)
"""0 is never."""
LATEST: Final = _LATER[-1]
"""Seconds within which even the latest batch is written."""


_OWN: Final[BindParameter[int]] = bindparam("deployment")
_VIEW: Final = select(runs.c.view).where(runs.c.deployment == _OWN)
_ASKED: Final = select(
    questions.c.interrupt_id, questions.c.listed, questions.c.rewound_by, questions.c.view
).where(questions.c.deployment == _OWN)
_EVENT: Final = (events.c.type, events.c.address, events.c.actor, events.c.at, events.c.data)
_TOLD: Final = (
    select(events.c.number, events.c.rewound_by, *_EVENT)
    .where(events.c.deployment == _OWN, events.c.number.is_not(None))
    .order_by(events.c.number)
)
_CAUSED: Final = select(events.c.type, events.c.data).where(
    events.c.deployment == _OWN, events.c.actor == bindparam("actor")
)


class Hanging(Exception):
    """The database does not respond before the activity times out."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The records of one run in the database. `view` is None before the first batch is written.

    `listed` has the list of each question. `listed_still` are questions that a list still has although a
    rewind has discarded them. An event is a tuple: its number, the number of the rewind that discards it,
    its type, address, actor, time and data.
    """

    view: views.RunView | None
    questions: Mapping[str, views.InterruptView]
    listed: Mapping[str, str | None]
    listed_still: list[str]
    events: list[tuple[Any, ...]]


@functools.cache
def _connection(process: int) -> Connection:
    """Return the one connection of a process: a fork must not use the connection of its parent."""
    del process
    connection = create_engine("sqlite://", poolclass=StaticPool).connect()
    connection.exec_driver_sql("PRAGMA foreign_keys=ON")
    metadata.create_all(connection)
    connection.commit()
    return connection


class Records:
    """The records of one deployment; each schedule has its own."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection = _connection(os.getpid())
        self.documents = Documents(KEYS if server.is_sealed else Keyring({}))
        self._away_until = 0.0
        self.owed = 0
        """How many whole batches, which may take events back, wait for the database."""
        self._transaction = self._connection.begin()
        self._own("simulation")

    def anew(self) -> Records:
        """Return empty records in the same database."""
        other = copy(self)
        other._own("reindexed")
        return other

    def _own(self, queue: str) -> None:
        own = insert(deployments).values(namespace="simulated", task_queue=queue)
        self._deployment = self._connection.execute(own.returning(deployments.c.id)).scalar_one()
        self._tx = Transaction(self._connection, self.documents, self._deployment)

    def close(self) -> None:
        """Roll everything back."""
        self._transaction.rollback()

    async def write(self, scope: Scope, batch: Batch, *, patience: float) -> Written:
        """Write a batch, or fail to, as the writer of a process may. Raises Hanging in an activity."""
        del scope, patience
        try:
            return self._recorded(batch)
        except Hanging:
            if activity.in_activity():
                raise
            return Written(status="late")

    def tell(self, batch: Batch) -> None:
        """Write a batch soon, late or never. Write a whole batch as soon as the database is back."""
        server = self._server
        if batch.is_whole:
            self.owed += 1
            self._take_back(batch)
        elif server.is_calm:
            server.later(0.0, self._write, batch)
        elif server.loop.time() >= self._away_until and (
            delay := server.chance.choice(_TOLD_AFTER)
        ):
            server.later(delay, self._write, batch)

    def _take_back(self, batch: Batch) -> None:
        if (left := self._away_until - self._server.loop.time()) > 0:
            self._server.later(left, self._take_back, batch)
            return
        self._write(batch)
        self.owed -= 1

    def _recorded(self, batch: Batch) -> Written:
        server, chance = self._server, self._server.chance
        if server.loop.time() < self._away_until:
            return Written(status="away")
        if server.is_calm:
            return self._write(batch)
        (fate,) = chance.choices(_FATES, _LIKELY)
        if fate != "written":
            server.note(f"the batch {batch.number} is {fate}")
        match fate:
            case "written":
                return self._write(batch)
            case "written later":
                # A thread that nobody waits for writes it, maybe in a worker that is gone.
                server.later(chance.choice(_LATER), self._write, batch)
                return Written(status="late")
            case "lost":
                return Written(status="late")
            case "away":
                self._away_until = server.loop.time() + chance.choice(_AWAY)
                return Written(status="away")
            case _:
                if fate != "hangs":
                    self._write(batch)
                raise Hanging

    def _write(self, batch: Batch) -> Written:
        (written,) = write(self._tx, [batch])
        return written

    # The database as a client uses it

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Return the result of a query. Raises RecordsUnavailable."""
        if self._server.has_rewinds:
            await asyncio.sleep(self._server.delay())
        with self.writing() as connection:
            return query(connection)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open the one transaction. Raises RecordsUnavailable."""
        server = self._server
        is_away = server.loop.time() < self._away_until and not server.is_calm
        if server.has_rewinds and is_away:
            raise RecordsUnavailable("the database is away")
        yield self._connection

    def transaction(self, connection: Connection, scope: Scope) -> Transaction:
        """Return the transaction that queries and changes take."""
        del connection, scope
        return self._tx

    # The records that a schedule compares with the run

    def kept(self) -> Kept:
        """Return the records of the run."""
        read = self.documents.read
        about = {"deployment": self._deployment}
        view = self._connection.execute(_VIEW, about).scalar_one_or_none()
        asked = self._connection.execute(_ASKED, about).all()
        standing = [each for each in asked if not each.rewound_by]
        told = self._connection.execute(_TOLD, about).all()
        return Kept(
            view=None if view is None else views.RunView.model_validate(read(view)),
            questions={
                each.interrupt_id: views.InterruptView.model_validate(read(each.view))
                for each in standing
            },
            listed={each.interrupt_id: each.listed for each in standing},
            listed_still=[each.interrupt_id for each in asked if each.rewound_by and each.listed],
            events=[(*each[:-1], read(each.data)) for each in told],
        )

    def told_of(self, actor: str) -> Iterator[tuple[str, Any]]:
        """Yield type and data of the events that a person has caused."""
        found = self._connection.execute(_CAUSED, {"deployment": self._deployment, "actor": actor})
        for type_, data in found:
            yield type_, self.documents.read(data)
