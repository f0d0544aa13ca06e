"""An open run moves to the graph that its worker has today, with all that it waits for, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from changed_graphs import Payments, State, Stricter
from temporal_site import ANYBODY, Site, eventually, refused
from temporalio.client import Client as TemporalClient

from abeyance import START, Graph, orders
from abeyance.core.state import Limits
from abeyance.errors import Code

SHIPPED = {"send": "ship"}


class Slow:
    """A graph that pays after an approval, as slowly as the test wants it."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.done: list[str] = []

    def graph(self, *, pay: str = "pay", then: str = "send") -> Graph:
        graph = Graph("payment", state=State)
        graph.interrupt("approve", prompt="Pay {amount}?")

        @graph.node(name=pay)
        async def paid(state: State) -> None:
            await self.may_end.wait()
            self.done.append("pay")

        @graph.node(name=then)
        async def last(state: State) -> None:
            self.done.append(then)

        graph.edge(START, "approve")
        graph.edge("approve", pay)
        graph.edge(pay, then)
        return graph


async def waiting(site: Site, **options: Any) -> tuple[str, str]:
    """Start a run that waits for the approval, and return its id and that of the question."""
    async with site.worker():
        run_id = await site.start({"amount": 3}, **options)
        asked = await site.asked(run_id)
    return run_id, asked.id


async def test_a_waiting_run_goes_on_in_todays_graph_over_hand_overs_and_its_answer_counts(
    temporal: TemporalClient,
) -> None:
    payments = Payments()
    before = payments.graph()
    site = Site(temporal, before)
    run_id, question = await waiting(site, limits=Limits(continue_as_new_after=6))
    today = payments.graph(pay="payout", state=Stricter)
    run = site.client.run(run_id)
    async with site.worker(today):
        (shown,) = await run.interrupts()
        done = await run.migrate(
            patch={"cost_center": "C7"}, renames={"pay": "payout"}, principal=ANYBODY
        )
        migrated = await site.executions(run_id)
        for _ in range(3):
            await site.pause_and_resume(run_id)
        (still,) = await run.interrupts()
        view = await run.view()
        assert await site.executions(run_id) > migrated
        await run.respond(question, True, digests={question: str(shown.digest)}, principal=ANYBODY)
        ended = await site.ended(run_id)

        versions = (before.build().version, today.build().version)
        assert (done.before, done.after) == versions
        assert (done.nodes, done.obstacles, done.dry_run) == ({"approve": "approve"}, [], False)
        assert still == shown
        assert view.graph_version == ended.graph_version == versions[1]
        assert (ended.status, ended.values["log"]) == ("completed", ["check", "payout 3"])
        assert ended.values["cost_center"] == "C7"
        (told,) = await site.events(run_id, "run.migrated")
        assert (told["renames"], told["fields"]) == ({"pay": "payout"}, ["cost_center"])
        assert (told["from_version"], told["to_version"]) == versions
        await site.replays(run_id)


async def test_a_worker_without_the_graph_is_an_obstacle(temporal: TemporalClient) -> None:
    site = Site(temporal, Payments().graph(), patience=60)
    run_id, _ = await waiting(site)
    async with site.worker(Payments().graph(name="another")):
        refusal = await refused(site.client.run(run_id).migrate(principal=ANYBODY))

        (obstacle,) = refusal.details["obstacles"]
        assert (obstacle["what"], obstacle["name"]) == ("graph", "payment")


async def test_a_run_that_is_asked_again_and_again_what_a_migration_would_do_outgrows_no_history(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, Payments().graph())
    run_id, _ = await waiting(site, limits=Limits(continue_as_new_after=6))
    async with site.worker():
        before = await site.executions(run_id)
        for _ in range(3):
            await site.client.run(run_id).migrate(dry_run=True, principal=ANYBODY)

        assert await site.executions(run_id) > before
        await site.replays(run_id)


