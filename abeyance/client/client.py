"""The client of one deployment, over Temporal, and its parts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, Self

from temporalio.client import Client as TemporalClient

from abeyance import views
from abeyance.authoring.graph import Graph
from abeyance.client.claims import Claims
from abeyance.client.conversations import Conversations
from abeyance.client.delegations import Delegations
from abeyance.client.erasures import Erasures
from abeyance.client.eviction import Capacity, Evictions
from abeyance.client.feed import Feed
from abeyance.client.grants import Grants
from abeyance.client.janitor import Janitor
from abeyance.client.listing import Listing
from abeyance.client.records import Records, shared_database
from abeyance.client.rpc import WorkflowRpc
from abeyance.client.run import TemporalRun
from abeyance.client.runs import Runs
from abeyance.client.start import Executions
from abeyance.client.stream import Stream
from abeyance.client.waking import Waking
from abeyance.commands import lists
from abeyance.filters import ApprovalsFilter, EventFilter, InboxFilter
from abeyance.keyring import SigningKey
from abeyance.notifications.config import Notifications, load_notifications
from abeyance.orders import check_page
from abeyance.records import approvals, questions
from abeyance.records.cursors import Page
from abeyance.records.database import Database
from abeyance.records.report import Approvals
from abeyance.settings import Settings, load_settings
from abeyance.storage.backends import ConfiguredBlobs
from abeyance.storage.blobs import Blobs, MemoryBlobs
from abeyance.temporal.connection import connect_temporal
from abeyance.temporal.workers import LiveWorker, Service, live_workers, service
from abeyance.util import TASK_QUEUE, checked_run_id

_NOTHING: Final = Notifications().events_of
"""The events that a run announces if nobody is to be notified."""
_PAGE: Final = 500


class Client:
    """Start, answer, control and read the runs of one deployment.

    A deployment's runs are those of `task_queue`, which its workers poll; a client cannot reach others.
    `patience` is how many seconds an operation is retried before it raises `Unavailable`. `blobs` is the
    storage of transcripts; without it no transcript is found. `records` is the database that is read, by
    default the one of the environment's settings. `signing_key` signs audits. With
    `notifications`, the runs that the client starts publish notifications from their first event on.

    The parts are `runs` (start, list, session, evict, erase), `inbox` (list), `conversations`,
    `delegations` and `grants`; `run` returns the handle of one run, `events` the events of all runs,
    `approvals` a page of the report. The other attributes are for its own parts, and for workers.
    """

    def __init__(
        self,
        temporal: TemporalClient,
        *,
        task_queue: str = TASK_QUEUE,
        patience: float = 10.0,
        blobs: Blobs | None = None,
        records: Database | None = None,
        signing_key: SigningKey | None = None,
        notifications: Notifications | None = None,
        tokens: Path | None = None,
    ) -> None:
        self.temporal = temporal
        self.task_queue = task_queue
        self.blobs = MemoryBlobs() if blobs is None else blobs
        self.signing_key = signing_key
        self.records = Records(temporal, task_queue, records, patience=patience)
        self.line = WorkflowRpc(temporal, task_queue, self.records, patience=patience)
        self.listing = Listing(temporal, task_queue, patience=patience)
        self.janitor = Janitor(self.line, self.listing, self.records)
        self.line.ended, self.line.gone = self.janitor.found, self.janitor.missed
        self.feed = Feed(self.records, self.line)
        self.claims = Claims(self.line, self.records, self.janitor.settle)
        evictions = Evictions(self.line, self.records)
        self.executions = Executions(
            self.line,
            self.claims,
            Capacity(self.records, evictions.for_another),
            self.records,
            _NOTHING if notifications is None else notifications.events_of,
        )
        self.erasures = Erasures(
            self.line, self.listing, self.blobs, records=self.records, signing_key=signing_key
        )
        self.delegations = Delegations(self.records)
        self.grants = Grants(self.records, tokens)
        self.conversations = Conversations(self)
        self.runs = Runs(self, evictions)
        self.inbox = Inbox(self.records)
        self.stream = Stream(self.records)
        self.waking = Waking(
            self.line,
            self.listing,
            self.records,
            # A caller that starts a workflow through Temporal can give it any id, so do not check it.
            lambda run_id: TemporalRun(self, run_id).worker_started(),
        )

    @classmethod
    async def connect(
        cls,
        address: str | None = None,
        *,
        namespace: str | None = None,
        task_queue: str | None = None,
        patience: float = 10.0,
        settings: Settings | None = None,
    ) -> Self:
        """Connect to Temporal at `address` (host:port), or at the address of the environment.

        Storage, encryption and, unless it is given, the task queue are those of `settings`, or of the
        environment.
        """
        temporal = await connect_temporal(address, namespace=namespace, settings=settings)
        settings = settings or load_settings()
        if task_queue is not None:
            settings = settings.model_copy(update={"task_queue": task_queue})
        return cls(
            temporal,
            task_queue=settings.task_queue,
            patience=patience,
            blobs=ConfiguredBlobs(settings),
            records=shared_database(settings),
            signing_key=settings.signing_key,
            notifications=load_notifications(settings, delivers=False),
            tokens=settings.tokens_file,
        )

    def run(self, run_id: str, graph: Graph | None = None) -> TemporalRun:
        """Return the handle of a run, which need not exist. Editing its values requires its `graph`.

        Raises `invalid_run_id`.
        """
        return TemporalRun(self, checked_run_id(run_id), graph)

    async def events(
        self,
        filters: EventFilter | None = None,
        *,
        after: str | None = None,
        follow: bool = True,
    ) -> AsyncGenerator[views.StreamEvent, None]:
        """Yield the events of all runs after the one with the id `after`, each run's in order.

        None as `after` begins with the oldest event that is recorded. With `follow`, new events follow
        without end. No worker has to be up. Raises `invalid_body` for an invalid id, `gone`, with the
        `oldest` cursor, for an id that the records do not have, and Unavailable.
        """
        check_page(lists.StreamPage, filters or EventFilter())
        if follow:
            following = await self.stream.opened(after, filters=filters)
            async with aclosing(following.events) as events:
                async for event in events:
                    yield event
            return
        while True:
            page, then = await self.stream.page(after, limit=_PAGE, filters=filters)
            for event in page:
                yield event
            if then == after:
                return
            after = then

    async def approvals(
        self,
        filters: ApprovalsFilter | None = None,
        *,
        fields: Sequence[str] = (),
        sums: Sequence[str] = (),
        cursor: str | None = None,
        limit: int = 50,
    ) -> Approvals:
        """Return a page of the report of approvals, newest first: who settled which questions, and when.

        Each row has the `fields` (`reason.amount`) of what was shown, or of the answer. The first page
        has the `sums` of fields over the whole report. Raises `invalid_body` for a field that is not a
        path, a cursor of another report, a time that ends before it begins, and a sum of over 150,000
        rows; and Unavailable.
        """
        page: dict[str, Any] = {"cursor": cursor, "limit": limit}
        filters = filters or ApprovalsFilter()
        order = check_page(lists.ApprovalsPage, filters, fields=fields, sums=sums, **page)
        page |= {"fields": order.fields, "sums": order.sums, "limit": order.most}
        return await self.records.read(approvals.page, filters, **page)

    async def workers(self) -> list[LiveWorker]:
        """Return the workers of the task queue that are up. Raises Unavailable, within two seconds."""
        return await live_workers(self.temporal, self.task_queue)

    async def service(self) -> Service:
        """Return whether runs would be served, and why not. Raises Unavailable, within seconds."""
        return await service(self.temporal, self.task_queue)


class Inbox:
    """The inbox of one deployment."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def list(
        self, filters: InboxFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[views.InterruptView], str | None]:
        """Return at most `limit` questions that wait, in the order of the filter, and the cursor of the
        next page, None after the last.

        Raises `invalid_body` for a cursor of another list, and Unavailable.
        """
        page = await self.page(filters, cursor=cursor, limit=limit)
        return page.items, page.next_cursor

    async def page(
        self, filters: InboxFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> Page[views.InterruptView]:
        """Return a page as `list` does, and how many questions there are in all."""
        filters = filters or InboxFilter()
        order = check_page(lists.InboxPage, filters, cursor=cursor, limit=limit)
        filters = lists.narrowed(filters, order)
        return await self._records.read(
            questions.inbox, filters, order=filters.order, cursor=cursor, limit=order.most
        )
