"""docs/how-to/agents.md states the cost of a turn as a real server records it."""

from __future__ import annotations

import re

from pages import prose
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance import START, Agent, Graph, tool

_LONG = "word " * 2_000  # ten kilobytes, which stay out of the history


@tool
async def look(page: int) -> str:
    """Look at a page."""
    return _LONG


def working(name: str, *, turns: int, calls: int) -> Graph:
    """Return an agent that takes so many turns, each with so many calls, before it answers."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(each, ModelResponse) for each in messages)
        if turn == turns:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(
            parts=[ToolCallPart("look", {"page": n}, f"t{turn}-{n}") for n in range(calls)]
        )

    graph = Graph(name)
    graph.agent("work", Agent("reader", model=model, tools=[look]), input=str, output="answer")
    graph.edge(START, "work")
    return graph


async def cost(site: Site, name: str) -> tuple[int, int]:
    """Run a graph; return the events and the bytes of the run's history."""
    graph = site.graphs[name]
    run_id = await site.start({}, graph=graph)
    assert (await site.ended(run_id)).status == "completed"
    history = await site.history(run_id)
    return len(history.events), sum(event.ByteSize() for event in history.events)


def told() -> tuple[int, int, int, int]:
    """Return the numbers of the page: events and KB of a turn with one call, events of a further call."""
    found = re.search(
        r"with one call adds (\d+) events and about (\d+) KB.* further call adds (\d+) to (\d+) events",
        " ".join(prose("how-to/agents.md").split()),
    )
    assert found is not None
    events, size, least, most = map(int, found.groups())
    return events, size, least, most


async def test_a_turn_costs_what_the_page_says_however_long_the_conversation(
    temporal: TemporalClient,
) -> None:
    shapes = {"short": (4, 1), "long": (14, 1), "wide": (4, 3)}
    graphs = [working(name, turns=t, calls=c) for name, (t, c) in shapes.items()]
    site = Site(temporal, *graphs)
    async with site.worker():
        found = {name: await cost(site, name) for name in shapes}

    events, size, least, most = told()
    turns = [(a - b) / 10 for a, b in zip(found["long"], found["short"], strict=True)]
    assert abs(turns[0] - events) <= 1
    assert abs(turns[1] / 1_000 - size) <= 1
    assert least <= (found["wide"][0] - found["short"][0]) / 8 <= most
