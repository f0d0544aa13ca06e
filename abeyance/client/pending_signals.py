"""Refuse signals to a run that has not processed hundreds of earlier ones.

Temporal stores signals while no worker is up, and gives them all to one workflow task later: thousands
are more than a task has time for, and at 50 MB the server ends the run. A process counts what it sends.
When the count reaches the bound, it reads in the history what the run has not processed, so that other
processes' signals count too.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client as TemporalClient

from abeyance.errors import Code, Refusal
from abeyance.history.description import RPC
from abeyance.temporal.retry import NotFound, retry_until
from abeyance.temporal.single_flight import SingleFlight

MOST_PENDING: Final = 300
MOST_PENDING_BYTES: Final = 1_000_000
_READ_AGAIN_AFTER: Final = 1.0
"""In seconds: a flood of refused signals does not read the history more often than this."""
_PAGE: Final = 50
_MAX_CACHED: Final = 10_000


@dataclass(slots=True)
class _Load:
    """A number of signals and their bytes."""

    count: int = 0
    size: int = 0

    def __add__(self, other: _Load) -> _Load:
        return _Load(self.count + other.count, self.size + other.size)

    def __sub__(self, other: _Load) -> _Load:
        return _Load(self.count - other.count, self.size - other.size)

    @property
    def is_full(self) -> bool:
        return self.count > 1 and (self.count > MOST_PENDING or self.size > MOST_PENDING_BYTES)


@dataclass(slots=True)
class _Sent:
    """The signals of one kind that this process has sent. `beyond` is the number of other signals that
    the run had to process when its history was read, negative if it had processed some of ours.
    """

    stored: _Load = field(default_factory=_Load)
    under_way: _Load = field(default_factory=_Load)
    beyond: _Load = field(default_factory=_Load)
    read_at: float = float("-inf")

    @property
    def pending(self) -> _Load:
        return self.stored + self.under_way + self.beyond


class PendingSignals:
    """The signals of each kind to each run. `patience` is how many seconds a reading is retried."""

    def __init__(self, temporal: TemporalClient, *, patience: float) -> None:
        self._temporal = temporal
        self._patience = patience
        self._sent: OrderedDict[tuple[str, str], _Sent] = OrderedDict()
        self._reads: SingleFlight[_Load] = SingleFlight()

    @asynccontextmanager
    async def room(self, run_id: str, name: str, size: int) -> AsyncIterator[None]:
        """Reserve room for a signal while it is sent. Raises `queue_full`."""
        sent = self._sent.setdefault((run_id, name), _Sent())
        self._sent.move_to_end((run_id, name))
        if len(self._sent) > _MAX_CACHED:
            self._sent.popitem(last=False)
        more = _Load(1, size)
        if (sent.pending + more).is_full:
            if time.monotonic() - sent.read_at >= _READ_AGAIN_AFTER:
                before = sent.stored
                found = await self._reads.read(
                    f"{run_id} {name}", lambda: self._unprocessed(run_id, name)
                )
                # Signals that arrive during the reading may be among them, and count twice until the next
                # reading.
                sent.beyond = found - before
                sent.read_at = time.monotonic()
            _refuse_if_full(run_id, name, sent.pending, more)
        sent.under_way += more
        try:
            yield
        finally:
            sent.under_way -= more
            sent.stored += more

    async def _unprocessed(self, run_id: str, name: str) -> _Load:
        """Return the signals since the run's last completed workflow task, up to the bound."""
        found, token = _Load(), b""
        while not found.is_full:
            request = GetWorkflowExecutionHistoryReverseRequest(
                namespace=self._temporal.namespace,
                execution=WorkflowExecution(workflow_id=run_id),
                maximum_page_size=_PAGE,
                next_page_token=token,
            )
            service = self._temporal.workflow_service
            ask = partial(service.get_workflow_execution_history_reverse, request, timeout=RPC)
            try:
                page = await retry_until(f"the run {run_id!r}", ask, seconds=self._patience)
            except NotFound:
                return _Load()
            for event in page.history.events:
                if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                    return found
                found += _load_of(event, name)
            token = page.next_page_token
            if not token:
                break
        return found


def _load_of(event: HistoryEvent, name: str) -> _Load:
    signal = event.workflow_execution_signaled_event_attributes
    if signal.signal_name != name:
        return _Load()
    stored = (each for payload in signal.input.payloads for each in payload.external_payloads)
    return _Load(1, event.ByteSize() + sum(each.size_bytes for each in stored))


def _refuse_if_full(run_id: str, name: str, pending: _Load, more: _Load) -> None:
    if not (pending + more).is_full:
        return
    is_by_count = pending.count >= MOST_PENDING
    raise Refusal(
        Code.QUEUE_FULL,
        f"The run {run_id!r} has not processed {pending.count} signals {name!r} of {pending.size} bytes, "
        f"because its worker is busy or away. The limits are {MOST_PENDING} signals and "
        f"{MOST_PENDING_BYTES} bytes: repeat the call later.",
        limit=MOST_PENDING if is_by_count else MOST_PENDING_BYTES,
        actual=pending.count if is_by_count else pending.size,
    )
