"""Pausing, cancelling and steering agents while their model speaks or a tool of theirs runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo
from scripted_agents import desk, prompts, scripted, told
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import Agent, Graph, ToolContext, commands, tool
from abeyance.agents import transcript

CLERK = "graph:desk;node:clerk;agent:clerk"


class Speaker:
    """A model that streams two words, and in between waits to be let go on."""

    def __init__(self) -> None:
        self.heard: list[list[str]] = []
        self.go = asyncio.Event()

    async def model(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        self.heard.append(prompts(messages))
        yield "Once"
        await self.go.wait()
        yield " more."

    def graph(self) -> Graph:
        return desk(Agent("clerk", model=self.model))


class Drill:
    """A tool that takes as long as it is let, and says how it ended."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.go = asyncio.Event()
        drill = self

        @tool
        async def bore(ctx: ToolContext) -> str:
            """Bore a hole."""
            drill.told.append("begun")
            try:
                await drill.go.wait()
            except asyncio.CancelledError:
                drill.told.append("stopped")
                raise
            drill.told.append("done")
            return "a hole"

        self.bore = bore


async def kept(site: Site, run_id: str, agent: str = CLERK) -> list[ModelMessage]:
    """The conversation of an agent, as the record of its ended run leads to it."""
    heads = (await site.client.run(run_id).result()).transcripts
    assert heads is not None
    return await transcript.read(site.blobs, heads[agent])


async def types(site: Site, run_id: str) -> list[str]:
    events, _ = await site.client.feed.page(run_id, None, 1_000)
    return [event.type for event in events]


async def test_a_cancel_through_temporal_keeps_what_agents_in_agents_had_said(
    temporal: TemporalClient,
) -> None:
    speaker = Speaker()
    clerk = Agent(
        "clerk",
        model=scripted([("teller", {"task": "Tell."})], told),
        tools=[Agent("teller", model=speaker.model).as_tool(description="Tells.")],
    )
    site = Site(temporal, desk(clerk))
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: speaker.heard)
        await temporal.get_workflow_handle(run_id).cancel()
        assert (await site.ended(run_id)).status == "cancelled"
        outer = await kept(site, run_id)
        inner = await kept(site, run_id, f"{CLERK};tool:teller:1.1;agent:teller")

    assert [message.kind for message in outer] == ["request", "response"]
    assert prompts(inner) == ["Tell."]
    assert isinstance(inner[-1], ModelResponse)
    assert (inner[-1].text, inner[-1].state) == ("Once", "interrupted")


async def test_a_cancel_stops_a_tool_that_runs_and_keeps_what_led_to_its_call(
    temporal: TemporalClient,
) -> None:
    drill = Drill()
    clerk = Agent("clerk", model=scripted([("bore", {})], "never said"), tools=[drill.bore])
    site = Site(temporal, desk(clerk))
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: drill.told)
        await site.client.run(run_id).cancel()
        ended = await site.ended(run_id)
        messages = await kept(site, run_id)
        await site.replays(run_id)

    assert ended.status == "cancelled"
    assert drill.told == ["begun", "stopped"]
    assert (await types(site, run_id))[-2:] == ["tool.stopped", "run.cancelled"]
    last = messages[-1]
    assert isinstance(last, ModelResponse)
    assert [call.tool_name for call in last.tool_calls] == ["bore"]


async def test_what_is_said_while_the_model_speaks_is_heard_once_and_before_the_agent_ends(
    temporal: TemporalClient,
) -> None:
    speaker = Speaker()
    site = Site(temporal, speaker.graph())
    async with site.worker():
        run_id = await site.start({"question": "Tell me."})
        await eventually(lambda: speaker.heard)
        note = commands.SteerMessage(message_id="m1", text="In Dutch.", sender="ada")
        for _ in range(2):
            await site.client.run(run_id).send_message(note)
        speaker.go.set()
        ended = await site.ended(run_id)
        messages = await kept(site, run_id)

    assert len(speaker.heard) == 2
    assert "In Dutch." in speaker.heard[1][-1]
    assert 'from="ada"' in speaker.heard[1][-1]
    assert sum("In Dutch." in text for text in prompts(messages)) == 1
    assert ended.undelivered == []
    assert ended.metrics is not None
    assert ended.metrics.messages_delivered == 1


async def test_an_agent_in_an_agent_is_steered_by_the_address_of_the_turn_that_is_seen_running(
    temporal: TemporalClient,
) -> None:
    speaker = Speaker()
    outer: list[str] = []

    def last(messages: list[ModelMessage]) -> str:
        outer.extend(prompts(messages))
        return told(messages)

    clerk = Agent(
        "clerk",
        model=scripted([("teller", {"task": "Tell."})], last),
        tools=[Agent("teller", model=speaker.model).as_tool(description="Tells.")],
    )
    site = Site(temporal, desk(clerk))
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: speaker.heard)
        (running,) = (await site.client.run(run_id).view()).running
        text = commands.SteerMessage(message_id="m1", text="In Dutch.", target=running)
        await site.client.run(run_id).send_message(text)
        speaker.go.set()
        ended = await site.ended(run_id)

    assert running.endswith("tool:teller:1.1;agent:teller;node:model")
    assert len(speaker.heard) == 2
    assert "In Dutch." in speaker.heard[1][-1]
    assert not any("In Dutch." in text for text in outer)
    assert ended.undelivered == []
