"""Two API processes over the same runs: callers may use either of them, and one may be killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from answered_graphs import GATES
from api_process import ApiProcess, api_process
from killable import killable_server, worker_process

from abeyance.client import Client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_APP = "answered_graphs:graphs"


@asynccontextmanager
async def two_apis(folder: Path) -> AsyncIterator[tuple[ApiProcess, ApiProcess, Client]]:
    async with killable_server(folder) as server:
        client = await server.client()
        with worker_process(server, _APP, folder / "worker.log"):
            async with (
                api_process(server, _APP, folder / "one.log") as one,
                api_process(server, _APP, folder / "other.log") as other,
            ):
                yield one, other, client


async def waiting(api: ApiProcess, run_id: str, **limits: int) -> dict[str, str]:
    """Start a run and wait for all its questions. Return their ids by their names."""
    body = {"graph": "gates", "input": {}, "run_id": run_id, "limits": limits}
    assert (await api.http.post("/runs", json=body)).status_code == 201
    return await open_gates(api, run_id)


async def several_waiting(api: ApiProcess) -> dict[str, dict[str, str]]:
    """Start four runs that wait. Return the ids of their questions by their names."""
    return {f"r{number}": await waiting(api, f"r{number}") for number in range(4)}


async def open_gates(api: ApiProcess, run_id: str) -> dict[str, str]:
    query = {"wait": "PT30S", "until": "awaiting-input"}
    view = (await api.http.get(f"/runs/{run_id}", params=query)).json()
    return {entry["name"]: entry["id"] for entry in view["interrupts"]}


async def answer(
    api: ApiProcess, gate: str, value: Any, *, by: str, key: str | None = None
) -> httpx.Response:
    headers = {"X-Abeyance-Principal": by} | ({} if key is None else {"Idempotency-Key": key})
    path, body = f"/interrupts/{gate}/respond", {"response": value}
    for _ in range(5):
        answered = await api.http.post(path, json=body, headers=headers)
        # On a busy machine the API may answer 503, and its documentation asks callers to repeat.
        if answered.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            break
    return answered


async def test_sixty_answers_and_messages_at_once_get_what_is_documented_each(
    tmp_path: Path,
) -> None:
    async with two_apis(tmp_path) as (one, other, first):
        second = Client(first.temporal, patience=30)
        gates = await waiting(one, "r", continue_as_new_after=20)
        last = gates.pop("gate0")
        asked = dict(list(gates.items())[:10])
        answers = {
            name: asyncio.gather(
                answer(one, id_, 1, by="ada"),
                answer(other, id_, 2, by="bob"),
                answer(other, id_, 1, by="ada"),
                answer(one, id_, 2, by="bob", key=f"bob-{name}"),
            )
            for name, id_ in asked.items()
        }
        messages = [
            client.run("r").send(message_id=f"m{number}", text="and now?")
            for number in range(10)
            for client in (first, second)
        ]
        receipts = await asyncio.gather(*messages)
        told = {name: await call for name, call in answers.items()}
        rest = [id_ for name, id_ in gates.items() if name not in asked]
        for id_ in (*rest, last):
            assert (await answer(other, id_, 0, by="eve")).status_code == 200
        ended = (await one.http.get("/runs/r", params={"wait": "PT30S"})).json()
        history = await first.temporal.get_workflow_handle("r").fetch_history()
        begin = history.events[0].workflow_execution_started_event_attributes

    assert begin.continued_execution_run_id
    given = (1, 2, 1, 2)
    for name, responses in told.items():
        accepted = [
            (value, response.json()["receipts"][0])
            for value, response in zip(given, responses, strict=True)
            if response.status_code == 200
        ]
        refused = [response for response in responses if response.status_code != 200]
        # If two calls give the same answer, both succeed, and the second gets the first one's receipt.
        assert len(accepted) == len(refused) == 2, [response.text for response in responses]
        assert {response.status_code for response in refused} == {409}
        assert {response.json()["code"] for response in refused} == {"already_answered"}
        ((winner, receipt), (also, again)) = sorted(accepted, key=lambda one: one[1]["replayed"])
        assert winner == also
        assert (receipt["replayed"], again) == (False, {**receipt, "replayed": True})
        assert {response.json()["answered_by"] for response in refused} == {receipt["answered_by"]}
        assert f"done{name.removeprefix('gate')} {winner}" in ended["values"]["log"]
    by_id = [(receipt.message_id, receipt.duplicate) for receipt in receipts]
    assert sorted(by_id) == [(f"m{n}", again) for n in range(10) for again in (False, True)]
    assert len(ended["values"]["log"]) == GATES
    assert (ended["status"], len(ended["undelivered"])) == ("completed", 10)


async def cut_off(api: ApiProcess, calls: list[Coroutine[Any, Any, httpx.Response]]) -> list[Any]:
    """Make calls at once, and kill their API after the first response. Return the result of each."""
    tasks = [asyncio.create_task(call) for call in calls]
    await asyncio.wait(tasks, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    api.kill()
    return await asyncio.gather(*tasks, return_exceptions=True)


def answered(come_to: list[Any]) -> dict[int, httpx.Response]:
    """Return the responses that came before the kill, by number; the other calls were cut off."""
    cut = [outcome for outcome in come_to if isinstance(outcome, httpx.TransportError)]
    found = {n: outcome for n, outcome in enumerate(come_to) if isinstance(outcome, httpx.Response)}
    assert len(found) + len(cut) == len(come_to), come_to
    assert found
    assert cut, "every call was answered before its API was killed"
    assert {response.status_code // 100 for response in found.values()} == {2}
    return found


async def test_answers_that_were_cut_off_are_repeated_elsewhere_and_count_once(
    tmp_path: Path,
) -> None:
    async with two_apis(tmp_path) as (doomed, other, _):
        gates = await several_waiting(doomed)
        last = {run_id: by_name.pop("gate0") for run_id, by_name in gates.items()}
        asked = [(id_, name) for by_name in gates.values() for name, id_ in by_name.items()]

        def send(api: ApiProcess, id_: str, name: str) -> Coroutine[Any, Any, httpx.Response]:
            return answer(api, id_, name, by="ada", key=f"key-{name}")

        before = answered(await cut_off(doomed, [send(doomed, *gate) for gate in asked]))
        after = [await send(other, *gate) for gate in asked]
        still_open = [await open_gates(other, run_id) for run_id in gates]
        for gate in last.values():
            await send(other, gate, "gate0")
        ended = [
            (await other.http.get(f"/runs/{run_id}", params={"wait": "PT30S"})).json()
            for run_id in gates
        ]
        at_last = [await send(other, *gate) for gate in asked]

    assert {response.status_code for response in after} == {200}, [r.text for r in after]
    for number, response in before.items():
        (receipt,) = response.json()["receipts"]
        assert after[number].json()["receipts"] == [{**receipt, "replayed": True}]
    for first, again in zip(after, at_last, strict=True):
        (receipt,) = first.json()["receipts"]
        assert again.json()["receipts"] == [{**receipt, "replayed": True}]
    assert [[*by_name.values()] for by_name in still_open] == [[gate] for gate in last.values()]
    for view in ended:
        assert sorted(view["values"]["log"]) == sorted(f"done{n} gate{n}" for n in range(GATES))
