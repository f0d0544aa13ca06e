"""Graphs whose nodes try to end more than their own visit."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from abeyance import START, Context, Graph


class Rude(BaseException):
    """An error of a graph's author that is not an `Exception`."""


class Release(BaseModel):
    release: str = ""


def _graph(name: str, function: Callable[..., Any]) -> Graph:
    graph = Graph(name, state=Release)
    graph.node(name="work", retries=0)(function)
    graph.edge(START, "work")
    return graph


async def _exit() -> None:
    sys.exit(3)


async def grouped(state: Release) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_exit())


async def left_behind(state: Release, ctx: Context) -> dict[str, Any]:
    task = asyncio.create_task(_exit())
    await asyncio.wait({task})
    return {"release": "went on"}


async def rude(state: Release) -> None:
    raise Rude("enough")


def rude_in_a_thread(state: Release) -> None:
    raise Rude("enough")


async def interrupted(state: Release) -> None:
    raise KeyboardInterrupt


async def cancelling(state: Release) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(60)


async def waiting(state: Release) -> dict[str, Any]:
    while not Path(state.release).exists():
        await asyncio.sleep(0.02)
    return {"release": "went on"}


graphs = [
    _graph(function.__name__.strip("_").replace("_", "-"), function)
    for function in (
        grouped,
        left_behind,
        rude,
        rude_in_a_thread,
        interrupted,
        cancelling,
        waiting,
    )
]
