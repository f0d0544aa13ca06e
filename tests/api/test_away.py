"""When a worker, Temporal or an API is away: nothing lost, nothing twice, and no false promise."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx
import pytest
from ports import free_port
from sample_graphs import gated, gates
from stack import Api, app_for, new_id, problem, served
from temporal_site import BINARY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance.api.app import create_app
from abeyance.client import Client
from abeyance.errors import Unavailable
from abeyance.records.database import Database
from abeyance.settings import Settings
from abeyance.temporal.workers import live_workers

YES = {"approved": True}


def lonely(temporal: TemporalClient) -> Site:
    """A place whose worker comes and goes, with a client that does not wait long for it."""
    return Site(temporal, gated(), gates(2), patience=1.0)


def patient(site: Site) -> Site:
    """The same place, for those who know that the worker is there: it may be slow."""
    return Site(site.temporal, *site.graphs.values(), beside=site)


async def test_a_worker_away_leaves_reads_and_control_and_refuses_answers(
    temporal: TemporalClient, caplog: pytest.LogCaptureFixture
) -> None:
    site = lonely(temporal)
    async with served(app_for(site)) as api, served(app_for(patient(site))) as other:
        async with site.worker():
            run_id, (gate,) = await other.waiting("gated", {"amount": 3})
        read = await api.http.get(f"/runs/{run_id}")
        answered = await api.http.post(f"/interrupts/{gate}/respond", json={"response": YES})
        paused = await api.http.post(f"/runs/{run_id}/pause", json={"reason": "audit"})
        started = await api.http.post(
            "/runs", json={"graph": "gated", "input": {}, "run_id": new_id()}
        )
        async with site.worker():
            again = await eventually(lambda: _ok(other, gate))
            later = (await other.http.get(f"/runs/{run_id}")).json()

        view = read.json()
        assert (view["degraded"], view["status"]) == (False, "awaiting-input")
        assert [entry["id"] for entry in view["interrupts"]] == [gate]
        assert problem(answered, 503, "unavailable")
        assert int(answered.headers["retry-after"]) >= 1
        logged = f"method=POST path=/interrupts/{gate}/respond | the run {run_id!r} did not answer"
        assert logged in caplog.text
        assert (paused.status_code, paused.json()) == (202, {"run_id": run_id})
        assert (started.status_code, started.json()["status"]) == (201, "running")
        assert len(again["receipts"]) == 1
        assert (later["degraded"], later["status"]) == (False, "paused")
        assert later["pause"]["reason"] == "audit"


async def test_the_questions_of_a_run_are_read_whole_while_its_worker_is_away(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(60, "many"), gated(), patience=1.0)
    async with served(app_for(site)) as api, served(app_for(patient(site))) as other:
        async with site.worker():
            run_id, asked = await other.waiting("many")
            ended, (gate,) = await other.waiting("gated")
            for answered in (asked[0], gate):
                await other.http.post(f"/interrupts/{answered}/respond", json={"response": YES})
            await other.until(ended, "completed")
            path = f"/runs/{run_id}/interrupts"
            before = (await api.http.get(path, params={"status": "all"})).json()["items"]
        view = (await api.http.get(f"/runs/{run_id}")).json()
        listed = (await api.http.get(path, params={"status": "all"})).json()["items"]
        held = await api.http.get(path, params={"status": "held"})
        one, settled = await api.interrupt(asked[-1]), await api.interrupt(gate)
        missing = [await api.http.get(f"/interrupts/{of}.{'0' * 16}") for of in (run_id, ended)]

    assert (view["degraded"], [each["id"] for each in view["interrupts"]]) == (False, asked[1:])
    assert (listed, held.json()["items"]) == (before, [])
    last = before[len(asked) - 2]
    assert {name: one[name] for name in last} == last
    assert settled["status"] == "answered"
    for response in missing:
        problem(response, 404, "unknown_interrupt")


async def test_a_conversation_is_controlled_while_its_workers_are_away(
    temporal: TemporalClient,
) -> None:
    site = lonely(temporal)
    talk, other = new_id("talk"), new_id("talk")

    async with served(app_for(site)) as api, served(app_for(patient(site))) as other_api:

        async def say(operation: str, talk: str, **body: str) -> httpx.Response:
            return await api.http.post(f"/conversations/{talk}/{operation}", json=body)

        async with site.worker():
            first, _ = await other_api.waiting("gated", conversation_id=talk)
            await other_api.http.post(f"/runs/{first}/cancel", json={})
            await other_api.until(first, "cancelled")
            run_id, _ = await other_api.waiting("gated", conversation_id=talk)
        paused = await say("pause", talk, reason="audit")
        steered = await say("steer", talk, text="hello")
        nobody = await say("interrupt", other)
        unheard = await say("steer", other, text="hello")
        async with site.worker():
            view = await api.until(run_id, "paused")
            later = await eventually(lambda: _with_message(api, run_id))
        resumed = await say("resume", talk)
        ended = await say("interrupt", talk)
        async with site.worker():
            await api.until(run_id, "cancelled")
            gone = await say("interrupt", talk)

    reached = {"count": 1, "runs": [run_id]}
    assert (paused.status_code, paused.json()) == (202, reached)
    assert steered.status_code == 202
    assert steered.json() == {
        **reached,
        "message_id": steered.json()["message_id"],
    }
    assert (nobody.status_code, nobody.json()) == (202, {"count": 0, "runs": []})
    problem(unheard, 404, "no_active_run")
    assert (view["pause"]["reason"], later["queue_depth"]) == ("audit", 1)
    assert [(r.status_code, r.json()) for r in (resumed, ended)] == [(202, reached)] * 2
    assert gone.json() == {"count": 0, "runs": []}


async def _with_message(api: Api, run_id: str) -> dict[str, object] | None:
    view: dict[str, object] = (await api.http.get(f"/runs/{run_id}")).json()
    return view if view["queue_depth"] else None


async def _ok(api: Api, gate: str) -> dict[str, list[object]] | None:
    response = await api.http.post(f"/interrupts/{gate}/respond", json={"response": YES})
    if response.status_code == 503:
        return None
    assert response.status_code == 200, response.text
    found: dict[str, list[object]] = response.json()
    return found


async def test_readiness_tells_whether_anybody_would_do_the_work(temporal: TemporalClient) -> None:
    site = lonely(temporal)
    async with served(app_for(site)) as api:
        alone = await api.http.get("/readyz")
        async with site.worker():

            async def ready() -> httpx.Response | None:
                response = await api.http.get("/readyz")
                return response if response.status_code == 200 else None

            with_worker = await eventually(ready)

        assert problem(alone, 503, "unavailable")["ready"] is False
        assert site.settings.task_queue in alone.json()["detail"]
        assert int(alone.headers["retry-after"]) >= 1
        assert with_worker.json() == {
            "ready": True,
            "workers": 1,
            "records": "current",
            "warnings": [],
        }
        assert (await api.http.get("/healthz")).json() == {"status": "ok"}


async def test_records_that_were_away_are_told_as_behind_for_some_seconds(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    file = tmp_path / "records.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE other (id INTEGER)")
    site = Site(temporal, gated())
    site.client = Client(
        temporal, task_queue=site.settings.task_queue, records=Database(f"sqlite:///{file}")
    )
    async with site.worker(), served(app_for(site)) as api:

        async def ready() -> httpx.Response | None:
            response = await api.http.get("/readyz")
            return response if response.status_code == 200 else None

        away = await eventually(ready)
        unread = await api.http.get("/runs")
        talk = {"graph": "gated", "input": {}, "conversation_id": new_id("talk")}
        beside = await api.http.post("/runs", json={**talk, "session_type": "form"})
        alone = await api.http.post("/runs", json=talk)
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("DROP TABLE other")
        behind = await eventually(ready)
        listed = await api.http.get("/runs")

    assert (away.json()["records"], behind.json()["records"]) == ("away", "behind")
    problem(unread, 503, "records_unavailable")
    # Only one that has to be the only one of its conversation waits for the records.
    assert beside.status_code == 201
    problem(alone, 503, "records_unavailable")
    assert listed.status_code == 200
    assert 0 <= int(listed.headers["abeyance-behind"]) < 60


async def test_an_api_without_records_still_starts_controls_and_answers_runs(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    file = tmp_path / "records.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE other (id INTEGER)")
    site, seeing = Site(temporal, gated()), Site(temporal, gated())
    seeing.client = Client(temporal, task_queue=site.settings.task_queue)
    site.client = Client(
        temporal, task_queue=site.settings.task_queue, records=Database(f"sqlite:///{file}")
    )
    # Its worker has the records.
    async with site.worker(), served(app_for(site)) as api:
        started = await api.http.post("/runs", json={"graph": "gated", "input": {"amount": 3}})
        run_id = started.json()["run_id"]
        (asked,) = (await seeing.until(run_id, "awaiting-input")).interrupts
        read = await api.http.get(f"/runs/{run_id}")
        waited = await api.http.post(f"/runs/{run_id}/pause", json={}, params={"wait": "1s"})
        resumed = await api.http.post(f"/runs/{run_id}/resume", json={})
        steered = await api.http.post(f"/runs/{run_id}/steer", json={"text": "mind the VAT"})
        answered = await api.http.post(f"/interrupts/{asked.id}/respond", json={"response": YES})
        ended = await seeing.ended(run_id)

    assert started.status_code == 201
    problem(read, 503, "records_unavailable")
    # Nobody can tell what came of it.
    assert (waited.status_code, waited.json()) == (202, {"run_id": run_id})
    assert (resumed.status_code, steered.status_code) == (202, 202)
    assert (answered.status_code, len(answered.json()["receipts"])) == (200, 1)
    assert (ended.status, ended.metrics and ended.metrics.pause_count) == ("completed", 1)


async def test_an_api_that_is_killed_in_the_middle_costs_nothing_but_a_repeat(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(2), patience=10.0)
    headers = {"Idempotency-Key": new_id("key")}
    start = {"graph": "gates", "input": {}}
    async with served(app_for(site)) as other:
        async with served(app_for(site)) as doomed:
            async with site.worker():
                started = await doomed.http.post("/runs", json=start, headers=headers)
                run_id = started.json()["run_id"]
                view = await doomed.until(run_id, "awaiting-input")
            # Nobody can answer this now, so the call is under way when its API dies.
            gate, last = (entry["id"] for entry in view["interrupts"])
            call = asyncio.create_task(
                doomed.http.post(
                    f"/runs/{run_id}/respond",
                    json={"interrupt_id": gate, "response": 1},
                    headers=headers,
                )
            )
            done, _ = await asyncio.wait({call}, timeout=0.3)
            doomed.kill()
            with pytest.raises(httpx.TransportError):
                await call
        async with site.worker():
            restarted = await other.http.post("/runs", json=start, headers=headers)
            again = await other.http.post(
                f"/runs/{run_id}/respond",
                json={"interrupt_id": gate, "response": 1},
                headers=headers,
            )
            await other.http.post(f"/interrupts/{last}/respond", json={"response": 2})
            ended = await other.until(run_id, "completed")

    assert not done
    assert (restarted.status_code, restarted.json()["run_id"]) == (200, run_id)
    assert [receipt["interrupt_id"] for receipt in again.json()["receipts"]] == [gate]
    assert sorted(ended["values"]["log"]) == ["done0 1", "done1 2"]


@asynccontextmanager
async def temporal_at(port: int) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        BINARY,
        *("server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "never"),
        *("--port", str(port)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 20)


async def test_an_api_waits_for_its_temporal_and_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("TEMPORAL_ADDRESS", f"127.0.0.1:{port}")
    graph = gated()
    async with served(create_app(Settings(), {graph.name: graph})) as api:
        body = {"graph": "gated", "input": {}}
        start = await api.http.post("/runs", json=body)
        ready = await api.http.get("/readyz")
        graphs = await api.http.get("/graphs")
        async with temporal_at(port):

            async def found() -> httpx.Response | None:
                response = await api.http.get("/runs/nobody")
                return response if response.status_code != 503 else None

            read = await eventually(found, seconds=30)
            not_set_up = await api.http.post("/runs", json=body)

    told = problem(start, 503, "unavailable")["detail"]
    assert told.startswith(f"Temporal does not answer at 127.0.0.1:{port}: start it")
    assert told.endswith("(Connection refused)")
    assert int(start.headers["retry-after"]) >= 1
    assert problem(ready, 503, "unavailable")["ready"] is False
    assert graphs.status_code == 200
    problem(read, 404, "unknown_run")
    assert "abeyance setup" in problem(not_set_up, 503, "unavailable")["detail"]


async def test_a_namespace_that_is_missing_is_not_told_as_silence(address: str) -> None:
    temporal = await TemporalClient.connect(address, namespace="nowhere")

    with pytest.raises(
        Unavailable, match=r"no such namespace: create it .*, or set TEMPORAL_NAMESPACE"
    ):
        await live_workers(temporal, "abeyance")
