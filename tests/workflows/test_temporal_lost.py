"""Deployments whose Temporal lost its database, without a backup or with an old one."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from audited_site import AuditedSite, verified
from dev_stack import call
from killable import killable_server
from scripted_agents import Script, desk, told
from temporal_site import ANYBODY, eventually, real_server, refused
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from abeyance import Agent, Graph, Principal, Remember, tool
from abeyance.cli.doctor import examine
from abeyance.errors import Code, SettingsError
from abeyance.records import runs as records_of_runs
from abeyance.reindex import reindex
from abeyance.settings import load_settings
from abeyance.temporal.connection import has_namespace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

ADA = Principal(subject="ada", capabilities=("pay",))
LOST = "Temporal does not have this run any more"


@tool(
    approve=True,
    requested_capability="pay",
    remember=Remember(most="7d", where=["run", "graph"], below={"amount": 200}),
)
async def pay(amount: int) -> str:
    return f"paid {amount}"


def graph(amount: int = 5) -> Graph:
    model = Script([("pay", {"amount": amount})], told)
    return desk(Agent("clerk", model=model, tools=[pay]))


@dataclass
class After:
    """A deployment whose Temporal was lost, and the one with an empty Temporal that replaces it."""

    site: AuditedSite
    namespace: str
    ended: str
    audit: bytes
    open: str
    question: str
    grant: str
    delegation: str


@pytest_asyncio.fixture
async def after(temporal: TemporalClient) -> AsyncIterator[After]:
    async with real_server() as lost:
        before = AuditedSite(lost, graph())
        async with before.worker():
            ended = await before.start()
            asked = await before.asked(ended)
            answer = {"approved": True, "remember": {"for": "8h", "where": "graph"}}
            await before.client.run(ended).respond(asked.id, answer, principal=ADA)
            await before.ended(ended)
        # A remembered yes to 5 does not cover 500.
        async with before.worker(graph(500)):
            open_ = await before.start(labels={"team": "blue"})
            question = await before.asked(open_)
        until = datetime.now(UTC) + timedelta(days=3)
        delegation = await before.client.delegations.make("ben", until=until, principal=ADA)
        (grant,) = await before.client.grants.list(ADA)
        audit = await before.client.run(ended).audit()
        namespace = await id_of(lost)
    yield After(
        site=AuditedSite(temporal, graph(), task_queue=before.settings.task_queue),
        namespace=namespace,
        ended=ended,
        audit=audit,
        open=open_,
        question=question.id,
        grant=grant.id,
        delegation=delegation.id,
    )


async def id_of(temporal: TemporalClient) -> str:
    request = DescribeNamespaceRequest(namespace=temporal.namespace)
    return str((await temporal.workflow_service.describe_namespace(request)).namespace_info.id)


async def is_erased(site: AuditedSite, run_id: str) -> bool:
    return await site.client.runs.erase(run_id) == "erased"


async def adopted(after: After) -> Any:
    await after.site.client.records.adopt(after.namespace)
    return await reindex(after.site.temporal, after.site.client)


async def code_of(call: Any) -> Code:
    caught = await refused(call)
    return caught.code


async def test_the_doctor_names_the_lost_namespace_and_the_command_adopts_it(
    after: After, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {
        "TEMPORAL_ADDRESS": after.site.temporal.service_client.config.target_host,
        "ABEYANCE_TASK_QUEUE": after.site.settings.task_queue,
        "ABEYANCE_DATABASE_URL": load_settings().database_url,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    command = f"reindex --adopt {after.namespace}"

    (lost,) = [each async for each in examine(load_settings()) if each.check == "lost namespace"]
    assert f"`abeyance {command}` before workers and APIs start" in (lost.remedy or "")
    done = await asyncio.to_thread(call, *command.split(), **variables)
    again = await asyncio.to_thread(call, *command.split(), **variables)

    assert (done.returncode, done.stdout) == (0, "runs: 0; not replayed: 0; lost: 1\n"), done
    assert again.returncode == 2
    assert "have no other namespace with the id" in again.stderr
    assert "lost namespace" not in [each.check async for each in examine(load_settings())]


async def test_after_adopting_lost_records_ended_runs_are_known_again_and_open_runs_are_lost(
    after: After,
) -> None:
    client = after.site.client
    run = client.run(after.open)
    known = [(each.namespace, each.runs) for each in await client.records.adoptable()]
    assert known == [(after.namespace, 2)]
    assert await code_of(client.run(after.ended).view()) is Code.UNKNOWN_RUN
    assert await client.runs.list() == ([], None)

    found = await adopted(after)

    assert (await client.run(after.ended).view()).status == "completed"
    assert (await client.run(after.ended).result()).values["report"] is not None
    audit = await client.run(after.ended).audit()
    assert verified(audit, after.site.public) == verified(after.audit, after.site.public)
    assert [each.id for each in await client.grants.list(ADA)] == [after.grant]
    assert [each.id for each in await client.delegations.list(ADA)] == [after.delegation]
    assert await client.records.adoptable() == []

    # Lists, answers and audits say that the open run is lost.
    assert (found.runs, found.lost, found.failures) == (0, 1, {})
    runs, _ = await client.runs.list()
    listed = {each.run_id: each.status for each in runs}
    assert listed == {after.ended: "completed", after.open: "terminated"}
    view = await run.view()
    assert (view.status, view.reason, view.interrupts) == ("terminated", LOST, [])
    assert await client.inbox.list() == ([], None)
    assert await run.interrupts() == []
    (asked,) = await run.interrupts(status="all")
    assert (asked.id, asked.status, asked.settled_reason) == (after.question, "cancelled", LOST)
    yes = {"approved": True}
    assert await code_of(run.respond(after.question, yes, principal=ANYBODY)) is Code.GONE
    assert await code_of(run.cancel()) is Code.GONE
    last = verified(await run.audit(), after.site.public)[-3:-1]
    assert [line["type"] for line in last] == ["interrupt.cancelled", "run.terminated"]
    assert {line["actor"] for line in last} == {"temporal"}
    assert (await reindex(after.site.temporal, client)).lost == 0

    # A new run may have the id, and nobody is asked: Ada's yes counts.
    async with after.site.worker():
        await after.site.start(run_id=after.open)
        assert (await after.site.ended(after.open)).status == "completed"
    (granted,) = await after.site.events(after.open, "approval.granted")
    assert granted["grant"] == after.grant


async def test_adopting_records_that_are_not_lost_is_refused(after: After) -> None:
    site = after.site
    records = site.client.records
    assert await has_namespace(site.temporal, await id_of(site.temporal))
    assert not await has_namespace(site.temporal, after.namespace)
    with pytest.raises(SettingsError, match=f"but: {after.namespace} \\(2 runs\\)"):
        await records.adopt("unknown")
    run_id = await site.start()
    with pytest.raises(SettingsError, match="has records of its own by now"):
        await records.adopt(after.namespace)

    assert await records.adoptable() == []
    await eventually(lambda: site.client.run(run_id).view())


async def test_reindex_ends_no_open_run_that_temporal_has(temporal: TemporalClient) -> None:
    site = AuditedSite(temporal, graph())
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")

        found = await reindex(temporal, site.client)

        assert found.lost == 0
        assert (await site.client.run(run_id).view()).status == "awaiting-input"


async def test_after_a_backup_later_runs_are_lost_and_erased_ones_stay_erased(
    tmp_path: Path,
) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    data.mkdir()
    async with killable_server(data) as server:

        async def site() -> AuditedSite:
            return AuditedSite((await server.client()).temporal, graph(), task_queue=queue)

        queue = f"lost-{tmp_path.name}"
        before = await site()
        async with before.worker():
            run_id = await before.start()
            asked = await before.asked(run_id)
            erased = await before.start()
            private = await before.asked(erased)
        server.kill()
        shutil.copytree(data, backup)
        server.start()
        beyond = await site()
        async with beyond.worker():
            await beyond.client.run(run_id).respond(asked.id, {"approved": True}, principal=ANYBODY)
            await beyond.ended(run_id)
            later = await beyond.start()
            await beyond.until(later, "awaiting-input")
            await beyond.client.run(erased).respond(
                private.id, {"approved": True}, principal=ANYBODY
            )
            await beyond.ended(erased)
            await eventually(lambda: is_erased(beyond, erased))
        server.kill()
        shutil.rmtree(data)
        shutil.copytree(backup, data)
        server.start()
        restored = await site()

        async def is_listed() -> Any:
            found = await reindex(restored.temporal, restored.client, is_restored=True)
            return found if found.runs == 2 else None

        found = await eventually(is_listed)

        assert (found.runs, found.failures) == (2, {})

        # The backup has it as an open run, with all that it had. Temporal may take a while to delete it.
        async def is_gone() -> bool:
            try:
                await restored.temporal.get_workflow_handle(erased).describe()
            except RPCError as error:
                return error.status == RPCStatusCode.NOT_FOUND
            # As a worker does.
            await restored.client.erasures.round()
            return False

        await eventually(is_gone, seconds=120)
        assert await code_of(restored.client.run(erased).view()) is Code.ERASED
        view = await restored.client.records.read(records_of_runs.run, later)
        assert view is not None
        assert (view.status, view.reason) == ("terminated", LOST)
        async with restored.worker():
            assert [each.id for each in (await restored.client.inbox.list())[0]] == [asked.id]
            run = restored.client.run(run_id)
            await run.respond(asked.id, {"approved": True}, principal=ANYBODY)
            assert (await restored.ended(run_id)).status == "completed"
        verified(await run.audit(), restored.public)
