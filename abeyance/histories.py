"""The histories of a run in Temporal: read page by page, and from each to the one that follows it.

A run has one history for each Temporal execution: a hand-over begins another, and so does a reset by an
operator. A history can only be read from its beginning, so a reader skips what it has seen; pages that
cannot change any more are kept for a while, for others who come the same way.

Reading adds nothing to a history and needs no worker. While Temporal cannot be reached, it is waited for.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, WorkflowExecutionStatus
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryResponse,
)
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from abeyance import wire
from abeyance.closed import PAUSED_NATIVELY
from abeyance.cursor import Cursor
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.patience import NotFound
from abeyance.translate import CLOSING, Known, released, sources, translate

T = TypeVar("T")

_RPC: Final = timedelta(seconds=5)
_POLL: Final = timedelta(seconds=70)
"""Longer than the server lets a long poll wait before it answers that there is nothing new."""
_PAGE: Final = 200
_KEPT_PAGES: Final = 64
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_AWAY: Final = frozenset(
    {
        RPCStatusCode.ABORTED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.UNAVAILABLE,
        # A connection that broke in the middle of a call.
        RPCStatusCode.UNKNOWN,
    }
)
_RUNNING: Final = (WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING, PAUSED_NATIVELY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One of a run's executions. `first` is the oldest of its chain, `reset_to` what replaced it."""

    id: str
    first: str
    is_running: bool
    reset_to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where to read on in a history, and what is known of it up to there."""

    known: Known
    token: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some events, and where to read on; `then` None: the run has ended.

    `is_last` says that there was nothing more at the time; the page has to be read again for more.
    """

    events: tuple[wire.Event, ...]
    then: Place | None
    is_last: bool = False


