"""The events of a run over HTTP: by pages, and as they come."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from itertools import product
from typing import Any

import httpx
import pytest
from sample_graphs import gated
from stack import PLAIN, Api, app_for, new_id, problem, served, stream_events
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import views
from abeyance.api.routers.events import EventStream
from abeyance.errors import Unavailable
from abeyance.history.cursors import Cursor
from abeyance.history.feed import Feed

STREAM = {"Accept": "text/event-stream"}
YES = {"approved": True}


@asynccontextmanager
async def following(
    api: Api, run_id: str, headers: dict[str, str] | None = None, **query: str
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The events of a stream that is open."""
    async with (
        httpx.AsyncClient(base_url=api.url, timeout=40, trust_env=False, verify=PLAIN) as http,
        http.stream(
            "GET", f"/runs/{run_id}/events", headers={**STREAM, **(headers or {})}, params=query
        ) as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        async with aclosing(stream_events(response)) as events:
            yield events


async def page(api: Api, run_id: str, **query: Any) -> dict[str, Any]:
    response = await api.http.get(f"/runs/{run_id}/events", params=query)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def ended(api: Api) -> str:
    run_id, (gate,) = await api.waiting("gated")
    await api.http.post(f"/interrupts/{gate}/respond", json={"response": YES})
    await api.until(run_id, "completed")
    return run_id


async def test_a_stream_tells_what_was_and_what_comes_and_ends_with_the_run(api: Api) -> None:
    run_id, (gate,) = await api.waiting("gated")
    types: list[str] = []
    async with following(api, run_id) as events:
        async for event in events:
            assert event["run_id"] == run_id
            types.append(event["type"])
            if event["type"] == "interrupt.opened":
                await api.http.post(f"/interrupts/{gate}/respond", json={"response": YES})

    assert types[0] == "run.started"
    assert types.index("interrupt.opened") < types.index("interrupt.answered")
    assert types[-1] == "run.completed"
    feed: Feed = api.app.state.backend.connection.client.feed
    await eventually(lambda: feed.tails == 0)


async def test_whoever_connects_again_misses_nothing_and_sees_nothing_twice(api: Api) -> None:
    run_id = await ended(api)
    whole = (await page(api, run_id))["items"]
    ids = [event["id"] for event in whole]
    assert ids == sorted(set(ids))
    for number, id_ in enumerate(ids, 1):
        async with following(api, run_id, {"Last-Event-ID": id_}, after=ids[0]) as events:
            assert [event async for event in events] == whole[number:]
    async with following(api, run_id, after=ids[1]) as events:
        assert [event async for event in events] == whole[2:]


async def test_pages_put_together_are_the_stream(api: Api) -> None:
    run_id = await ended(api)
    async with following(api, run_id) as events:
        whole = [event async for event in events]
    for limit in (1, 3, 1000):
        items: list[dict[str, Any]] = []
        query: dict[str, Any] = {"limit": limit}
        while True:
            found = await page(api, run_id, **query)
            items += found["items"]
            assert len(found["items"]) <= limit
            if found["next_cursor"] is None:
                break
            query["after"] = found["next_cursor"]
        assert items == whole


async def test_a_page_of_a_run_that_goes_on_can_be_gone_on_from(api: Api) -> None:
    run_id, _ = await api.waiting("gated")
    first = await page(api, run_id)
    then = await page(api, run_id, after=first["next_cursor"])
    await api.http.post(f"/runs/{run_id}/pause?wait=10s", json={})
    last = await page(api, run_id, after=then["next_cursor"])

    assert first["next_cursor"] == first["items"][-1]["id"]
    assert (then["items"], then["next_cursor"]) == ([], first["next_cursor"])
    assert "run.paused" in [event["type"] for event in last["items"]]


async def test_a_reader_who_leaves_gives_up_their_place(api: Api) -> None:
    run_id, _ = await api.waiting("gated")
    feed: Feed = api.app.state.backend.connection.client.feed
    # Those who followed something before have left, or are about to.
    await eventually(lambda: feed.tails == 0)
    async with following(api, run_id) as events:
        assert (await anext(events))["type"] == "run.started"
        assert feed.tails == 1
    await eventually(lambda: feed.tails == 0)


async def test_a_quiet_stream_shows_that_it_lives(api: Api, site: Site) -> None:
    run_id, _ = await api.waiting("gated")
    feed = Feed(site.temporal, site.settings.task_queue)
    seen: list[str] = []
    stream = EventStream(await feed.opened(run_id, None), heartbeat=0.05)
    async with asyncio.timeout(30):
        async for chunk in stream.body_iterator:
            seen.append(str(chunk))
            if seen[-2:] == [":\n\n"] * 2:
                break
    await stream.aclose()
    assert seen[0].startswith("id: ")


async def test_a_stream_that_cannot_go_on_says_why_and_ends() -> None:
    async def broken() -> AsyncGenerator[views.Event, None]:
        yield views.Event(id="1", time=datetime.now(UTC), type="user.x\ndata: y", run_id="r")
        raise Unavailable("this reader was too slow:\nconnect again")

    text = [str(chunk) async for chunk in EventStream(broken()).body_iterator]
    assert text[0].startswith("id: 1\nevent: user.x data: y\ndata: {")
    assert text[1:] == [": this reader was too slow: connect again\n\n"]


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


async def test_more_runs_than_may_be_are_not_followed(temporal: TemporalClient) -> None:
    site = Site(temporal, gated())
    app = app_for(site)
    async with site.worker(), served(app) as api:
        site.client.feed = Feed(temporal, site.settings.task_queue, most_tails=1)
        run_ids = [(await api.waiting("gated"))[0] for _ in range(2)]
        async with following(api, run_ids[0]) as events:
            await anext(events)
            refused = await api.http.get(f"/runs/{run_ids[1]}/events", headers=STREAM)
            assert problem(refused, 429, "too_many_runs")["limit"] == 1
            assert (await page(api, run_ids[1]))["items"]


@pytest.mark.parametrize("headers", [STREAM, {}])
async def test_what_cannot_be_followed_is_refused_before_the_stream(
    api: Api, standing: tuple[str, str], headers: dict[str, str]
) -> None:
    run_id, _ = standing
    for unknown in (new_id("nobody"), "no%20id"):
        response = await api.http.get(f"/runs/{unknown}/events", headers=headers)
        problem(response, 404, "unknown_run")
    foreign = (await page(api, await ended(api)))["items"][0]["id"]
    path = f"/runs/{run_id}/events"
    for after in ("nonsense", "", foreign):
        response = await api.http.get(path, headers=headers, params={"after": after})
        problem(response, 422, "invalid_body")
    wrong = {**headers, "Last-Event-ID": "nonsense"}
    problem(await api.http.get(path, headers=wrong), 422, "invalid_body")


@pytest.mark.parametrize("headers", [STREAM, {}])
async def test_a_cursor_of_a_history_that_is_no_longer_kept_is_told_the_oldest(
    api: Api, headers: dict[str, str]
) -> None:
    run_id = await ended(api)
    # As of an execution that the run had, and that Temporal has forgotten.
    old = Cursor(run_id=run_id, execution=str(uuid.uuid4()), birth=1, event=9)
    response = await api.http.get(
        f"/runs/{run_id}/events", headers=headers, params={"after": str(old)}
    )
    oldest = problem(response, 410, "gone")["oldest"]

    assert await page(api, run_id, after=oldest) == await page(api, run_id)


def _resumed(events: list[dict[str, Any]]) -> int:
    return [event["type"] for event in events].count("run.resumed")


async def test_a_viewer_who_does_not_read_is_dropped_while_the_others_go_on(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    app = app_for(site)
    async with site.worker(), served(app) as api:
        site.client.feed = Feed(temporal, site.settings.task_queue, kept=40)
        # So large that the run keeps its history: a reader begins anew in the next one.
        run_id, _ = await api.waiting("gated", {"log": ["x" * 900_000]})
        # What lies between the two takes a few events only, so that not to read is to be behind.
        narrow = httpx.AsyncHTTPTransport(
            socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)]
        )
        async with (
            httpx.AsyncClient(base_url=api.url, transport=narrow, timeout=40) as http,
            http.stream("GET", f"/runs/{run_id}/events", headers=STREAM) as slow,
        ):
            api.narrow()
            lines = slow.aiter_lines()
            last = (await anext(lines)).removeprefix("id: ")
            async with following(api, run_id) as quick:
                seen = [await anext(quick)]
                handle = temporal.get_workflow_handle(run_id)
                # It is never as far behind as what is kept, 40 events.
                for start in range(0, 60, 10):
                    for number, signal in product(range(start, start + 10), ("pause", "resume")):
                        await handle.signal(signal, {"reason": f"{number} {'x' * 1900}"})
                    while _resumed(seen) < start + 10:
                        seen.append(await anext(quick))
                await handle.signal("cancel")
                seen += [event async for event in quick]
            # So that what is on its way need not come by probes of a closed window, 200 ms apart.
            wire = slow.extensions["network_stream"].get_extra_info("socket")
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_000_000)
            told = [line async for line in lines]
        async with following(api, run_id, {"Last-Event-ID": last}) as events:
            rest = [event async for event in events]

    assert [event["type"] for event in seen].count("run.paused") == 60
    assert seen[-1]["type"] == "run.cancelled"
    assert "was too slow" in next(line for line in told if line.startswith(": "))
    assert f"id: {seen[-1]['id']}" not in told
    assert rest == seen[1:]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "type=user", "limit=x"])
async def test_a_page_of_another_form_is_refused(
    api: Api, standing: tuple[str, str], query: str
) -> None:
    response = await api.http.get(f"/runs/{standing[0]}/events?{query}")
    found = problem(response, 422, "invalid_body")
    assert found["errors"][0]["pointer"] == f"/{query.partition('=')[0]}"


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "application/json"),
        ("application/json, text/event-stream", "application/json"),
        ("text/event-stream;q=1, application/json", "text/event-stream"),
        ("Text/Event-Stream", "text/event-stream"),
    ],
)
async def test_the_reader_says_in_which_form(api: Api, accept: str, kind: str) -> None:
    run_id = await ended(api)
    async with httpx.AsyncClient(base_url=api.url, trust_env=False, verify=PLAIN) as http:
        response = await http.get(f"/runs/{run_id}/events", headers={"Accept": accept})
    assert response.headers["content-type"].partition(";")[0] == kind
