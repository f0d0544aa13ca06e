"""Clients over Temporal and over HTTP refuse arguments that cannot be sent in the same words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from sample_graphs import gated
from stack import Api
from temporal_site import ANYBODY, Site

from abeyance import (
    ApprovalsFilter,
    Client,
    EventFilter,
    InboxFilter,
    Refusal,
    RunFilter,
    testing,
)
from abeyance.http import HttpClient

ODD: Any = 5
HALF = "\ud800"
HUGE = 10**400
LATE = datetime(2026, 3, 2, tzinfo=UTC)
NAIVE = LATE.replace(tzinfo=None)


@pytest_asyncio.fixture
async def http(api: Api) -> AsyncIterator[HttpClient]:
    async with HttpClient(api.url) as client:
        yield client


async def refusal(call: Awaitable[object]) -> tuple[str, str]:
    with pytest.raises(Refusal) as caught:
        await call
    return caught.value.code, caught.value.message


async def test_a_wait_may_be_longer_than_a_clock_can_say(
    site: Site, standing: tuple[str, str], http: HttpClient
) -> None:
    until = frozenset({"awaiting-input"})
    memory = testing.InMemoryRun(site.graphs["gated"], {"amount": 1})
    await memory.start()
    run_id, _ = standing
    for run in (site.client.run(run_id), http.run(run_id), memory):
        assert (await run.wait(until=until, timeout=HUGE)).status == "awaiting-input"
        assert (await run.wait(until=frozenset({"failed"}), timeout=-HUGE)).ended_at is None


def starts(**given: Any) -> Callable[[Client | HttpClient], Awaitable[object]]:
    return lambda client: client.runs.start(gated(), **given)


def interrupts(conversation: str) -> Callable[[Client | HttpClient], Awaitable[object]]:
    return lambda client: client.conversations.interrupt(conversation)


def runs(**filters: Any) -> Callable[[Client | HttpClient], Awaitable[object]]:
    return lambda client: client.runs.list(RunFilter(**filters))


def inbox(**filters: Any) -> Callable[[Client | HttpClient], Awaitable[object]]:
    return lambda client: client.inbox.list(InboxFilter(**filters))


def events(**filters: Any) -> Callable[[Client | HttpClient], Awaitable[object]]:
    return lambda client: anext(client.events(EventFilter(**filters), follow=False))


def approvals(*fields: str, **filters: Any) -> Callable[[Client | HttpClient], Awaitable[object]]:
    return lambda client: client.approvals(ApprovalsFilter(**filters), fields=fields)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (runs(labels=("x",)), "/labels/0"),
        (runs(graph=""), "/graph"),
        (runs(conversation_id=""), "/conversation_id"),
        (runs(blocked="x"), "/blocked"),
        (lambda client: client.runs.list(cursor=ODD), "/cursor"),
        (lambda client: client.runs.list(limit=0), "/limit"),
        (runs(order="newest"), "/order"),
        (runs(since=NAIVE), "/since"),
        (runs(since=LATE, until=LATE - timedelta(days=1)), "/from"),
        (approvals(since=NAIVE), "/since"),
        (approvals(since=LATE, until=LATE - timedelta(days=1)), "/from"),
        (approvals(outcomes=("won",)), "/outcomes/0"),
        (approvals(capabilities=""), "/capabilities/0"),
        (approvals("reason..amount"), "/fields/0"),
        (approvals("amount"), "/fields/0"),
        (inbox(graph=ODD), "/graph"),
        (inbox(assignee=""), "/assignee"),
        (inbox(capabilities=""), "/capabilities"),
        (inbox(before=NAIVE), "/before: input should have timezone info"),
        (lambda client: client.inbox.list(cursor=ODD), "/cursor"),
        (lambda client: client.inbox.list(limit=-1), "/limit"),
        (events(types=("",)), "/types/0"),
        (events(graph=""), "/graph"),
        (events(capabilities=(ODD,)), "/capabilities/0"),
        (lambda client: anext(client.events(after="")), "'' is not a cursor of the stream"),
        (lambda client: client.conversations.pause("none", mode=ODD), "/mode: input should be"),
        *((interrupts(odd), "/conversation_id") for odd in ("", "..", "two\nlines", "x" * 201)),
        (starts(conversation_id=""), "/conversation_id"),
        (starts(conversation_id=".."), "/conversation_id"),
        (starts(session_type="x" * 257), "/session_type"),
        (starts(labels={"a=b": "c"}), "/labels"),
        (starts(labels="a=b"), "/labels"),
        (runs(q=HALF), "/q: input should be a valid string without halves of characters"),
        (starts(labels={"a": "two\nlines"}), "/labels"),
    ],
)
async def test_both_clients_refuse_invalid_arguments(
    site: Site,
    http: HttpClient,
    call: Callable[[Client | HttpClient], Awaitable[object]],
    words: str,
) -> None:
    found = {await refusal(call(client)) for client in (site.client, http)}

    ((code, message),) = found
    assert code == "invalid_body"
    assert words in message


async def test_an_id_that_is_not_a_string_and_a_naive_moment_are_refused(
    site: Site, http: HttpClient
) -> None:
    client = site.client
    for over_temporal, over_http, code in (
        (
            client.delegations.make("bob", until=NAIVE, principal=ANYBODY),
            http.delegations.make("bob", until=NAIVE),
            "invalid_body",
        ),
        (
            client.grants.revoke(HALF, principal=ANYBODY),
            http.grants.revoke(HALF),
            "invalid_body",
        ),
        (client.runs.erase(ODD), http.runs.erase(ODD), "invalid_run_id"),
        (
            client.delegations.delete(ODD, principal=ANYBODY),
            http.delegations.delete(ODD),
            "invalid_body",
        ),
    ):
        found = await refusal(over_temporal)
        assert found == await refusal(over_http)
        assert found[0] == code
    for handle in (client.run, http.run):
        with pytest.raises(Refusal, match="'5' cannot name a run: it is not a string"):
            handle(ODD)
