"""The connection of a client to the simulated server: calls that take time, and may be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from google.protobuf.any_pb2 import Any as AnyProto
from temporalio.api.common.v1 import GrpcStatus, WorkflowExecution
from temporalio.api.enums.v1 import HistoryEventFilterType, WorkflowIdReusePolicy
from temporalio.api.enums.v1 import UpdateWorkflowExecutionLifecycleStage as Stage
from temporalio.api.errordetails.v1 import WorkflowExecutionAlreadyStartedFailure
from temporalio.api.update.v1 import UpdateRef
from temporalio.api.workflowservice import v1 as api
from temporalio.bridge.proto.workflow_activation import WorkflowActivationJob as Job
from temporalio.client import Client as TemporalClient
from temporalio.service import ConnectConfig, RPCError, RPCStatusCode, ServiceClient

from tests.simulation.execution import Execution
from tests.simulation.history import shown
from tests.simulation.payloads import CLEAR, SEALED
from tests.simulation.server import Server
from tests.simulation.tasks import Update
from tests.simulation.worker import Worker

_COMPLETED: Final = Stage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED
_MAY_BE_USED_AGAIN: Final = WorkflowIdReusePolicy.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE
_THE_END: Final = HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT
_DEFAULT: Final = timedelta(seconds=10)


class Connection(ServiceClient):
    """A connection to the server. If it has an `owner`, it dies with that worker."""

    def __init__(self, server: Server) -> None:
        super().__init__(ConnectConfig(target_host="simulated:7233"))
        self.server = server
        self.owner: Worker | None = None

    @property
    def worker_service_client(self) -> Any:
        raise AssertionError("a simulated connection has no worker, metadata or key of its own")

    def update_rpc_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        raise AssertionError("a simulated connection has no worker, metadata or key of its own")

    def update_api_key(self, api_key: str | None) -> None:
        raise AssertionError("a simulated connection has no worker, metadata or key of its own")

    async def _rpc_call(
        self,
        rpc: str,
        req: Any,
        resp_type: type[Any],
        *,
        service: str,
        retry: bool,
        metadata: Mapping[str, str | bytes],
        timeout: timedelta | None,
    ) -> Any:
        seconds = (timeout or _DEFAULT).total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await self._called(rpc, req)
        except TimeoutError:
            raise RPCError("the time is over", RPCStatusCode.DEADLINE_EXCEEDED, b"") from None

    async def _called(self, rpc: str, req: Any) -> Any:
        server, chance = self.server, self.server.chance
        self._require_life()
        await asyncio.sleep(server.delay())
        is_lost = not server.is_calm and chance.happens(0.03)
        if is_lost and chance.happens(0.5):
            server.note(f"the request {rpc} is lost")
            raise RPCError("lost", RPCStatusCode.UNAVAILABLE, b"")
        self._require_life()
        response = await getattr(self, f"_{rpc}")(req)
        await asyncio.sleep(server.delay())
        self._require_life()
        if is_lost:
            server.note(f"the response to {rpc} is lost")
            raise RPCError("lost", RPCStatusCode.UNAVAILABLE, b"")
        return response

    def _require_life(self) -> None:
        if self.owner is not None and not self.owner.is_up:
            raise asyncio.CancelledError

    def _open(self, reference: WorkflowExecution, *, first: str = "") -> Execution:
        execution = self._found(reference)
        if (first and execution.first != first) or not execution.is_open:
            raise RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")
        return execution

    def _found(self, reference: WorkflowExecution) -> Execution:
        execution = self.server.execution(reference.workflow_id, reference.run_id)
        if execution is None:
            raise RPCError("workflow not found", RPCStatusCode.NOT_FOUND, b"")
        return execution

    async def _start_workflow_execution(self, req: Any) -> Any:
        existing = self.server.execution(req.workflow_id)
        if existing is not None and existing.request_id == req.request_id:
            return api.StartWorkflowExecutionResponse(run_id=existing.run_id, started=True)
        is_anew = req.workflow_id_reuse_policy == _MAY_BE_USED_AGAIN
        if existing is not None and (existing.is_open or not is_anew):
            failure = WorkflowExecutionAlreadyStartedFailure(run_id=existing.run_id)
            details = AnyProto()
            details.Pack(failure)
            status = GrpcStatus(code=6, message="already started", details=[details])
            raise RPCError(
                "already started", RPCStatusCode.ALREADY_EXISTS, status.SerializeToString()
            )
        return api.StartWorkflowExecutionResponse(
            run_id=self.server.start(req).run_id, started=True
        )

    async def _describe_namespace(self, req: Any) -> Any:
        response = api.DescribeNamespaceResponse()
        response.namespace_info.name = response.namespace_info.id = req.namespace
        return response

    async def _signal_workflow_execution(self, req: Any) -> Any:
        execution = self._open(req.workflow_execution)
        if req.request_id not in execution.signals:
            job = execution.signals[req.request_id] = Job()
            job.signal_workflow.signal_name = req.signal_name
            job.signal_workflow.input.extend(req.input.payloads)
            execution.arrived([job])
        return api.SignalWorkflowExecutionResponse()

    async def _request_cancel_workflow_execution(self, req: Any) -> Any:
        execution = self._open(req.workflow_execution)
        job = Job()
        job.cancel_workflow.reason = req.reason
        execution.arrived([job])
        return api.RequestCancelWorkflowExecutionResponse()

    async def _terminate_workflow_execution(self, req: Any) -> Any:
        self._open(req.workflow_execution).terminate()
        return api.TerminateWorkflowExecutionResponse()

    async def _reset_workflow_execution(self, req: Any) -> Any:
        latest = self.server.execution(req.workflow_execution.workflow_id)
        if latest is None or latest.request_id != req.request_id:
            base = self._found(req.workflow_execution)
            event = req.workflow_task_finish_event_id
            latest = self.server.reset(base, event, req.reason, req.request_id)
        return api.ResetWorkflowExecutionResponse(run_id=latest.run_id)

    async def _update_workflow_execution(self, req: Any) -> Any:
        execution = self._open(req.workflow_execution, first=req.first_execution_run_id)
        id_ = req.request.meta.update_id
        update = execution.updates.get(id_)
        if update is None:
            job = Job()
            order = job.do_update
            order.id = order.protocol_instance_id = id_
            order.name = req.request.input.name
            order.input.extend(req.request.input.args.payloads)
            order.meta.update_id = id_
            order.run_validator = True
            update = Update(id=id_, job=job)
            execution.updated(update)
        return await self._settled(execution, update)

    async def _poll_workflow_execution_update(self, req: Any) -> Any:
        execution = self._found(req.update_ref.workflow_execution)
        update = execution.updates.get(req.update_ref.update_id)
        if update is None:
            raise RPCError("no such update", RPCStatusCode.NOT_FOUND, b"")
        return await self._settled(execution, update)

    async def _settled(self, execution: Execution, update: Update) -> Any:
        await update.settled.wait()
        if update.aborted == "closing":
            raise RPCError("workflow is closing", RPCStatusCode.UNAVAILABLE, b"")
        if update.aborted == "closed":
            raise RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")
        ref = UpdateRef(
            workflow_execution=WorkflowExecution(
                workflow_id=execution.workflow_id, run_id=execution.run_id
            ),
            update_id=update.id,
        )
        return api.UpdateWorkflowExecutionResponse(
            update_ref=ref, outcome=update.outcome, stage=_COMPLETED
        )

    async def _query_workflow(self, req: Any) -> Any:
        execution = self._found(req.execution)
        job = Job()
        query = job.query_workflow
        query.query_id, query.query_type = "query", req.query.query_type
        query.arguments.extend(req.query.query_args.payloads)
        # The query waits until everything that has arrived is handled.
        while not execution.done or (execution.is_open and execution.attempt is not None):
            await asyncio.sleep(0.05)
        while (worker := self.server.worker()) is None:
            await asyncio.sleep(0.05)
        answer: list[Any] = []
        # A workflow instance runs its own loop, so the query must not run inside an asyncio task.
        asked = asyncio.Event()

        def ask() -> None:
            if worker.is_up:
                answer.append(worker.query(execution, job))
            asked.set()

        self.server.later(0, ask)
        await asked.wait()
        if not answer:
            raise RPCError("the worker is gone", RPCStatusCode.UNAVAILABLE, b"")
        if answer[0].HasField("failed"):
            raise RPCError(answer[0].failed.message, RPCStatusCode.INVALID_ARGUMENT, b"")
        response = api.QueryWorkflowResponse()
        response.query_result.payloads.append(answer[0].succeeded.response)
        return response

    async def _describe_workflow_execution(self, req: Any) -> Any:
        execution = self._found(req.execution)
        response = api.DescribeWorkflowExecutionResponse()
        info = response.workflow_execution_info
        info.execution.workflow_id = execution.workflow_id
        info.execution.run_id = execution.run_id
        info.first_run_id = execution.first
        info.type.name, info.task_queue = execution.type, execution.queue
        info.status = execution.status
        info.start_time.FromDatetime(execution.started_at.replace(tzinfo=None))
        info.history_length = execution.length
        if execution.closed_at is not None:
            info.close_time.FromDatetime(execution.closed_at.replace(tzinfo=None))
        for key, payload in execution.memo.items():
            info.memo.fields[key].CopyFrom(payload)
        for key, payload in execution.attributes.items():
            info.search_attributes.indexed_fields[key].CopyFrom(payload)
        for activity in execution.activities.values():
            activity.describe(response.pending_activities.add())
        return response

    async def _get_workflow_execution_history(self, req: Any) -> Any:
        """Return all events, or the last one of an ended execution."""
        execution = self._found(req.execution)
        response = api.GetWorkflowExecutionHistoryResponse()
        events = shown(execution)
        if req.history_event_filter_type == _THE_END:
            events = events[-1:] if not execution.is_open else []
        response.history.events.extend(events)
        return response

    async def _record_activity_task_heartbeat(self, req: Any) -> Any:
        activity = self.server.activities.get(req.task_token)
        if activity is None:
            raise RPCError("no such activity", RPCStatusCode.NOT_FOUND, b"")
        activity.beat([*req.details.payloads])
        return api.RecordActivityTaskHeartbeatResponse(
            cancel_requested=activity.is_cancel_requested
        )


def connected(server: Server) -> tuple[TemporalClient, Connection]:
    """Return a client and its own connection."""
    connection = Connection(server)
    converter = SEALED if server.is_sealed else CLEAR
    return TemporalClient(connection, data_converter=converter), connection
