"""An erased run leaves nothing but a tombstone."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from audited_site import AuditedSite, verified
from sample_graphs import gated
from sqlalchemy import select
from stack import Api, problem, served
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from abeyance.api.app import create_app
from abeyance.client import Client, reader
from abeyance.core.state import Limits
from abeyance.errors import Code, Refusal, SettingsError
from abeyance.records import removing, tables
from abeyance.records.documents import Transaction
from abeyance.settings import Settings
from abeyance.storage.blobs import FolderBlobs, MemoryBlobs
from abeyance.temporal.connection import connect_temporal
from abeyance.token_file import add_token

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


async def buried(client: Client, run_id: str) -> None:
    """Do the first step of an erasure, as if its process was killed after it."""
    erasure = removing.Erasure(run_id=run_id, at=datetime.now(UTC), is_done=False)
    await client.records.write(removing.bury, erasure, lambda _: "a tombstone")


async def refused(api: Api, run_id: str, code: str) -> None:
    """Check that nothing of the run can be read, and that it takes no calls."""
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


async def tombstone(site: AuditedSite, run_id: str) -> bytes:
    def read(tx: Transaction) -> str:
        query = select(tables.erased.c.tombstone)
        query = query.filter_by(deployment=tx.deployment, run_id=run_id)
        return str(tx.connection.execute(query).scalar_one())

    return (await site.client.records.read(read)).encode() + b"\n"


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_only_a_signed_tombstone_is_left_of_an_erased_run(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    stored: dict[str, Any] = {"storage": str(tmp_path / "blobs"), "max_payload": 1_024}
    address = temporal.service_client.config.target_host
    storing = await connect_temporal(address, settings=Settings(**stored))
    blobs = FolderBlobs(tmp_path / "blobs")
    site = AuditedSite(storing, gated(), blobs=blobs, **stored)
    async with site.worker():
        run_id = await answered(site, limits=Limits(continue_as_new_after=5))
        other = await answered(site)
        first = (await temporal.get_workflow_handle(run_id).describe()).raw_description
        assert any(run_id in path for path in content(tmp_path / "blobs"))
        await erased(site, run_id)

    (line,) = verified(await tombstone(site, run_id), site.public)
    assert (line["type"], line["run_id"]) == ("erased", run_id)
    assert line["executions"] == [first.workflow_execution_info.first_run_id]
    assert line.keys() == {
        *("type", "run_id", "time", "executions"),
        *("n", "prev", "lines", "hash", "signature"),
    }
    assert not [path for path in content(tmp_path) if run_id in path]
    for read in (site.client.run(run_id).view, site.client.run(run_id).audit):
        with pytest.raises(Refusal) as refused:
            await read()
        assert refused.value.code is Code.ERASED
    listed = [found.id async for found in temporal.list_workflows(f"WorkflowId = '{run_id}'")]
    assert listed == []
    assert run_id not in {view.run_id for view in (await site.client.runs.list(limit=100))[0]}
    assert (await site.audit(other))[-1]["type"] == "end"


async def test_a_run_that_temporal_has_deleted_is_erased_from_the_records(
    temporal: TemporalClient,
) -> None:
    site = AuditedSite(temporal, gated())
    async with site.worker():
        run_id = await answered(site)
    await site.forgotten(run_id)
    assert (await site.client.run(run_id).view()).status == "completed"
    await erased(site, run_id)

    with pytest.raises(Refusal) as refused:
        await site.client.run(run_id).view()
    assert refused.value.code is Code.ERASED


@pytest.mark.parametrize("by", ["the next call", "the next round"])
async def test_an_erasure_whose_process_was_killed_is_finished(
    temporal: TemporalClient, by: str
) -> None:
    site = AuditedSite(temporal, gated())
    async with site.worker():
        run_id = await answered(site)
    await buried(site.client, run_id)
    with pytest.raises(Refusal) as refused:
        await site.client.run(run_id).audit()
    assert refused.value.code is Code.ERASED
    if by == "the next call":
        await erased(site, run_id)
    else:
        await site.client.erasures.round()

    with pytest.raises(RPCError):
        await temporal.get_workflow_handle(run_id).describe()
    assert await site.client.records.read(removing.unfinished) == []


async def test_a_run_that_cannot_be_deleted_now_holds_up_no_other(temporal: TemporalClient) -> None:
    away = set[str]()

    class Away(MemoryBlobs):
        async def delete_run(self, run_id: str) -> int:
            if run_id in away:
                raise SettingsError("no storage is configured")
            return await super().delete_run(run_id)

    site = AuditedSite(temporal, gated(), blobs=Away())
    async with site.worker():
        first, second = await answered(site), await answered(site)
    away.add(first)
    assert await site.client.runs.erase(first) == "erasing"
    await buried(site.client, second)
    await site.client.erasures.round()

    (left,) = await site.client.records.read(removing.unfinished)
    assert left.run_id == first
    away.clear()
    await site.client.erasures.round()
    assert await site.client.records.read(removing.unfinished) == []


async def test_runs_are_deleted_when_they_were_kept_long_enough(temporal: TemporalClient) -> None:
    site = AuditedSite(temporal, gated())
    async with site.worker():
        old, waiting = await answered(site), await site.start()
        await site.until(waiting, "awaiting-input")
        await site.client.erasures.round(keep=3_600)
        assert (await site.client.run(old).view()).status == "completed"

        async def is_deleted() -> bool:
            await site.client.erasures.round(keep=0.001)
            try:
                await site.client.run(old).view()
            except Refusal as refusal:
                return refusal.code is Code.UNKNOWN_RUN
            return False

        await eventually(is_deleted)
        assert (await site.client.run(waiting).view()).status == "awaiting-input"
        assert {view.run_id for view in (await site.client.runs.list(limit=100))[0]} == {waiting}


async def test_the_api_erases_for_administrators_and_only_what_has_ended(
    temporal: TemporalClient,
) -> None:
    site = AuditedSite(temporal, gated())
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
        assert (first.status_code, first.json()["run_id"]) == (202, run_id)

        async def is_done() -> bool:
            return bool((await delete()).json()["state"] == "erased")

        await eventually(is_done)
        await refused(api, run_id, "erased")


async def test_a_run_is_refused_as_erased_from_the_moment_that_its_erasure_is_accepted(
    temporal: TemporalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = AuditedSite(temporal, gated())
    other = Client(temporal, task_queue=site.settings.task_queue)
    async with site.worker():
        run_id = await answered(site)
        (event, *_), _ = await site.client.feed.page(run_id, None, 1)
        # This process knows the run. The other one has begun to erase it, and done no more than this.
    await buried(other, run_id)
    async with served(create_app(site.settings, site.graphs, site.client)) as api:
        await refused(api, run_id, "erased")
        # No call waits for an end that will not come, or until the API asks Temporal.
        monkeypatch.setattr(reader, "_ASK_TEMPORAL", 30)
        async with asyncio.timeout(20):
            for query in ("?wait=30s", "?wait=30s&until=completed", "/events?limit=1"):
                problem(await api.http.get(f"/runs/{run_id}{query}"), 410, "erased")
        problem(await api.http.get(f"/runs/{run_id}/events?after={event.id}"), 410, "erased")
        again = {"graph": "gated", "input": {}, "run_id": run_id, "reuse": True}
        problem(await api.http.post("/runs", json=again), 410, "erased")
        problem(await api.http.post(f"/runs/{run_id}/retry", json={}), 410, "erased")


@pytest.mark.parametrize("how", ["rewind", "retry", "reuse"])
@pytest.mark.parametrize("killed", [False, True], ids=["it is told", "its process was killed"])
async def test_a_run_that_begins_anew_during_its_erasure_is_erased_too(
    temporal: TemporalClient, how: str, killed: bool
) -> None:
    site = AuditedSite(temporal, gated())

    async def begin_anew(run_id: str) -> None:
        run = site.client.run(run_id)
        match how:
            case "rewind":
                await run.rewind(to="start", principal=ANYBODY)
            case "retry":
                await run.retry(principal=ANYBODY)
            case _:
                await site.start({"amount": 7}, run_id=run_id, reuse=True)
        # The erasure found the run ended before this.
        await buried(site.client, run_id)

    async with site.worker():
        run_id = await site.start({"amount": 31337})
        await site.until(run_id, "awaiting-input")
        await site.client.run(run_id).cancel(principal=ANYBODY)
        await site.ended(run_id)
        if killed:
            await begin_anew(run_id)
        else:
            with pytest.raises(Refusal) as refused:
                async with site.client.erasures.none_of(run_id):
                    await begin_anew(run_id)
            assert refused.value.code is Code.ERASED
        await site.client.erasures.round()

    with pytest.raises(RPCError):
        await temporal.get_workflow_handle(run_id).describe()
    with pytest.raises(Refusal) as unread:
        await site.client.run(run_id).view()
    assert unread.value.code is Code.ERASED


async def test_an_erasure_is_hidden_from_callers_who_may_not_see_the_run(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = AuditedSite(temporal, gated())
    async with site.worker():
        run_id = await answered(site, labels={"team": "finance"})
    await buried(site.client, run_id)
    tokens = tmp_path / "tokens.json"
    leo = add_token(tokens, "leo", ["runs:read", "runs:start"], reads={"team": ["legal"]})
    settings = site.settings.model_copy(update={"tokens_file": tokens})
    async with served(create_app(settings, site.graphs, site.client)) as api:
        headers = {"Authorization": f"Bearer {leo}"}
        problem(await api.http.get(f"/runs/{run_id}", headers=headers), 404, "unknown_run")
        new = {"graph": "gated", "input": {}, "run_id": run_id}
        problem(await api.http.post("/runs", json=new, headers=headers), 409, "run_exists")


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

    site = AuditedSite(temporal, gated(), blobs=Watched())
    async with site.worker():
        await erased(site, await answered(site))

    assert codes == [Code.ERASED]
