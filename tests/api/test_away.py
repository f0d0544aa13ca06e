"""While a worker, Temporal or an API is away, nothing is lost, done twice or promised wrongly."""

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
    """Return a site whose worker comes and goes, with a client that does not wait long for it."""
    return Site(temporal, gated(), gates(2), patience=1.0)


def patient(site: Site) -> Site:
    """Return the same site with a patient client, for a worker that is up but may be slow."""
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


async def test_records_that_were_away_are_behind_for_some_seconds(
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
    # Only a run that must be alone in its conversation cannot start without the records.
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
    # Only the API lacks the records; its worker has them.
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
    # Without the records the API cannot tell whether the run has paused.
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
            # Without a worker nothing answers this call, so it is under way when its API dies.
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


async def test_a_missing_namespace_is_named(address: str) -> None:
    temporal = await TemporalClient.connect(address, namespace="nowhere")

    with pytest.raises(
        Unavailable, match=r"no such namespace: create it .*, or set TEMPORAL_NAMESPACE"
    ):
        await live_workers(temporal, "abeyance")