async def working(temporal: TemporalClient) -> tuple[Slow, Site, str]:
    """Start a run whose code `pay` is under way as its worker leaves, once its approval is answered."""
    slow = Slow()
    site = Site(temporal, slow.graph())
    async with site.worker():
        run_id = await site.start({"amount": 3})
        await site.answer(run_id, True)

        async def runs() -> bool:
            return bool((await site.client.run(run_id).view()).running)

        await eventually(runs)
    return slow, site, run_id


async def test_a_run_whose_code_is_under_way_is_paused_until_it_has_ended(
    temporal: TemporalClient,
) -> None:
    slow, site, run_id = await working(temporal)
    today = slow.graph(then="ship")
    async with site.worker(today):
        run = site.client.run(run_id)
        refusal = await refused(run.migrate(principal=ANYBODY))
        tried = await run.migrate(renames=SHIPPED, dry_run=True, principal=ANYBODY)
        at_rest = await run.migrate(renames=SHIPPED, pause=True, dry_run=True, principal=ANYBODY)
        migrating = asyncio.create_task(run.migrate(renames=SHIPPED, pause=True, principal=ANYBODY))
        await run.wait(until=frozenset({"paused"}))
        slow.may_end.set()
        done = await migrating
        ended = await site.ended(run_id)

        assert refusal.code is Code.CANNOT_MIGRATE
        assert "while its code is under way ('pay')" in refusal.message
        assert [(each.what, each.name) for each in tried.obstacles] == [("code", "pay")]
        assert (at_rest.dry_run, at_rest.obstacles) == (True, [])
        assert (done.after, done.obstacles) == (today.build().version, [])
        assert (ended.status, slow.done) == ("completed", ["pay", "ship"])
        assert len(await site.events(run_id, "run.resumed")) == 1
        await site.replays(run_id)


async def test_a_run_that_somebody_else_has_paused_stays_paused(temporal: TemporalClient) -> None:
    slow, site, run_id = await working(temporal)
    async with site.worker(slow.graph(then="ship")):
        run = site.client.run(run_id)
        await run.pause(reason="audit", principal=ANYBODY)
        migrating = asyncio.create_task(run.migrate(renames=SHIPPED, pause=True, principal=ANYBODY))
        slow.may_end.set()
        await migrating
        view = await run.view()
        await run.resume(principal=ANYBODY)
        await site.ended(run_id)

        assert (view.status, view.pause and view.pause.reason) == ("paused", "audit")
        assert slow.done == ["pay", "ship"]


async def test_a_migration_that_gives_up_leaves_the_run_paused_and_a_repeat_goes_on(
    temporal: TemporalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, site, run_id = await working(temporal)
    async with site.worker(slow.graph(then="ship")):
        run = site.client.run(run_id)
        monkeypatch.setattr(orders, "REST_SECONDS", 0.5)
        refusal = await refused(run.migrate(renames=SHIPPED, pause=True, principal=ANYBODY))
        view = await run.view()
        monkeypatch.undo()
        slow.may_end.set()
        await run.migrate(renames=SHIPPED, pause=True, principal=ANYBODY)
        ended = await site.ended(run_id)

        assert refusal.code is Code.CANNOT_MIGRATE
        assert "still under way ('pay')" in refusal.message
        assert "stays paused: repeat the call, or resume the run" in refusal.message
        assert view.status == "paused"
        assert (ended.status, slow.done) == ("completed", ["pay", "ship"])


async def test_a_run_that_has_no_place_is_not_paused_for_a_migration(
    temporal: TemporalClient,
) -> None:
    slow, site, run_id = await working(temporal)
    async with site.worker(slow.graph(pay="payout")):
        run = site.client.run(run_id)
        refusal = await refused(run.migrate(pause=True, principal=ANYBODY))

        found = {(each["what"], each["name"]) for each in refusal.details["obstacles"]}
        assert found == {("code", "pay"), ("visit", "pay")}
        assert (await run.view()).status == "running"
        await run.cancel(mode="now")
        await site.ended(run_id)
