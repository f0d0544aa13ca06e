"""Pausing, cancelling and steering agents while their model speaks or a tool of theirs runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo
from scripted_agents import Script, desk, prompts, told
from temporal_site import Site, begun, eventually
from temporalio.client import Client as TemporalClient

from abeyance import Agent, Graph, commands
from abeyance.agents import transcript

CLERK = "graph:desk;node:clerk;agent:clerk"


class Speaker:
    """A model that streams two words, and in between waits for `go`."""

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


async def kept(site: Site, run_id: str, agent: str = CLERK) -> list[ModelMessage]:
    """Return the conversation of an agent, to which the record of its ended run leads."""
    heads = (await site.client.run(run_id).result()).transcripts
    assert heads is not None
    return await transcript.read(site.blobs, heads[agent])


async def test_a_cancel_through_temporal_keeps_what_agents_in_agents_had_said(
    temporal: TemporalClient,
) -> None:
    speaker = Speaker()
    clerk = Agent(
        "clerk",
        model=Script([("teller", {"task": "Tell."})], told),
        tools=[Agent("teller", model=speaker.model).as_tool(description="Tells.")],
    )
    async with begun(temporal, desk(clerk)) as (site, run):
        await eventually(lambda: speaker.heard)
        await temporal.get_workflow_handle(run.run_id).cancel()
        assert (await site.ended(run.run_id)).status == "cancelled"
        outer = await kept(site, run.run_id)
        inner = await kept(site, run.run_id, f"{CLERK};tool:teller:1.1;agent:teller")

    assert [message.kind for message in outer] == ["request", "response"]
    assert prompts(inner) == ["Tell."]
    assert isinstance(inner[-1], ModelResponse)
    assert (inner[-1].text, inner[-1].state) == ("Once", "interrupted")


async def test_a_message_during_a_turn_is_read_once_before_the_agent_ends(
    temporal: TemporalClient,
) -> None:
    speaker = Speaker()
    async with begun(temporal, speaker.graph(), {"question": "Tell me."}) as (site, run):
        await eventually(lambda: speaker.heard)
        note = commands.SteerMessage(message_id="m1", text="In Dutch.", sender="ada")
        for _ in range(2):
            await run.send_message(note)
        speaker.go.set()
        ended = await site.ended(run.run_id)
        messages = await kept(site, run.run_id)

    assert len(speaker.heard) == 2
    assert "In Dutch." in speaker.heard[1][-1]
    assert 'from="ada"' in speaker.heard[1][-1]
    assert sum("In Dutch." in text for text in prompts(messages)) == 1
    assert ended.undelivered == []
    assert ended.metrics is not None
    assert ended.metrics.messages_delivered == 1
