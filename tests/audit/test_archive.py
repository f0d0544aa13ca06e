"""The archive has the audits of runs that Temporal has deleted."""

from __future__ import annotations

import base64
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from audited_site import AuditedSite, verified
from sample_graphs import gated, gates
from stack import problem, served
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import Principal
from abeyance.api.app import create_app
from abeyance.core.state import Limits
from abeyance.errors import Code, Refusal, SettingsError, Unavailable
from abeyance.history.audit_chain import Chain, content_of, verify
from abeyance.settings import Settings
from abeyance.storage.archive import Progress, archive_of
from abeyance.storage.blobs import MemoryBlobs
from abeyance.temporal.connection import connect_temporal
from abeyance.temporal.schedules import archiver_id, audit_warnings, schedule_archiver
from abeyance.token_file import add_token

YES = {"approved": True}


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.jsonl"))


async def archived(site: AuditedSite, count: int = 1) -> None:
    """Let the archiver make rounds, until it has written so many audits."""
    written = 0

    async def done() -> bool:
        nonlocal written
        written += await site.client.archiver.round()
        return written >= count

    await eventually(done)


async def answered(site: Site, **options: Any) -> str:
    """A run that has ended as it was answered."""
    run_id = await site.start({"amount": 5}, **options)
    await site.until(run_id, "awaiting-input")
    await site.client.run(run_id).respond(response=YES, principal=ANYBODY)
    await site.ended(run_id)
    return run_id


