"""Rewinding over HTTP: what it says, who may, and what lists show afterwards."""

from __future__ import annotations

from typing import Any

from stack import Api, problem


async def ended(api: Api) -> tuple[str, str]:
    """A run that has ended after an answer, and the id of its question."""
    run_id, (gate,) = await api.waiting("gated", {"amount": 3})
    yes = {"response": {"approved": True}}
    await api.http.post(f"/interrupts/{gate}/respond", json=yes)
    await api.until(run_id, "completed")
    return run_id, gate


async def test_a_rewind_is_tried_and_then_carried_out(api: Api) -> None:
    run_id, gate = await ended(api)
    path = f"/runs/{run_id}/rewind"

    tried = await api.http.post(path, json={"to": gate, "dry_run": True})
    assert (await api.until(run_id, "completed"))["open"] == 0
    done = await api.http.post(path, json={"to": gate, "patch": {"amount": 4}})

    assert (tried.status_code, done.status_code) == (200, 200)
    assert tried.json() == {**done.json(), "dry_run": True}
    assert [each["node"] for each in done.json()["effects"]] == ["gated.after"]
    assert done.json()["discards"][0]["type"] == "interrupt.answered"
    (asked,) = (await api.until(run_id, "awaiting-input"))["interrupts"]
    assert (asked["id"], asked["prompt"]) == (gate, "Pay 4?")


async def test_what_was_discarded_is_listed_only_when_it_is_asked_for(api: Api) -> None:
    run_id, gate = await ended(api)
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


async def test_a_rewind_that_cannot_be_is_refused(api: Api) -> None:
    run_id, gate = await ended(api)
    path = f"/runs/{run_id}/rewind"

    unknown = await api.http.post(path, json={"to": f"{run_id}.0123456789abcdef"})
    patched = await api.http.post(path, json={"to": "start", "patch": {"amount": 1}})
    wrong = await api.http.post(path, json={"to": gate, "patch": {"amount": "much"}})
    nobody = await api.http.post("/runs/nobody/rewind", json={"to": "start"})

    problem(unknown, 404, "unknown_interrupt")
    problem(patched, 422, "invalid_body")
    problem(wrong, 422, "invalid_input")
    problem(nobody, 404, "unknown_run")
    assert (await api.until(run_id, "completed"))["values"]["amount"] == 3
