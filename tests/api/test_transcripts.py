"""Transcripts of agents over HTTP: while they work, without a worker, and after the run's end."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from agent_graphs import counters, payments, teams, thinkers, writers
from stack import Api, app_for, problem, served
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance.storage.blobs import MemoryBlobs

WRITER = "graph:writers;node:write;agent:writer"
CRITIC = "graph:writers;node:check;agent:critic"
MUCH = {"task": "pay much"}
THOUGHT_OF: list[str] = []
"""The prompts that the model that never answers got, from any run."""
YES = {"response": {"approved": True}}


def bank_of(temporal: TemporalClient, *, patience: float = 30.0) -> Site:
    graphs = payments(), writers(), thinkers(THOUGHT_OF), counters(), teams()
    return Site(temporal, *graphs, patience=patience)


@pytest_asyncio.fixture(scope="module")
async def bank(temporal: TemporalClient) -> AsyncIterator[Site]:
    site = bank_of(temporal)
    async with site.worker():
        yield site


@pytest_asyncio.fixture(scope="module")
async def agents(bank: Site) -> AsyncIterator[Api]:
    async with served(app_for(bank)) as api:
        yield api


@asynccontextmanager
async def lonely(temporal: TemporalClient) -> AsyncIterator[tuple[Site, Api]]:
    """Yield a site whose worker comes and goes, with a client that does not wait long for it."""
    site = bank_of(temporal, patience=2.0)
    async with served(app_for(site)) as api:
        yield site, api


@pytest_asyncio.fixture(scope="module")
async def written(agents: Api) -> str:
    """The id of a waiting run in which two agents have said something."""
    run_id, _ = await agents.waiting("writers", {"task": "cats"})
    return run_id


async def read(api: Api, run_id: str, **query: Any) -> dict[str, Any]:
    response = await api.http.get(f"/runs/{run_id}/transcript", params=query)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def refused(api: Api, run_id: str, status: int, code: str, **query: Any) -> dict[str, Any]:
    return problem(await api.http.get(f"/runs/{run_id}/transcript", params=query), status, code)


def roles(found: dict[str, Any]) -> list[str]:
    return [item["role"] for item in found["items"]]


async def test_a_reader_goes_on_where_they_were_when_the_agent_does(agents: Api) -> None:
    run_id, (gate,) = await agents.waiting("payments", MUCH)
    before = await read(agents, run_id)
    nothing = await read(agents, run_id, cursor=before["next_cursor"])
    await agents.http.post(f"/interrupts/{gate}/respond", json=YES)
    await agents.until(run_id, "completed")
    after = await read(agents, run_id, cursor=before["next_cursor"])

    task, turn = before["items"]
    assert (task["role"], task["text"], task["turn"]) == ("user", "pay much", 1)
    assert (turn["role"], turn["text"]) == ("assistant", "Let me see what she has.")
    assert [(call["tool"], call["arguments"]) for call in turn["calls"]] == [
        ("balance", {"of": "ada"}),
        ("transfer", {"amount": 5000, "to": "ada"}),
    ]
    assert turn["usage"]["input_tokens"] > 0
    assert nothing == {"items": [], "next_cursor": before["next_cursor"]}
    assert [item.get("result") for item in after["items"][:2]] == [
        {"of": "ada", "euros": 70},
        "sent 5000 to ada",
    ]
    assert roles(after) == ["tool", "tool", "assistant"]
    assert after["next_cursor"] is None
    assert (await read(agents, run_id))["items"] == before["items"] + after["items"]


async def test_a_message_in_a_transcript_has_its_sender(agents: Api) -> None:
    run_id, (gate,) = await agents.waiting("payments", MUCH)
    await agents.http.post(
        f"/runs/{run_id}/steer",
        json={"text": "and be quick", "message_id": "m1"},
        headers={"X-Abeyance-Principal": "grace"},
    )
    await agents.http.post(f"/interrupts/{gate}/respond", json=YES)
    await agents.until(run_id, "completed")

    (said,) = [item for item in (await read(agents, run_id))["items"] if item["sender"]]
    assert (said["role"], said["text"]) == ("user", "and be quick")
    assert (said["sender"], said["message_id"]) == ("grace", "m1")


async def test_a_run_with_several_transcripts_requires_an_address(
    agents: Api, written: str
) -> None:
    found = await refused(agents, written, 422, "invalid_body")
    critic = await read(agents, written, address=CRITIC)
    inside = await read(agents, written, address=f"{CRITIC};node:model:1")

    assert found["addresses"] == [CRITIC, WRITER]
    assert found["errors"][0]["pointer"] == "/address"
    assert critic["items"][0]["text"] == "a text about cats"
    assert inside == critic
    # The cursor names the transcript, so the query needs no address.
    assert (await read(agents, written, cursor=critic["next_cursor"]))["items"] == []


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ({"address": "graph:writers;node:nobody;agent:x"}, 404, "unknown_node"),
        ({"address": f"{CRITIC};nonsense"}, 404, "unknown_node"),
        ({"address": ""}, 404, "unknown_node"),
        ({"address": "a" * 5_000}, 422, "invalid_body"),
    ],
)
async def test_invalid_queries_of_a_transcript_are_refused(
    agents: Api, written: str, query: dict[str, Any], status: int, code: str
) -> None:
    await refused(agents, written, status, code, **query)


async def test_the_cursor_of_another_transcript_is_refused(agents: Api, written: str) -> None:
    cursor = (await read(agents, written, address=CRITIC))["next_cursor"]

    await refused(agents, written, 422, "invalid_body", address=WRITER, cursor=cursor)


async def test_unknown_runs_and_runs_without_agents_have_nothing_to_read(
    agents: Api, api: Api, standing: tuple[str, str]
) -> None:
    found = await refused(api, standing[0], 404, "unknown_node")

    assert found["addresses"] == []
    await refused(agents, "nobody", 404, "unknown_run")


async def test_a_transcript_in_another_storage_is_unavailable(
    temporal: TemporalClient, agents: Api, bank: Site
) -> None:
    run_id, _ = await agents.waiting("payments", MUCH)
    kept = bank.client.blobs
    bank.client.blobs = MemoryBlobs()
    try:
        from abeyance.agents import transcript

        transcript.forget()
        found = await refused(agents, run_id, 503, "unavailable")
    finally:
        bank.client.blobs = kept

    assert "ABEYANCE_STORAGE" in found["detail"]
    assert roles(await read(agents, run_id)) == ["user", "assistant"]


async def test_a_transcript_without_the_extra_says_what_to_install(
    agents: Api, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With None here, Python raises ImportError as for a missing module.
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    found = await refused(agents, written, 503, "unavailable", address=CRITIC)

    assert "pip install 'abeyance[agents]'" in found["detail"]


async def test_a_cancelled_run_has_its_transcript_up_to_then(agents: Api) -> None:
    run_id = await agents.start("thinkers", {"task": "think hard"})
    await eventually(lambda: "think hard" in THOUGHT_OF)
    await refused(agents, run_id, 404, "unknown_node")
    await agents.http.post(f"/runs/{run_id}/cancel", json={})
    await agents.until(run_id, "cancelled")

    found = await read(agents, run_id)
    assert [(item["role"], item["text"]) for item in found["items"]] == [("user", "think hard")]
    assert found["next_cursor"] is None


async def test_a_failed_run_has_its_transcript_in_pages_of_any_size(
    agents: Api,
) -> None:
    run_id = await agents.start("counters", {"task": "50"})
    view = await agents.until(run_id, "failed")
    whole = (await read(agents, run_id))["items"]
    pages: list[Any] = []
    cursor: dict[str, Any] = {}
    while cursor.get("cursor", "") is not None:
        page = await read(agents, run_id, limit=9, **cursor)
        assert len(page["items"]) <= 9
        pages += page["items"]
        cursor = {"cursor": page["next_cursor"]}

    assert view["error"]["code"] == "max_turns"
    assert [item["role"] for item in whole].count("assistant") == 20
    assert pages == whole


async def test_transcripts_can_be_read_without_a_worker(
    temporal: TemporalClient,
) -> None:
    async with lonely(temporal) as (site, api):
        async with site.worker():
            run_id, _ = await api.waiting("writers", {"task": "cats"})
            known = await read(api, run_id, address=CRITIC)
        assert await read(api, run_id, address=CRITIC) == known
        await site.temporal.get_workflow_handle(run_id).terminate("enough")
        left = await read(api, run_id, address=CRITIC)

    assert left == {**known, "next_cursor": None}


async def test_a_run_that_was_cancelled_through_temporal_can_be_read(
    agents: Api, bank: Site
) -> None:
    run_id, _ = await agents.waiting("writers", {"task": "cats"})
    long, _ = await agents.waiting("writers", {"task": "cats " * 4_000})
    for each in (run_id, long):
        await bank.temporal.get_workflow_handle(each).cancel()
        await agents.until(each, "cancelled")

    for each in (run_id, long):
        found = await read(agents, each, address=WRITER)
        assert (roles(found), found["next_cursor"]) == (["user", "assistant"], None)
