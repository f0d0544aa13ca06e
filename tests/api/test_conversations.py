"""Starting, steering and interrupting the runs of a conversation over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from stack import Api, new_id, problem


async def post(api: Api, path: str, body: dict[str, Any] | None = None, **options: Any) -> Any:
    return await api.http.post(path, json=body or {}, **options)


async def test_a_second_agent_gets_409_with_the_id_of_the_first(api: Api) -> None:
    talk = new_id("talk")
    first = await api.start("gated", {}, conversation_id=talk)
    body = {"graph": "gated", "input": {}, "conversation_id": talk}
    busy = problem(await post(api, "/runs", body), 409, "conversation_busy")
    beside = await post(api, "/runs", {**body, "allow_concurrent": True})
    ambiguous = problem(
        await post(api, f"/conversations/{talk}/steer", {"text": "hello"}), 409, "ambiguous_run"
    )
    ended = await post(api, f"/conversations/{talk}/interrupt", {"reason": "enough"})

    assert busy["run_id"] == first
    assert beside.status_code == 201
    runs = [first, beside.json()["run_id"]]
    assert ambiguous["runs"] == runs
    assert (ended.status_code, ended.json()) == (202, {"count": 2, "runs": runs})
    for run_id in runs:
        view = await api.until(run_id, "cancelled")
        assert view["reason"] == "enough"
    again = await post(api, f"/conversations/{talk}/interrupt")
    assert again.json() == {"count": 0, "runs": []}


async def test_an_idempotent_start_in_a_busy_conversation_finds_its_own_run(api: Api) -> None:
    talk = new_id("talk")
    key = {"Idempotency-Key": new_id("key")}
    body = {"graph": "gated", "input": {}, "conversation_id": talk}
    first = await post(api, "/runs", body, headers=key)
    run_id = first.json()["run_id"]
    await post(api, f"/runs/{run_id}/cancel")
    await api.until(run_id, "cancelled")
    other = await api.start("gated", {}, conversation_id=talk)
    again = await post(api, "/runs", body, headers=key)

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["run_id"] == run_id
    assert (await post(api, f"/conversations/{talk}/interrupt")).json()["runs"] == [other]


async def test_the_agent_is_steered_once_whatever_the_call_is_repeated(api: Api) -> None:
    # A conversation may have any name.
    talk = f"slack:C1/{new_id()}?#é"
    steer = f"/conversations/{quote(talk, safe='')}/steer"
    nobody = await post(api, steer, {"text": "hello"})
    run_id = await api.start("gated", {}, conversation_id=talk)
    key = {"Idempotency-Key": new_id("key")}
    answers = [await post(api, steer, {"text": "hello"}, headers=key) for _ in "12"]

    assert problem(nobody, 404, "no_active_run")["conversation_id"] == talk
    assert [answer.status_code for answer in answers] == [202, 202]
    first, second = (answer.json() for answer in answers)
    assert first == {
        "count": 1,
        "runs": [run_id],
        "message_id": key["Idempotency-Key"],
    }
    assert second == first
