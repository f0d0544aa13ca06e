"""An API that stops while callers wait: each gets an answer from which it can go on."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from sample_graphs import gated
from stack import Api, app_for, served
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance.api.app import serve
from abeyance.settings import Settings

APP = "from sample_graphs import gated\ngraph = gated()\n"


@pytest.fixture
def own(temporal: TemporalClient) -> Site:
    return Site(temporal, gated())


def stop(api: Api) -> None:
    """Do what the API does first when it gets a signal."""
    api.app.state.backend.stopping.set()


async def test_a_waiting_caller_gets_the_run_when_the_api_stops(own: Site) -> None:
    async with own.worker(), served(app_for(own)) as api:
        run_id, _ = await api.waiting("gated")
        query = {"wait": "30s", "until": "completed"}
        asked = asyncio.create_task(api.http.get(f"/runs/{run_id}", params=query))
        await eventually(lambda: api.under_way == 1)
        stop(api)

        answer = await asyncio.wait_for(asked, 20)

    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "awaiting-input"


async def test_a_caller_waiting_for_room_is_refused_when_the_api_stops(own: Site) -> None:
    async with own.worker(), served(app_for(own)) as api:
        run_id, _ = await api.waiting("gated", limits={"max_queue_size": 1})
        messages = f"/runs/{run_id}/messages"
        assert (await api.http.post(messages, json={"text": "one"})).status_code == 201
        query = {"timeout": "30s"}
        sent = asyncio.create_task(api.http.post(messages, json={"text": "two"}, params=query))
        await eventually(lambda: api.under_way == 1)
        stop(api)

        answer = await asyncio.wait_for(sent, 20)

    assert (answer.status_code, answer.json()["code"]) == (429, "queue_full")


async def test_a_stream_ends_in_good_order_and_says_why(
    own: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app_that_stops.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "app_that_stops", raising=False)
    monkeypatch.setenv("TEMPORAL_ADDRESS", own.temporal.service_client.config.target_host)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    settings = Settings(app="app_that_stops:graph", task_queue=own.settings.task_queue)
    serving = asyncio.create_task(serve(settings, "127.0.0.1", port))
    url = f"http://127.0.0.1:{port}"
    lines: list[str] = []
    async with own.worker(), httpx.AsyncClient(base_url=url, trust_env=False, timeout=40) as http:
        await eventually(lambda: _is_ready(http), seconds=90)
        body: dict[str, Any] = {"graph": "gated", "input": {}, "run_id": "followed-to-the-end"}
        assert (await http.post("/runs", json=body)).status_code == 201
        asked = http.stream(
            "GET", "/runs/followed-to-the-end/events", headers={"Accept": "text/event-stream"}
        )
        async with asked as stream:
            async for line in stream.aiter_lines():
                lines.append(line)
                if line == "event: run.awaiting_input":
                    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving

    assert lines[-2:] == [": the service is stopping: reconnect with the last id", ""]


async def _is_ready(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/readyz")).is_success
    except httpx.TransportError:
        return False
