"""The events of a run over HTTP, in pages and as a stream."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from sample_graphs import gated
from stack import Api, app_for, new_id, problem, served, stream_events, streaming
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance import views
from abeyance.api.routers.events import EventStream
from abeyance.errors import Unavailable

STREAM = {"Accept": "text/event-stream"}
YES = {"approved": True}


async def page(api: Api, run_id: str, **query: Any) -> dict[str, Any]:
    response = await api.http.get(f"/runs/{run_id}/events", params=query)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def test_an_ended_run_is_read_from_any_place_by_pages_or_as_a_stream_as_its_reader_says(
    api: Api,
) -> None:
    run_id, (gate,) = await api.waiting("gated")
    await api.http.post(f"/interrupts/{gate}/respond", json={"response": YES})
    await api.until(run_id, "completed")
    path, whole = f"/runs/{run_id}/events", (await page(api, run_id))["items"]
    ids = [event["id"] for event in whole]
    async with streaming(
        api, f"/runs/{run_id}/events", {"Last-Event-ID": ids[2]}, after=ids[0]
    ) as events:
        assert [event async for event in events] == whole[3:]
    async with streaming(api, path, after=ids[1]) as events:
        assert [event async for event in events] == whole[2:]
    read, query = list[Any](), dict[str, Any]()
    while query.get("after", "") is not None:
        found = await page(api, run_id, limit=4, **query)
        assert len(found["items"]) <= 4
        read, query = [*read, *found["items"]], {"after": found["next_cursor"]}
    assert (ids, read) == (sorted({*ids}), whole)

    for accept, kind in (
        ("*/*", "application/json"),
        ("application/json, text/event-stream", "application/json"),
        ("text/event-stream;q=1, application/json", "text/event-stream"),
        ("Text/Event-Stream", "text/event-stream"),
    ):
        response = await api.http.get(path, headers={"Accept": accept})
        assert response.headers["content-type"].partition(";")[0] == kind
    for headers in (STREAM, {}):
        for after in ("nonsense", "", "12"):
            odd = await api.http.get(path, headers=headers, params={"after": after})
            problem(odd, 422, "invalid_body")
        odd = await api.http.get(path, headers={**headers, "Last-Event-ID": "nonsense"})
        problem(odd, 422, "invalid_body")
        gone = await api.http.get(path, headers=headers, params={"after": "000000000999"})
        oldest = problem(gone, 410, "gone")["oldest"]
        assert (await page(api, run_id, after=oldest))["items"] == whole
        nobody = await api.http.get(f"/runs/{new_id()}/events", headers=headers)
        problem(nobody, 404, "unknown_run")


async def test_a_quiet_stream_shows_that_it_lives() -> None:
    async def quiet() -> AsyncGenerator[views.Event, None]:
        await asyncio.Event().wait()
        yield views.Event(id="1", time=datetime.now(UTC), type="user.x", run_id="r")

    seen: list[str] = []
    stream = EventStream(quiet(), heartbeat=0.05)
    async with asyncio.timeout(30):
        async for chunk in stream.body_iterator:
            seen.append(str(chunk))
            if len(seen) == 2:
                break
    await stream.aclose()
    assert seen == [":\n\n"] * 2


async def test_a_stream_that_cannot_go_on_says_why_and_ends() -> None:
    async def broken() -> AsyncGenerator[views.Event, None]:
        yield views.Event(id="1", time=datetime.now(UTC), type="user.x\ndata: y", run_id="r")
        raise Unavailable("this reader was too slow:\nconnect again")

    text = [str(chunk) async for chunk in EventStream(broken()).body_iterator]
    assert text[0].startswith("id: 1\nevent: user.x data: y\ndata: {")
    assert text[1:] == [": this reader was too slow: connect again\n\n"]


async def test_a_reader_who_has_left_costs_nothing_while_the_feed_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = 0
    wait = asyncio.wait

    async def counting(*args: Any, **options: Any) -> Any:
        nonlocal waits
        waits += 1
        return await wait(*args, **options)

    read, closed = asyncio.Event(), asyncio.Event()

    async def events() -> AsyncGenerator[views.Event, None]:
        try:
            yield views.Event(id="1", time=datetime.now(UTC), type="user.x", run_id="r")
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(time.sleep, 0.3)
            closed.set()

    async def leaves() -> dict[str, Any]:
        await read.wait()
        return {"type": "http.disconnect"}

    async def takes(message: Any) -> None:
        if message.get("body"):
            read.set()

    monkeypatch.setattr(asyncio, "wait", counting)
    await EventStream(events())({"type": "http"}, leaves, takes)

    assert closed.is_set()
    assert waits < 10


async def test_a_stream_ends_when_its_token_is_revoked_and_no_later_event_is_sent() -> None:
    revoked = False

    async def events() -> AsyncGenerator[views.Event, None]:
        nonlocal revoked
        for number in ("1", "2"):
            yield views.Event(id=number, time=datetime.now(UTC), type="user.x", run_id="r")
            revoked = True

    stream = EventStream(events(), is_revoked=lambda: revoked)
    text = [str(chunk) async for chunk in stream.body_iterator]
    assert text[0].startswith("id: 1\n")
    assert text[1:] == [": the token was revoked: reconnect with a new token and the last id\n\n"]


async def test_a_viewer_who_does_not_read_delays_nobody_and_misses_nothing(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    async with site.worker(), served(app_for(site)) as api:
        run_id, (gate,) = await api.waiting("gated")
        # The buffers between the API and this reader hold only a few events.
        narrow = httpx.AsyncHTTPTransport(
            socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)]
        )
        async with (
            httpx.AsyncClient(base_url=api.url, transport=narrow, timeout=40) as http,
            http.stream("GET", f"/runs/{run_id}/events", headers=STREAM) as slow,
        ):
            api.narrow()
            async with streaming(api, f"/runs/{run_id}/events") as quick:
                for number in range(4):
                    body = {"reason": f"{number} {'x' * 1900}"}
                    await api.http.post(f"/runs/{run_id}/pause?wait=10s", json=body)
                    await api.http.post(f"/runs/{run_id}/resume?wait=10s", json=body)
                await api.http.post(f"/interrupts/{gate}/respond", json={"response": YES})
                seen = [event async for event in quick]
            late = [event async for event in stream_events(slow)]

    assert [event["type"] for event in seen].count("run.paused") == 4
    assert seen[-1]["type"] == "run.completed"
    assert late == seen
