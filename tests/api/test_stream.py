"""The events of all runs over HTTP, in pages and as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from sample_graphs import chain, gated, gates
from stack import PLAIN, Api, app_for, problem, served, streaming
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import EventFilter, Refusal
from abeyance.api.app import create_app
from abeyance.api.routers.events import EventStream
from abeyance.client import Client
from abeyance.core.state import Limits
from abeyance.http import HttpClient
from abeyance.token_file import add_token

STREAM = {"Accept": "text/event-stream"}
YES = {"approved": True}
# Each hand-over takes about a second.
SMALL = Limits(continue_as_new_after=12)


@pytest_asyncio.fixture(scope="module")
async def office(temporal: TemporalClient) -> AsyncIterator[Site]:
    """A deployment of this module's own, which has no events of other tests."""
    site = Site(
        temporal,
        gated(),
        gated("guarded", capability="payments:approve"),
        chain(4),
        gates(2),
    )
    async with site.worker():
        yield site


@pytest_asyncio.fixture(scope="module")
async def api(office: Site) -> AsyncIterator[Api]:
    async with served(app_for(office)) as api:
        for graph in ("gated", "guarded"):
            _, (gate,) = await api.waiting(graph)
            await api.http.post(f"/interrupts/{gate}/respond", json={"response": YES})
        await api.waiting("gates")
        handed_over = await office.start(graph=office.graphs["chain"], limits=SMALL)
        await office.ended(handed_over)
        await settled(office)
        yield api


async def settled(office: Site) -> None:
    """Wait until the runs record no more events."""

    async def has_come() -> bool:
        seen = [each.id async for each in office.client.events(follow=False)]
        await asyncio.sleep(0.3)
        return seen == [each.id async for each in office.client.events(follow=False)]

    await eventually(has_come)


async def page(api: Api, **query: Any) -> dict[str, Any]:
    response = await api.http.get("/events", params=query)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def everything(api: Api, **query: Any) -> list[dict[str, Any]]:
    """Return the events of all pages."""
    items: list[dict[str, Any]] = []
    after = query.pop("after", None)
    while True:
        place = {} if after is None else {"after": after}
        found = await page(api, **query, **place)
        items += found["items"]
        assert found["next_cursor"] is not None
        if found["next_cursor"] == after:
            return items
        after = found["next_cursor"]


