"""The history of a conversation tells the same of its runs as its workflow does."""

from __future__ import annotations

import uuid

import pytest
from sample_graphs import chain, gated
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance.client.claims import roster
from abeyance.core.conversation import Claim
from abeyance.errors import Refusal, Unavailable
from abeyance.temporal.retry import NotFound


async def test_history_and_workflow_agree_while_runs_come_and_go(temporal: TemporalClient) -> None:
    site = Site(temporal, gated(), chain(1))
    talk = f"conversation {uuid.uuid4().hex[:12]}"
    conversation = temporal.get_workflow_handle(site.conversation_workflow(talk))

    async def both() -> tuple[list[str], list[str]]:
        told = await conversation.query("active", result_type=list[Claim])
        read = await roster(temporal, site.settings.task_queue, talk)
        assert [claim.token for claim in read] == [claim.token for claim in told]
        return [claim.run_id for claim in told], [claim.run_id for claim in read]

    async with site.worker():
        first = await site.start(conversation_id=talk)
        with pytest.raises(Refusal, match="has an active run"):
            await site.start(conversation_id=talk)
        second = await site.start(conversation_id=talk, session_type="helper")
        assert await both() == ([first, second], [first, second])

        await site.client.run(first).cancel()
        await site.ended(first)
        assert await both() == ([second], [second])

        await site.client.run(second).cancel()
        await site.ended(second)
        assert await both() == ([], [])


async def test_a_run_that_ended_without_a_worker_of_its_conversation_is_not_reached(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated(), patience=1.0)
    talk = f"conversation {uuid.uuid4().hex[:12]}"
    async with site.worker():
        run_id = await site.start(conversation_id=talk)
        await site.until(run_id, "awaiting-input")
    await temporal.get_workflow_handle(run_id).terminate()

    assert [claim.run_id for claim in await roster(temporal, site.settings.task_queue, talk)] == [
        run_id
    ]
    assert await site.client.conversations.interrupt(talk) == []
    # What was found void was given back, though nobody has carried that out.
    assert await roster(temporal, site.settings.task_queue, talk) == ()


async def test_of_what_is_no_conversation_there_is_no_roster(temporal: TemporalClient) -> None:
    site = Site(temporal, gated(), patience=1.0)
    stranger = f"conversation {uuid.uuid4().hex[:12]}"
    await temporal.start_workflow(
        "Stranger", id=site.conversation_workflow(stranger), task_queue=site.settings.task_queue
    )

    with pytest.raises(NotFound):
        await roster(temporal, site.settings.task_queue, stranger)
    assert await site.client.conversations.runs(stranger) == []
    assert await site.client.conversations.runs(f"{stranger} none") == []


async def test_a_start_in_a_conversation_that_no_worker_answers_names_the_conversation(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated(), patience=0.5)
    talk = f"conversation {uuid.uuid4().hex[:12]}"

    with pytest.raises(Unavailable, match=rf"^the conversation '{talk}' did not answer within"):
        await site.start(conversation_id=talk)
    await temporal.get_workflow_handle(site.conversation_workflow(talk)).terminate()
