"""The errors of Temporal for a lost call: each becomes a repeat, a refusal, or "try again later"."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from mishaps import Mishaps, failed_update
from sample_graphs import gates
from temporal_site import ANYBODY, Site, begun, refused
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from abeyance import commands, names
from abeyance.client import Client
from abeyance.client.run import TemporalRun
from abeyance.errors import Code, Unavailable

UPDATE = "update_workflow_execution"
DESCRIBE = "describe_workflow_execution"
LOST = failed_update("UnprocessedUpdate", "it was not processed by a worker")
CUT_OFF = failed_update("AcceptedUpdateCompletedWorkflow", "the workflow completed before")
GONE = RPCError("update aborted by closing workflow", RPCStatusCode.NOT_FOUND, b"")
HELLO = commands.SteerMessage(message_id="m1", text="hello")


def rpc_error(status: RPCStatusCode) -> RPCError:
    return RPCError("it failed", status, b"")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A run that waits, and its caller over a connection on which calls get lost."""

    site: Site
    mishaps: Mishaps
    run_id: str
    gate: str
    other: str

    def caller(self, *, patience: float = 10) -> TemporalRun:
        queue = self.site.settings.task_queue
        client = Client(self.mishaps.client, task_queue=queue, patience=patience)
        return client.run(self.run_id)


@pytest_asyncio.fixture
async def asked(temporal: TemporalClient) -> AsyncIterator[Asked]:
    async with begun(temporal, gates(2)) as (site, run):
        gate, other = [
            each.id for each in (await site.until(run.run_id, "awaiting-input")).interrupts
        ]
        yield Asked(site=site, mishaps=Mishaps(temporal), run_id=run.run_id, gate=gate, other=other)


@pytest.mark.parametrize(
    ("mishap", "was_done"),
    [
        pytest.param(LOST, False, id="lost before it was done"),
        pytest.param(LOST, True, id="lost"),
        pytest.param(GONE, True, id="gone"),
        pytest.param(rpc_error(RPCStatusCode.INTERNAL), True, id="internal"),
    ],
)
async def test_an_update_that_went_under_is_sent_again_and_has_one_effect(
    asked: Asked, mishap: Any, was_done: bool
) -> None:
    mishaps, run = asked.mishaps, asked.caller()
    mishaps.was_done = was_done
    mishaps.come(UPDATE, mishap, mishap)
    (receipt,) = await run.respond({asked.gate: 1}, principal=ANYBODY, key="k")
    mishaps.come(UPDATE, mishap, mishap)
    told = await run.send_message(HELLO)
    messages = await run.messages()

    assert mishaps.calls[UPDATE] == 6
    assert (receipt.interrupt_id, receipt.answered_by) == (asked.gate, ANYBODY.subject)
    assert told.message_id == "m1"
    assert [message.message_id for message in messages] == ["m1"]


@pytest.mark.parametrize("mishap", [LOST, CUT_OFF, GONE], ids=["lost", "cut off", "gone"])
async def test_an_update_that_went_under_with_the_end_of_its_run_is_judged_by_what_is_left(
    asked: Asked, mishap: Any
) -> None:
    mishaps, run = asked.mishaps, asked.caller()
    there = asked.site.client.run(asked.run_id)
    (first,) = await there.respond({asked.gate: 1}, principal=ANYBODY)
    await there.respond({asked.other: 1}, principal=ANYBODY)
    await asked.site.ended(asked.run_id)
    mishaps.come(UPDATE, mishap, mishap, mishap)
    (again,) = await run.respond({asked.gate: 1}, principal=ANYBODY, key="k")
    second = await refused(run.respond({asked.gate: 2}, principal=ANYBODY))
    late = await refused(run.send_message(HELLO))

    assert (again.replayed, again.accepted_at) == (True, first.accepted_at)
    assert second.code is Code.ALREADY_ANSWERED
    assert late.code is Code.NOT_RUNNING
    assert late.details["run_status"] == "completed"


async def test_an_update_that_goes_under_again_and_again_is_unavailable_and_says_why(
    asked: Asked,
) -> None:
    mishaps, run = asked.mishaps, asked.caller(patience=1.5)
    mishaps.come(UPDATE, *[LOST] * 100)
    with pytest.raises(Unavailable, match=r"within 1\.5 s.*not processed by a worker"):
        await run.respond({asked.gate: 1}, principal=ANYBODY)

    assert 2 <= mishaps.calls[UPDATE] < 20


async def test_a_worker_that_does_not_know_an_update_makes_it_unavailable_at_once(
    asked: Asked,
) -> None:
    mishaps, run = asked.mishaps, asked.caller()
    mishaps.come(UPDATE, failed_update("RuntimeError", "Update handler expected but not found"))
    with pytest.raises(Unavailable, match=r"could not handle this.*expected but not found"):
        await run.respond({asked.gate: 1}, principal=ANYBODY)

    assert mishaps.calls[UPDATE] == 1


async def test_a_signal_that_is_lost_in_a_hand_over_is_sent_again(asked: Asked) -> None:
    mishaps, run = asked.mishaps, asked.caller()
    mishaps.come("signal_workflow_execution", GONE, GONE)
    await run.pause()
    view = await run.view()

    assert (view.paused, view.status) == (True, "paused")


async def test_a_history_that_was_handed_over_is_not_the_end_of_its_run(asked: Asked) -> None:
    mishaps, run = asked.mishaps, asked.caller()
    past = DescribeWorkflowExecutionResponse()
    past.workflow_execution_info.search_attributes.indexed_fields[names.STATUS].SetInParent()
    past.workflow_execution_info.task_queue = asked.site.settings.task_queue
    past.workflow_execution_info.status = (
        WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW
    )
    mishaps.come(DESCRIBE, past)
    view = await run.view()
    mishaps.come(UPDATE, GONE)
    mishaps.come(DESCRIBE, past)
    (receipt,) = await run.respond({asked.gate: 1}, principal=ANYBODY)

    assert (view.status, view.ended_at) == ("awaiting-input", None)
    assert not receipt.replayed


async def test_a_question_is_read_from_the_records_once_its_run_is_deleted(asked: Asked) -> None:
    mishaps, run = asked.mishaps, asked.caller()
    mishaps.come("describe_workflow_execution", None, GONE)
    move = commands.EditDeadline(interrupt_id=asked.gate, timeout=60, principal=ANYBODY)
    await run.edit(move)
    question = await run.interrupt(asked.gate)

    assert question is not None
    assert (question.id, question.deadline is None) == (asked.gate, False)
