"""The records of runs, made anew from their histories."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sample_graphs import chain, gated, gates
from sealed_site import a_key
from sqlalchemy import delete, select
from stored import connected
from temporal_site import ANYBODY, Site, begun, eventually, refused
from temporalio.client import Client as TemporalClient

from abeyance.core.state import Limits
from abeyance.errors import Code
from abeyance.records import questions, runs
from abeyance.records.batch import Batch, Fact
from abeyance.records.documents import Transaction
from abeyance.records.events import of_run
from abeyance.records.tables import claims, delegations, deployments, micros
from abeyance.records.tables import events as events_table
from abeyance.records.tables import runs as runs_table
from abeyance.records.writing import write
from abeyance.reindex import reindex
from abeyance.settings import Settings
from abeyance.views import InterruptView

YES = {"approved": True}


def lose(site: Site) -> None:
    """Lose the records of a deployment, as if its database were gone."""
    with site.client.records.database.writing() as connection:
        query = select(deployments.c.id).where(deployments.c.task_queue == site.settings.task_queue)
        own = connection.execute(query).scalar_one()
        for table in (events_table, runs_table, claims, delegations):
            connection.execute(delete(table).where(table.c.deployment == own))


async def recorded(site: Site, *run_ids: str) -> dict[str, Any]:
    """Return all that is recorded of runs."""
    client = site.client
    found: dict[str, Any] = {}
    for run_id in run_ids:
        view = await client.records.read(runs.run, run_id)
        asked = await client.records.read(questions.of_run, run_id, status="all")
        told = await client.records.read(numbered, run_id)
        extras = await client.records.read(runs.extras, run_id)
        found[run_id] = ((view, extras), asked, told)
    return found


def numbered(tx: Transaction, run_id: str) -> list[Any]:
    """Return the events of a run, each as a row."""
    query = (
        select(events_table.c.number, events_table.c.type, events_table.c.at, events_table.c.data)
        .join(runs_table, events_table.c.run == runs_table.c.id)
        .where(runs_table.c.deployment == tx.deployment, runs_table.c.run_id == run_id)
        .order_by(events_table.c.number)
    )
    rows = tx.connection.execute(query).all()
    return [(*row[:-1], tx.documents.read(row.data)) for row in rows]


async def test_the_records_of_a_lost_database_are_made_anew_from_histories(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated(), gates(3), chain(4), chain(3, "quick", local=True))
    client = site.client

    async def started(name: str, **options: Any) -> str:
        return await site.start(graph=site.graphs[name], **options)

    names = list(site.graphs)
    async with site.worker():
        asking = await started("gated", labels={"team": "blue"}, conversation_id="talk")
        answered, halted, ended = [await started("gated") for _ in range(3)]
        long = await started("gates", limits=Limits(continue_as_new_after=6))
        plain = [await started(name) for name in names[2:]]
        for run_id in (asking, answered, halted, ended, long):
            await site.until(run_id, "awaiting-input")
        (gate,) = await client.run(answered).interrupts()
        await client.run(answered).respond(gate.id, YES, principal=ANYBODY)
        await client.run(halted).cancel("no more")
        await client.run(long).pause("lunch")
        await site.until(long, "paused")
        await client.run(long).resume()
        await site.until(long, "awaiting-input")
        first, *_ = await client.run(long).interrupts()
        await client.run(long).respond(first.id, 1, principal=ANYBODY)
        for run_id in (answered, halted, *plain):
            await site.ended(run_id)
        await temporal.get_workflow_handle(ended).terminate("by hand")
        await client.run(ended).view()
    every = [asking, answered, halted, ended, long, *plain]
    before = await recorded(site, *every)
    assert await site.executions(long) > 1
    lose(site)
    assert await client.records.read(runs.run, asking) is None

    found = await eventually(lambda: all_listed(site, len(every)))

    assert (found.runs, found.failures) == (len(every), {})
    assert await recorded(site, *every) == before
    again = await reindex(temporal, client)
    assert (again.runs, again.failures) == (len(every), {})
    assert await recorded(site, *every) == before


async def all_listed(site: Site, count: int) -> Any:
    """Make the records anew, and return the outcome if Temporal lists so many runs, else None."""
    found = await reindex(site.temporal, site.client)
    return found if found.runs == count else None


async def test_a_reindex_adds_what_a_restored_database_lacks(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(3))
    client = site.client
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        asked = [each.id for each in await client.run(run_id).interrupts()]
        await client.run(run_id).respond(asked[0], 1, principal=ANYBODY)
        before = await recorded(site, run_id)
        lose(site)
        await client.run(run_id).respond(asked[1], 1, principal=ANYBODY)
        (lacking,) = (await recorded(site, run_id)).values()
        await eventually(lambda: all_listed(site, 1))
        (_, questions_, told), (_, _, told_before) = (
            (await recorded(site, run_id))[run_id],
            before[run_id],
        )
        (question,) = [each for each in questions_ if each.id == asked[2]]
        await client.run(run_id).respond(question.id, 1, principal=ANYBODY)
        await site.ended(run_id)

    assert lacking[2] == told[len(told) - len(lacking[2]) :]
    assert told[: len(told_before)] == told_before
    assert [number for number, *_ in told] == [*range(1, len(told) + 1)]
    assert {each.id: each.status for each in questions_} == {
        asked[0]: "answered",
        asked[1]: "answered",
        asked[2]: "open",
    }


async def test_a_run_that_no_worker_has_had_is_recorded_as_it_was_started(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    run_id = await site.start(labels={"team": "blue"})
    lose(site)
    await eventually(lambda: all_listed(site, 1))

    (((view, _), asked, told),) = (await recorded(site, run_id)).values()
    assert (view.status, view.labels, view.graph, asked, told) == (
        "running",
        {"team": "blue"},
        "gated",
        [],
        [],
    )


async def test_a_rewind_and_what_it_has_discarded_are_made_anew(temporal: TemporalClient) -> None:
    async with begun(temporal, gated()) as (site, run):
        gate = await site.asked(run.run_id)
        for approved in (True, False):
            await run.respond(gate.id, {"approved": approved}, principal=ANYBODY)
            await site.ended(run.run_id)
            await run.rewind(to=gate.id, principal=ANYBODY)
            await site.until(run.run_id, "awaiting-input")
        await run.respond(gate.id, YES, principal=ANYBODY)
        await site.ended(run.run_id)
    before = await recorded(site, run.run_id), await everything(site, run.run_id)

    lose(site)
    await reindex(temporal, site.client)

    assert (await recorded(site, run.run_id), await everything(site, run.run_id)) == before
    async with site.worker():
        await run.rewind(to=gate.id, principal=ANYBODY)
        (again,) = await run.interrupts()
        assert again.id == gate.id


async def everything(site: Site, run_id: str) -> list[Any]:
    """Return the events of a run, with those that were discarded."""
    found = await site.client.records.read(of_run, run_id, discarded=True)
    return [(each.id, each.type, each.actor, each.rewound_by) for each in found]


async def test_a_run_that_temporal_does_not_have_is_named(temporal: TemporalClient) -> None:
    site = Site(temporal, gated())

    found = await reindex(temporal, site.client, ["nobody"])

    assert (found.runs, found.failures) == (0, {"nobody": "Temporal lists no such run"})
    caught = await refused(reindex(temporal, site.client, ["nobody' OR WorkflowId != '"]))
    assert caught.code is Code.INVALID_RUN_ID


async def test_a_run_whose_key_is_missing_is_named_with_the_key(temporal: TemporalClient) -> None:
    site = Site(connected(temporal, Settings(encryption_keys=a_key("old"))), gated())
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
    keyless = connected(temporal, Settings(encryption_keys=a_key("new")))

    found = await reindex(keyless, site.client, [run_id])

    ((named, why),) = found.failures.items()
    assert named == run_id
    assert "the key 'old', which this process lacks (it has 'new'): add that key" in why


async def test_a_reindex_takes_back_records_of_a_lost_task(
    temporal: TemporalClient,
) -> None:
    async with begun(temporal, gated()) as (site, run):
        gate = await site.asked(run.run_id)
        before = await everything(site, run.run_id)
    task = f"{await execution(site, run.run_id)}/99"
    await site.client.records.write(record_what_never_was, run.run_id, gate=gate, task=task)
    assert (await run.interrupts()) == []
    await temporal.get_workflow_handle(run.run_id).terminate("by hand")

    await eventually(lambda: all_listed(site, 1))

    told = await everything(site, run.run_id)
    assert told[: len(before)] == before
    assert [type_ for _, type_, *_ in told[len(before) :]] == [
        "interrupt.cancelled",
        "run.terminated",
    ]
    (question,) = await site.client.records.read(questions.of_run, run.run_id, status="all")
    assert (question.id, question.status) == (gate.id, "cancelled")
    again = await everything(site, run.run_id)
    await reindex(temporal, site.client)
    assert await everything(site, run.run_id) == again


def record_what_never_was(tx: Transaction, run_id: str, *, gate: InterruptView, task: str) -> None:
    """Record an answer, like a worker that dies before its workflow task is over."""
    query = select(runs_table.c.origin, runs_table.c.batch, runs_table.c.told).where(
        runs_table.c.deployment == tx.deployment, runs_table.c.run_id == run_id
    )
    row = tx.connection.execute(query).one()
    view = runs.run(tx, run_id)
    assert view is not None
    now = datetime.now(UTC)
    told = {"number": row.told + 1, "time": now, "type": "interrupt.answered", "task": task}
    lost = Batch(
        number=micros(now),
        after=row.batch,
        origin=row.origin,
        view=view,
        active_at=now,
        questions=[gate.model_copy(update={"status": "answered", "settled_at": now})],
        facts_before=row.told,
        facts=[Fact.model_validate({**told, "data": {"id": gate.id}})],
    )
    write(tx, [lost])


async def execution(site: Site, run_id: str) -> str:
    """Return the id of the execution in which a run is now."""
    described = await site.temporal.get_workflow_handle(run_id).describe()
    assert described.run_id is not None
    return described.run_id
