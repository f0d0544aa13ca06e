"""An intruder who may write to the Temporal namespace, but has no encryption key."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from temporal_site import Site
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.enums.v1 import UpdateWorkflowExecutionLifecycleStage as Stage
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.update.v1 import Input, Meta, Request, WaitPolicy
from temporalio.api.workflowservice.v1 import (
    RespondActivityTaskCompletedByIdRequest,
    RespondActivityTaskFailedByIdRequest,
    UpdateWorkflowExecutionRequest,
)
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHandle
from temporalio.common import (
    RawValue,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
)
from temporalio.exceptions import ApplicationError

from abeyance import names
from abeyance.errors import Code
from abeyance.storage.converter import of_run

_AS_A_RUN = TypedSearchAttributes(
    [SearchAttributePair(SearchAttributeKey.for_keyword(names.STATUS), "running")]
)


class Intruder:
    """Attacks runs of `site` over `temporal`, a connection without keys."""

    def __init__(self, temporal: TemporalClient, site: Site) -> None:
        self._temporal = temporal
        self._site = site

    async def events(self, run_id: str) -> Sequence[HistoryEvent]:
        """Return the events of a run's newest history, which the intruder can copy."""
        return (await self._temporal.get_workflow_handle(run_id).fetch_history()).events

    async def start_of(self, run_id: str) -> Sequence[Payload]:
        """Return the arguments with which a run was started."""
        started = (await self.events(run_id))[0].workflow_execution_started_event_attributes
        return started.input.payloads

    async def updates(self, run_id: str, name: str) -> list[Payload]:
        """Return the arguments of accepted updates."""
        inputs = [
            event.workflow_execution_update_accepted_event_attributes.accepted_request.input
            for event in await self.events(run_id)
        ]
        return [given.args.payloads[0] for given in inputs if given.name == name]

    async def signals(self, run_id: str, name: str) -> list[Payload]:
        """Return the arguments of signals."""
        sent = [
            event.workflow_execution_signaled_event_attributes
            for event in await self.events(run_id)
        ]
        return [each.input.payloads[0] for each in sent if each.signal_name == name]

    async def results(self, run_id: str) -> list[Payload]:
        """Return the results of visits."""
        ended = [
            event.activity_task_completed_event_attributes for event in await self.events(run_id)
        ]
        return [each.result.payloads[0] for each in ended if each.result.payloads]

    async def complete(self, run_id: str, result: Payload) -> None:
        """Report a result of the visit that was scheduled last."""
        await self._temporal.workflow_service.respond_activity_task_completed_by_id(
            RespondActivityTaskCompletedByIdRequest(
                namespace=self._temporal.namespace,
                workflow_id=run_id,
                activity_id=await self._last_visit(run_id),
                result=Payloads(payloads=[result]),
            )
        )

    async def fail(self, run_id: str, failure: Failure) -> None:
        """Report a non-retryable failure of the visit that was scheduled last."""
        failure.application_failure_info.non_retryable = True
        await self._temporal.workflow_service.respond_activity_task_failed_by_id(
            RespondActivityTaskFailedByIdRequest(
                namespace=self._temporal.namespace,
                workflow_id=run_id,
                activity_id=await self._last_visit(run_id),
                failure=failure,
            )
        )

    async def _last_visit(self, run_id: str) -> str:
        (*_, last) = [
            event.activity_task_scheduled_event_attributes.activity_id
            for event in await self.events(run_id)
            if event.HasField("activity_task_scheduled_event_attributes")
        ]
        return last

    async def start(
        self, run_id: str, *arguments: Any, memo: dict[str, Any] | None = None
    ) -> WorkflowHandle[Any, Any]:
        """Start a workflow that looks like a run."""
        given = [RawValue(each) if isinstance(each, Payload) else each for each in arguments]
        return await self._temporal.start_workflow(
            next(iter(self._site.graphs)),
            args=given,
            id=run_id,
            task_queue=self._site.settings.task_queue,
            memo=memo,
            search_attributes=_AS_A_RUN,
        )

    async def signal(self, run_id: str, name: str, *arguments: Any) -> None:
        """Send a signal, with payloads as they are."""
        given = [RawValue(each) if isinstance(each, Payload) else each for each in arguments]
        await self._temporal.get_workflow_handle(run_id).signal(name, args=given)

    async def update(self, run_id: str, name: str, argument: Any) -> ApplicationError | None:
        """Send an update, with a payload as it is. Return its error, or None.

        The error is sealed too, so the site's keys open it.
        """
        if not isinstance(argument, Payload):
            (argument,) = await self._temporal.data_converter.encode([argument])
        answer = await self._temporal.workflow_service.update_workflow_execution(
            UpdateWorkflowExecutionRequest(
                namespace=self._temporal.namespace,
                workflow_execution=WorkflowExecution(workflow_id=run_id),
                wait_policy=WaitPolicy(
                    lifecycle_stage=Stage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED
                ),
                request=Request(
                    meta=Meta(update_id=uuid.uuid4().hex, identity="intruder"),
                    input=Input(name=name, args=Payloads(payloads=[argument])),
                ),
            )
        )
        if not answer.outcome.HasField("failure"):
            return None
        converter = of_run(self._site.temporal.data_converter, run_id)
        error = await converter.decode_failure(answer.outcome.failure)
        assert isinstance(error, ApplicationError), error
        return error

    async def refused(
        self, run_id: str, argument: Any, *, name: str = "respond", code: str = Code.NOT_SEALED
    ) -> str:
        """Check that an update is refused with this code, and return the message."""
        error = await self.update(run_id, name, argument)
        assert error is not None, name
        assert error.type == code
        return error.message
