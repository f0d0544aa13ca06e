"""The records of one deployment, as its client reads them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar

from temporalio.client import Client as TemporalClient

from abeyance import views
from abeyance.errors import RecordsUnavailable
from abeyance.keyring import Keyring
from abeyance.records import adoption
from abeyance.records.adoption import Other
from abeyance.records.batch import BEGINNING, Batch
from abeyance.records.database import Database
from abeyance.records.following import Following
from abeyance.records.writer import Writer
from abeyance.settings import Settings, load_settings
from abeyance.temporal.connection import OwnScope

T = TypeVar("T")

_PATIENCE: Final = 1.0
"""In seconds: how long a start waits until it is recorded. The run records it again."""
_BACK_WITHIN: Final = 60.0
_PAUSE: Final = 1.0


def shared_database(settings: Settings) -> Database:
    """Return the database of these settings, which this process opens once."""
    return _database(settings.database_url, settings.encryption_keys)


@lru_cache
def _database(url: str, encryption_keys: str | None) -> Database:
    keys = None if encryption_keys is None else Keyring.parse(encryption_keys)
    return Database(url, keys=keys)


@lru_cache
def _following(database: Database) -> Following:
    return Following(database)


class Records:
    """The records that the client of a deployment reads: its runs, their questions and events.

    The default of `database` is the one in the environment's settings.
    """

    def __init__(
        self,
        temporal: TemporalClient,
        task_queue: str,
        database: Database | None = None,
        *,
        patience: float = 10.0,
    ) -> None:
        self._scope = OwnScope(temporal, task_queue, patience=patience)
        self._database = database
        self._writer: Writer | None = None

    @property
    def database(self) -> Database:
        """The database, which is opened when it is read or written."""
        if self._database is None:
            self._database = shared_database(load_settings())
        return self._database

    @property
    def following(self) -> Following:
        """The one follower of the database in this process."""
        return _following(self.database)

    @property
    def searched(self) -> Literal["all", "clear"]:
        """The texts that a search covers: all, or only those that are not encrypted."""
        return "clear" if self.database.documents.are_sealed else "all"

    async def standing(self) -> Literal["current", "behind", "away"]:
        """Return whether the records can be read, and whether runs may still have to write to them.

        Raises Unavailable.
        """
        try:
            await self.read(lambda *_: None)
        except RecordsUnavailable:
            return "away"
        return "current" if self.database.behind is None else "behind"

    async def read(self, query: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a query of `abeyance.records` with a transaction.

        Raises Unavailable, and RecordsUnavailable.
        """
        scope, database = await self._scope.read(), self.database
        return await database.read(
            lambda connection: query(database.transaction(connection, scope), *arguments, **options)
        )

    async def followed(self, query: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a query as `read` does, again and again for a minute while the records are away."""
        until = time.monotonic() + _BACK_WITHIN
        while True:
            try:
                return await self.read(query, *arguments, **options)
            except RecordsUnavailable:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(_PAUSE)

    async def write(self, change: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a function of `abeyance.records` with a transaction that writes. Raises as `read`."""
        scope, database = await self._scope.read(), self.database

        def written() -> T:
            with database.writing() as connection:
                return change(database.transaction(connection, scope), *arguments, **options)

        return await asyncio.to_thread(written)

    async def adoptable(self) -> Sequence[Other]:
        """Return the deployments whose records `adopt` could take over. Raises Unavailable, and
        RecordsUnavailable.
        """
        scope, database = await self._scope.read(), self.database
        return await database.read(lambda connection: adoption.others(connection, scope))

    async def adopt(self, namespace: str) -> None:
        """Take over the records of a namespace that was lost, by its id.

        Call it before anything else. Raises SettingsError, Unavailable, and RecordsUnavailable.
        """
        scope, database = await self._scope.read(), self.database

        def adopted() -> None:
            with database.writing() as connection:
                adoption.adopt(connection, scope, namespace)

        await asyncio.to_thread(adopted)

    async def started(self, view: views.RunView, origin: str) -> None:
        """Record a run that has just started, so that people can read it before a worker begins it."""
        if self._writer is None:
            self._writer = Writer(self.database)
        # The first batch of the run has a larger number, so it counts even if it comes first.
        batch = Batch(
            number=BEGINNING,
            after=0,
            origin=origin,
            view=view,
            active_at=view.created_at,
            facts_before=0,
        )
        await self._writer.write(await self._scope.read(), batch, patience=_PATIENCE)
