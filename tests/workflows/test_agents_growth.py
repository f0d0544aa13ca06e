"""What a turn adds to the history is the same at the hundredth turn as at the tenth."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo
from scripted_agents import desk
from temporal_site import Site
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient

from abeyance import Agent, ToolContext, tool
from abeyance.agents import transcript
from abeyance.core.state import Limits

TURNS = 40
_TASKS = {
    EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
}
_SAID, _FOUND = 1_500, 3_300
"""In characters: with two tools a turn they make 800,000 in a hundred turns, about 200,000 tokens."""


def _text(number: int, length: int) -> str:
    # No two are equal, and none is much shorter when it is packed.
    return "".join(f"{(number * 7919 + index) % 99991:05} " for index in range(length // 6))


@tool
async def read(ctx: ToolContext, page: int) -> str:
    """Read a page."""
    ctx.agent_state["page"] = page
    return _text(page, _FOUND)


@tool(approve=lambda args: not args["word"])
async def search(ctx: ToolContext, word: str) -> list[str]:
    """Search for a word."""
    return [_text(len(word) + int(word.split()[1]), _FOUND)]


def _model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    turn = 1 + sum(isinstance(message, ModelResponse) for message in messages)
    if turn > TURNS:
        return ModelResponse(parts=[TextPart("Enough.")])
    return ModelResponse(
        parts=[
            TextPart(_text(turn, _SAID)),
            ToolCallPart("read", {"page": turn}, f"r{turn:03}"),
            ToolCallPart("search", {"word": f"word {turn:03}"}, f"s{turn:03}"),
        ]
    )


async def histories(site: Site, run_id: str) -> list[Sequence[HistoryEvent]]:
    """All histories of a run, the oldest first."""
    found: list[Sequence[HistoryEvent]] = []
    execution: str | None = None
    while execution != "":
        handle = site.temporal.get_workflow_handle(run_id, run_id=execution)
        found.insert(0, (await handle.fetch_history()).events)
        execution = found[0][
            0
        ].workflow_execution_started_event_attributes.continued_execution_run_id
    return found


async def heads(site: Site, events: Sequence[HistoryEvent]) -> list[str | None]:
    """Where the conversation was after each visit, if it said so."""
    found = []
    for event in events:
        payloads = event.activity_task_completed_event_attributes.result.payloads
        reports = await site.temporal.data_converter.decode(payloads)
        found += [(each["outcome"].get("patch") or {}).get("transcript") for each in reports]
    return found


def turns_of(events: Sequence[HistoryEvent]) -> list[list[HistoryEvent]]:
    """The events of one history, cut before each turn of the model."""
    cut: list[list[HistoryEvent]] = []
    for event in events:
        scheduled = event.activity_task_scheduled_event_attributes
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED and (
            scheduled.activity_type.name == "desk.reader.model"
        ):
            cut.append([])
        if cut:
            cut[-1].append(event)
    return cut


def own(events: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """Those that are not the server's: it is chance whether one task hears of two calls, or two do."""
    return [event for event in events if event.event_type not in _TASKS]


def size(events: Sequence[HistoryEvent]) -> int:
    return sum(event.ByteSize() for event in events)


def state_handed_over(events: Sequence[HistoryEvent]) -> int:
    """The bytes of the state that a history begins with.

    Beside it, in the first argument, is what a busy database has not taken yet.
    """
    given = events[0].workflow_execution_started_event_attributes.input.payloads
    return sum(payload.ByteSize() for payload in given[1:])


@pytest.mark.slow
async def test_a_turn_late_in_a_long_conversation_adds_to_the_history_what_an_early_one_does(
    temporal: TemporalClient,
) -> None:
    reader = Agent("reader", model=_model, tools=[read, search], max_turns=TURNS + 1)
    site = Site(temporal, desk(reader), patience=30)
    async with site.worker():
        run_id = await site.start(limits=Limits(continue_as_new_after=250))
        ended = await site.ended(run_id, seconds=90)
        filled = await histories(site, run_id)
        (head,) = [each for each in await heads(site, filled[-1]) if each][-1:]
        messages = await transcript.read(site.blobs, head)
    # A turn that a hand-over falls into is told by two histories, and is left out.
    whole = [turn for events in filled for turn in turns_of(events)[:-1]]
    early, late = (list(map(own, turns)) for turns in (whole[8:13], whole[-5:]))

    assert ended.status == "completed", ended.error
    assert len(ModelMessagesTypeAdapter.dump_json(messages)) > 320_000
    assert len(filled) > 2
    assert len(whole) > 35
    assert median(map(len, late)) == median(map(len, early))
    assert median(map(size, late)) == pytest.approx(median(map(size, early)), rel=0.1)
    # Temporal ends a run at 51,200 events or 50 MB, and warns at a fifth of it.
    assert median(map(len, whole)) < 25
    assert median(map(size, whole)) < 10_000
    # What is handed over grows neither: it differs by what of a turn is under way at that moment.
    assert max(map(state_handed_over, filled[1:])) < 10_000
