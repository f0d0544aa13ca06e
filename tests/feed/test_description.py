"""Temporal's description of a run, which adds to what the run has recorded."""

from __future__ import annotations

from temporalio.api.common.v1 import ActivityType, Payload, SearchAttributes
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.api.workflow.v1 import PendingActivityInfo, WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse

from abeyance import names
from abeyance.history.description import RunDescription


def test_an_activity_that_is_pending_between_two_attempts_blocks_the_run() -> None:
    missing = ApplicationFailureInfo(type="code_missing")
    pending = PendingActivityInfo(
        activity_id="graph:g;node:n",
        activity_type=ActivityType(name="g.n"),
        attempt=4,
        last_failure=Failure(message="no worker has 'n'", application_failure_info=missing),
    )
    running = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING
    status = Payload(data=b'"running"')
    raw = DescribeWorkflowExecutionResponse(
        workflow_execution_info=WorkflowExecutionInfo(
            status=running,
            search_attributes=SearchAttributes(indexed_fields={names.STATUS: status}),
        ),
        pending_activities=[pending],
    )
    described = RunDescription("r", raw, {}, {})
    recorded = described.degraded_view().model_copy(update={"blocked": []})
    shown = described.with_what_blocks(recorded)

    assert [each.code for each in shown.blocked] == ["code_missing"]
