"""MCP servers that the worker starts by a command, over standard input and output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar
from pathlib import Path

import pytest
from mcp_site import YES, People, deeds, started, until

from abeyance.agents.tool import close_servers
from abeyance.authoring.interrupts import Suspended
from abeyance.contrib.mcp.client import connection
from abeyance.contrib.mcp.client.connection import pool_of
from abeyance.contrib.mcp.client.elicitation import Answer, Elicitation
from abeyance.contrib.mcp.client.server import McpDown, McpServer, McpToolError

RUN: ContextVar[str] = ContextVar("RUN")


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    yield
    await close_servers()


async def _who(server: McpServer) -> int:
    return int((await server.call("who", {}, ask=People())).text)


async def test_only_the_chosen_tools_are_offered_and_can_be_called(tmp_path: Path) -> None:
    server = started(tmp_path, tools=["add", "fail"], exclude=["fail"], prefix="my_")
    assert [tool.name for tool in await server.list_tools()] == ["my_add"]
    assert (await server.call("my_add", {"a": 1, "b": 2}, ask=People())).text == "3"
    for name in ("add", "my_fail", "my_who", "my_nothing"):
        with pytest.raises(McpToolError, match=name) as caught:
            await server.call(name, {}, ask=People())
        assert caught.value.code == "unknown_tool"


async def test_a_question_gives_the_call_up_and_the_answer_makes_it_again(tmp_path: Path) -> None:
    server = started(tmp_path, older=True)
    before = await _who(server)
    with pytest.raises(Suspended) as caught:
        await server.call("transfer", {"amount": 5}, ask=People())
    [asked] = caught.value.asked
    assert asked.question.name == "elicit"
    assert asked.question.prompt == "Transfer 5?"
    assert asked.question.reason == {"server": "local", "tool": "transfer"}
    assert deeds(tmp_path) == []
    await until(lambda: bool(pool_of(server)._idle))
    again = People(elicit=YES)
    found = await server.call("transfer", {"amount": 5}, ask=again, saved=caught.value.state)
    assert (found.text, found.is_error) == ("transferred", False)
    assert deeds(tmp_path) == ["transferred 5"]
    # The server confirmed that it dropped the first call, so the worker need not restart it.
    assert await _who(server) == before
    assert pool_of(server).connections == 1


async def test_questions_one_after_the_other_are_asked_one_by_one(tmp_path: Path) -> None:
    server = started(tmp_path, older=True)
    people, saved = People(), None
    for name, value in (("elicit", {"city": "Rome"}), ("elicit.2", {"drink": "tea"})):
        with pytest.raises(Suspended) as caught:
            await server.call("dinner", {}, ask=people, saved=saved)
        assert [each.question.name for each in caught.value.asked] == [name]
        saved = caught.value.state
        people.answers[name] = {"action": "accept", "content": value}
    assert (await server.call("dinner", {}, ask=people, saved=saved)).text == "tea in Rome"


async def test_a_changed_question_of_a_server_is_asked_anew(tmp_path: Path) -> None:
    server = started(tmp_path, older=True)
    words, people = tmp_path / "words", People(elicit=YES)
    words.write_text("Now?", encoding="utf-8")
    with pytest.raises(Suspended) as first:
        await server.call("moody", {}, ask=People())
    words.write_text("Later?", encoding="utf-8")
    with pytest.raises(Suspended) as second:
        await server.call("moody", {}, ask=people, saved=first.value.state)
    [asked] = second.value.asked
    assert (asked.question.name, asked.question.prompt) == ("elicit.2", "Later?")
    words.write_text("Now?", encoding="utf-8")
    found = await server.call("moody", {}, ask=people, saved=second.value.state)
    assert found.text == "Now? accept"


async def test_a_person_may_take_longer_than_a_call(tmp_path: Path) -> None:
    server = started(tmp_path, older=True, timeout=3)
    await server.list_tools()
    people = People(elicit=YES)

    async def thinking(elicitation: Elicitation) -> Answer:
        await asyncio.sleep(3.3)
        return await people(elicitation)

    found = await server.call("transfer", {"amount": 1}, ask=thinking)
    assert found.text == "transferred"


async def test_a_call_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    server = started(tmp_path, timeout=3)
    await server.list_tools()
    with pytest.raises(McpDown, match=r"'slow' of local did not answer within 3 s") as caught:
        await server.call("slow", {"seconds": 60}, ask=People())
    assert caught.value.sent
    await until(lambda: deeds(tmp_path) == ["slow began", "slow was stopped"])
    assert (await server.call("add", {"a": 1, "b": 1}, ask=People())).text == "2"


async def test_a_cancelled_call_stops_the_tool(tmp_path: Path) -> None:
    server = started(tmp_path, older=True)
    call = asyncio.create_task(server.call("slow", {"seconds": 60}, ask=People()))
    await until(lambda: deeds(tmp_path) == ["slow began"])
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: deeds(tmp_path) == ["slow began", "slow was stopped"])


async def test_a_result_that_is_too_large_is_refused(tmp_path: Path) -> None:
    server = started(tmp_path, max_result=1_000)
    assert (await server.call("long", {"size": 900}, ask=People())).text == "x" * 900
    with pytest.raises(McpToolError, match=r"'long' of local returned \d+ bytes") as e:
        await server.call("long", {"size": 2_000}, ask=People())
    assert e.value.code == "result_too_large"


async def test_a_picture_comes_as_json_and_is_left_out_if_it_is_large(tmp_path: Path) -> None:
    server = started(tmp_path, max_result=1_000)
    [small] = (await server.call("picture", {"size": 30}, ask=People())).content
    assert (small["type"], small["mimeType"], len(small["data"])) == ("image", "image/png", 40)
    [large] = (await server.call("picture", {"size": 3_000}, ask=People())).content
    assert large == {
        "type": "image",
        "mimeType": "image/png",
        "left_out": "4000 characters of base64: too large for a result",
    }


async def test_a_tool_that_is_new_is_seen_when_the_tools_are_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = started(tmp_path, older=True)
    await server.call("grow", {}, ask=People())
    assert "grown" not in {tool.name for tool in await server.list_tools()}
    monkeypatch.setattr(connection, "_LISTED_FOR", 0.0)
    assert "grown" in {tool.name for tool in await server.list_tools()}
    assert (await server.call("grown", {}, ask=People())).text == "new"


async def test_a_place_to_go_to_is_shown_as_a_link(tmp_path: Path) -> None:
    server = started(tmp_path, older=True)
    with pytest.raises(Suspended) as caught:
        await server.call("sign_in", {}, ask=People())
    question = caught.value.asked[0].question
    assert question.reason["url"] == "https://example.org/sign-in"
    people = People(elicit={"action": "accept"})
    found = await server.call("sign_in", {}, ask=people, saved=caught.value.state)
    assert found.text == "accept"


async def test_a_tool_that_needs_a_place_visited_first_is_called_again(tmp_path: Path) -> None:
    server = started(tmp_path, older=True)
    with pytest.raises(Suspended) as caught:
        await server.call("gated", {}, ask=People())
    assert caught.value.asked[0].question.reason["url"] == "https://example.org/allow"
    saved = caught.value.state
    with pytest.raises(McpToolError, match="who declined"):
        await server.call("gated", {}, ask=People(elicit={"action": "decline"}), saved=saved)
    (tmp_path / "been-there").touch()
    found = await server.call("gated", {}, ask=People(elicit={"action": "accept"}), saved=saved)
    assert found.text == "allowed"


async def test_people_are_asked_in_the_task_of_the_caller(tmp_path: Path) -> None:
    server = started(tmp_path, older=True)
    await server.list_tools()
    for run in ("one", "two"):
        RUN.set(run)
        seen: list[str] = []

        async def ask(elicitation: Elicitation, seen: list[str] = seen) -> Answer:
            seen.append(RUN.get())
            return Answer.of(YES)

        assert (await server.call("declared", {}, ask=ask)).text == "sure: True"
        assert seen == [run]


async def test_an_error_in_asking_is_raised_unchanged(tmp_path: Path) -> None:
    server = started(tmp_path, older=True)

    async def ask(elicitation: Elicitation) -> Answer:
        message = "the record is gone"
        raise LookupError(message)

    with pytest.raises(LookupError, match="the record is gone"):
        await server.call("declared", {}, ask=ask)
    assert deeds(tmp_path) == []
    assert (await server.call("add", {"a": 1, "b": 1}, ask=People())).text == "2"
