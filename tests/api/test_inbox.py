"""The inbox over HTTP: what all running runs ask."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sample_graphs import gated, gates
from stack import Api, app_for, new_id, problem, served
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient


async def pages(api: Api, **query: Any) -> list[list[dict[str, Any]]]:
    """All pages of a filter."""
    found = []
    while True:
        response = await api.http.get("/interrupts", params=query)
        assert response.status_code == 200, response.text
        page = response.json()
        found.append(page["items"])
        if page["next_cursor"] is None:
            return found
        query["cursor"] = page["next_cursor"]


async def ids(api: Api, **query: Any) -> list[str]:
    return [entry["id"] for page in await pages(api, **query) for entry in page]


async def seen(api: Api, expected: list[str], **query: Any) -> None:
    """Visibility comes a moment late."""

    async def is_seen() -> bool:
        return await ids(api, **query) == expected

    await eventually(is_seen)


async def test_the_nearest_deadline_comes_first_on_every_page(api: Api) -> None:
    talk = new_id("talk")
    gate: dict[str, str] = {}
    for timeout in ("9d", "2d", "30d", None, "1h", "3h"):
        _, (id_,) = await api.waiting("gated", conversation_id=talk, session_type="listed")
        gate[timeout or "none"] = id_
        if timeout:
            moved = await api.http.patch(f"/interrupts/{id_}", json={"timeout": timeout})
            assert moved.status_code == 200
    by_deadline = [gate[name] for name in ("1h", "3h", "2d", "9d", "30d", "none")]

    for limit in (1, 2, 3, 6):
        found = await pages(api, conversation_id=talk, limit=limit)
        assert [len(page) for page in found] == [limit] * (6 // limit)
        assert [entry["id"] for page in found for entry in page] == by_deadline
    turned = await ids(api, conversation_id=talk, order="-deadline", limit=4)
    assert turned == [*reversed(by_deadline)]
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert await ids(api, conversation_id=talk, before=tomorrow) == by_deadline[:2]
    for never in ("0001-01-01T00:00:00Z", "2020-01-01T00:00:00+01:00"):
        assert await ids(api, conversation_id=talk, before=never) == []


async def test_a_list_is_searched_and_counted(api: Api) -> None:
    talk = new_id("talk")
    about: dict[str, Any] = {"conversation_id": talk, "session_type": "listed"}
    _, (seven,) = await api.waiting("guarded", {"amount": 7}, **about)
    _, (eight,) = await api.waiting("guarded", {"amount": 8}, **about)

    async def found(q: str) -> tuple[list[str], int]:
        query: dict[str, Any] = {"conversation_id": talk, "q": q, "limit": 1}
        page = (await api.http.get("/interrupts", params=query)).json()
        return [entry["id"] for entry in page["items"]], page["total"]

    assert await found("pay 7?") == ([seven], 1)
    assert await found("PAY") == ([min(seven, eight)], 2)
    assert await found(eight) == ([eight], 1)
    assert await found("%") == ([], 0)
    runs = (await api.http.get("/runs", params={"q": talk, "limit": 1})).json()
    assert (len(runs["items"]), runs["total"], runs["searched"]) == (1, 2, "all")


async def test_an_entry_tells_what_is_asked_without_its_schema(api: Api) -> None:
    talk = new_id("talk")
    run_id, (gate,) = await api.waiting(
        "guarded", {"amount": 3}, conversation_id=talk, session_type="listed"
    )
    await seen(api, [gate], conversation_id=talk)

    ((entry,),) = await pages(api, conversation_id=talk)
    assert (entry["run_id"], entry["graph"], entry["name"]) == (run_id, "guarded", "approve")
    assert (entry["prompt"], entry["status"]) == ("Pay 3?", "open")
    assert entry["requested_capability"] == "payments:approve"
    assert entry["digest"] == (await api.interrupt(gate))["digest"]
    assert entry["response_schema"] is None


async def test_what_is_settled_or_of_an_ended_run_is_not_listed(api: Api, site: Site) -> None:
    talk = new_id("talk")
    _, (first, second) = await api.waiting("gates", conversation_id=talk, session_type="listed")
    cancelled, _ = await api.waiting("gated", conversation_id=talk, session_type="listed")
    terminated, _ = await api.waiting("gated", conversation_id=talk, session_type="listed")
    paused, (kept,) = await api.waiting("gated", conversation_id=talk, session_type="listed")
    await api.http.post(f"/interrupts/{first}/respond", json={"response": 1})
    await api.http.post(f"/runs/{cancelled}/cancel", json={})
    await api.http.post(f"/runs/{paused}/pause", json={})
    await site.temporal.get_workflow_handle(terminated).terminate()
    # A worker does it once a minute; visibility lists the end a moment late.
    await eventually(site.client.janitor.round)

    await seen(api, sorted([second, kept]), conversation_id=talk)


async def test_the_inbox_is_filtered_by_capability_and_graph(api: Api) -> None:
    talk = new_id("talk")
    _, (guarded,) = await api.waiting("guarded", conversation_id=talk, session_type="listed")
    _, (free,) = await api.waiting("gated", conversation_id=talk, session_type="listed")
    await seen(api, sorted([guarded, free]), conversation_id=talk)

    assert await ids(api, conversation_id=talk, capability="payments:approve") == [guarded]
    assert await ids(api, conversation_id=talk, capability=["x", "payments:approve"]) == [guarded]
    for nobody in ("PAYMENTS:approve", "payments approve", "*", 'pay"', "pay\\", "o'b"):
        assert await ids(api, conversation_id=talk, capability=nobody) == []
    assert await ids(api, conversation_id=talk, graph="gated") == [free]


async def test_all_questions_of_a_run_are_listed_in_full_while_no_worker_is_up(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(60, "many", capability="c" * 40))
    talk = new_id("talk")
    async with served(app_for(site)) as api:
        async with site.worker():
            _, asked = await api.waiting("many", conversation_id=talk, session_type="listed")
            assert len(asked) == 60

        assert await ids(api, conversation_id=talk, limit=7) == sorted(asked)
        wanted = f"{'c' * 40}:17"
        ((entry,),) = await pages(api, conversation_id=talk, capability=wanted)
        assert (entry["requested_capability"], entry["degraded"]) == (wanted, False)


async def test_what_is_overdue_comes_first_while_no_worker_is_up(temporal: TemporalClient) -> None:
    site = Site(temporal, gated("late"), gated("soon", timeout="1h"))
    talk = new_id("talk")
    async with served(app_for(site)) as api:
        async with site.worker():
            _, (soon,) = await api.waiting("soon", conversation_id=talk, session_type="listed")
            _, (late,) = await api.waiting("late", conversation_id=talk, session_type="listed")
            # The last that the worker does: it has gone before that.
            moved = await api.http.patch(f"/interrupts/{late}", json={"timeout": "2s"})
            assert moved.status_code == 200, moved.text
        found = await api.interrupt(late)

        async def is_overdue() -> bool:
            return datetime.now(UTC) > datetime.fromisoformat(found["deadline"])

        await eventually(is_overdue)
        await seen(api, [late, soon], conversation_id=talk)
        first = (
            await api.http.get("/interrupts", params={"conversation_id": talk, "limit": 1})
        ).json()
        assert [entry["id"] for entry in first["items"]] == [late]


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({"status": "answered"}, "/status"),
        ({"before": "tomorrow"}, "/before"),
        ({"before": "1772442000"}, "/before"),
        ({"before": "2026-03-02T09:00:00"}, "/before"),
        ({"capability": ""}, "/capability/0"),
        ({"limit": 0}, "/limit"),
        ({"cursor": "nonsense"}, "/cursor"),
    ],
)
async def test_a_filter_that_there_is_not_is_refused(
    api: Api, query: dict[str, Any], pointer: str
) -> None:
    found = problem(await api.http.get("/interrupts", params=query), 422, "invalid_body")
    assert [entry["pointer"] for entry in found["errors"]] == [pointer]


async def test_a_cursor_of_another_list_is_refused(api: Api) -> None:
    talk = new_id("talk")
    _, gates_ = await api.waiting("gates", conversation_id=talk, session_type="listed")
    await seen(api, sorted(gates_), conversation_id=talk)
    query: dict[str, Any] = {"conversation_id": talk, "limit": 1}
    cursor = (await api.http.get("/interrupts", params=query)).json()["next_cursor"]

    for path, other in (("/interrupts", {}), ("/runs", {"conversation_id": talk})):
        response = await api.http.get(path, params={**other, "cursor": cursor})
        problem(response, 422, "invalid_body")
