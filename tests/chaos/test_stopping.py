"""A worker that gets SIGTERM ends, even in the middle of a node and without Temporal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from killable import KillableServer, killable_server, worker_process
from killed_graphs import patient
from temporal_site import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SECONDS = 60
"""Far longer than the shutdown takes, and far shorter than the waits that could delay it."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABEYANCE_SHUTDOWN_GRACE", "0.2s")


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[KillableServer]:
    async with killable_server(tmp_path) as running:
        yield running


async def test_a_worker_whose_server_is_away_ends(server: KillableServer, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    client = await server.client()
    log = tmp_path / "worker.log"
    with worker_process(server, "killed_graphs:patient", log) as worker:
        files = {"journal": str(journal), "release": str(tmp_path / "release")}
        await client.runs.start(patient, files, run_id="cut-off")
        await eventually(journal.exists, seconds=90)
        server.kill()

        worker.send_signal(signal.SIGTERM)

        assert await asyncio.to_thread(worker.wait, SECONDS) == 0
    assert "another worker will retry it" in log.read_text("utf-8")
