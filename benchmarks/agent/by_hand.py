"""The floor: the same loop written by hand with Temporal's SDK, and nothing beside it.

An activity for each turn of the model and for each call. The conversation is kept as ours is, in the
same folder by the same module, and only its reference is in the history; results of calls travel by
value, as ours of this size do. No approval, no message, no pause, no hand-over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from agent.workload import Added, cut, found, script
from pydantic import BaseModel
from stage import Processes, by_hand, serve
from temporalio import activity, workflow
from temporalio.client import Client

from abeyance.agents import transcript
from abeyance.storage.blobs import FolderBlobs

_QUEUE: Final = "by-hand"
_SECONDS: Final = timedelta(seconds=30)


class Call(BaseModel):
    """The call of a tool; `result` once it was made."""

    id: str
    tool: str
    number: int
    result: str = ""


class Said(BaseModel):
    """What a turn of the model has come to: calls, or its last word."""

    head: str
    calls: list[Call] = []
    text: str | None = None


class Activities:
    """The model's turn, with the folder in which conversations are kept."""

    def __init__(self, folder: str) -> None:
        self._blobs = FolderBlobs(folder)

    @activity.defn
    async def model(self, head: str | None, question: str, made: list[Call]) -> Said:
        """Ask the model once."""
        from pydantic_ai.direct import model_request
        from pydantic_ai.messages import ModelRequest, ToolReturnPart, UserPromptPart
        from pydantic_ai.models.function import FunctionModel

        run = activity.info().workflow_id or ""
        before = await transcript.read(self._blobs, head)
        parts: list[Any] = [ToolReturnPart(each.tool, each.result, each.id) for each in made]
        said = ModelRequest(parts=parts or [UserPromptPart(question)])
        response = await model_request(FunctionModel(script), [*before, said])
        head = await transcript.append(self._blobs, run, head, [said, response])
        calls = [
            Call(id=each.tool_call_id, tool=each.tool_name, **each.args_as_dict())
            for each in response.tool_calls
        ]
        return Said(head=head, calls=calls, text=None if calls else response.text)


@activity.defn
async def read(number: int) -> str:
    """Read a page."""
    return found("read", number)


@activity.defn
async def search(number: int) -> str:
    """Search for something."""
    return found("search", number)


@workflow.defn
class Conversation:
    """A conversation on its way."""

    @workflow.run
    async def run(self, question: str) -> str:
        said = await self._asked(None, question, [])
        while said.text is None:
            made = await asyncio.gather(*map(self._made, said.calls))
            said = await self._asked(said.head, question, made)
        return said.text

    async def _asked(self, head: str | None, question: str, made: list[Call]) -> Said:
        asked: Said = await workflow.execute_activity(
            "model",
            args=[head, question, made],
            result_type=Said,
            start_to_close_timeout=_SECONDS,
        )
        return asked

    async def _made(self, call: Call) -> Call:
        result: str = await workflow.execute_activity(
            call.tool, call.number, result_type=str, start_to_close_timeout=_SECONDS
        )
        return call.model_copy(update={"result": result})


class ByHand:
    """What the driver asks of the floor."""

    def __init__(self, temporal: Client, processes: Processes) -> None:
        self.processes = processes
        self._temporal = temporal

    async def talk(self, run: str, turns: int) -> str:
        return await self._temporal.execute_workflow(
            Conversation.run, str(turns), id=run, task_queue=_QUEUE
        )

    async def turns(self, run: str) -> list[Added]:
        events = (await self._temporal.get_workflow_handle(run).fetch_history()).events
        names = [e.activity_task_scheduled_event_attributes.activity_type.name for e in events]
        return cut(names, [event.ByteSize() for event in events], "model")


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[ByHand]:
    """The floor, with its server and its worker."""
    async with by_hand(folder, "agent.by_hand", str(folder / "blobs")) as (temporal, processes):
        yield ByHand(temporal, processes)


def main(folder: str) -> None:
    """Be the worker."""
    asyncio.run(serve(_QUEUE, [Conversation], [Activities(folder).model, read, search]))
