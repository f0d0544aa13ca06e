"""Migrate and retry of runs in memory."""

from __future__ import annotations

import pytest
from changed_graphs import Payments

from abeyance import Refusal, testing
from abeyance.errors import Code

RENAMED = {"pay": "payout"}


async def waiting(payments: Payments, **options: str) -> testing.InMemoryRun:
    run = testing.InMemoryRun(payments.graph(**options), {"amount": 3})  # type: ignore[arg-type]
    await run.start()
    return run


async def test_the_event_of_a_migration_names_the_versions_that_views_show() -> None:
    payments = Payments()
    before, today = payments.graph(), payments.graph(pay="payout")
    run = testing.InMemoryRun(before, {"amount": 3}, interrupt_after="check")
    await run.start()
    shown = (await run.view()).graph_version
    run.deploy(today)
    await run.migrate(renames=RENAMED)

    (event,) = [each async for each in run.events(follow=False) if each.type == "run.migrated"]
    versions = (event.data["from_version"], event.data["to_version"])
    assert versions == (shown, (await run.view()).graph_version)
    assert versions == (before.build().version, today.build().version)


async def test_a_run_that_met_a_deploy_is_migrated_and_goes_on() -> None:
    payments = Payments()
    run = await waiting(payments)
    (asked,) = await run.interrupts()
    run.deploy(payments.graph(pay="payout"))
    await run.respond("approve", True)
    tried = await run.migrate(dry_run=True)
    with pytest.raises(Refusal) as refused:
        await run.migrate(renames=RENAMED)
    with pytest.raises(Refusal) as unmapped:
        await run.migrate(pause=True)
    done = await run.migrate(renames=RENAMED, pause=True, key="k")
    again = await run.migrate(renames=RENAMED, pause=True, key="k")

    assert [(each.what, each.name) for each in tried.obstacles] == [
        ("code", "pay"),
        ("visit", "pay"),
    ]
    assert refused.value.code is unmapped.value.code is Code.CANNOT_MIGRATE
    assert "while its code is under way ('pay')" in refused.value.message
    assert "no node 'pay'" in unmapped.value.message
    assert (done.nodes, again.after) == ({"pay": "payout"}, done.after)
    assert (run.status, run.values["log"]) == ("completed", ["check", "payout 3"])
    assert (await run.view()).graph_version == done.after
    (settled,) = await run.interrupts(status="answered")
    assert settled.id == asked.id


async def test_a_failed_run_is_retried_and_its_events_go_on() -> None:
    payments = Payments(fails=1)
    run = await waiting(payments)
    await run.respond("approve", True)
    told = [event async for event in run.events()]
    await run.retry(key="once")
    await run.retry(key="once")
    with pytest.raises(Refusal) as completed:
        await run.retry()

    assert (told[-1].type, run.status) == ("run.failed", "completed")
    assert payments.done == ["check", "reserve", "pay"]
    more = [event.type async for event in run.events(after=told[-1].id)]
    assert (more[0], more[-1]) == ("run.retried", "run.completed")
    assert completed.value.code is Code.RUN_FINISHED


async def test_a_patch_that_does_not_fit_is_refused_as_what_it_is() -> None:
    run = await waiting(Payments(fails=1_000))
    await run.cancel()
    with pytest.raises(Refusal, match="amount") as pinned:
        await run.retry(patch={"amount": "many"})
    with pytest.raises(Refusal, match="cannot move to today's graph: value 'amount'") as today:
        await run.retry(patch={"amount": "many"}, graph="today")

    assert (pinned.value.code, today.value.code) == (Code.INVALID_INPUT, Code.CANNOT_MIGRATE)
    assert [each["pointer"] for each in pinned.value.details["errors"]] == ["/amount"]
    assert run.status == "cancelled"
