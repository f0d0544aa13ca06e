"""Stopping the code of a visit that runs in a thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from one_visit import context
from pydantic import BaseModel

from abeyance import START, Context, Graph
from abeyance.core.outcome import Finished
from abeyance.runtime.node_runner import run_visit


class State(BaseModel):
    log: list[str] = []


class Thread:
    """A node in a thread that runs until the test releases it or tells it to stop."""

    def __init__(self, *, stops_by: str) -> None:
        self.began = threading.Event()
        self.release = threading.Event()
        self.is_cancelled = threading.Event()
        self.ended = False
        self._stops_by = stops_by

    def __call__(self, state: State, ctx: Context) -> dict[str, Any]:
        self.began.set()
        try:
            while not self.release.wait(0.005):
                if ctx.cancelled and self._stops_by == "raising":
                    raise InterruptedError("told to stop")
                if ctx.cancelled and self._stops_by == "returning":
                    return {"log": ["stopped in order"]}
            return {"log": ["done"]}
        finally:
            self.ended = True


async def started(thread: Thread) -> Any:
    about = context(is_cancelled=thread.is_cancelled.is_set)
    graph = Graph("g", state=State)
    graph.node(name="a")(thread)
    graph.edge(START, "a")
    task = asyncio.create_task(run_visit(graph, about))
    async with asyncio.timeout(30):
        while not thread.began.is_set():
            await asyncio.sleep(0.005)
    return task


async def test_a_cancel_waits_for_a_thread_and_what_it_returns_counts() -> None:
    thread = Thread(stops_by="nothing")
    task = await started(thread)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0.01)
    was_done = task.done()
    thread.release.set()

    assert await asyncio.wait_for(task, 30) == Finished(patch={"log": ["done"]}, messages_read=0)
    assert (was_done, thread.ended) == (False, True)


@pytest.mark.parametrize("stops_by", ["returning", "raising"])
async def test_a_thread_that_looks_can_finish_or_be_stopped(stops_by: str) -> None:
    thread = Thread(stops_by=stops_by)
    task = await started(thread)
    thread.is_cancelled.set()
    task.cancel()

    async with asyncio.timeout(30):
        if stops_by == "returning":
            assert await task == Finished(patch={"log": ["stopped in order"]}, messages_read=0)
        else:
            with pytest.raises(asyncio.CancelledError):
                await task
    assert thread.ended
