"""Rewinds and the outside: the conversation of the run, callers meanwhile, and unrecorded resets."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from mishaps import Mishaps
from sample_graphs import gated
from temporal_site import ANYBODY, Site, begun, eventually, refused
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from abeyance import views
from abeyance.client import Client, claims, rewinds
from abeyance.errors import Code, Unavailable
from abeyance.history import resets


async def test_a_run_of_a_conversation_takes_its_place_again_or_is_refused(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    async with site.worker():
        talk = "rewound talk"
        run_id = await site.start(conversation_id=talk)
        question = await site.answer(run_id, {"approved": True})
        await site.ended(run_id)
        other = await site.start(conversation_id=talk)

        busy = await refused(site.client.run(run_id).rewind(to=question.id))
        assert busy.code is Code.CONVERSATION_BUSY
        assert (await site.client.run(run_id).view()).status == "completed"
        await site.answer(other, {"approved": True})
        await site.ended(other)
        await site.client.run(run_id).rewind(to=question.id)

        taken = await refused(site.start(conversation_id=talk))
        assert taken.details["run_id"] == run_id
        await site.answer(run_id, {"approved": True})
        await site.ended(run_id)
        await site.start(conversation_id=talk)


@pytest.mark.parametrize("was_done", [True, False], ids=["done", "not done"])
async def test_a_reset_that_is_not_answered_lets_in_no_second_agent_and_bars_none_for_ever(
    temporal: TemporalClient, monkeypatch: pytest.MonkeyPatch, was_done: bool
) -> None:
    site, mishaps = Site(temporal, gated()), Mishaps(temporal)
    caller = Client(mishaps.client, task_queue=site.settings.task_queue, patience=3)
    async with site.worker():
        talk = f"unanswered {was_done}"
        run_id = await site.start(conversation_id=talk)
        question = await site.answer(run_id, {"approved": True})
        await site.ended(run_id)
        mishaps.was_done = was_done
        lost = RPCError("lost", RPCStatusCode.UNAVAILABLE, b"")
        mishaps.come("reset_workflow_execution", *[lost] * 100)

        with pytest.raises(Unavailable, match="may still take effect"):
            await caller.run(run_id).rewind(to=question.id)

        taken = await refused(site.start(conversation_id=talk))
        assert (taken.code, taken.details["run_id"]) == (Code.CONVERSATION_BUSY, run_id)
        if was_done:
            await site.asked(run_id)
        # A minute later.
        monkeypatch.setattr(claims, "_UNSTARTED", timedelta(0))
        if was_done:
            assert (await refused(site.start(conversation_id=talk))).details["run_id"] == run_id
            await site.answer(run_id, {"approved": False})
            await site.ended(run_id)
        next_one = await site.start(conversation_id=talk)
        assert await site.client.conversations.runs(talk) == [next_one]


@pytest.mark.parametrize("why", ["nobody answered", "it was terminated"])
async def test_a_rewound_run_may_have_its_place_in_the_conversation_still(
    temporal: TemporalClient, why: str
) -> None:
    site, mishaps = Site(temporal, gated()), Mishaps(temporal)
    caller = Client(mishaps.client, task_queue=site.settings.task_queue, patience=3)
    async with site.worker():
        talk = f"still there, {why}"
        run_id = await site.start(conversation_id=talk)
        if why == "it was terminated":
            question = await site.asked(run_id)
            await temporal.get_workflow_handle(run_id).terminate()
        else:
            question = await site.answer(run_id, {"approved": True})
            await site.ended(run_id)
            lost = RPCError("lost", RPCStatusCode.UNAVAILABLE, b"")
            mishaps.come("reset_workflow_execution", *[lost] * 100)
            with pytest.raises(Unavailable):
                await caller.run(run_id).rewind(to=question.id)

        await site.client.run(run_id).rewind(to=question.id)

        assert (await refused(site.start(conversation_id=talk))).details["run_id"] == run_id
        await site.answer(run_id, {"approved": False})
        await site.ended(run_id)
        await site.start(conversation_id=talk)


async def test_calls_before_a_worker_sees_the_rewind_meet_the_rewound_run(
    temporal: TemporalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No worker is up to record the rewind, so do not wait for that.
    monkeypatch.setattr(rewinds, "_POLLS", 1)
    async with begun(temporal, gated()) as (site, run):
        question = await site.answer(run.run_id, {"approved": True})
        await site.ended(run.run_id)
    await run.rewind(to=question.id)
    await run.pause()
    old = {question.id: question.digest or ""}
    yes = run.respond({question.id: {"approved": True}}, principal=ANYBODY, digests=old)
    answering = asyncio.create_task(yes)
    async with site.worker():
        assert (await refused(answering)).code is Code.STALE
        view = await site.until(run.run_id, "paused")
        assert [entry.id for entry in view.interrupts] == [question.id]
        await run.resume()
        await site.answer(run.run_id, {"approved": False})
        await site.ended(run.run_id)

        standing = [event.type for event in await site.recorded(run.run_id)]
        assert standing.count("run.rewound") == 1
        assert standing.index("run.rewound") < standing.index("run.paused")
        assert len(standing) == len({event.id for event in await site.recorded(run.run_id)})
        await site.replays(run.run_id)


async def test_a_rewind_is_refused_until_a_worker_has_recorded_the_one_before(
    temporal: TemporalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewinds, "_POLLS", 1)
    async with begun(temporal, gated()) as (site, run):
        question = await site.answer(run.run_id, {"approved": True})
        await site.ended(run.run_id)
    await run.rewind(to="start")
    for is_dry in (True, False):
        with pytest.raises(Unavailable, match="was rewound, and no worker has recorded that yet"):
            await run.rewind(to=question.id, dry_run=is_dry)
    monkeypatch.setattr(rewinds, "_POLLS", 400)
    waiting = asyncio.create_task(run.rewind(to=question.id))
    async with site.worker():
        # The first rewind has discarded that question.
        assert (await refused(waiting)).code is Code.UNKNOWN_INTERRUPT
        again = await site.asked(run.run_id)
        await run.rewind(to=again.id)
        await site.replays(run.run_id)


@pytest.mark.parametrize(
    ("reason", "actor", "data"),
    [
        ("a bad deploy", "temporal", {"reason": "a bad deploy"}),
        # The API was killed right after it had reset the run.
        (resets.reason(by="ada", to="q", key=None), "ada", {"to": "q"}),
    ],
    ids=["an operator's", "a killed API's"],
)
async def test_an_unrecorded_reset_is_recorded_as_a_rewind(
    temporal: TemporalClient, reason: str, actor: str, data: dict[str, Any]
) -> None:
    async with begun(temporal, gated()) as (site, run):
        await site.answer(run.run_id, {"approved": True})
        await site.ended(run.run_id)
        await temporal.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=temporal.namespace,
                workflow_execution=WorkflowExecution(workflow_id=run.run_id),
                workflow_task_finish_event_id=4,
                reason=reason,
                request_id=run.run_id,
            )
        )

        async def rewound() -> list[views.Event]:
            return [each for each in await site.recorded(run.run_id) if each.type == "run.rewound"]

        (event,) = await eventually(rewound)
        assert (event.actor, event.data) == (actor, {**data, "kept": 0})
