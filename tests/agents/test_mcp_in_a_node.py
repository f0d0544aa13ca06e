"""A node of a graph that calls a tool of a server, which asks a person."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp_site import deeds, started

from abeyance import START, Context, Graph, testing
from abeyance.mcp.elicitation import Answer, Elicitation, elicitation_question
from abeyance.mcp.server import McpServer, close_servers


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    yield
    await close_servers()


def _graph(server: McpServer, tool: str, arguments: dict[str, Any]) -> Graph:
    graph = Graph("errand")

    @graph.node
    async def run(state: dict[str, Any], ctx: Context) -> dict[str, Any]:
        async def ask(elicitation: Elicitation) -> Answer:
            question = elicitation_question(elicitation)
            return Answer.of((await ctx.interrupts([question]))[question.key])

        found = await server.call(tool, arguments, ask=ask, saved=ctx.saved_state)
        return {"found": found.text}

    graph.edge(START, "run")
    return graph


async def test_a_run_waits_for_the_person_and_goes_on_with_the_answer(tmp_path: Path) -> None:
    graph = _graph(started(tmp_path, older=True), "transfer", {"amount": 9})
    waiting = await testing.run(graph, {})
    assert waiting.status == "awaiting-input"
    assert [each.prompt for each in await waiting.interrupts()] == ["Transfer 9?"]
    answers = {"elicit": {"action": "accept", "content": {"sure": True}}}
    done = await testing.run(graph, {}, answers=answers)
    assert (done.status, done.values["found"]) == ("completed", "transferred")
    assert deeds(tmp_path) == ["transferred 9"]
