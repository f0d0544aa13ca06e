"""A fork has the past of its run, does nothing of it again, and approves nothing of what lies ahead."""

from __future__ import annotations

import pytest
from changed_graphs import Payments
from stored import letters
from temporal_site import ANYBODY, Site
from temporalio.client import Client as TemporalClient

from abeyance import Principal, Refusal
from abeyance.errors import Code


async def test_a_fork_of_a_waiting_run_asks_under_an_id_of_its_own(
    temporal: TemporalClient,
) -> None:
    payments = Payments()
    site = Site(temporal, payments.graph())
    async with site.worker():
        run_id = await site.start({"amount": 3}, labels={"team": "a"}, conversation_id="c1")
        (asked,) = (await site.until(run_id, "awaiting-input")).interrupts
        run = site.client.run(run_id)
        forked = await run.fork(principal=ANYBODY)
        new_id = forked.run.run_id
        view = await site.until(new_id, "awaiting-input")

        assert [entry.id for entry in forked.interrupts] == [entry.id for entry in view.interrupts]
        assert forked.interrupts[0].id != asked.id
        assert (forked.interrupts[0].prompt, forked.interrupts[0].run_id) == ("Pay 3?", new_id)
        assert (view.forked_from, view.labels, view.conversation_id) == (
            run_id,
            {"team": "a"},
            None,
        )
        assert (view.started_by, (await run.view()).forked_from) == ("ada", None)
        await forked.run.respond(forked.interrupts[0].id, True, principal=ANYBODY)
        assert (await site.ended(new_id)).values["log"] == ["check", "pay 3"]
        assert (await run.view()).status == "awaiting-input"
        assert payments.done == ["check", "reserve", "pay"]
        told = [event.type async for event in forked.run.events()]
        assert told[:2] == ["run.started", "run.forked"]
        await site.replays(new_id)


async def test_an_approval_is_asked_for_again_and_steps_that_were_done_are_not_repeated(
    temporal: TemporalClient,
) -> None:
    payments = Payments(fails=1)
    site = Site(temporal, payments.graph(capability="payments:approve"))
    async with site.worker():
        run_id = await site.start({"amount": 3})
        (asked,) = (await site.until(run_id, "awaiting-input")).interrupts
        run = site.client.run(run_id)
        await run.respond(asked.id, True, principal=ANYBODY)
        assert (await site.ended(run_id)).status == "failed"
        forked = await run.fork(run_id=f"{run_id}-again", principal=ANYBODY)
        view = await site.until(forked.run.run_id, "awaiting-input")

        assert forked.run.run_id == f"{run_id}-again"
        # Going back to the gate would do the step behind it again.
        assert [(e.name, e.requested_capability) for e in view.interrupts] == [
            ("approve_fork", "payments:approve")
        ]
        assert payments.done == ["check", "reserve"]
        same = await run.fork(run_id=f"{run_id}-again", principal=ANYBODY)
        assert [entry.id for entry in same.interrupts] == [entry.id for entry in view.interrupts]
        with pytest.raises(Refusal) as other:
            await run.fork(run_id=f"{run_id}-again", back=1, principal=ANYBODY)
        assert other.value.code is Code.RUN_EXISTS
        await forked.run.respond(view.interrupts[0].id, None, principal=ANYBODY)
        assert (await site.ended(forked.run.run_id)).status == "completed"
        assert payments.done == ["check", "reserve", "pay"]


async def test_a_gate_with_nothing_done_behind_it_is_asked_again(temporal: TemporalClient) -> None:
    payments = Payments()
    site = Site(temporal, payments.graph(capability="payments:approve"))
    async with site.worker():
        run_id = await site.start({"amount": 3})
        (asked,) = (await site.until(run_id, "awaiting-input")).interrupts
        run = site.client.run(run_id)
        await run.pause()
        await site.until(run_id, "paused")
        await run.respond(asked.id, True, principal=ANYBODY)
        forked = await run.fork(principal=ANYBODY)
        view = await site.until(forked.run.run_id, "awaiting-input")
        await run.cancel()

        assert [entry.name for entry in view.interrupts] == ["approve"]
        assert payments.done == ["check"]


async def test_a_fork_goes_back_as_far_as_there_is_a_past(temporal: TemporalClient) -> None:
    payments = Payments()
    site = Site(temporal, payments.graph())
    async with site.worker():
        run_id = await site.start({"amount": 3})
        (asked,) = (await site.until(run_id, "awaiting-input")).interrupts
        run = site.client.run(run_id)
        await run.respond(asked.id, True, principal=ANYBODY)
        await site.ended(run_id)
        with pytest.raises(Refusal) as too_far:
            await run.fork(back=100, principal=ANYBODY)
        most = too_far.value.details["most"]
        forked = await run.fork(back=most, principal=ANYBODY)
        view = await site.until(forked.run.run_id, "awaiting-input")

        assert too_far.value.code is Code.NO_SUCH_PAST
        assert view.values["log"] == ["check"]
        assert payments.done == ["check", "reserve", "pay", "check"]


async def test_only_who_may_approve_what_the_run_asks_may_fork_it(temporal: TemporalClient) -> None:
    site = Site(temporal, Payments().graph(capability="payments:approve"))
    async with site.worker():
        run_id = await site.start({"amount": 3})
        await site.until(run_id, "awaiting-input")
        operator = Principal(subject="olga", capabilities=("runs:control",))
        with pytest.raises(Refusal) as missing:
            await site.client.run(run_id).fork(principal=operator)

        assert missing.value.details["capabilities"] == ["payments:approve"]


async def test_a_terminated_run_can_be_forked_but_not_retried(temporal: TemporalClient) -> None:
    site = Site(temporal, Payments().graph())
    async with site.worker():
        run_id = await site.start({"amount": 3})
        await site.until(run_id, "awaiting-input")
        await temporal.get_workflow_handle(run_id).terminate("by hand")
        run = site.client.run(run_id)
        with pytest.raises(Refusal) as refused:
            await run.retry()
        forked = await run.fork(principal=ANYBODY)

        assert refused.value.code is Code.GONE
        assert [entry.name for entry in forked.interrupts] == ["approve"]


async def test_a_natively_cancelled_run_is_retried_by_its_history(temporal: TemporalClient) -> None:
    site = Site(temporal, letters())
    async with site.worker():
        run_id = await site.start({})
        await site.until(run_id, "awaiting-input")
        await temporal.get_workflow_handle(run_id).cancel()
        assert (await site.ended(run_id)).status == "cancelled"
        await site.client.run(run_id).retry()
        again = await site.until(run_id, "awaiting-input")

        assert [entry.name for entry in again.interrupts] == ["approve"]
