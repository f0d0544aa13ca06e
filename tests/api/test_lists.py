"""Lists over HTTP: graphs, runs, the inbox, and the questions that a rewind has discarded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sample_graphs import gated
from stack import Api, new_id, problem
from temporal_site import eventually

from abeyance.api.app import create_app
from abeyance.commands.lists import ApprovalsPage, RunsPage
from abeyance.errors import Refusal
from abeyance.settings import Settings


async def test_graphs_tell_what_they_take(api: Api) -> None:
    listed = (await api.http.get("/graphs")).json()
    whole = (await api.http.get("/graphs/guarded")).json()

    names = [entry["name"] for entry in listed["items"]]
    assert names == sorted(names)
    assert {"guarded", "held"} < {*names}
    assert listed["next_cursor"] is None
    assert set(listed["items"][0]) == {"name", "version", "description", "input_schema"}
    guarded = listed["items"][names.index("guarded")]
    assert "amount" in guarded["input_schema"]["properties"]
    assert whole["nodes"]["approve"]["question"]["requested_capability"] == "payments:approve"
    assert whole["version"] == guarded["version"]


async def test_a_refused_graph_name_lists_the_known_graphs(api: Api) -> None:
    found = problem(await api.http.get("/graphs/nope"), 404, "unknown_graph")

    assert "gated" in found["graphs"]
    assert "'nope'" in found["detail"]
    app = create_app(Settings(), {f"g{number:02}": gated() for number in range(23)})
    with pytest.raises(Refusal, match=r"choose one of g00, g01, .*, g19 and 3 more\."):
        app.state.backend.graph("nope")


async def test_a_graph_is_drawn(api: Api) -> None:
    drawn = await api.http.get("/graphs/gated/diagram")

    assert drawn.headers["content-type"] == "text/plain; charset=utf-8"
    assert drawn.text.startswith("flowchart ")
    assert all(f'"{name}"' in drawn.text for name in ("before", "approve", "after", "late"))
    problem(await api.http.get("/graphs/nope/diagram"), 404, "unknown_graph")


def test_a_filter_may_have_blanks_behind_its_commas() -> None:
    runs = RunsPage.model_validate({"status": "running, paused"})
    report = ApprovalsPage.model_validate({"fields": ["reason.amount, answer"]})

    assert runs.statuses == {"running", "paused"}
    assert report.fields == ["reason.amount", "answer"]


async def pages(api: Api, path: str, **query: Any) -> list[list[str]]:
    """Return the ids on each page of a filtered list."""
    found: list[list[str]] = []
    while True:
        response = await api.http.get(path, params=query)
        assert response.status_code == 200, response.text
        page = response.json()
        found.append([entry["run_id" if path == "/runs" else "id"] for entry in page["items"]])
        if page["next_cursor"] is None:
            return found
        query["cursor"] = page["next_cursor"]


async def test_runs_and_questions_are_filtered_searched_and_read_page_by_page(api: Api) -> None:
    # A filter takes any characters literally.
    talk = new_id("o'b\"r\\e%n ü?")
    about: dict[str, Any] = {"conversation_id": talk, "session_type": "listed"}
    labels = {"mark": talk, "team": "a"}
    first, (seven,) = await api.waiting("guarded", {"amount": 7}, labels=labels, **about)
    second, (eight,) = await api.waiting("gated", labels={"mark": talk}, **about)
    moved = await api.http.patch(f"/interrupts/{seven}", json={"timeout": "2d"})
    assert moved.status_code == 200

    async def are_listed() -> bool:
        inbox = await pages(api, "/interrupts", conversation_id=talk)
        query = {"conversation_id": talk, "status": "awaiting-input"}
        return inbox == [[seven, eight]] and await pages(api, "/runs", **query) == [[second, first]]

    await eventually(are_listed)

    async def runs(**query: Any) -> list[list[str]]:
        return await pages(api, "/runs", **query)

    assert await runs(conversation_id=talk, page_size=1) == [[second], [first]]
    assert await runs(conversation_id=talk, status="paused,awaiting-input", graph="gated") == [
        [second]
    ]
    assert await runs(label=[f"mark={talk}", "team=a"]) == [[first]]
    assert await runs(conversation_id=talk.upper()) == [[]]
    page = (await api.http.get("/runs", params={"q": first, "limit": 1})).json()
    assert (page["items"][0]["run_id"], page["total"], page["searched"]) == (first, 1, "all")

    async def inbox(**query: Any) -> list[list[str]]:
        return await pages(api, "/interrupts", conversation_id=talk, **query)

    later = (datetime.now(UTC) + timedelta(days=3)).isoformat()
    assert await inbox(limit=1) == [[seven], [eight]]
    assert await inbox(order="-deadline") == [[eight, seven]]
    assert await inbox(before=later) == [[seven]]
    assert await inbox(before="0001-01-01T00:00:00Z") == [[]]
    assert await inbox(capability=["x", "payments:approve"]) == [[seven]]
    assert await inbox(capability='pay"\\') == [[]]
    assert await inbox(graph="gated") == [[eight]]
    assert await inbox(q="PAY 7?") == [[seven]]
    query: dict[str, Any] = {"conversation_id": talk, "limit": 1}
    page = (await api.http.get("/interrupts", params=query)).json()
    (entry,) = page["items"]
    assert (entry["prompt"], entry["response_schema"], page["total"]) == ("Pay 7?", None, 2)
    assert entry["digest"] == (await api.interrupt(seven))["digest"]

    # A cursor belongs to one list, whose pages may have another size.
    cursor = page["next_cursor"]
    for path, other in (("/interrupts", {}), ("/runs", {"conversation_id": talk})):
        refused = await api.http.get(path, params={**other, "cursor": cursor})
        assert cursor[:50] in problem(refused, 422, "invalid_body")["detail"]
    rest = await api.http.get("/interrupts", params={**query, "limit": 7, "cursor": cursor})
    assert [each["id"] for each in rest.json()["items"]] == [eight]


async def test_discarded_questions_are_listed_only_on_request(api: Api) -> None:
    run_id, (gate,) = await api.waiting("gated", {"amount": 3})
    yes = {"response": {"approved": True}}
    await api.http.post(f"/interrupts/{gate}/respond", json=yes)
    await api.until(run_id, "completed")
    await api.http.post(f"/runs/{run_id}/rewind", json={"to": "start"})
    await api.until(run_id, "awaiting-input")

    query: dict[str, Any] = {"status": "all"}
    listed = (await api.http.get(f"/runs/{run_id}/interrupts", params=query)).json()["items"]
    query["discarded"] = True
    discarded = (await api.http.get(f"/runs/{run_id}/interrupts", params=query)).json()["items"]

    path = f"/runs/{run_id}/events"
    standing = (await api.http.get(path)).json()["items"]
    every = (await api.http.get(path, params={"discarded": True})).json()["items"]

    assert standing[0]["type"] == "run.rewound"
    assert not any("rewound_by" in each for each in standing)
    by = {each["rewound_by"] for each in every if "rewound_by" in each}
    assert by == {int(standing[0]["id"])}
    assert discarded[:-1] == listed
    assert (discarded[-1]["id"], discarded[-1]["status"]) == (gate, "answered")
    assert {(await api.interrupt(gate))["rewound_by"], discarded[-1]["rewound_by"]} == by
    assert [each["status"] for each in listed] == ["open"]
    assert listed[0]["id"] != gate
