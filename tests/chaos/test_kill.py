"""kill -9 of the worker and of Temporal, in the middle of work and in the middle of a wait."""

from __future__ import annotations

from pathlib import Path

import pytest
from killable import killable_server, worker_process
from killed_graphs import once, patient
from temporal_site import ANYBODY, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_APP = "killed_graphs:graphs"


def keys(journal: Path) -> list[str]:
    return journal.read_text(encoding="utf-8").split() if journal.exists() else []


async def test_a_waiting_run_survives_the_death_of_server_and_worker(tmp_path: Path) -> None:
    release = tmp_path / "release"
    release.touch()
    files = {"journal": str(tmp_path / "journal"), "release": str(release)}
    async with killable_server(tmp_path) as server:
        client = await server.client()
        with worker_process(server, _APP, tmp_path / "first.log"):
            for number in range(5):
                await client.runs.start(patient, files, run_id=f"r{number}")
            waiting = [
                await client.run(f"r{number}").wait(until=frozenset({"awaiting-input"}), timeout=90)
                for number in range(5)
            ]
            await client.run("r0").respond(response="early", principal=ANYBODY)
            await client.run("r0").wait(timeout=90)
            server.kill()
        server.start()
        client = await server.client()
        with worker_process(server, _APP, tmp_path / "second.log"):
            for number in range(1, 5):
                view = await client.run(f"r{number}").view()
                assert view.interrupts[0].id == waiting[number].interrupts[0].id
                assert view.interrupts[0].deadline == waiting[number].interrupts[0].deadline
                await client.run(f"r{number}").respond(response=number, principal=ANYBODY)
            ended = [await client.run(f"r{number}").wait(timeout=90) for number in range(5)]

    assert [view.values["log"][-1] for view in ended] == [
        "closed early",
        *(f"closed {number}" for number in range(1, 5)),
    ]
    assert [view.values["log"][0] for view in ended] == ["charged"] * 5
    assert len(keys(tmp_path / "journal")) == 5


async def test_a_run_that_failed_by_a_kill_is_retried_with_the_same_key(tmp_path: Path) -> None:
    journal, release = tmp_path / "journal", tmp_path / "release"
    files = {"journal": str(journal), "release": str(release)}
    async with killable_server(tmp_path) as server:
        client = await server.client()
        with worker_process(server, _APP, tmp_path / "first.log"):
            await client.runs.start(once, files, run_id="r")
            await eventually(lambda: keys(journal), seconds=90)
        with worker_process(server, _APP, tmp_path / "second.log"):
            assert (await client.run("r").wait(timeout=90)).status == "failed"
            await client.run("r").retry()
            await eventually(lambda: len(keys(journal)) == 2, seconds=90)
        # The kill of the second worker used up the retry, because the node has one attempt.
        release.touch()
        with worker_process(server, _APP, tmp_path / "third.log"):
            assert (await client.run("r").wait(timeout=90)).status == "failed"
            await client.run("r").retry()
            view = await client.run("r").wait(until=frozenset({"awaiting-input"}), timeout=90)

    assert (view.status, view.values["log"]) == ("awaiting-input", ["charged"])
    assert len(keys(journal)) == 3
    assert len(set(keys(journal))) == 1
