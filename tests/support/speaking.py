"""A model that says what a test has it say, a piece at a time, and who hears it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo
from scripted_agents import desk

from abeyance import Agent, Graph, views
from abeyance.live_text import merged

TURN = "graph:desk;node:clerk;agent:clerk;node:model"


class Speaker:
    """The model of an agent. What it says waits until a turn asks for it."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[str | None] = asyncio.Queue()
        self.requests = 0

    def say(self, *pieces: str) -> None:
        """Say these pieces."""
        for piece in pieces:
            self._pieces.put_nowait(piece)

    def end(self) -> None:
        """End the turn."""
        self._pieces.put_nowait(None)

    @property
    def model(self) -> Callable[[list[ModelMessage], AgentInfo], AsyncIterator[Any]]:
        """The model, for agents."""

        async def speak(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
            del messages, info
            self.requests += 1
            while (piece := await self._pieces.get()) is not None:
                yield piece

        return speak

    def desk(self, **options: Any) -> Graph:
        """A graph whose clerk this is."""
        return desk(Agent("clerk", model=self.model, **options))


class Listener:
    """Reads what is sent to a watcher of a run, and keeps what models said."""

    def __init__(self, events: AsyncGenerator[views.Event | views.ModelDelta, None]) -> None:
        self.events: list[views.Event] = []
        self.deltas: list[views.ModelDelta] = []
        self.texts: dict[str, str] = {}
        self._moved = asyncio.Event()
        self._source = events
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for event in self._source:
            if isinstance(event, views.ModelDelta):
                before = self.texts.get(event.address, "")
                self.texts[event.address] = merged(before, event.data.text, event.data.offset)
                self.deltas.append(event)
            else:
                self.events.append(event)
            self._moved.set()

    async def until(self, is_there: Callable[[Listener], bool], seconds: float = 30) -> None:
        """Wait for something."""
        async with asyncio.timeout(seconds):
            while not is_there(self):
                self._moved.clear()
                await self._moved.wait()

    async def hears(self, text: str, address: str = TURN, seconds: float = 30) -> None:
        """Wait until the text so far is this one."""
        await self.until(lambda it: it.texts.get(address) == text, seconds)

    async def close(self) -> None:
        """Stop listening."""
        self._task.cancel()
        await asyncio.wait({self._task})
        await self._source.aclose()
