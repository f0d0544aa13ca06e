"""An erased run leaves nothing but a tombstone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from audited_site import AuditedSite, verified
from sample_graphs import gated
from stack import Api, problem, served
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from abeyance.api.app import create_app
from abeyance.client import Client
from abeyance.core.state import Limits
from abeyance.errors import Code, Refusal
from abeyance.settings import Settings
from abeyance.storage.archive import Progress, archive_of
from abeyance.storage.blobs import FolderBlobs, MemoryBlobs
from abeyance.temporal.connection import connect_temporal
from abeyance.token_file import add_token
from abeyance.util import erasure_workflow_id
from abeyance.wire import Erase

YES = {"approved": True}


async def answered(site: Site, **options: Any) -> str:
    run_id = await site.start({"amount": 31337}, **options)
    await site.until(run_id, "awaiting-input")
    await site.client.run(run_id).respond(response=YES, note="secret", principal=ANYBODY)
    await site.ended(run_id)
    return run_id


async def erased(site: AuditedSite, run_id: str) -> None:
    async def is_done() -> bool:
        return await site.client.runs.erase(run_id) == "erased"

    await eventually(is_done, seconds=60)


async def refused(api: Api, run_id: str, code: str) -> None:
    """Nothing of the run can be read, and it takes no calls."""
    parts = (
        "",
        "/audit",
        "/result",
        "/interrupts",
        "/events",
        "/messages",
        "/transcript",
        "/files/f",
    )
    for part in parts:
        problem(await api.http.get(f"/runs/{run_id}{part}"), 410, code)
    stream = {"Accept": "text/event-stream"}
    problem(await api.http.get(f"/runs/{run_id}/events", headers=stream), 410, code)
    for call in ("pause", "resume", "cancel"):
        problem(await api.http.post(f"/runs/{run_id}/{call}", json={}), 410, code)
    for call, body in (("steer", {"text": "hello"}), ("respond", {"response": YES})):
        problem(await api.http.post(f"/runs/{run_id}/{call}", json=body), 410, code)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_nothing_is_left_of_an_erased_run_but_a_signed_tombstone(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    stored: dict[str, Any] = {"storage": str(tmp_path / "blobs"), "max_payload": 1_024}
    address = temporal.service_client.config.target_host
    storing = await connect_temporal(address, settings=Settings(**stored))
    blobs = FolderBlobs(tmp_path / "blobs")
    site = AuditedSite(storing, gated(), audit=tmp_path / "audit", blobs=blobs, **stored)
    async with site.worker():
        run_id = await answered(site, limits=Limits(continue_as_new_after=5))
        other = await answered(site)

        async def is_archived() -> bool:
            await site.client.archiver.round()
            return len([*(tmp_path / "audit").rglob("*.jsonl")]) == 2

        await eventually(is_archived)
        assert any(run_id in path for path in content(tmp_path / "blobs"))
        assert await site.client.runs.erase(run_id) == "erasing"
        await erased(site, run_id)
    left = {path: data for path, data in content(tmp_path).items() if run_id in path}

    ((path, tombstone),) = left.items()
    assert path.endswith("erased.jsonl")
    (line,) = verified(tombstone, site.public)
    assert (line["type"], line["run_id"], len(line["executions"])) == ("erased", run_id, 1)
    assert line.keys() == {
        *("type", "run_id", "time", "executions"),
        *("n", "prev", "lines", "hash", "signature"),
    }
    for read in (site.client.run(run_id).view, site.client.run(run_id).audit):
        with pytest.raises(Refusal) as refused:
            await read()
        assert refused.value.code is Code.ERASED
    listed = [found.id async for found in temporal.list_workflows(f"WorkflowId = '{run_id}'")]
    assert listed == []
    assert (await site.audit(other))[-1]["type"] == "end"
    await site.replays(erasure_workflow_id(site.settings.task_queue, run_id))


async def test_without_an_archive_the_deployment_has_the_tombstone(
    temporal: TemporalClient,
) -> None:
    site = AuditedSite(temporal, gated(), audit=None)
    async with site.worker():
        run_id = await answered(site)
        await erased(site, run_id)
    id_ = erasure_workflow_id(site.settings.task_queue, run_id)
    described = await temporal.get_workflow_handle(id_).describe()

    tombstone = str(await described.memo_value("erased"))
    (line,) = verified(f"{tombstone}\n".encode(), site.public)
    assert (line["type"], line["run_id"]) == ("erased", run_id)
    with pytest.raises(Refusal) as refused:
        await site.client.run(run_id).view()
    assert refused.value.code is Code.ERASED


async def test_a_run_that_only_the_archive_has_is_erased_there(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = AuditedSite(temporal, gated(), audit=tmp_path)
    async with site.worker():
        run_id = await answered(site)

        async def is_archived() -> bool:
            return bool(await site.client.archiver.round())

        await eventually(is_archived)
        await site.forgotten(run_id)
        await erased(site, run_id)

    assert b"31337" not in b"".join(content(tmp_path).values())


async def test_the_api_erases_for_administrators_and_only_what_has_ended(
    temporal: TemporalClient,
) -> None:
    site = AuditedSite(temporal, gated(), audit=None)
    async with site.worker(), served(create_app(site.settings, site.graphs, site.client)) as api:
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        forbidden = {"X-Abeyance-Capabilities": "runs:read,runs:control"}
        json_ = {"Content-Type": "application/json"}

        async def delete(id_: str = run_id, **headers: str) -> Any:
            return await api.http.request("DELETE", f"/runs/{id_}", headers={**json_, **headers})

        problem(await delete(**forbidden), 403, "capability_required")
        problem(await delete(), 409, "not_finished")
        problem(await delete("nobody"), 404, "unknown_run")
        assert (await site.client.run(run_id).view()).status == "awaiting-input"
        await site.client.run(run_id).cancel()
        await site.ended(run_id)
        first = await delete()
        erasing = {"run_id": run_id, "state": "erasing"}
        assert (first.status_code, first.json()) == (202, erasing)

        async def is_done() -> bool:
            return bool((await delete()).json()["state"] == "erased")

        await eventually(is_done)
        await refused(api, run_id, "erased")


async def test_a_run_is_refused_as_erased_from_the_moment_that_its_erasure_is_accepted(
    temporal: TemporalClient,
) -> None:
    site = AuditedSite(temporal, gated(), audit=None)
    other = Client(temporal, task_queue=site.settings.task_queue)
    async with site.worker():
        run_id = await answered(site)
        (event, *_), _ = await site.client.feed.page(run_id, None, 1)
        # This process knows the run, and the other one has it erased. No worker does it yet.
    assert await other.runs.erase(run_id) == "erasing"
    async with served(create_app(site.settings, site.graphs, site.client)) as api:
        await refused(api, run_id, "erased")
        for query in ("?wait=5s", "?wait=5s&until=completed", "/events?limit=1"):
            problem(await api.http.get(f"/runs/{run_id}{query}"), 410, "erased")
        problem(await api.http.get(f"/runs/{run_id}/events?after={event.id}"), 410, "erased")
        again = {"graph": "gated", "input": {}, "run_id": run_id, "reuse": True}
        problem(await api.http.post("/runs", json=again), 410, "erased")
        problem(await api.http.post(f"/runs/{run_id}/retry", json={}), 410, "erased")


async def test_who_may_not_see_a_run_does_not_learn_that_it_is_being_erased(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = AuditedSite(temporal, gated(), audit=None)
    async with site.worker():
        run_id = await answered(site, labels={"team": "finance"})
    assert await site.client.runs.erase(run_id) == "erasing"
    tokens = tmp_path / "tokens.json"
    leo = add_token(tokens, "leo", ["runs:read", "runs:start"], reads={"team": ["legal"]})
    settings = site.settings.model_copy(update={"tokens_file": tokens})
    async with served(create_app(settings, site.graphs, site.client)) as api:
        headers = {"Authorization": f"Bearer {leo}"}
        problem(await api.http.get(f"/runs/{run_id}", headers=headers), 404, "unknown_run")
        new = {"graph": "gated", "input": {}, "run_id": run_id}
        problem(await api.http.post("/runs", json=new, headers=headers), 409, "run_exists")


async def test_a_run_that_takes_the_id_while_an_erasure_begins_is_left(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = AuditedSite(temporal, gated(), audit=tmp_path)
    async with site.worker():
        run_id = await answered(site)
        before = (await temporal.get_workflow_handle(run_id).describe()).run_id
        # As if it had been accepted a moment before the other run took the id.
        order = Erase(run_id=run_id, requested_at=datetime.now(UTC), execution=before)
        await site.start({"amount": 7}, run_id=run_id, reuse=True)
        await site.until(run_id, "awaiting-input")
        for _ in "12":
            tombstone = json.loads(await site.client.erasures.perform(order))
            assert tombstone["executions"] == [before]
        with pytest.raises(RPCError):
            await temporal.get_workflow_handle(run_id, run_id=before).describe()
        assert (await site.client.run(run_id).view()).values["amount"] == 7
        await site.client.run(run_id).respond(response=YES, principal=ANYBODY)
        await site.ended(run_id)
        assert (await site.client.run(run_id).view()).status == "completed"


async def test_what_an_archiver_had_read_before_an_erasure_is_not_kept(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = AuditedSite(temporal, gated(), audit=tmp_path)
    archive = archive_of(site.settings, temporal.namespace)
    assert archive is not None
    async with site.worker():
        run_id = await answered(site)
        execution = (await temporal.get_workflow_handle(run_id).describe()).run_id
        audit = await site.client.run(run_id).audit()

        async def shown_while_it_is_erased() -> Any:
            # The archiver has read the history, and writes what it has read after this.
            shown = await site.client.run(run_id).shown()
            await erased(site, run_id)
            return shown

        audits = site.client._deployment.audits
        await audits.archive_run(run_id, shown_while_it_is_erased)

        assert json.loads(audit.splitlines()[0])["run_id"] == run_id
        assert await archive.executions(run_id) == []
        again = await answered(site, run_id=run_id, reuse=True)
        assert (await site.client.run(again).view()).status == "completed"
        await audits.archive_run(run_id, site.client.run(run_id).shown)
        (kept,) = await archive.executions(run_id)
        assert kept != execution


async def test_an_erasure_goes_on_when_a_worker_comes_up(temporal: TemporalClient) -> None:
    site = AuditedSite(temporal, gated(), audit=None)
    async with site.worker():
        run_id = await answered(site)
    assert await site.client.runs.erase(run_id) == "erasing"
    assert await site.client.runs.erase(run_id) == "erasing"
    async with site.worker():
        await erased(site, run_id)


async def test_runs_of_others_are_not_erased(temporal: TemporalClient) -> None:
    site, other = (AuditedSite(temporal, gated(), audit=None) for _ in "12")
    async with site.worker():
        run_id = await answered(site)
    with pytest.raises(Refusal) as refused:
        await other.client.runs.erase(run_id)

    assert refused.value.code is Code.UNKNOWN_RUN
    assert (await site.client.run(run_id).view()).status == "completed"


async def test_a_later_run_of_an_erased_id_is_erased_too_and_what_was_left_is_never_read(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = AuditedSite(temporal, gated(), audit=tmp_path)

    async def is_archived() -> bool:
        return bool(await site.client.archiver.round())

    async with site.worker():
        run_id = await answered(site)
        await eventually(is_archived)
        (file,) = tmp_path.rglob("*.jsonl")
        archived = file.read_bytes()
        await erased(site, run_id)
        # As by an archiver that was killed when it had written.
        file.write_bytes(archived)
        with pytest.raises(Refusal) as refused:
            await site.client.run(run_id).view()
        assert refused.value.code is Code.ERASED

        await answered(site, run_id=run_id)
        await eventually(is_archived)
        await site.forgotten(run_id)
        assert (await site.client.run(run_id).view()).archived
        await erased(site, run_id)

    assert b"31337" not in b"".join(content(tmp_path).values())


async def test_what_a_killed_archiver_has_left_of_an_erased_run_is_swept_with_the_next_day(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = AuditedSite(temporal, gated(), audit=tmp_path)
    archive = archive_of(site.settings, temporal.namespace)
    assert archive is not None

    async def is_archived() -> bool:
        return bool(await site.client.archiver.round())

    async with site.worker():
        run_id = await answered(site)
        await eventually(is_archived)
        (file,) = tmp_path.rglob("*.jsonl")
        archived = file.read_bytes()
        await erased(site, run_id)
        file.write_bytes(archived)

        await site.client.archiver.round()
        assert file.exists()
        await archive.record(Progress())
        await site.client.archiver.round()
        assert not file.exists()
        assert await archive.tombstone(run_id) is not None
        assert await archive.to_sweep() == [run_id]


async def test_nobody_has_the_id_of_a_run_whose_blobs_are_being_deleted(
    temporal: TemporalClient,
) -> None:
    codes: list[Code] = []

    class Watched(MemoryBlobs):
        async def delete_run(self, run_id: str) -> int:
            with pytest.raises(Refusal) as refused:
                await site.start({"amount": 7}, run_id=run_id)
            codes.append(refused.value.code)
            return await super().delete_run(run_id)

    site = AuditedSite(temporal, gated(), audit=None, blobs=Watched())
    async with site.worker():
        await erased(site, await answered(site))

    assert codes == [Code.ERASED]
