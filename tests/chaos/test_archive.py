"""kill -9 of a worker before it has written an archive."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from killable import killable_server, worker_process
from temporal_site import ANYBODY, eventually

from abeyance.history.audit_chain import verify
from abeyance.storage.blobs import folder_of
from abeyance.temporal.connection import register_search_attributes
from abeyance.temporal.schedules import archiver_id, schedule_archiver
from abeyance.util import TASK_QUEUE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_APP = "killed_graphs:graphs"


async def test_what_a_killed_worker_was_about_to_archive_is_archived_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from killed_graphs import patient

    audit = tmp_path / "audit"
    progress = audit / folder_of(f"default/{TASK_QUEUE}") / "progress.json"
    monkeypatch.setenv("ABEYANCE_AUDIT", str(audit))
    release = tmp_path / "release"
    release.touch()
    files = {"journal": str(tmp_path / "journal"), "release": str(release)}
    async with killable_server(tmp_path) as server:
        client = await server.client()
        temporal = client.temporal
        await register_search_attributes(temporal)
        with worker_process(server, _APP, tmp_path / "first.log") as worker:
            await client.runs.start(patient, files, run_id="r")
            run = client.run("r")
            await run.wait(until=frozenset({"awaiting-input"}), timeout=90)
            await run.respond(response="yes", principal=ANYBODY)
            await run.wait(timeout=90)
            # Whoever opens it waits for a writer who never comes.
            progress.parent.mkdir(parents=True)
            os.mkfifo(progress)
            await schedule_archiver(temporal, TASK_QUEUE, is_on=True)
            await temporal.get_schedule_handle(archiver_id(TASK_QUEUE)).trigger()

            async def is_held_up() -> bool:
                async for found in temporal.list_workflows("WorkflowType = 'Archiver'"):
                    described = await temporal.get_workflow_handle(found.id).describe()
                    pending = described.raw_description.pending_activities
                    if any(each.HasField("last_started_time") for each in pending):
                        return True
                return False

            await eventually(is_held_up, seconds=60)
            worker.kill()
            worker.wait()
        progress.unlink()
        assert [*audit.rglob("*.jsonl")] == []
        with worker_process(server, _APP, tmp_path / "second.log"):
            (file,) = await eventually(lambda: [*audit.rglob("*.jsonl")], seconds=150)
            found = verify(file.read_bytes())

    assert found.faults == ()
    assert (found.last["type"], found.last["run_id"]) == ("end", "r")
