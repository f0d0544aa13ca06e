"""Waiting for a run to get somewhere: a long poll on its history, which costs no worker anything.

The memo that a run writes into its history says where it is, and the last event how it ended. So whoever
waits for the end alone asks for that event and for nothing else, and everybody else reads along. A server
that has no room for one more long poll is asked from time to time instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from abeyance import wire
from abeyance.client.line import Line
from abeyance.errors import Unreadable
from abeyance.histories.described import ENDINGS, decoded
from abeyance.histories.runlog import CLOSING
from abeyance.storage.converter import of_run

_LOOK_EVERY: Final = 0.5
"""In seconds, where no long poll can be had."""
_LONG: Final = 100
"""In events. A history can only be read from its beginning, so from a longer one it is asked first
whether the run is there already.
"""
_HANDED_OVER: Final = "workflow_execution_continued_as_new_event_attributes"
"""What has not ended the run, but begun another history of it."""


async def signs(
    line: Line, run_id: str, wanted: frozenset[str]
) -> AsyncGenerator[HistoryEvent | None, None]:
    """Yields whenever the run may have one of the wanted statuses, or has ended.

    What it yields is the event that ended the run, or None; the reader then looks at the run, and reads
    on to wait for the next sign. Raises the refusal `unknown_run`, and Unavailable.
    """
    only_the_end = wanted <= ENDINGS
    is_beginning, token = True, b""
    while True:
        page = await line.poll(run_id, token, only_the_end=only_the_end)
        if page is None:
            is_beginning, token = True, b""
            await asyncio.sleep(_LOOK_EVERY)
            if await _is_there(line, run_id, wanted):
                yield None
            continue
        events = page.history.events
        if is_beginning and len(events) > _LONG and await _is_there(line, run_id, wanted):
            yield None
        statuses = [found for event in events if (found := await _status(line, run_id, event))]
        is_beginning, token = False, page.next_page_token
        if events and events[-1].event_type in CLOSING:
            is_beginning, token = True, b""
            if not events[-1].HasField(_HANDED_OVER):
                yield events[-1]
        elif statuses and statuses[-1] in wanted:
            yield None


async def _is_there(line: Line, run_id: str, wanted: frozenset[str]) -> bool:
    described = await line.described(run_id)
    return not described.is_running or described.shown_status in wanted


async def _status(line: Line, run_id: str, event: HistoryEvent) -> str | None:
    """What an event says that the run's status is from here on, if anything."""
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            memo = event.workflow_execution_started_event_attributes.memo
        case EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED:
            memo = event.workflow_properties_modified_event_attributes.upserted_memo
        case _:
            return None
    if wire.MEMO_SUMMARY not in memo.fields:
        return None
    converter = of_run(line.temporal.data_converter, run_id)
    try:
        summary = await decoded(converter, memo.fields[wire.MEMO_SUMMARY])
    except Unreadable:
        # Whoever waits sees at the end of their time where the run is.
        return None
    return str(summary["status"])
