"""Slow callers, and too many of them: deadlines for what they send and read, a bound on connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from stack import Api, app_for, head_of, new_id, problem, served, status_of, typed
from temporal_site import Site


@pytest_asyncio.fixture(scope="module")
async def impatient(site: Site) -> AsyncIterator[Api]:
    """An API whose callers have little time."""
    async with served(app_for(site, head_timeout=0.5, body_timeout=0.5)) as api:
        yield api


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the other side closes the connection, which it has to do."""
    found = b""
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(65_536):
                found += chunk
    return found


@pytest.mark.parametrize("start", [b"", b"G", b"GET / HTTP/1.1\r\nHost: a\r\nX-A: b"])
async def test_a_connection_without_a_whole_head_is_closed(impatient: Api, start: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", impatient.port)
    writer.write(start)
    told = await until_closed(reader)
    writer.close()

    assert (status_of(told) if told else None) == (408 if start else None)


async def test_a_byte_now_and_then_moves_no_deadline(impatient: Api) -> None:
    async def trickle(writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"a")
                await writer.drain()
                await asyncio.sleep(0.05)

    heads = [
        b"GET / HTTP/1.1\r\nX-A: ",
        typed(impatient, "Content-Length: 900000"),
        typed(impatient, "Transfer-Encoding: chunked") + b"fffff\r\n",
        # Answered before it was read.
        head_of(impatient, "/runs", "Content-Length: 900000"),
    ]
    for head in heads:
        reader, writer = await asyncio.open_connection("127.0.0.1", impatient.port)
        writer.write(head)
        sending = asyncio.create_task(trickle(writer))
        told = await until_closed(reader)
        sending.cancel()
        writer.close()
        assert status_of(told) in (415, 408), told
        assert told.count(b"HTTP/1.1 ") == 1


async def test_half_a_body_is_told_that_it_came_too_late(impatient: Api) -> None:
    run_id = new_id()
    body = json.dumps({"graph": "gated", "input": {}, "run_id": run_id}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", impatient.port)
    writer.write(typed(impatient, f"Content-Length: {len(body) + 1}") + body)
    told = await until_closed(reader)
    writer.close()

    assert status_of(told) == 408
    assert b'"code":"request_timeout"' in told
    assert b"0.5 s" in told
    problem(await impatient.http.get(f"/runs/{run_id}"), 404, "unknown_run")


async def test_who_waits_for_us_is_not_late(impatient: Api) -> None:
    run_id, _ = await impatient.waiting("gated")
    began = time.monotonic()
    waited = await impatient.http.get(
        f"/runs/{run_id}", params={"wait": "1200ms", "until": "failed"}
    )
    took = time.monotonic() - began
    headers = {"Accept": "text/event-stream"}
    async with (
        httpx.AsyncClient(base_url=impatient.url, trust_env=False) as http,
        http.stream("GET", f"/runs/{run_id}/events", headers=headers) as stream,
    ):
        lines = stream.aiter_lines()
        async for line in lines:
            if line == "event: interrupt.opened":
                break
        await asyncio.sleep(0.8)
        await impatient.http.post(f"/runs/{run_id}/cancel", json={})
        rest = [line async for line in lines]

    assert waited.status_code == 200
    assert took > 1.1
    assert "event: run.cancelled" in rest


async def test_who_takes_nothing_of_an_answer_is_dropped(site: Site) -> None:
    async with served(app_for(site, body_timeout=0.5)) as api:
        run_id, _ = await api.waiting("gated", {"log": ["x" * 200_000]})
        await api.http.aclose()
        _, writer = await asyncio.open_connection("127.0.0.1", api.port, limit=1)
        try:
            writer.write(head_of(api, f"/runs/{run_id}", method="GET") * 200)
            async with asyncio.timeout(30):
                while api.connections:
                    await asyncio.sleep(0.05)
        finally:
            writer.transport.abort()


async def test_half_open_connections_do_not_keep_others_out(site: Site) -> None:
    async with served(app_for(site, max_connections=20)) as api:
        held = [await asyncio.open_connection("127.0.0.1", api.port) for _ in range(100)]
        for _, writer in held[::2]:
            writer.write(b"POST /runs HTTP/1.1\r\n")
        found = []
        for _ in range(5):
            async with httpx.AsyncClient(trust_env=False) as http:
                found.append((await http.get(f"{api.url}/graphs")).status_code)
        places = api.connections
        for _, writer in held:
            writer.close()

    assert found == [200] * 5
    assert places <= 20


async def test_a_caller_too_many_is_told_to_come_back_and_nobody_is_cut(site: Site) -> None:
    async with served(app_for(site, max_connections=3)) as api:
        run_id, _ = await api.waiting("gated")
        query = {"wait": "30s", "until": "cancelled"}

        async def waiting() -> httpx.Response:
            async with httpx.AsyncClient(base_url=api.url, trust_env=False, timeout=40) as http:
                return await http.get(f"/runs/{run_id}", params=query)

        tasks = [asyncio.create_task(waiting()) for _ in range(3)]
        async with asyncio.timeout(20):
            while api.under_way < 3:
                await asyncio.sleep(0.02)
        refused = await api.raw(head_of(api, "/graphs", method="GET"))
        await site.client.run(run_id).cancel()
        views = [(await task).json() for task in tasks]

    assert status_of(refused) == 503
    assert b"retry-after: 1" in refused.lower()
    assert {view["status"] for view in views} <= {"cancelled", "cancelling"}