async def of_runs(api: Api, run_ids: set[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the events of each run as its own feed lists them."""
    feeds: dict[str, list[dict[str, Any]]] = {}
    for run_id in run_ids:
        response = await api.http.get(f"/runs/{run_id}/events", params={"limit": 1000})
        feeds[run_id] = response.json()["items"]
    return feeds


def as_in_feeds(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return events of the stream as the runs' own feeds show them, by run."""
    feeds: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        bare = {name: value for name, value in event.items() if name not in ("graph", "event_id")}
        feeds.setdefault(event["run_id"], []).append({**bare, "id": event["event_id"]})
    return feeds


async def test_the_stream_has_each_event_of_each_run_once_and_each_runs_in_order(api: Api) -> None:
    events = await everything(api)
    feeds = as_in_feeds(events)

    assert feeds == await of_runs(api, set(feeds))
    assert {event["graph"] for event in events} == {"gated", "guarded", "gates", "chain"}
    assert len({event["id"] for event in events}) == len(events)
    assert [event["type"] for event in events].count("run.completed") == 3


async def test_pages_put_together_are_the_whole(api: Api) -> None:
    assert await everything(api, limit=7) == await everything(api, limit=1000)


async def test_cursors_mean_the_same_at_another_replica(
    api: Api, office: Site, temporal: TemporalClient
) -> None:
    events = await everything(api, limit=1000)
    client = Client(temporal, task_queue=office.settings.task_queue)
    app = create_app(office.settings, office.graphs, client)
    async with served(app) as other:
        for number in range(0, len(events), 3):
            found = await page(other, after=events[number]["id"], limit=1000)
            assert found["items"] == events[number + 1 :]


async def test_a_reconnected_stream_has_every_event_once(office: Site, api: Api) -> None:
    gate = ""
    seen: list[dict[str, Any]] = []
    after = (await page(api, limit=1000))["next_cursor"]
    async with streaming(api, "/events", {"Last-Event-ID": after}, after="not this") as events:
        run_id = await api.start("gated", {})
        async for event in events:
            seen.append(event)
            if event["type"] == "interrupt.opened":
                gate = event["data"]["id"]
                break
    # The run goes on between the two connections.
    await api.http.post(f"/interrupts/{gate}/respond", json={"response": YES})
    await api.until(run_id, "completed")
    client = Client(office.temporal, task_queue=office.settings.task_queue)
    app = create_app(office.settings, office.graphs, client)
    async with (
        served(app) as other,
        streaming(other, "/events", {"Last-Event-ID": seen[-1]["id"]}) as events,
    ):
        while seen[-1]["type"] != "run.completed":
            seen.append(await anext(events))

    assert as_in_feeds(seen) == await of_runs(api, {run_id})


@pytest.mark.parametrize(
    ("query", "types", "graphs"),
    [
        (
            {"type": ["interrupt.*", "run.failed"], "graph": "guarded"},
            {"interrupt.opened", "interrupt.answered"},
            {"guarded"},
        ),
        ({"capability": ["refunds:*", "pay*"], "type": "*"}, ..., {"guarded"}),
    ],
)
async def test_a_filter_selects_by_type_graph_and_capability(
    api: Api, query: dict[str, Any], types: Any, graphs: set[str]
) -> None:
    events = await everything(api, **query)

    assert {event["graph"] for event in events} == graphs
    assert types is ... or {event["type"] for event in events} == types
    # A cursor does not depend on the filter that it came with.
    for event in events[:1]:
        whole = await everything(api)
        rest = whole[[each["id"] for each in whole].index(event["id"]) + 1 :]
        assert await everything(api, after=event["id"]) == rest


async def test_events_of_waiting_runs_come_at_once_without_polling(office: Site, api: Api) -> None:
    run_id, (gate,) = await api.waiting("gated")
    await settled(office)
    after = (await page(api, limit=1000))["next_cursor"]
    others_too = len(office.client.records.following.followed)
    async with streaming(api, "/events", after=after) as events, asyncio.timeout(20):
        await api.http.post(f"/runs/{run_id}/messages", json={"text": "wait for it"})
        assert (await anext(events))["type"] == "message.queued"
        assert len(office.client.records.following.followed) > others_too
        await api.http.post(f"/interrupts/{gate}/respond", json={"response": YES})
        types = [(await anext(events))["type"] for _ in range(4)]
        assert types[0] == "interrupt.answered"
        # A second listener joins while the first is connected.
        async with streaming(api, "/events", type="message.queued") as others:
            assert (await anext(others))["run_id"] == run_id
    await eventually(lambda: len(office.client.records.following.followed) <= others_too)


async def test_a_quiet_stream_shows_that_it_lives_and_from_where_to_continue(
    office: Site, api: Api
) -> None:
    after = (await page(api, limit=1000))["next_cursor"]
    opened = await office.client.stream.opened(filters=EventFilter(types=("nothing",)))
    stream = EventStream(opened.events, heartbeat=0.3, cursor=opened.cursor)
    async with asyncio.timeout(30):
        async for chunk in stream.body_iterator:
            assert str(chunk).startswith(":\nid: ")
            if str(chunk) == f":\nid: {after}\n\n":
                break
    await stream.aclose()


@pytest.mark.parametrize("headers", [STREAM, {}])
async def test_a_cursor_of_an_earlier_database_is_refused_with_the_oldest(
    api: Api, headers: dict[str, str]
) -> None:
    (event,) = (await page(api, limit=1))["items"]
    position, _, _ = event["id"].partition("-")
    after = {"after": f"{position}-1"}
    response = await api.http.get("/events", headers=headers, params=after)
    oldest = problem(response, 410, "cursor_expired")["oldest"]

    assert await everything(api, after=oldest) == await everything(api)


@pytest.mark.parametrize("headers", [STREAM, {}])
async def test_a_text_that_is_not_a_cursor_is_refused(api: Api, headers: dict[str, str]) -> None:
    event = (await page(api, limit=1))["items"][0]
    for after in ("nonsense", event["event_id"]):
        response = await api.http.get("/events", headers=headers, params={"after": after})
        problem(response, 422, "invalid_body")
    wrong = {**headers, "Last-Event-ID": "nonsense"}
    problem(await api.http.get("/events", headers=wrong), 422, "invalid_body")


async def test_the_same_is_read_through_the_client_over_http(api: Api) -> None:
    only = EventFilter(types=("run.*",), graph="guarded")
    whole = await everything(api, type="run.*", graph="guarded")
    async with HttpClient(api.url) as client:
        past = [event async for event in client.events(only, follow=False)]
        assert [event.model_dump(mode="json") for event in past] == whole
        async with aclosing(client.events(only, after=past[0].id)) as events:
            assert [await anext(events) for _ in past[1:]] == past[1:]
        with pytest.raises(Refusal, match="is not a cursor"):
            await anext(client.events(after="nonsense"))


async def test_one_principal_has_at_most_twenty_streams_and_keeps_nobody_else_out(
    office: Site, tmp_path: Path
) -> None:
    file = tmp_path / "tokens.json"
    ada, bob = (add_token(file, name, ["runs:read"]) for name in ("ada", "bob"))
    async with (
        served(app_for(office, tokens_file=file)) as api,
        httpx.AsyncClient(base_url=api.url, timeout=40, trust_env=False, verify=PLAIN) as http,
        AsyncExitStack() as open_streams,
    ):

        async def opened(token: str, path: str = "/events") -> httpx.Response:
            headers = {**STREAM, "Authorization": f"Bearer {token}"}
            stream = http.stream("GET", path, headers=headers)
            return await open_streams.enter_async_context(stream)

        streams = await asyncio.gather(*(opened(ada) for _ in range(20)))
        assert [stream.status_code for stream in streams] == [200] * 20
        refused = await opened(ada)
        await refused.aread()
        assert problem(refused, 429, "too_many_runs")["limit"] == 20
        assert refused.headers["retry-after"] == "5"
        of_a_run = await opened(ada, "/runs/any/events")
        await of_a_run.aread()
        problem(of_a_run, 429, "too_many_runs")
        assert (await opened(bob)).status_code == 200

        # An ended stream frees its place.
        await streams[0].aclose()

        async def is_free() -> bool:
            again = await opened(ada)
            await again.aclose()
            return again.status_code == 200

        await eventually(is_free)
