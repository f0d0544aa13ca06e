"""The text of a model while it speaks: sent to whoever watches, and written down nowhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pydantic_ai
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from rpc_counter import counted
from scripted_agents import desk
from sealed_site import a_key
from stored import connected
from temporal_site import Site, begun, eventually
from temporalio.client import Client as TemporalClient

from abeyance import Agent, Graph, views
from abeyance.adapters.pydantic_ai import pydantic_ai_agent
from abeyance.client import Client
from abeyance.client.feed import Feed
from abeyance.live_text import merged
from abeyance.settings import Settings

DESCRIBE = "describe_workflow_execution"
TURN = "graph:desk;node:clerk;agent:clerk;node:model"


class Speaker:
    """The model of an agent. Its words wait until a turn asks for them."""

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
        """Return the model, for agents."""

        async def speak(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
            del messages, info
            self.requests += 1
            while (piece := await self._pieces.get()) is not None:
                yield piece

        return speak

    def desk(self, **options: Any) -> Graph:
        """Return a graph whose clerk has this model."""
        return desk(Agent("clerk", model=self.model, **options))


class Listener:
    """Reads the feed of a watcher of a run, and keeps its events and the text of models."""

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
        """Wait until the condition holds."""
        async with asyncio.timeout(seconds):
            while not is_there(self):
                self._moved.clear()
                await self._moved.wait()

    async def hears(self, text: str, address: str = TURN, seconds: float = 30) -> None:
        """Wait until the text of a turn so far is this one."""
        await self.until(lambda it: it.texts.get(address) == text, seconds)

    async def close(self) -> None:
        """Stop listening."""
        self._task.cancel()
        await asyncio.wait({self._task})
        await self._source.aclose()


def feed_of(site: Site) -> Feed:
    return site.client.feed


@asynccontextmanager
async def listening(feed: Feed, run_id: str) -> AsyncIterator[Listener]:
    listener = Listener(await feed.watched(run_id, None))
    try:
        yield listener
    finally:
        await listener.close()


async def pending_turn(temporal: TemporalClient, run_id: str) -> Any:
    """Return the turn as the server describes it, None if it is not under way."""
    description = await temporal.get_workflow_handle(run_id).describe()
    found = description.raw_description.pending_activities
    return next((each for each in found if each.activity_id == TURN), None)


async def test_a_watcher_hears_what_a_model_says_and_the_history_gets_nothing_of_it(
    temporal: TemporalClient,
) -> None:
    speaker = Speaker()
    async with (
        begun(temporal, speaker.desk()) as (site, run),
        listening(feed_of(site), run.run_id) as listener,
    ):
        speaker.say("The letter ")
        await listener.hears("The letter ")
        events = len((await site.history(run.run_id)).events)
        speaker.say("is ", "on ")
        await listener.hears("The letter is on ")

        history = (await site.history(run.run_id)).events
        assert len(history) == events
        assert not [each for each in history if b"letter" in each.SerializeToString()]
        speaker.say("its way.")
        speaker.end()
        view = await site.ended(run.run_id)
        assert view.values["report"] == "The letter is on its way."
        await listener.until(lambda it: it.events[-1].type == "run.completed")


async def test_a_model_of_pydantic_ai_is_heard_too(temporal: TemporalClient) -> None:
    speaker = Speaker()
    agent = pydantic_ai.Agent(FunctionModel(stream_function=speaker.model), name="clerk")
    async with (
        begun(temporal, desk(pydantic_ai_agent(agent))) as (site, run),
        listening(feed_of(site), run.run_id) as listener,
    ):
        speaker.say("The letter ")
        await listener.hears("The letter ")
        speaker.say("is on its way.")
        await listener.hears("The letter is on its way.")
        speaker.end()
        view = await site.ended(run.run_id)
    assert view.values["report"] == "The letter is on its way."


async def test_all_watchers_of_a_run_share_one_reader_and_nobody_else_costs_a_call(
    temporal: TemporalClient,
) -> None:
    speaker = Speaker()
    site = Site(temporal, speaker.desk())
    client, counter = counted(temporal)
    feed = Client(client, task_queue=site.settings.task_queue).feed
    async with site.worker():
        run_id = await site.start()
        deaf = await feed.opened(run_id, None)
        while (await anext(deaf)).address != TURN:
            pass
        before = counter.calls[DESCRIBE]
        speaker.say("The letter")

        async def is_sent(text: bytes) -> bool:
            turn = await pending_turn(temporal, run_id)
            return turn is not None and text in turn.SerializeToString()

        await eventually(lambda: is_sent(b"letter"))
        assert counter.calls[DESCRIBE] == before

        began = time.monotonic()
        listeners = [Listener(await feed.watched(run_id, None)) for _ in range(5)]
        for listener in listeners:
            await listener.hears("The letter")
        speaker.say(" is on its way")
        for listener in listeners:
            await listener.hears("The letter is on its way")
        assert 0 < counter.calls[DESCRIBE] - before <= 1 + (time.monotonic() - began) / 0.35
        for listener in listeners:
            await listener.close()

        left = counter.calls[DESCRIBE]
        speaker.say(" to you")
        await eventually(lambda: is_sent(b"to you"))
        assert counter.calls[DESCRIBE] == left
        await deaf.aclose()
        speaker.end()
        await site.ended(run_id)


async def test_a_worker_sends_at_most_two_heartbeats_a_second_while_its_model_speaks(
    temporal: TemporalClient,
) -> None:
    speaker = Speaker()
    async with begun(temporal, speaker.desk()) as (site, run):
        # It may take long until the turn begins.
        await eventually(lambda: speaker.requests)
        began, beats = time.monotonic(), set()

        async def has_beaten() -> bool:
            speaker.say("word ")
            if (turn := await pending_turn(temporal, run.run_id)) is not None:
                beats.add(turn.last_heartbeat_time.ToNanoseconds())
            return len(beats) > 4

        await eventually(has_beaten)
        passed = time.monotonic() - began
        assert len(beats) <= 2 + 2 * passed
        speaker.end()
        await site.ended(run.run_id)


async def test_live_text_is_encrypted(temporal: TemporalClient) -> None:
    speaker = Speaker()
    settings = Settings(encryption_keys=a_key())
    sealed = connected(temporal, settings)
    site = Site(sealed, speaker.desk())
    async with site.worker():
        run_id = await site.start()
        async with listening(feed_of(site), run_id) as listener:
            speaker.say("The letter")
            await listener.hears("The letter")
        turn = await pending_turn(sealed, run_id)
        assert turn.heartbeat_details.payloads
        assert b"letter" not in turn.SerializeToString()
        speaker.end()
        await site.ended(run_id)
