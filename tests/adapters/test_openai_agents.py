"""Features that only the OpenAI Agents SDK has: hand-offs and MCP servers inside a turn.

Every test process imports this module, but only one needs the SDK: the tests import it themselves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from foreign_office import Died, Office, Recorder, desk, openai_model, started

from abeyance.adapters import ForeignTurn
from abeyance.errors import Blocked
from abeyance.testing import InMemoryRun

if TYPE_CHECKING:
    from agents import HandoffInputData
    from agents.mcp import MCPServer


class Secret:
    """A value that no serialiser knows."""


async def test_a_state_that_cannot_be_stored_is_named() -> None:
    from agents import Agent, handoff

    from abeyance.adapters.openai_agents import openai_agent

    office = Office([("h1", "transfer_to_expert", {})], "Done.")

    def filtered(data: HandoffInputData) -> HandoffInputData:
        noted: Any = {"role": "user", "content": "Go on.", "note": Secret()}
        return replace(data, input_history=(noted,))

    expert = Agent(name="expert", model=openai_model(office))
    given = handoff(expert, input_filter=filtered)
    clerk = Agent(name="clerk", model=openai_model(office), handoffs=[given])
    run = await started(openai_agent(clerk))

    assert run.status == "failed"
    assert "the state of the agent 'clerk' cannot be stored" in (run.reason or "")
    assert "Secret" in (run.reason or "")
    assert "keep in it what JSON can hold" in (run.reason or "")


@pytest.mark.parametrize(("result", "kind"), [(Secret(), "Secret"), (b"\xff", "bytes")])
async def test_a_result_that_is_not_json_is_named_once_the_tool_has_run(
    result: Any, kind: str
) -> None:
    from agents import Agent, function_tool

    from abeyance.adapters.openai_agents import openai_agent

    office = Office([("c1", "look", {})], "Done.")

    def look() -> Any:
        return result

    clerk = Agent(name="clerk", model=openai_model(office), tools=[function_tool(look)])
    run = await started(openai_agent(clerk))

    assert run.values["reply"] == "Done."
    assert f"'look' has run, but its result, a {kind}, is not JSON" in "".join(office.heard)


async def test_a_worker_without_a_key_of_the_provider_is_blocked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from agents import Agent

    from abeyance.adapters.openai_agents import openai_agent

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    run = InMemoryRun(desk(openai_agent(Agent(name="clerk", model="gpt-5"))))
    with pytest.raises(Blocked, match="'clerk': set OPENAI_API_KEY in its environment"):
        await run.start()

    assert [each.code for each in (await run.view()).blocked] == ["model_unavailable"]


def library(office: Office) -> MCPServer:
    """Return an MCP server with one tool."""
    from agents.mcp import MCPServer
    from mcp.types import CallToolResult, TextContent, Tool

    class Library(MCPServer):
        @property
        def name(self) -> str:
            return "library"

        async def connect(self) -> None:
            pass

        async def cleanup(self) -> None:
            pass

        async def list_tools(self, *_: Any) -> list[Tool]:
            return [Tool(name="look", input_schema={"type": "object", "properties": {}})]

        async def call_tool(self, name: str, arguments: Any, meta: Any = None) -> CallToolResult:
            return CallToolResult(content=[TextContent(type="text", text=office.look(1))])

        async def list_prompts(self) -> Any:
            raise AssertionError("the library has no prompts")

        async def get_prompt(self, name: str, arguments: Any = None) -> Any:
            raise AssertionError("the library has no prompts")

    return Library()


@pytest.mark.parametrize("lost_after", [1, 2, 3])
async def test_a_worker_that_is_lost_within_a_turn_repeats_nothing_of_it(lost_after: int) -> None:
    from agents import Agent, UserError

    from abeyance.adapters.openai_agents import openai_agent

    office = Office([("h1", "transfer_to_expert", {})], [("c1", "look", {})], "Done.")
    model = openai_model(office)
    expert = Agent(name="expert", model=model, mcp_servers=[library(office)])
    framework = openai_agent(Agent(name="clerk", model=model, handoffs=[expert])).framework
    journal = Recorder(lost_after).journal
    turn = ForeignTurn(state=None, results={}, prompts=["Look."], journal=journal)
    with pytest.raises((Died, UserError)):
        await framework.turn(turn)
    taken = await framework.turn(turn)

    assert taken.output == "Done."
    assert "looked 1" in "".join(office.heard)
    assert office.lines == ["turn 1", "turn 2", "look 1", "turn 3"]
