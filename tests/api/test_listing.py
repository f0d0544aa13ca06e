"""Listing runs over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from stack import Api, new_id, problem
from temporal_site import Site, eventually
from temporalio.api.workflowservice.v1 import PauseWorkflowExecutionRequest


async def listed(api: Api, **query: Any) -> list[dict[str, Any]]:
    """All runs of a filter, page by page."""
    items: list[dict[str, Any]] = []
    while True:
        response = await api.http.get("/runs", params=query)
        assert response.status_code == 200, response.text
        page = response.json()
        items += page["items"]
        if page["next_cursor"] is None:
            return items
        query["cursor"] = page["next_cursor"]


async def ids(api: Api, **query: Any) -> list[str]:
    return [entry["run_id"] for entry in await listed(api, **query)]


async def seen(api: Api, expected: list[str], **query: Any) -> None:
    """Visibility comes a moment late."""

    async def is_seen() -> bool:
        return await ids(api, **query) == expected

    await eventually(is_seen)


async def test_runs_are_listed_newest_first_whatever_became_of_them(api: Api, site: Site) -> None:
    talk = new_id("talk")
    run_ids = [
        await api.start("gated", {}, conversation_id=talk, session_type="listed") for _ in range(5)
    ]
    # A run is sorted by when Temporal began it, which is known with its first batch.
    await seen(api, run_ids[::-1], conversation_id=talk, status="awaiting-input")
    await api.http.post(f"/runs/{run_ids[3]}/cancel", json={"mode": "now"})
    await api.until(run_ids[3], "cancelled")
    await site.temporal.get_workflow_handle(run_ids[1]).terminate()
    brief = await api.start("brief", {}, conversation_id=talk, session_type="listed")
    await api.until(brief, "halted")
    newest_first = [brief, *reversed(run_ids)]
    await seen(api, newest_first, conversation_id=talk)

    async def settled() -> bool:
        # A worker does it once a minute.
        await site.client.janitor.round()
        found = await ids(api, conversation_id=talk, status="cancelled,terminated,halted")
        return found == [brief, run_ids[3], run_ids[1]]

    await eventually(settled)
    waiting = [run_ids[4], run_ids[2], run_ids[0]]
    await seen(api, waiting, conversation_id=talk, status="awaiting-input")
    for limit in (1, 2, 4):
        assert await ids(api, conversation_id=talk, page_size=limit) == newest_first
    statuses = {
        entry["run_id"]: (entry["status"], entry["degraded"], entry["ended_at"] is not None)
        for entry in await listed(api, conversation_id=talk)
    }
    assert statuses[brief] == ("halted", False, True)
    assert statuses[run_ids[3]] == ("cancelled", False, True)
    assert statuses[run_ids[1]] == ("terminated", False, True)
    assert statuses[run_ids[0]] == ("awaiting-input", False, False)
    assert await ids(api, conversation_id=talk, graph="brief") == [brief]
    assert await ids(api, conversation_id=talk, graph="nothing") == []


@pytest.mark.slow
async def test_a_long_list_is_read_a_span_of_time_after_the_other(api: Api) -> None:
    talk = new_id("talk")
    run_ids = [
        await api.start("gated", {}, conversation_id=talk, session_type="listed")
        for _ in range(130)
    ]
    await seen(api, run_ids[::-1], conversation_id=talk, limit=1000)

    page = (await api.http.get("/runs", params={"conversation_id": talk, "limit": 3})).json()
    assert [entry["run_id"] for entry in page["items"]] == run_ids[:-4:-1]
    assert await ids(api, conversation_id=talk, limit=30) == run_ids[::-1]


async def test_a_run_that_is_paused_through_temporal_breaks_no_list(api: Api, site: Site) -> None:
    talk = new_id("talk")
    run_id, (gate,) = await api.waiting("gated", conversation_id=talk)
    await site.temporal.workflow_service.pause_workflow_execution(
        PauseWorkflowExecutionRequest(
            namespace=site.temporal.namespace, workflow_id=run_id, request_id=new_id()
        )
    )

    async def blocked() -> bool:
        await site.client.janitor.round()
        found = await listed(api, conversation_id=talk, status="awaiting-input")
        return [why["code"] for entry in found for why in entry["blocked"]] == ["natively_paused"]

    await eventually(blocked)
    inbox = await api.http.get("/interrupts", params={"conversation_id": talk})
    assert [entry["id"] for entry in inbox.json()["items"]] == [gate]


@pytest.mark.parametrize(
    "name",
    ["o'brien", "back\\slash", 'dou"ble', "x' OR RunId != 'y", "per%cent", "trail\\", "?", "ünï"],
)
async def test_a_value_of_a_filter_is_a_value_whatever_stands_in_it(api: Api, name: str) -> None:
    talk = new_id(name)
    label = f"{name}{new_id()}"
    run_id = await api.start("gated", {}, conversation_id=talk, labels={"who": label})
    await api.start("gated", {}, conversation_id=talk.upper(), labels={"who": label.upper()})

    await seen(api, [run_id], conversation_id=talk)
    await seen(api, [run_id], label=f"who={label}")


async def test_a_run_has_all_the_labels(api: Api) -> None:
    mark = new_id("mark")
    both = await api.start("gated", {}, labels={"mark": mark, "team": "a"})
    one = await api.start("gated", {}, labels={"mark": mark})

    await seen(api, [one, both], label=f"mark={mark}")
    await seen(api, [both], label=[f"mark={mark}", "team=a"])


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({"color": "red"}, "/color"),
        ({"status": "sleeping"}, "/status"),
        ({"status": "paused,sleeping"}, "/status"),
        ({"label": "team"}, "/label/0"),
        ({"label": "te am=x"}, "/label/0"),
        ({"graph": ""}, "/graph"),
        ({"conversation_id": "a\x00b"}, "/conversation_id"),
        ({"page_size": 0}, "/page_size"),
        ({"page_size": 1001}, "/page_size"),
        ({"limit": 0}, "/limit"),
        ({"limit": 1001}, "/limit"),
        ({"limit": "all"}, "/limit"),
        ({"cursor": "nonsense"}, "/cursor"),
        ({"cursor": ""}, "/cursor"),
        ({"cursor": "ü.1"}, "/cursor"),
    ],
)
async def test_a_filter_that_there_is_not_is_refused(
    api: Api, query: dict[str, Any], pointer: str
) -> None:
    found = problem(await api.http.get("/runs", params=query), 422, "invalid_body")
    assert [entry["pointer"] for entry in found["errors"]] == [pointer]


async def test_a_cursor_belongs_to_one_list(api: Api) -> None:
    talk = new_id("talk")
    run_ids = [
        await api.start("gated", {}, conversation_id=talk, session_type="listed") for _ in range(2)
    ]
    # A run is sorted by when Temporal began it, which is known with its first batch.
    await seen(api, run_ids[::-1], conversation_id=talk, status="awaiting-input")
    query: dict[str, Any] = {"conversation_id": talk, "page_size": 1}
    cursor = (await api.http.get("/runs", params=query)).json()["next_cursor"]

    other = await api.http.get("/runs", params={"graph": "gated", "cursor": cursor})
    assert cursor[:50] in problem(other, 422, "invalid_body")["detail"]
    more = await api.http.get("/runs", params={**query, "limit": 7, "cursor": cursor})
    assert [entry["run_id"] for entry in more.json()["items"]] == [run_ids[0]]
