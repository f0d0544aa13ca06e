"""MCP servers over HTTP, also those that keep nothing between two requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp_site import YES, People, Site, deeds, site, started, until

from abeyance.agents.tool import close_servers
from abeyance.authoring.interrupts import Suspended
from abeyance.contrib.mcp.client.server import McpDown, McpServer, McpToolError, McpUnusable

SEAT = {"action": "accept", "content": {"seat": "7A"}}
OLDER = ["--older"]
MEAL = {"action": "accept", "content": {"meal": "soup"}}


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    yield
    await close_servers()


async def _given_up(server: McpServer, tool: str, people: People, saved: Any = None) -> Suspended:
    with pytest.raises(Suspended) as caught:
        await server.call(tool, {}, ask=people, saved=saved)
    return caught.value


async def test_a_call_goes_on_where_it_stood_and_not_from_its_beginning(tmp_path: Path) -> None:
    with site(tmp_path) as remote:
        first = await _given_up(remote.server(), "reserve", People())
    assert deeds(tmp_path) == ["reserved"]
    assert [each.question.name for each in first.asked] == ["elicit", "elicit.2"]
    assert [each.question.prompt for each in first.asked] == ["Which seat?", "Which meal?"]
    await close_servers()
    # Another server process answers, and this process has nothing left but the saved state.
    saved = json.loads(json.dumps(first.state))
    with site(tmp_path) as remote:
        second = await _given_up(remote.server(), "reserve", People(elicit=SEAT), saved)
        assert [each.question.name for each in second.asked] == ["elicit.2"]
        people = People(elicit=SEAT, elicit_2=MEAL)
        found = await remote.server().call("reserve", {}, ask=people, saved=second.state)
    assert found.text == "{'seat': '7A'} {'meal': 'soup'}"
    assert deeds(tmp_path) == ["reserved", "paid for reservation 7"]


async def test_a_server_that_forgot_its_state_is_called_from_the_beginning(tmp_path: Path) -> None:
    with site(tmp_path, "--forgetful") as remote:
        first = await _given_up(remote.server(), "reserve", People())
    people = People(elicit=SEAT, elicit_2=MEAL)
    with site(tmp_path, "--forgetful") as remote:
        found = await remote.server().call("reserve", {}, ask=people, saved=first.state)
    assert found.text == "{'seat': '7A'} {'meal': 'soup'}"
    assert deeds(tmp_path) == ["reserved", "reserved", "paid for reservation 7"]
    assert [each.name for each in people.asked] == ["elicit", "elicit.2"]


async def test_equal_questions_keep_their_own_answers(tmp_path: Path) -> None:
    server = started(tmp_path)
    people, saved = People(), None
    for name, letter in (("elicit", "a"), ("elicit.2", "b"), ("elicit.3", "c")):
        suspended = await _given_up(server, "three_times", people, saved)
        assert [each.question.name for each in suspended.asked] == [name]
        saved = suspended.state
        people.answers[name] = {"action": "accept", "content": {"word": letter}}
    assert (await server.call("three_times", {}, ask=people, saved=saved)).text == "abc"


async def test_saved_state_also_serves_the_older_protocol(
    tmp_path: Path,
) -> None:
    with site(tmp_path) as remote:
        suspended = await _given_up(remote.server(), "declared", People())
    with site(tmp_path, *OLDER) as remote:
        found = await remote.server().call(
            "declared", {}, ask=People(elicit=YES), saved=suspended.state
        )
    assert found.text == "sure: True"


async def test_a_server_that_is_not_done_is_asked_again(tmp_path: Path) -> None:
    with site(tmp_path) as remote:
        assert (await remote.server().call("patient", {}, ask=People())).text == "done"


async def test_each_tool_is_called_in_the_protocol_in_which_it_asks(tmp_path: Path) -> None:
    with site(tmp_path) as remote:
        server = remote.server(connections=1)
        seats = await _given_up(server, "reserve", People())
        # The client has to try once to learn that this tool cannot ask in the newest protocol.
        acted = await _given_up(server, "hasty", People())
        assert deeds(tmp_path) == ["reserved", "acted", "acted"]
        people = People(elicit=SEAT, elicit_2=MEAL)
        found = await server.call("reserve", {}, ask=people, saved=seats.state)
        assert found.text == "{'seat': '7A'} {'meal': 'soup'}"
        await _given_up(server, "hasty", People())
        await close_servers()
        # The saved state tells this to a process that has not learned it yet.
        found = await server.call("hasty", {}, ask=People(elicit=YES), saved=acted.state)
    assert found.text == "accept"
    assert deeds(tmp_path)[3:] == ["paid for reservation 7", "acted", "acted"]


async def test_a_question_that_can_be_asked_in_no_protocol_is_refused_once_both_were_tried(
    tmp_path: Path,
) -> None:
    with (
        site(tmp_path, "--stateless") as remote,
        pytest.raises(McpToolError, match="no back-channel") as caught,
    ):
        await remote.server().call("hasty", {}, ask=People())
    assert caught.value.code == "refused"
    assert deeds(tmp_path) == ["acted", "acted"]


async def test_a_cancelled_call_stops_the_tool(tmp_path: Path) -> None:
    with site(tmp_path) as remote:
        server = remote.server()
        call = asyncio.create_task(server.call("slow", {"seconds": 60}, ask=People()))
        await until(lambda: deeds(tmp_path) == ["slow began"])
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: deeds(tmp_path) == ["slow began", "slow was stopped"])


async def test_a_call_to_a_killed_server_raises_that_it_was_sent(tmp_path: Path) -> None:
    with site(tmp_path) as remote:
        server = remote.server()
        call = asyncio.create_task(server.call("slow", {"seconds": 60}, ask=People()))
        await until(lambda: deeds(tmp_path) == ["slow began"])
        remote.end()
        with pytest.raises(McpDown, match="'slow' of remote") as caught:
            await call
        assert caught.value.sent
        with pytest.raises(McpDown, match="remote"):
            await server.call("add", {"a": 1, "b": 1}, ask=People())


async def test_a_server_that_was_started_anew_is_used_without_a_word(tmp_path: Path) -> None:
    with site(tmp_path) as remote:
        server = remote.server()
        before = (await server.call("who", {}, ask=People())).text
        remote.end()
        again = Site(tmp_path, "--port", str(remote.port))
        try:
            assert (await server.call("who", {}, ask=People())).text != before
        finally:
            again.end()


async def test_a_token_comes_from_the_environment_and_is_shown_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_TEST", "s3cret")
    with site(tmp_path, "--token", "s3cret") as remote:
        server = remote.server(token_from="TOKEN_OF_TEST")
        assert (await server.call("add", {"a": 1, "b": 1}, ask=People())).text == "2"
        assert "s3cret" not in repr(server)
        assert "s3cret" not in server.key
        other = remote.server(headers_from={"Authorization": "WRONG_OF_TEST"})
        monkeypatch.setenv("WRONG_OF_TEST", "Bearer n0thing")
        with pytest.raises(McpUnusable, match="status 401") as caught:
            await other.list_tools()
        assert "n0thing" not in str(caught.value)


async def test_a_status_says_whether_it_is_worth_trying_again(tmp_path: Path) -> None:
    kinds = {503: McpDown, 429: McpDown, 403: McpUnusable}
    answer = tmp_path / "status"
    with site(tmp_path) as remote:
        server = remote.server()
        for status, error in kinds.items():
            answer.unlink(missing_ok=True)
            await server.list_tools()
            answer.write_text(str(status), encoding="utf-8")
            with pytest.raises(error, match=f"status {status}"):
                await server.call("add", {"a": 1, "b": 1}, ask=People())
            await close_servers()
            with pytest.raises(error, match=f"status {status}"):
                await server.list_tools()
            await close_servers()
