"""What Temporal says when a call goes under: each becomes a repeat, a refusal, or "try again later"."""

from __future__ import annotations

from typing import Any

import pytest
from mishaps import Mishaps, failed_update
from sample_graphs import gates
from temporal_site import ANYBODY, Site
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionResponse,
)
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from abeyance import Refusal, commands, names
from abeyance.client import Client
from abeyance.errors import Code, Unavailable

UPDATE = "update_workflow_execution"
DESCRIBE = "describe_workflow_execution"
LOST = failed_update("UnprocessedUpdate", "it was not processed by a worker")
CUT_OFF = failed_update("AcceptedUpdateCompletedWorkflow", "the workflow completed before")
GONE = RPCError("update aborted by closing workflow", RPCStatusCode.NOT_FOUND, b"")
HELLO = commands.SteerMessage(message_id="m1", text="hello")


def rpc_error(status: RPCStatusCode) -> RPCError:
    return RPCError("it failed", status, b"")


def over(site: Site, *, patience: float = 10) -> tuple[Client, Mishaps]:
    """A client of the site over a connection on which calls go under."""
    mishaps = Mishaps(site.temporal)
    client = Client(mishaps.client, task_queue=site.settings.task_queue, patience=patience)
    return client, mishaps


async def asked(site: Site) -> tuple[str, list[str]]:
    """A run that waits, and the ids of its two questions."""
    run_id = await site.start()
    waiting = await site.until(run_id, "awaiting-input")
    return run_id, [entry.id for entry in waiting.interrupts]


_MISHAPS = {
    "lost": LOST,
    "cut off": CUT_OFF,
    "gone": GONE,
    "internal": rpc_error(RPCStatusCode.INTERNAL),
    "unavailable": rpc_error(RPCStatusCode.UNAVAILABLE),
}


@pytest.mark.parametrize(
    ("mishap", "was_done"),
    [
        # In the quick lane all have been done, and the first has also been lost before.
        pytest.param(
            *(mishap, was_done),
            marks=[] if was_done or mishap is LOST else [pytest.mark.slow],
            id=f"{name}-{'done' if was_done else 'not done'}",
        )
        for name, mishap in _MISHAPS.items()
        for was_done in (False, True)
    ],
)
async def test_an_update_that_went_under_is_sent_again_and_has_one_effect(
    temporal: TemporalClient, mishap: Any, was_done: bool
) -> None:
    site = Site(temporal, gates(2))
    client, mishaps = over(site)
    mishaps.was_done = was_done
    async with site.worker():
        run_id, (gate, _) = await asked(site)
        mishaps.come(UPDATE, mishap, mishap)
        (receipt,) = await client.run(run_id).respond({gate: 1}, principal=ANYBODY, key="k")
        mishaps.come(UPDATE, mishap, mishap)
        told = await client.run(run_id).send_message(HELLO)
        messages = await client.run(run_id).messages()

    assert mishaps.calls[UPDATE] == 6
    assert (receipt.interrupt_id, receipt.answered_by) == (gate, ANYBODY.subject)
    assert told.message_id == "m1"
    assert [message.message_id for message in messages] == ["m1"]


@pytest.mark.parametrize("mishap", [LOST, CUT_OFF, GONE], ids=["lost", "cut off", "gone"])
async def test_an_update_that_went_under_with_the_end_of_its_run_is_judged_by_what_is_left(
    temporal: TemporalClient, mishap: Any
) -> None:
    site = Site(temporal, gates(2))
    client, mishaps = over(site)
    async with site.worker():
        run_id, (gate, other) = await asked(site)
        (first,) = await site.client.run(run_id).respond({gate: 1}, principal=ANYBODY)
        await site.client.run(run_id).respond({other: 1}, principal=ANYBODY)
        await site.ended(run_id)
        mishaps.come(UPDATE, mishap, mishap, mishap)
        (again,) = await client.run(run_id).respond({gate: 1}, principal=ANYBODY, key="k")
        with pytest.raises(Refusal) as second:
            await client.run(run_id).respond({gate: 2}, principal=ANYBODY)
        with pytest.raises(Refusal) as late:
            await client.run(run_id).send_message(HELLO)

    assert (again.replayed, again.accepted_at) == (True, first.accepted_at)
    assert second.value.code is Code.ALREADY_ANSWERED
    assert late.value.code is Code.NOT_RUNNING
    assert late.value.details["run_status"] == "completed"