class Histories:
    """The histories of a namespace's runs.

    `patience` is how many seconds a Temporal that has gone away is waited for.
    """

    def __init__(self, temporal: TemporalClient, *, patience: float) -> None:
        self._temporal = temporal
        self._patience = patience
        self._kept: OrderedDict[tuple[str, str, bytes], Page] = OrderedDict()

    async def newest(self, run_id: str) -> Execution:
        """The run's newest execution. Raises the refusal `unknown_run`, and Unavailable."""
        try:
            return await self._execution(run_id, "")
        except NotFound:
            raise _unknown(run_id) from None

    async def oldest(self, run_id: str) -> Cursor:
        """Before the first event of the oldest history from which one can read on to the newest."""
        newest = await self.newest(run_id)
        cursor: Cursor | None = None
        try:
            async for begun in self._backwards(run_id, newest.id):
                cursor = Cursor(
                    run_id=run_id, execution=begun.execution, birth=begun.birth, event=0
                )
        except NotFound:
            if cursor is None:
                raise _unknown(run_id) from None
        if cursor is None:
            raise _unknown(run_id)
        return cursor

    async def read(self, place: Place, *, wait: bool = False) -> Page:
        """The page at a place. With `wait`, one at the end of an open history comes when there is more,
        or, empty, after some seconds. Raises NotFound if the history is not there, and Unavailable.
        """
        key = (place.known.run_id, place.known.execution, place.token)
        if not wait and (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return kept
        response = await self._history(place, wait=wait)
        events: list[wire.Event] = []
        known = place.known
        for event in response.history.events:
            told, known = await self._translated(event, known)
            events += told
            if event.event_type in CLOSING:
                return await self._ended(event, events, known)
        token = response.next_page_token
        if token and not wait:
            # There is more, so this page is complete, and stays as it is.
            page = Page(events=tuple(events), then=Place(known=known, token=token))
            self._keep(key, page)
            return page
        told, known = released(known)
        then = Place(known=known, token=token) if token else place
        return Page(events=(*events, *told), then=then, is_last=not wait)

    async def _ended(self, event: HistoryEvent, events: list[wire.Event], known: Known) -> Page:
        successor = await self._successor(event, known)
        if successor is None:
            return Page(events=tuple(events), then=None)
        if events and events[-1].type in wire.TERMINAL_EVENTS:
            # It was not the end of the run.
            events.pop()
        onward = Known(run_id=known.run_id, execution=successor)
        return Page(events=tuple(events), then=Place(known=onward))

    async def _successor(self, event: HistoryEvent, known: Known) -> str | None:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
            attributes = event.workflow_execution_continued_as_new_event_attributes
            return attributes.new_execution_run_id
        try:
            ended = await self._execution(known.run_id, known.execution)
            newest = await self._execution(known.run_id, "")
        except NotFound:
            return None
        if ended.reset_to:
            return ended.reset_to
        if newest.first != ended.first or newest.id == ended.id:
            return None
        # A reset of an older execution has ended this one, and left no trace in it. What replaced it was
        # copied from before, so that is the first whose beginning is not later than what ended here.
        execution = newest.id
        async for begun in self._backwards(known.run_id, newest.id):
            execution = begun.execution
            if begun.birth <= known.birth:
                break
        return execution

    async def _backwards(self, run_id: str, execution: str) -> AsyncIterator[Known]:
        """What the first event of each history tells, from this one to the oldest of its chain."""
        while execution:
            place = Place(known=Known(run_id=run_id, execution=execution))
            (event, *_) = (await self._history(place, most=1)).history.events
            _, known = await self._translated(event, place.known)
            yield known
            execution = event.workflow_execution_started_event_attributes.continued_execution_run_id

    async def _translated(
        self, event: HistoryEvent, known: Known
    ) -> tuple[list[wire.Event], Known]:
        payloads = sources(event)
        values: list[Any] = []
        if payloads:
            values = await self._temporal.data_converter.decode(payloads)
        return translate(event, values, known)

    def _keep(self, key: tuple[str, str, bytes], page: Page) -> None:
        self._kept[key] = page
        if len(self._kept) > _KEPT_PAGES:
            self._kept.popitem(last=False)

    async def _history(
        self, place: Place, *, wait: bool = False, most: int = _PAGE
    ) -> GetWorkflowExecutionHistoryResponse:
        known = place.known
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self._temporal.namespace,
            execution=WorkflowExecution(workflow_id=known.run_id, run_id=known.execution),
            maximum_page_size=most,
            next_page_token=place.token,
            wait_new_event=wait,
            skip_archival=True,
        )
        timeout = _POLL if wait else _RPC

        async def ask() -> GetWorkflowExecutionHistoryResponse:
            service = self._temporal.workflow_service
            return await service.get_workflow_execution_history(request, timeout=timeout)

        return await self._patiently(known.run_id, ask)

    async def _execution(self, run_id: str, execution: str) -> Execution:
        request = DescribeWorkflowExecutionRequest(
            namespace=self._temporal.namespace,
            execution=WorkflowExecution(workflow_id=run_id, run_id=execution),
        )

        async def ask() -> DescribeWorkflowExecutionResponse:
            service = self._temporal.workflow_service
            return await service.describe_workflow_execution(request, timeout=_RPC)

        raw = await self._patiently(run_id, ask)
        info = raw.workflow_execution_info
        if info.type.name != wire.WORKFLOW:
            # Somebody else's workflow is no run.
            raise NotFound
        return Execution(
            id=info.execution.run_id,
            first=info.first_run_id,
            is_running=info.status in _RUNNING,
            reset_to=raw.workflow_extended_info.reset_run_id,
        )

    async def _patiently(self, run_id: str, ask: Callable[[], Awaitable[T]]) -> T:
        # Not `patience.patiently`: the time counts from the first failure, for a poll may be long.
        clock = asyncio.get_running_loop().time
        deadline: float | None = None
        pause = _FIRST_PAUSE
        while True:
            try:
                return await ask()
            except RPCError as error:
                if error.status == RPCStatusCode.NOT_FOUND:
                    raise NotFound from error
                if error.status not in _AWAY:
                    raise
                deadline = deadline or clock() + self._patience
                if clock() + pause > deadline:
                    raise Unavailable(
                        f"the events of the run {run_id!r} cannot be read: Temporal did not answer for "
                        f"{self._patience:g} s ({error.message}). Go on from the last id received."
                    ) from error
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)


def _unknown(run_id: str) -> Refusal:
    return Refusal(
        Code.UNKNOWN_RUN,
        f"There is no run {run_id!r}, or its history is no longer kept.",
        run_id=run_id,
    )
