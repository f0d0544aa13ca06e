"""A run with large and secret values, and connections that may be able to read them."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BaseModel
from temporalio.client import Client as TemporalClient
from temporalio.client import (
    Interceptor,
    OutboundInterceptor,
    StartWorkflowInput,
    StartWorkflowUpdateWithStartInput,
    WorkflowHandle,
    WorkflowUpdateHandle,
)

from abeyance import END, START, Context, Graph, append
from abeyance.settings import Settings
from abeyance.temporal.connection import data_converter

SECRET = "the-recipe-of-the-soup"
LARGE = SECRET + "".join(chr(97 + n * n % 26) for n in range(200_000))
SHOWN = 50_000
_TASK = timedelta(seconds=3)
LOGGED = ["collect", "stamp", "look True", "look True", "approve True", "done True"]


class State(BaseModel):
    text: str = ""
    given: str = ""
    log: Annotated[list[str], append] = []


def letters(name: str = "letters") -> Graph:
    """Return collect -> stamp -> look1 -> look2 -> approve -> done; collect returns a large value."""
    graph = Graph(name, state=State)

    @graph.node
    async def collect(state: State, ctx: Context) -> dict[str, Any]:
        ctx.emit("collected", {"size": len(LARGE)})
        return {"text": LARGE, "log": ["collect"]}

    @graph.node(local=True)
    async def stamp(state: State) -> dict[str, Any]:
        return {"log": ["stamp"]}

    async def look(state: State) -> dict[str, Any]:
        return {"log": [f"look {state.text == LARGE}"]}

    graph.node(name="look1")(look)
    graph.node(name="look2")(look)

    @graph.node
    async def approve(state: State, ctx: Context) -> dict[str, Any]:
        answer = await ctx.interrupt(
            "approve", prompt=f"Send {SECRET}?", payload={"text": state.text[:SHOWN]}
        )
        return {"log": [f"approve {answer['note'] == LARGE}"]}

    @graph.node
    async def done(state: State) -> dict[str, Any]:
        return {"log": [f"done {state.text == LARGE}"]}

    path = [START, "collect", "stamp", "look1", "look2", "approve", "done", END]
    for source, target in pairwise(path):
        graph.edge(source, target)
    return graph


def connected(temporal: TemporalClient, settings: Settings) -> TemporalClient:
    """Return a client of the same server, connected as a process with these settings."""
    config = temporal.config()
    config["data_converter"] = data_converter(settings)
    config["interceptors"] = [*config["interceptors"], _ShortTasks()]
    return TemporalClient(**config)


class _ShortTasks(Interceptor):
    """Shortens the timeout of workflow tasks. A worker that cannot read a run leaves its second task
    open; another worker gets the task after its timeout, which is ten seconds by default.
    """

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _ShortTasksOutbound(super().intercept_client(next))


class _ShortTasksOutbound(OutboundInterceptor):
    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        input.task_timeout = _TASK
        return await super().start_workflow(input)

    async def start_update_with_start_workflow(
        self, input: StartWorkflowUpdateWithStartInput
    ) -> WorkflowUpdateHandle[Any]:
        input.start_workflow_input.task_timeout = _TASK
        return await super().start_update_with_start_workflow(input)


def shows(text: str, word: str) -> bool:
    """Return whether a history in JSON shows a word, in its text or in a payload."""
    datas: list[str] = []

    def look(found: Any) -> None:
        match found:
            case dict():
                for key, value in found.items():
                    if key == "data" and isinstance(value, str):
                        datas.append(value)
                    look(value)
            case list():
                for value in found:
                    look(value)
            case _:
                pass

    look(json.loads(text))

    plain = text.encode() + b"".join(base64.b64decode(data) for data in datas)
    return word.encode() in plain
