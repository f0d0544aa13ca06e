"""Waiting for a status of a run by a long poll on its history, which needs no worker.

The memo in the history has the status, and the last event the end. A caller that waits for the end alone
polls for the last event only; every other caller reads all events. If the server has no room for another
long poll, the run is described every half second instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from abeyance import names
from abeyance.client.rpc import WorkflowRpc
from abeyance.errors import Unreadable
from abeyance.history.closing_record import CLOSING_EVENTS
from abeyance.history.description import ENDINGS, decoded, statuses_of
from abeyance.storage.converter import of_run

_POLL_EVERY: Final = 0.5
"""In seconds, without a long poll."""
_LONG: Final = 100
"""In events. A history can only be read from its beginning, so with a longer one the run is described
first: it may have the status already.
"""
_HANDED_OVER: Final = "workflow_execution_continued_as_new_event_attributes"
"""The attributes of a last event that continues the run in another history."""


async def watch_status(
    line: WorkflowRpc, run_id: str, until: frozenset[str]
) -> AsyncGenerator[HistoryEvent | None, None]:
    """Yield when the run may have a status of `until`, or has ended: the event that ended it, or None.

    The caller then reads the run, and iterates again if it has another status by now. Raises the refusal
    `unknown_run`, and Unavailable.
    """
    only_the_end = until <= ENDINGS
    is_beginning, token = True, b""
    while True:
        page = await line.poll(run_id, token, only_the_end=only_the_end)
        if page is None:
            is_beginning, token = True, b""
            await asyncio.sleep(_POLL_EVERY)
            if await _has_arrived(line, run_id, until):
                yield None
            continue
        events = page.history.events
        if is_beginning and len(events) > _LONG and await _has_arrived(line, run_id, until):
            yield None
        reported = [each for event in events if (each := await _statuses(line, run_id, event))]
        is_beginning, token = False, page.next_page_token
        if events and events[-1].event_type in CLOSING_EVENTS:
            is_beginning, token = True, b""
            if not events[-1].HasField(_HANDED_OVER):
                yield events[-1]
        elif reported and reported[-1] & until:
            yield None


async def _has_arrived(line: WorkflowRpc, run_id: str, until: frozenset[str]) -> bool:
    described = await line.described(run_id)
    return not described.is_running or bool(described.shown_statuses & until)


async def _statuses(line: WorkflowRpc, run_id: str, event: HistoryEvent) -> frozenset[str]:
    """The status of the run from this event on, and `blocked` beside it; none if the event has none."""
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            memo = event.workflow_execution_started_event_attributes.memo
        case EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED:
            memo = event.workflow_properties_modified_event_attributes.upserted_memo
        case _:
            return frozenset()
    if names.MEMO_SUMMARY not in memo.fields:
        return frozenset()
    converter = of_run(line.temporal.data_converter, run_id)
    try:
        summary = await decoded(converter, memo.fields[names.MEMO_SUMMARY])
    except Unreadable:
        # The caller reads the run when its timeout is over.
        return frozenset()
    return statuses_of(summary)
