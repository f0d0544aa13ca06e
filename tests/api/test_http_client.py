"""`HttpClient` takes and refuses the same as the client over Temporal, and its token names the caller."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from refusals import refused
from stack import Api, new_id
from temporal_site import ANYBODY, Site, eventually

from abeyance import DelegationView, InboxFilter, Limits, Principal, Refusal, RunFilter
from abeyance.errors import AbeyanceError, Code
from abeyance.http import Connection, HttpClient

WAITING = frozenset({"awaiting-input"})


async def test_over_http_the_token_says_who_it_is(api: Api) -> None:
    ada = Principal(subject="ada")
    async with HttpClient(api.url) as client:
        run = client.run("any")
        for call in (
            run.pause(principal=ada),
            run.respond(response=1, principal=ada),
            run.send("hello", principal=ada),
        ):
            with pytest.raises(ValueError, match="the token determines the principal"):
                await call


async def test_a_closed_client_says_so() -> None:
    async with HttpClient("http://127.0.0.1:1") as client:
        run = client.run("any")
    for call in (run.view(), run.cancel(), client.runs.list(), anext(client.events())):
        with pytest.raises(AbeyanceError, match=r"http://127.0.0.1:1 is closed: make another one"):
            await call


@pytest.mark.parametrize(
    ("grows", "most", "expected"),
    [
        (False, None, [[0, 1], [2, 3], [4]]),
        (False, 3, [[0, 1], [2]]),
        (True, None, [[0, 1], [2, 3], [4], []]),
    ],
)
async def test_a_list_is_read_to_its_end_to_a_limit_or_until_nothing_is_new(
    monkeypatch: pytest.MonkeyPatch, *, grows: bool, most: int | None, expected: list[list[int]]
) -> None:
    async def get(_: Connection, path: str, **query: str) -> dict[str, Any]:
        assert path == "/numbers"
        start = int(query.get("cursor", 0))
        items = [*range(start, min(start + 2, start + int(query["limit"]), 5))]
        end = start + len(items)
        return {"items": items, "next_cursor": None if end == 5 and not grows else str(end)}

    monkeypatch.setattr(Connection, "get", get)
    api = Connection("http://127.0.0.1:1")

    assert [page["items"] async for page in api.pages("/numbers", most)] == expected
    await api.close()


async def test_delegations_are_the_same_over_http_as_over_temporal(site: Site, api: Api) -> None:
    days = datetime.now(UTC) + timedelta(days=2)
    client = site.client
    async with HttpClient(api.url) as http:
        assert await refused(http.delegations.delete("..")) == Code.NOT_FOUND
        assert await refused(http.runs.start("gated", 5)) == Code.INVALID_INPUT  # type: ignore[arg-type]
        with pytest.raises(Refusal, match="cannot name a run"):
            client.run("a b")

        kept = [
            await client.delegations.make("bob", capabilities="pay", until=days, principal=ANYBODY),
            await http.delegations.make("bob", capabilities="pay", until=days),
        ]
        assert [(type(each), each.capabilities) for each in kept] == [(DelegationView, ["pay"])] * 2
        assert {each.id for each in kept} <= {each.id for each in await http.delegations.list()}
        for _ in range(2):
            assert await http.delegations.delete(kept[1].id) == kept[1]
        assert await client.delegations.delete(kept[0].id, principal=ANYBODY) == kept[0]


async def test_a_start_over_http_takes_a_graph_and_limits_and_waits_too(
    site: Site, api: Api
) -> None:
    async with HttpClient(api.url) as http:
        graph, about = (
            site.graphs["gated"],
            {"run_id": new_id(), "limits": Limits(max_queue_size=3)},
        )
        options: dict[str, Any] = {**about, "wait": 30, "until": WAITING}
        first, again = [await http.runs.start(graph, {"amount": 1}, **options) for _ in range(2)]
        assert (first.created, again.created) == (True, False)
        for view in (first.view, again.view):
            assert view is not None
            assert (view.graph, view.max_queue_size) == ("gated", 3)
            assert view.status == "awaiting-input"
        short = await http.runs.start("gated", {"amount": 1}, run_id=new_id(), wait=0.2)
        assert short.view is not None
        assert short.view.ended_at is None
        assert await refused(http.runs.start(graph, {"amount": object()})) == Code.INVALID_INPUT


async def test_the_inbox_lists_held_questions_over_http_too(site: Site, api: Api) -> None:
    held = InboxFilter(status="held")
    async with HttpClient(api.url) as http:
        run = http.run((await http.runs.start("held", {}, run_id=new_id())).run_id)
        await run.wait(until=WAITING)
        (asked,) = await run.interrupts()
        assert asked.id not in {each.id for each in (await http.inbox.list(held))[0]}
        await run.respond(asked.id, {"approved": True})

        async def listed() -> bool:
            return asked.id in {each.id for each in (await http.inbox.list(held))[0]}

        assert await eventually(listed)
        page = await http.inbox.page(held, limit=1)
        assert (len(page.items), page.total) == (1, (await site.client.inbox.page(held)).total)
        of_ours = await http.runs.page(RunFilter(graph="held"), limit=1)
        assert of_ours.total == (await site.client.runs.page(RunFilter(graph="held"))).total >= 1
        await run.cancel()
