"""Messages over HTTP: sending, listing and clearing them, and the refusals of bad ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import pytest_asyncio
from stack import Api, app_for, problem, served
from temporal_site import Site

JSON = {"X-Abeyance-Request": "1"}


async def ids(api: Api, run_id: str, **query: Any) -> list[str]:
    page = (await api.http.get(f"/runs/{run_id}/messages", params=query)).json()
    return [entry["message_id"] for entry in page["items"]]


async def test_a_steer_is_accepted_once_and_listed_with_its_sender(api: Api) -> None:
    run_id, _ = await api.waiting("gated")
    body = {
        "message_id": "m1",
        "text": "look at page 2",
        "metadata": {"page": 2},
        "priority": "high",
        "ttl": "PT1H",
        "target": "after",
    }
    headers = {"X-Abeyance-Principal": "ada", "X-Abeyance-Capabilities": "runs:steer"}
    first = await api.http.post(f"/runs/{run_id}/steer", json=body, headers=headers)
    again = await api.http.post(f"/runs/{run_id}/steer", json=body, headers=headers)
    listed = (await api.http.get(f"/runs/{run_id}/messages")).json()

    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json() == {"run_id": run_id, "message_id": "m1"}
    (item,) = listed["items"]
    assert (item["sender"], item["priority"], item["target"]) == ("ada", "high", "after")
    assert (item["metadata"], bool(item["expires_at"])) == ({"page": 2}, True)
    assert "capabilities" not in item
    assert (listed["page"], listed["page_size"], listed["total"]) == (1, 50, 1)


async def test_the_refusal_of_a_steer_is_returned(api: Api, site: Site) -> None:
    run_id, _ = await api.waiting("gated", limits={"max_queue_size": 1})
    path = f"/runs/{run_id}/steer"
    first = await api.http.post(path, json={"text": "x"}, params={"wait": "30s"})
    bad: list[tuple[dict[str, Any], int, str]] = [
        ({"text": "x", "target": "nobody"}, 404, "unknown_node"),
        ({"text": "x" * 10_001}, 422, "invalid_message"),
        ({"text": "more"}, 429, "queue_full"),
    ]
    for body, status, code in bad:
        sent = await api.http.post(path, json=body)
        waited = await api.http.post(path, json=body, params={"wait": "30s"})
        assert sent.status_code == 202, sent.text
        problem(waited, status, code)
    # The API refuses an empty text itself, without asking the run.
    problem(await api.http.post(path, json={"text": " \n"}), 422, "invalid_message")
    codes = [code for _, _, code in bad for _ in "12"]
    view = (await api.http.get(f"/runs/{run_id}")).json()

    assert first.status_code == 200
    assert [note["code"] for note in view["rejected"]] == codes
    assert [each["code"] for each in await site.events(run_id, "message.rejected")] == codes
    assert view["queue_depth"] == 1


@pytest.mark.parametrize(("call", "status"), [("steer", 202), ("messages", 201)])
async def test_the_key_of_a_call_is_the_id_of_its_message(api: Api, call: str, status: int) -> None:
    run_id, _ = await api.waiting("gated")
    headers = {"Idempotency-Key": "key-1"}
    path = f"/runs/{run_id}/{call}"
    first = await api.http.post(path, json={"text": "hello"}, headers=headers)
    again = await api.http.post(path, json={"text": "hello"}, headers=headers)
    other = await api.http.post(path, json={"text": "else"}, headers=headers)
    mixed = await api.http.post(path, json={"text": "x", "message_id": "m"}, headers=headers)

    assert first.status_code == again.status_code == status
    assert (first.json()["message_id"], again.json()["message_id"]) == ("key-1", "key-1")
    assert (first.json().get("duplicate"), again.json().get("duplicate")) == (
        (False, True) if call == "messages" else (None, None)
    )
    assert problem(other, 409, "message_conflict")["message_id"] == "key-1"
    assert problem(mixed, 422, "invalid_body")["errors"][0]["pointer"] == "/message_id"
    assert await ids(api, run_id) == ["key-1"]


@pytest.mark.parametrize(
    ("query", "page", "size", "expected"),
    [
        ({}, 1, 50, ["m0", "m1", "m2", "m3", "m4"]),
        ({"page": 2, "page_size": 2}, 2, 2, ["m2", "m3"]),
        ({"page": 4, "page_size": 2}, 4, 2, []),
        ({"page": 0, "page_size": 2}, 1, 2, ["m0", "m1"]),
        ({"page": -7, "page_size": 1000}, 1, 1000, ["m0", "m1", "m2", "m3", "m4"]),
        ({"page_size": 1001}, 1, 50, ["m0", "m1", "m2", "m3", "m4"]),
        ({"page": 10**30}, 10**30, 50, []),
    ],
)
async def test_pages_count_from_one_and_what_is_outside_falls_back(  # noqa: PLR0917 each row of the table
    api: Api, five: str, query: dict[str, Any], page: int, size: int, expected: list[str]
) -> None:
    found = (await api.http.get(f"/runs/{five}/messages", params=query)).json()

    assert (found["page"], found["page_size"], found["total"]) == (page, size, 5)
    assert [entry["message_id"] for entry in found["items"]] == expected


@pytest_asyncio.fixture(scope="module")
async def five(api: Api) -> str:
    """A run with five messages that no node reads."""
    run_id, _ = await api.waiting("gated")
    for number in range(5):
        body = {"message_id": f"m{number}", "text": "hello"}
        assert (await api.http.post(f"/runs/{run_id}/messages", json=body)).is_success
    return run_id


async def test_a_full_queue_is_refused_at_once_and_waited_for_as_long_as_is_asked(
    api: Api,
) -> None:
    run_id, _ = await api.waiting("gated", limits={"max_queue_size": 1})
    await api.http.post(f"/runs/{run_id}/steer", json={"text": "first"})
    clock = asyncio.get_running_loop()
    began = clock.time()
    refused = [
        await api.http.post(f"/runs/{run_id}/{call}", json={"text": "x"})
        for call in ("messages", "pause-and-send")
    ]
    at_once = clock.time() - began
    path = f"/runs/{run_id}/messages"
    began = clock.time()
    waited = await api.http.post(path, json={"text": "x"}, params={"timeout": "1"})
    took = clock.time() - began

    for response in refused:
        found = problem(response, 429, "queue_full")
        assert (found["limit"], found["actual"]) == (1, 1)
        assert int(response.headers["retry-after"]) > 0
    problem(waited, 429, "queue_full")
    # A caller without `timeout` does not wait: nothing makes room in this queue.
    assert at_once < 10
    assert took > 1

    waiting = asyncio.create_task(
        api.http.post(
            path, json={"text": "y", "message_id": "patient"}, params={"timeout": "PT20S"}
        )
    )
    done, _ = await asyncio.wait({waiting}, timeout=0.3)
    assert not done
    assert (await api.http.delete(path, headers=JSON)).json() == {"cleared": 1}
    receipt = await waiting
    assert (receipt.status_code, receipt.json()["message_id"]) == (201, "patient")
    assert await ids(api, run_id) == ["patient"]


async def test_the_wait_for_room_is_cut_to_the_longest_of_the_service(site: Site) -> None:
    async with served(app_for(site, default_timeout=0.3)) as api:
        run_id, _ = await api.waiting("gated", limits={"max_queue_size": 1})
        await api.http.post(f"/runs/{run_id}/messages", json={"text": "first"})
        clock = asyncio.get_running_loop()
        began = clock.time()
        response = await api.http.post(
            f"/runs/{run_id}/messages", json={"text": "x"}, params={"timeout": "PT1H"}
        )

    problem(response, 429, "queue_full")
    assert clock.time() - began < 10
