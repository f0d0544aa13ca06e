"""An agent uses the tools of an MCP server; a person gets the questions of the server."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp_site import deeds, started
from pydantic_ai.messages import ModelMessage
from scripted_agents import Call, Script, desk, returned

from abeyance import Agent, Graph, McpServer, testing
from abeyance.agents.tool import close_servers
from abeyance.errors import Blocked, BlockedCode


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    yield
    await close_servers()


def outcomes(messages: Sequence[ModelMessage]) -> str:
    """Return a turn that reports the outcome of each call."""
    return " | ".join(f"{part.outcome}: {part.content}" for part in returned(messages))


def graph_of(server: McpServer, *calls: Call) -> Graph:
    """Return a graph whose model makes these calls in its first turn."""
    return desk(Agent("clerk", model=Script(calls, outcomes), tools=[server]))


async def test_a_model_is_offered_the_tools_of_a_server_and_calls_them(tmp_path: Path) -> None:
    model = Script([("add", {"a": 1, "b": 2}), ("fail", {})], outcomes)
    server = started(tmp_path, tools=["add", "fail"])
    run = await testing.run(desk(Agent("clerk", model=model, tools=[server])))

    assert model.offered == ["add", "fail"]
    assert run.status == "completed"
    sum_, failed = run.values["report"].split(" | ")
    assert sum_.startswith("success: ")
    assert "3" in sum_
    assert failed.startswith("failed: ")
    called = [
        each.address async for each in run.events(follow=False) if each.type == "tool.started"
    ]
    assert called == [
        "graph:desk;node:clerk;agent:clerk;tool:add:1.1",
        "graph:desk;node:clerk;agent:clerk;tool:fail:1.2",
    ]


AT = "2026-01-31T10:00"


async def test_the_server_judges_the_arguments_of_its_tools(tmp_path: Path) -> None:
    said: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "success: 3": [("add", {"a": "1", "b": 2}), ("add", {"a": 1, "b": 2, "note": "soon"})],
        "failed: Error executing tool add: .*valid integer": [("add", {"a": "x", "b": 2})],
        "failed: Error executing tool add: .*Field required": [("add", {})],
        "success: 2026-01-31 10:00:00 True 0:00:00": [("book", {"at": AT})],
        "success: .* False 0:01:00": [("book", {"at": AT, "sure": "no", "spell": 60})],
        "failed: .*should not have timezone info": [("book", {"at": f"{AT}Z"})],
    }
    given = [(told, *each) for told, every in said.items() for each in every]
    server = started(tmp_path, tools=["add", "book"], approve=True)
    run = await testing.run(graph_of(server, *(each[1:] for each in given)))
    for question, (_, name, arguments) in zip(await run.interrupts(), given, strict=True):
        assert question.reason == {"tool": name, "arguments": arguments}
        await run.respond(question.id, {"approved": True, "arguments": arguments})
    results = run.values["report"].split(" | ")
    assert all(
        re.match(told, result, re.DOTALL) for (told, *_), result in zip(given, results, strict=True)
    ), results


@pytest.mark.parametrize(
    ("answer", "said", "done"),
    [
        ({"action": "accept", "content": {"sure": True}}, "transferred", ["transferred 9"]),
        ({"action": "decline"}, "not transferred: decline", []),
    ],
)
async def test_an_elicitation_of_a_server_is_an_interrupt_that_can_be_declined(
    tmp_path: Path, answer: dict[str, Any], said: str, done: list[str]
) -> None:
    server = started(tmp_path, older=True)
    run = testing.InMemoryRun(graph_of(server, ("transfer", {"amount": 9})))
    await run.start()

    (asked,) = await run.interrupts()
    assert (asked.kind, asked.name, asked.prompt) == ("elicitation", "elicit", "Transfer 9?")
    assert asked.address == "graph:desk;node:clerk;agent:clerk;tool:transfer:1.1"
    assert asked.reason == {"server": "local", "tool": "transfer"}

    await run.advance(14 * 24 * 3600)
    await run.respond("elicit", answer)
    assert run.values["report"] == f"success: {said}"
    assert deeds(tmp_path) == done


async def test_a_call_in_which_its_server_dies_is_not_made_again(tmp_path: Path) -> None:
    run = await testing.run(graph_of(started(tmp_path), ("crash", {})))

    assert run.values["report"].startswith("failed: the tool 'crash' of local: the server died")
    assert "may have been done" in run.values["report"]
    assert deeds(tmp_path) == ["crashed"]


async def test_a_gated_tool_of_a_server_is_called_only_when_somebody_has_approved_it(
    tmp_path: Path,
) -> None:
    def is_large(tool: str, arguments: Any) -> bool:
        return tool == "add" and arguments["a"] > 10

    server = started(tmp_path, tools=["add"], approve=is_large)
    calls = [("add", {"a": 11, "b": 1}), ("add", {"a": 1, "b": 1})]
    run = testing.InMemoryRun(graph_of(server, *calls))
    await run.start()

    (asked,) = await run.interrupts()
    assert (asked.kind, asked.reason) == (
        "approval",
        {"tool": "add", "arguments": {"a": 11, "b": 1}},
    )
    await run.respond("approve", {"approved": False, "reason": "too large"})
    assert "denied: The call was rejected by a person, so it was not run: too large" in str(
        run.values["report"]
    )


async def test_a_server_that_is_not_there_blocks_its_agent_and_says_which(tmp_path: Path) -> None:
    gone = McpServer(name="gone", command=["no-such-program"], connect_timeout=2)
    run = testing.InMemoryRun(graph_of(gone))

    with pytest.raises(Blocked, match="the tools of the MCP server 'gone' cannot be listed") as why:
        await run.start()
    assert why.value.code is BlockedCode.TOOLS_UNAVAILABLE