async def test_a_run_that_temporal_has_deleted_is_read_from_the_archive(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = AuditedSite(temporal, gated(), audit=tmp_path)
    async with site.worker():
        run_id = await answered(site)
        await archived(site)
    run = site.client.run(run_id)
    view, audit = await run.view(), await run.audit()
    settled = await run.interrupts(status="all")
    await site.forgotten(run_id)

    found = await run.view()
    assert found == view.model_copy(update={"archived": True})
    assert found.values["log"] == ["before", f"after {YES}"]
    assert await run.audit() == audit
    assert await run.wait(timeout=5) == found
    assert (await run.result()).values == found.values
    assert (await run.interrupts(status="all"), await run.interrupts()) == (settled, [])
    assert await run.interrupt(settled[0].id) == settled[0]
    (file,) = files(tmp_path)
    assert file.read_bytes() == audit
    assert file.parent.name.startswith(run_id)


async def test_the_api_reads_it_there_too_and_hides_the_same_answers(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = AuditedSite(temporal, gated(capability="payments:approve"), audit=tmp_path)
    async with site.worker():
        run_id = await answered(site)
        await archived(site)
    await site.forgotten(run_id)

    async with served(create_app(site.settings, site.graphs, site.client)) as api:
        view = (await api.http.get(f"/runs/{run_id}", params={"wait": "PT1S"})).json()
        assert (view["status"], view["archived"]) == ("completed", True)
        result = (await api.http.get(f"/runs/{run_id}/result")).json()
        assert (result["status"], result["values"]) == ("completed", view["values"])
        listed = await api.http.get(f"/runs/{run_id}/interrupts", params={"status": "all"})
        assert [each["answer"] for each in listed.json()["items"]] == [YES]
        whole = await api.http.get(f"/runs/{run_id}/audit")
        assert whole.headers["content-type"] == "application/x-ndjson"
        assert whole.content == files(tmp_path)[0].read_bytes()
        reader = {"X-Abeyance-Principal": "rita", "X-Abeyance-Capabilities": "runs:read"}
        redacted = await api.http.get(f"/runs/{run_id}/audit", headers=reader)
        lines = verified(redacted.content, site.public)
        assert [line["answer"] for line in lines if "answer" in line] == [None]
        (settled,) = lines[-1]["interrupts"]
        assert (settled["status"], "answer" in settled) == ("answered", False)
        problem(await api.http.get("/runs/nobody/audit"), 404, "unknown_run")
        for part in ("events", "messages", "transcript"):
            problem(await api.http.get(f"/runs/{run_id}/{part}"), 410, "gone")
        answer = {"response": {"approved": True}}
        for call, body in (("respond", answer), ("pause", {}), ("retry", {})):
            problem(await api.http.post(f"/runs/{run_id}/{call}", json=body), 410, "gone")


async def test_who_is_bound_to_labels_reads_there_what_has_them(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = AuditedSite(temporal, gated(), audit=tmp_path)
    async with site.worker():
        run_id = await answered(site, labels={"team": "finance"})
        await archived(site)
    await site.forgotten(run_id)
    tokens = tmp_path / "tokens.json"
    fay, leo = (
        add_token(tokens, name, ["runs:read"], reads={"team": [name]})
        for name in ("finance", "legal")
    )
    settings = site.settings.model_copy(update={"tokens_file": tokens})

    async with served(create_app(settings, site.graphs, site.client)) as api:
        for path in ("", "/audit"):
            seen, hidden = [
                await api.http.get(
                    f"/runs/{run_id}{path}", headers={"Authorization": f"Bearer {token}"}
                )
                for token in (fay, leo)
            ]
            assert seen.status_code == 200
            problem(hidden, 404, "unknown_run")


async def test_the_archive_of_an_open_run_grows_and_keeps_its_lines(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = AuditedSite(temporal, gates(3), audit=tmp_path)
    async with site.worker():
        run_id = await site.start(limits=Limits(continue_as_new_after=5))
        first, *others = (await site.until(run_id, "awaiting-input")).interrupts
        await archived(site)
        (file,) = files(tmp_path)
        early = file.read_bytes()
        assert await site.client.archiver.round() == 0
        run = site.client.run(run_id)
        await run.respond(first.id, "now", principal=ANYBODY)
        for other in others:
            await run.respond(other.id, "later", principal=ANYBODY)
        await site.ended(run_id)
        await archived(site)
    late = file.read_bytes()

    assert verified(early, site.public)[-1]["type"] == "open"
    assert verified(late, site.public)[-1]["type"] == "end"
    assert late.splitlines()[: len(early.splitlines()) - 1] == early.splitlines()[:-1]
    assert files(tmp_path) == [file]


async def test_what_temporal_deletes_of_an_open_run_is_kept_by_the_archive_and_else_a_gap(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = AuditedSite(temporal, gates(4), audit=tmp_path)
    without = AuditedSite(temporal, gates(4), audit=None, task_queue=site.settings.task_queue)
    async with site.worker():
        run_id = await site.start(limits=Limits(continue_as_new_after=3))
        first, second, *_ = (await site.until(run_id, "awaiting-input")).interrupts
        run = site.client.run(run_id)
        await run.respond(first.id, "early", principal=ANYBODY)
        begun = (await temporal.get_workflow_handle(run_id).describe()).raw_description
        execution = begun.workflow_execution_info.execution.run_id
        assert execution != begun.workflow_execution_info.first_run_id
        await archived(site)
        deleted = await site.deleted_histories(run_id)
        assert deleted
        await site.client.archiver.round()
        await run.respond(second.id, "late", principal=ANYBODY)
        kept = await site.audit(run_id)
        left = verified(await without.client.run(run_id).audit(), site.public)

    answers = [line["answer"] for line in kept if "answer" in line]
    assert (kept[0]["type"], answers) == ("run.started", ["early", "late"])
    assert "gap" not in {line["type"] for line in kept}
    assert left[0]["type"] == "gap"
    assert [line["answer"] for line in left if "answer" in line] == ["late"]


async def test_open_runs_are_archived_in_the_first_round_of_a_day(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = AuditedSite(temporal, gated(), audit=tmp_path)
    archive = archive_of(site.settings, temporal.namespace)
    assert archive is not None
    now = datetime.now(UTC)
    await archive.record(Progress(closed_until=now, open_at=now))
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")

        async def is_listed() -> bool:
            return bool((await site.client.runs.list())[0])

        await eventually(is_listed)
        assert await site.client.archiver.round() == 0
        await archive.record(Progress(closed_until=now, open_at=now - timedelta(days=1)))
        assert await site.client.archiver.round() == 1
        assert await site.client.archiver.round() == 0

    assert len(files(tmp_path)) == 1


async def test_runs_of_the_same_id_have_a_file_each_and_the_newest_is_read(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = AuditedSite(temporal, gated(), audit=tmp_path)
    async with site.worker():
        run_id = await answered(site)
        await archived(site)
        await site.client.runs.start(site.graphs["gated"], {"amount": 7}, run_id=run_id, reuse=True)
        await site.until(run_id, "awaiting-input")
        await site.client.run(run_id).cancel()
        await site.ended(run_id)
        await archived(site)
    await site.forgotten(run_id)

    assert len(files(tmp_path)) == 2
    assert (await site.client.run(run_id).view()).status == "cancelled"


async def test_what_is_encrypted_in_temporal_is_encrypted_in_the_archive(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    keys = f"first:{base64.b64encode(os.urandom(32)).decode()}"
    secret: dict[str, Any] = {"encryption_keys": keys, "encryption_required": True}
    address = temporal.service_client.config.target_host
    sealed = await connect_temporal(address, settings=Settings(**secret))
    site = AuditedSite(sealed, gated(), audit=tmp_path, **secret)
    async with site.worker():
        run_id = await answered(site)

        async def is_archived() -> bool:
            queue = site.settings.task_queue
            await sealed.execute_workflow("Archiver", id=archiver_id(queue), task_queue=queue)
            return bool(files(tmp_path))

        await eventually(is_archived)
    await site.forgotten(run_id)
    (file,) = files(tmp_path)

    assert b"Pay" not in file.read_bytes()
    assert (await site.client.run(run_id).view()).values["amount"] == 5
    without = AuditedSite(sealed, audit=tmp_path, task_queue=site.settings.task_queue)
    with pytest.raises(Unavailable, match="encrypted with the key 'first'"):
        await without.client.run(run_id).view()
    file.write_bytes(b"{}\n")
    with pytest.raises(Unavailable, match="it is not encrypted"):
        await site.client.run(run_id).audit()


async def test_another_deployment_with_the_same_archive_sees_nothing_of_it(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = AuditedSite(temporal, gated(), audit=tmp_path)
    other = AuditedSite(temporal, gated(), audit=tmp_path)
    async with site.worker():
        run_id = await answered(site)
        await archived(site)
    for forgotten in (False, True):
        if forgotten:
            await site.forgotten(run_id)
        with pytest.raises(Refusal) as refused:
            await other.client.run(run_id).audit()
        assert refused.value.code is Code.UNKNOWN_RUN


async def test_the_archiver_makes_its_rounds_and_can_be_sent_home(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = AuditedSite(temporal, gated(), audit=tmp_path)
    queue = site.settings.task_queue
    (warning,) = await audit_warnings(temporal, site.settings)
    assert "run `abeyance setup` with that setting" in warning
    assert await schedule_archiver(temporal, queue, is_on=True)
    assert await schedule_archiver(temporal, queue, is_on=True)
    assert await audit_warnings(temporal, site.settings) == []
    async with site.worker():
        run_id = await answered(site)
        handle = temporal.get_schedule_handle(archiver_id(queue))

        async def is_archived() -> bool:
            await handle.trigger()
            found = files(tmp_path)
            return bool(found) and verify(found[0].read_bytes()).last["type"] == "end"

        await eventually(is_archived)
        ended = f"WorkflowType = 'Archiver' AND TaskQueue = '{queue}' AND CloseTime IS NOT NULL"

        async def rounds() -> list[str]:
            return [found.id async for found in temporal.list_workflows(ended)]

        await site.replays((await eventually(rounds))[0])
    assert not await schedule_archiver(temporal, queue, is_on=False)
    assert not await schedule_archiver(temporal, queue, is_on=False)
    assert (await site.client.run(run_id).view()).archived is False


async def test_a_short_retention_without_an_archive_is_warned_of(
    temporal: TemporalClient,
) -> None:
    site = AuditedSite(temporal, audit=None)
    (warning,) = await audit_warnings(temporal, site.settings)

    assert warning.startswith("Temporal keeps ended runs for 1 day,")
    with pytest.raises(SettingsError, match="ABEYANCE_AUDIT is not set for this worker"):
        await site.client.archiver.round()


async def test_a_run_that_cannot_be_archived_hides_no_other_and_is_tried_again(
    temporal: TemporalClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = AuditedSite(temporal, gated(), audit=tmp_path, blobs=MemoryBlobs())
    async with site.worker():
        bad, good = await answered(site), await answered(site)
        # In place of the folder of the one there is a file.
        await archived(site, 2)
        (blocked,) = [file for file in files(tmp_path) if file.parent.name.startswith(bad)]
        blocked.unlink()
        blocked.parent.rmdir()
        blocked.parent.write_text("in the way")
        await site.client.runs.start(site.graphs["gated"], {"amount": 7}, run_id=good, reuse=True)
        await site.until(good, "awaiting-input")
        await site.client.run(good).cancel()
        await site.ended(good)
        await archived(site)
        assert f"run={bad} | not archived" in caplog.text
        blocked.parent.unlink()
        await archived(site)
    await site.forgotten(bad)

    assert (await site.client.run(bad).view()).archived
    assert len(files(tmp_path)) == 3


async def test_a_reader_of_python_may_be_anybody(temporal: TemporalClient, tmp_path: Path) -> None:
    site = AuditedSite(temporal, gated(), audit=tmp_path, audit_key=None)
    async with site.worker():
        run_id = await answered(site)
    nobody = Principal(subject="nobody")

    found = verified(await site.client.run(run_id).audit(reader=nobody))
    assert [line["answer"] for line in found if "answer" in line] == [YES]
    assert "signature" not in found[0]


async def test_a_damaged_file_hides_no_other_run_and_is_not_replaced(
    temporal: TemporalClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = AuditedSite(temporal, gated(), audit=tmp_path)
    archive = archive_of(site.settings, temporal.namespace)
    assert archive is not None
    async with site.worker():
        bad = await answered(site)
        await archived(site)
        (file,) = files(tmp_path)
        half = file.read_bytes()[:200]
        file.write_bytes(half)
        await archive.record(Progress())
        await answered(site)
        await archived(site)
    assert f"run={bad} | not archived" in caplog.text
    assert "is damaged (line 1: it is not a JSON object)" in caplog.text
    assert (len(files(tmp_path)), file.read_bytes()) == (2, half)
    with pytest.raises(Unavailable, match="is damaged"):
        await site.client.run(bad).audit()
    await site.forgotten(bad)
    with pytest.raises(Unavailable, match="is damaged"):
        await site.client.run(bad).view()


async def test_what_somebody_wrote_into_the_archive_is_not_signed_for_a_reader(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = AuditedSite(temporal, gated(capability="payments:approve"), audit=tmp_path)
    async with site.worker():
        run_id = await answered(site)
        await archived(site)
    await site.forgotten(run_id)
    reader = Principal(subject="rita", capabilities=("runs:read",))
    run = site.client.run(run_id)
    assert verified(await run.audit(reader=reader), site.public)

    (file,) = files(tmp_path)
    forged = Chain(None)
    lines = [content_of(line) for line in file.read_bytes().splitlines()]
    file.write_bytes(b"".join(forged.add({**line, "actor": "eve"}) + b"\n" for line in lines))
    for read in (await run.audit(), await run.audit(reader=reader)):
        assert {line.get("signature") for line in verified(read)} == {None}


@pytest.mark.parametrize("content", [b"", b"{", b'{"open_at": "2026-01-01T00:00:00"}'])
async def test_an_archiver_whose_progress_is_damaged_begins_again(
    tmp_path: Path, content: bytes
) -> None:
    archive = archive_of(Settings(audit=str(tmp_path)), "default")
    assert archive is not None
    await archive.record(Progress(closed_until=datetime.now(UTC)))
    (file,) = tmp_path.rglob("progress.json")
    file.write_bytes(content)

    assert await archive.progress() == Progress()
