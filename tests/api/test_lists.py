"""Reading graphs and interrupts over HTTP."""

from __future__ import annotations

import pytest
from sample_graphs import gated
from stack import Api, problem

from abeyance.api.app import create_app
from abeyance.errors import Refusal
from abeyance.settings import Settings


async def test_graphs_tell_what_they_take(api: Api) -> None:
    listed = (await api.http.get("/graphs")).json()
    whole = (await api.http.get("/graphs/guarded")).json()

    names = [entry["name"] for entry in listed["items"]]
    assert names == sorted(names)
    assert {"brief", "guarded"} < {*names}
    assert listed["next_cursor"] is None
    assert set(listed["items"][0]) == {"name", "version", "description", "input_schema"}
    guarded = listed["items"][names.index("guarded")]
    assert "amount" in guarded["input_schema"]["properties"]
    assert whole["nodes"]["approve"]["question"]["requested_capability"] == "payments:approve"
    assert whole["version"] == guarded["version"]


async def test_an_unknown_graph_is_told_which_there_are(api: Api) -> None:
    found = problem(await api.http.get("/graphs/nope"), 404, "unknown_graph")

    assert "gated" in found["graphs"]
    assert "'nope'" in found["detail"]


def test_an_unknown_graph_is_told_how_many_more_there_are_than_are_listed() -> None:
    app = create_app(Settings(), {f"g{number:02}": gated() for number in range(23)})
    with pytest.raises(Refusal, match=r"choose one of g00, g01, .*, g19 and 3 more\."):
        app.state.backend.graph("nope")


async def test_a_graph_is_drawn(api: Api) -> None:
    drawn = await api.http.get("/graphs/gated/diagram")

    assert drawn.headers["content-type"] == "text/plain; charset=utf-8"
    assert drawn.text.startswith("flowchart ")
    assert all(f'"{name}"' in drawn.text for name in ("before", "approve", "after", "late"))
    problem(await api.http.get("/graphs/nope/diagram"), 404, "unknown_graph")


async def test_interrupts_are_listed_by_status(api: Api) -> None:
    run_id, (gate, other) = await api.waiting("gates")
    await api.http.post(f"/interrupts/{gate}/respond", json={"response": 1})

    async def listed(query: str) -> list[str]:
        body = (await api.http.get(f"/runs/{run_id}/interrupts{query}")).json()
        assert body["next_cursor"] is None
        return [entry["id"] for entry in body["items"]]

    assert await listed("") == [other]
    assert await listed("?status=open") == [other]
    assert await listed("?status=answered") == [gate]
    assert await listed("?status=all") == [other, gate]
    assert await listed("?status=expired") == []
    found = problem(
        await api.http.get(f"/runs/{run_id}/interrupts?status=pending"), 422, "invalid_body"
    )
    assert found["errors"][0]["pointer"] == "/status"


async def test_an_interrupt_tells_what_is_asked(api: Api) -> None:
    run_id, (gate,) = await api.waiting("guarded", {"amount": 3})
    found = await api.interrupt(gate)

    assert (found["id"], found["run_id"], found["name"]) == (gate, run_id, "approve")
    assert found["prompt"] == "Pay 3?"
    assert found["address"] == "graph:guarded;node:approve"
    assert found["requested_capability"] == "payments:approve"
    assert found["response_schema"]["required"] == ["approved"]