async def test_an_update_that_goes_under_again_and_again_is_unavailable_and_says_why(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(2))
    client, mishaps = over(site, patience=1.5)
    async with site.worker():
        run_id, (gate, _) = await asked(site)
        mishaps.come(UPDATE, *[LOST] * 100)
        with pytest.raises(Unavailable, match=r"within 1\.5 s.*not processed by a worker"):
            await client.run(run_id).respond({gate: 1}, principal=ANYBODY)

    assert 2 <= mishaps.calls[UPDATE] < 20


async def test_a_worker_that_does_not_know_an_update_makes_it_unavailable_at_once(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(2))
    client, mishaps = over(site)
    async with site.worker():
        run_id, (gate, _) = await asked(site)
        mishaps.come(UPDATE, failed_update("RuntimeError", "Update handler expected but not found"))
        with pytest.raises(Unavailable, match=r"could not handle this.*expected but not found"):
            await client.run(run_id).respond({gate: 1}, principal=ANYBODY)

    assert mishaps.calls[UPDATE] == 1


async def test_a_signal_that_is_lost_in_a_hand_over_is_sent_again(temporal: TemporalClient) -> None:
    site = Site(temporal, gates(2))
    client, mishaps = over(site)
    async with site.worker():
        run_id, _ = await asked(site)
        mishaps.come("signal_workflow_execution", GONE, GONE)
        await client.run(run_id).pause()
        view = await client.run(run_id).view()

    assert (view.paused, view.status) == (True, "paused")


async def test_a_history_that_was_handed_over_is_not_the_end_of_its_run(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(2))
    client, mishaps = over(site)
    async with site.worker():
        run_id, (gate, _) = await asked(site)
        past = DescribeWorkflowExecutionResponse()
        past.workflow_execution_info.search_attributes.indexed_fields[names.STATUS].SetInParent()
        past.workflow_execution_info.task_queue = site.settings.task_queue
        past.workflow_execution_info.status = (
            WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW
        )
        mishaps.come(DESCRIBE, past)
        view = await client.run(run_id).view()
        mishaps.come(UPDATE, GONE)
        mishaps.come(DESCRIBE, past)
        (receipt,) = await client.run(run_id).respond({gate: 1}, principal=ANYBODY)

    assert (view.status, view.ended_at) == ("awaiting-input", None)
    assert not receipt.replayed


async def test_a_run_that_is_deleted_while_its_end_is_read_is_told_as_gone(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(2))
    client, mishaps = over(site)
    async with site.worker():
        run_id, gate_ids = await asked(site)
        await site.client.run(run_id).respond(dict.fromkeys(gate_ids, 1), principal=ANYBODY)
        await site.ended(run_id)
        missing = RPCError("workflow not found", RPCStatusCode.NOT_FOUND, b"")
        mishaps.come("get_workflow_execution_history", missing)
        with pytest.raises(Refusal) as caught:
            await client.run(run_id).result()

    assert caught.value.code is Code.GONE


async def test_a_question_is_read_from_the_records_once_its_run_is_deleted(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(2))
    client, mishaps = over(site)
    async with site.worker():
        run_id, (gate, _) = await asked(site)
        mishaps.come("describe_workflow_execution", None, GONE)
        move = commands.EditDeadline(interrupt_id=gate, timeout=60, principal=ANYBODY)
        await client.run(run_id).edit(move)
        question = await client.run(run_id).interrupt(gate)

    assert question is not None
    assert (question.id, question.deadline is None) == (gate, False)
