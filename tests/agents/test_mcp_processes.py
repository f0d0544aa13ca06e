"""Processes of MCP servers: how many the worker starts, how long they live, and what if one ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp_site import People, deeds, is_running, started, until

from abeyance.agents.tool import close_servers
from abeyance.authoring.interrupts import Suspended
from abeyance.contrib.mcp.client.connection import pool_of
from abeyance.contrib.mcp.client.server import McpDown, McpServer, McpUnusable


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    yield
    await close_servers()


async def _who(server: McpServer) -> int:
    return int((await server.call("who", {}, ask=People())).text)


async def test_one_process_serves_all_declarations_of_the_same_server(tmp_path: Path) -> None:
    one, other = started(tmp_path), started(tmp_path, prefix="x_", approve=True)
    first = await _who(one)
    assert int((await other.call("x_who", {}, ask=People())).text) == first


async def test_a_server_that_does_not_drop_a_call_that_was_given_up_is_ended(
    tmp_path: Path,
) -> None:
    server = started(tmp_path, older=True)
    process = await _who(server)
    with pytest.raises(Suspended):
        await server.call("stubborn", {}, ask=People())
    await until(lambda: not is_running(process))
    assert deeds(tmp_path) == []
    assert await _who(server) != process


async def test_a_server_that_is_killed_in_the_middle_is_started_anew(tmp_path: Path) -> None:
    server = started(tmp_path, older=True)
    process = await _who(server)
    call = asyncio.create_task(server.call("slow", {"seconds": 60}, ask=People()))
    await until(lambda: deeds(tmp_path) == ["slow began"])
    os.kill(process, signal.SIGKILL)
    with pytest.raises(McpDown, match="died during the call") as caught:
        await call
    assert caught.value.sent
    assert await _who(server) != process


async def test_a_server_that_is_killed_while_idle_is_started_anew(tmp_path: Path) -> None:
    server = started(tmp_path)
    process = await _who(server)
    os.kill(process, signal.SIGKILL)
    await until(lambda: not any(each.alive for each in pool_of(server)._all))
    assert await _who(server) != process
    assert pool_of(server).connections == 1


async def test_concurrent_calls_get_a_process_each_up_to_a_bound(tmp_path: Path) -> None:
    server = started(tmp_path, older=True, connections=2)
    calls = [server.call("dinner", {}, ask=_city(number)) for number in range(4)]
    found = await asyncio.gather(*calls)
    assert [each.text for each in found] == [f"tea in {number}" for number in range(4)]
    assert pool_of(server).connections == 2


def _city(number: int) -> People:
    return People(
        elicit={"action": "accept", "content": {"city": str(number)}},
        elicit_2={"action": "accept", "content": {"drink": "tea"}},
    )


async def test_a_call_that_finds_no_free_connection_says_so(tmp_path: Path) -> None:
    server = started(tmp_path, connections=1, timeout=0.5)
    await server.list_tools()
    async with pool_of(server).lease(10):
        with pytest.raises(McpDown, match=r"all 1 connections to local .* 0\.5 s") as caught:
            await server.call("add", {"a": 1, "b": 1}, ask=People())
    assert not caught.value.sent


async def test_a_process_that_nobody_uses_is_ended(tmp_path: Path) -> None:
    server = started(tmp_path, idle=0.2)
    process = await _who(server)
    await until(lambda: not is_running(process))
    assert await _who(server) != process


async def test_closing_ends_every_process(tmp_path: Path) -> None:
    process = await _who(started(tmp_path, forked=False))
    await close_servers()
    assert not is_running(process)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["no-such-command-anywhere"], "no-such-command-anywhere"),
        ([sys.executable, "-c", "raise SystemExit(1)"], "closed the connection"),
    ],
)
async def test_a_command_that_is_not_a_server_is_named(command: list[str], told: str) -> None:
    with pytest.raises(McpDown, match=told):
        await McpServer(command=command).list_tools()


async def test_a_command_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    # A shell starts in next to no time, so it writes its number before the client gives up.
    command = ["/bin/sh", "-c", 'echo $$ > "$0"; while read -r _; do :; done', str(file)]
    with pytest.raises(McpDown, match=r"did not answer within 2 s of connecting"):
        await McpServer(command=command, connect_timeout=2).list_tools()
    assert not is_running(int(file.read_text()))


async def test_a_variable_that_the_worker_does_not_have_is_named(tmp_path: Path) -> None:
    with pytest.raises(McpUnusable, match="'NO_SUCH_TOKEN'"):
        await started(tmp_path, env_from=["NO_SUCH_TOKEN"]).list_tools()


async def test_a_process_gets_the_variables_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSED_ON", "secret")
    monkeypatch.setenv("KEPT_BACK", "secret too")
    server = started(tmp_path, env={"PLAIN": "value"}, env_from=["PASSED_ON"], cwd=tmp_path)
    found = {
        name: (await server.call("variable", {"name": name}, ask=People())).text
        for name in ("PLAIN", "PASSED_ON", "KEPT_BACK", "PWD_OF_TEST")
    }
    assert found == {
        "PLAIN": "value",
        "PASSED_ON": "secret",
        "KEPT_BACK": "not set",
        "PWD_OF_TEST": str(tmp_path),
    }


async def test_closing_ends_a_call_that_is_under_way(tmp_path: Path) -> None:
    server = started(tmp_path)
    call = asyncio.create_task(server.call("slow", {"seconds": 60}, ask=People()))
    await until(lambda: deeds(tmp_path) == ["slow began"])
    await close_servers()
    with pytest.raises(McpDown, match="'slow' of local"):
        await call


async def test_closing_ends_who_is_still_connecting() -> None:
    mute = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    listing = asyncio.create_task(McpServer(name="mute", command=mute).list_tools())
    await asyncio.sleep(0)
    await until(lambda: any(task.get_name() == "mcp mute" for task in asyncio.all_tasks()))
    await close_servers()
    with pytest.raises(McpDown, match="mute was closed before it was connected"):
        await listing
