"""Attempts at activities in a worker: our code in a context like the SDK's, and its heartbeats."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity as sdk
from temporalio.api.enums.v1 import TimeoutType
from temporalio.api.failure.v1 import ActivityFailureInfo, Failure, TimeoutFailureInfo
from temporalio.bridge.proto.workflow_activation import WorkflowActivationJob as Job
from temporalio.client import Client as TemporalClient
from temporalio.common import MetricMeter, Priority, RawValue, _CompositeEvent
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError, CancelledError

from abeyance import Graph, names, wire
from abeyance.activities.maintenance import GraphActivities, read_journals, read_rewind
from abeyance.activities.node import NodeActivities
from abeyance.activities.recording import HandOver, RecordingActivities
from abeyance.client import Client
from abeyance.client.grants import GrantedCalls
from abeyance.records.batch import Batch
from abeyance.storage.converter import of_run
from abeyance.temporal.workarounds.heartbeat import THROTTLE_SECONDS
from tests.simulation.activity import Activity
from tests.simulation.execution import Execution
from tests.simulation.records import Hanging

if TYPE_CHECKING:
    from tests.simulation.server import Server
    from tests.simulation.worker import Worker

QUEUE: Final = "simulation"
_OUT_OF_TIME: Final = Failure(
    message="Activity task timed out",
    cause=Failure(
        message="activity StartToClose timeout",
        timeout_failure_info=TimeoutFailureInfo(
            timeout_type=TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE
        ),
    ),
    activity_failure_info=ActivityFailureInfo(),
)
"""The failure that a run gets for a local activity that does not end; in a replay, only the cause."""
_ON_ITS_WAY: Final = (0.0, 0.01, 0.04)
"""Seconds until the SDK's heartbeat arrives: less than our own journal writes wait for it."""


class Runner:
    """All attempts at activities in one worker."""

    def __init__(
        self,
        server: Server,
        process: Worker,
        graphs: Mapping[str, Graph],
        temporal: TemporalClient,
    ) -> None:
        self._server, self._process = server, process
        self._temporal = temporal
        self._converter = temporal.data_converter
        records: Any = server.records
        client = Client(temporal, task_queue=QUEUE, records=records)
        self._nodes = NodeActivities(
            graphs,
            client,
            server.blobs,
            enable_metrics=False,
            find_grant=GrantedCalls(client.records, None).find,
        )
        self._graphs = GraphActivities(graphs)
        self.handed_over = HandOver()
        self._recording = RecordingActivities(temporal, QUEUE, records, self.handed_over)
        self._contexts: dict[bytes, sdk._Context] = {}
        self._by_token: dict[bytes, asyncio.Task[Any]] = {}
        self._beats: dict[bytes, Sequence[Any] | None] = {}

    def run(self, activity: Activity) -> None:
        """Start an attempt at an activity."""
        self._process.spawn(self._run(activity, activity.token, activity.attempt))

    async def _run(self, activity: Activity, token: bytes, attempt: int) -> None:
        server = self._server
        await asyncio.sleep(server.delay())
        converter = of_run(self._converter, activity.execution.workflow_id)
        details = await converter.decode(activity.details) if activity.details else []
        result, failure, is_cancelled = await self._executed(
            activity.execution,
            activity.order,
            token,
            attempt=attempt,
            details=details,
            scheduled_at=activity.scheduled_at,
        )
        await asyncio.sleep(server.delay())
        self._contexts.pop(token, None)
        if server.activities.get(token) is not activity:
            return
        if failure is None:
            activity.succeeded(result)
        elif is_cancelled:
            activity.cancelled(failure)
        else:
            activity.failed(failure)

    async def run_local(self, execution: Execution, order: Any) -> Job:
        """Make attempts at a local activity until one succeeds, and return the job with its result."""
        number, scheduled_at = 1, self._server.loop.wall()
        while True:
            await asyncio.sleep(self._server.delay())
            token = f"local {execution.run_id} {order.seq} {number}".encode()
            result, failure, _ = await self._executed(
                execution,
                order,
                token,
                attempt=number,
                details=[],
                scheduled_at=scheduled_at,
                is_local=True,
            )
            if failure is None:
                break
            if failure.application_failure_info.non_retryable:
                break
            if number == order.retry_policy.maximum_attempts:
                break
            await asyncio.sleep(min(2 ** (number - 1), 60))
            number += 1
        job = Job()
        resolve = job.resolve_activity
        resolve.seq, resolve.is_local = order.seq, True
        if failure is None:
            resolve.result.completed.result.CopyFrom(result)
        else:
            resolve.result.failed.failure.CopyFrom(failure)
        return job

    async def _executed(
        self,
        execution: Execution,
        order: Any,
        token: bytes,
        *,
        attempt: int,
        details: Sequence[Any],
        scheduled_at: datetime,
        is_local: bool = False,
    ) -> tuple[Any, Failure | None, bool]:
        """Call the activity in a context like the SDK's. Return its result, or its failure."""
        converter = of_run(self._converter, execution.workflow_id)
        info = sdk.Info(
            activity_id=order.activity_id or str(order.seq),
            activity_type=order.activity_type,
            attempt=attempt,
            current_attempt_scheduled_time=self._server.loop.wall(),
            heartbeat_details=details,
            heartbeat_timeout=None if is_local else order.heartbeat_timeout.ToTimedelta() or None,
            is_local=is_local,
            namespace="default",
            schedule_to_close_timeout=order.schedule_to_close_timeout.ToTimedelta() or None,
            scheduled_time=scheduled_at,
            start_to_close_timeout=order.start_to_close_timeout.ToTimedelta() or None,
            started_time=self._server.loop.wall(),
            task_queue=QUEUE,
            task_token=token,
            workflow_id=execution.workflow_id,
            workflow_namespace="default",
            workflow_run_id=execution.run_id,
            workflow_type=execution.type,
            priority=Priority.default,
            retry_policy=None,
            activity_run_id=None,
        )
        context = sdk._Context(
            info=lambda: info,
            heartbeat=lambda *beat: self._beat(token, beat, converter),
            cancelled_event=_event(),
            worker_shutdown_event=_event(),
            shield_thread_cancel_exception=None,
            payload_converter_class_or_instance=self._converter.payload_converter,
            runtime_metric_meter=MetricMeter.noop,
            client=self._temporal,
            cancellation_details=sdk._ActivityCancellationDetailsHolder(),
        )
        sdk._Context.set(context)
        self._contexts[token] = context
        running = asyncio.create_task(self._called(order, converter))
        self._by_token[token] = running
        try:
            report = await running
        except asyncio.CancelledError:
            if not self._process.is_up:
                raise
            why = context.cancellation_details.details
            if why is not None and why.worker_shutdown:
                # The SDK's core reports the attempt as failed, so that it is tried again.
                left = ApplicationError("the worker shuts down", type="WorkerShutdown")
                return None, await _failure(left, converter), False
            return None, await _failure(CancelledError("Cancelled"), converter), True
        except Hanging:
            if not is_local:
                await asyncio.Event().wait()
            return None, _OUT_OF_TIME, False
        except Exception as error:  # noqa: BLE001 as the SDK does it
            return None, await _failure(error, converter), False
        finally:
            # After a timeout of its workflow task, a local activity starts again with the same token.
            if self._by_token.get(token) is running:
                del self._by_token[token]
        (payload,) = await converter.encode([report])
        return payload, None, False

    async def _called(self, order: Any, converter: DataConverter) -> Any:
        if order.activity_type == names.READ_JOURNALS_ACTIVITY:
            (which,) = await converter.decode(order.arguments, [wire.ReadJournals])
            return await read_journals(which)
        if order.activity_type == names.READ_REWIND_ACTIVITY:
            (count,) = await converter.decode(order.arguments, [int])
            return await read_rewind(count)
        if order.activity_type == names.READ_GRAPH_ACTIVITY:
            (wanted,) = await converter.decode(order.arguments, [wire.ReadGraph])
            return await self._graphs.read(wanted)
        if order.activity_type == names.RECORD_ACTIVITY:
            kinds: list[Any] = [Batch | int, float]
            given, patience = await converter.decode(order.arguments, kinds)
            written = await self._recording.record(given, patience)
            if not self._server.is_calm and self._server.chance.happens(0.03):
                self._server.note(f"{self._process.name} dies once it has recorded")
                self._process.kill()
            return written
        arguments = await converter.decode(order.arguments, [RawValue] * len(order.arguments))
        return await self._nodes.run(arguments)

    def _beat(self, token: bytes, details: Sequence[Any], converter: DataConverter) -> None:
        """Send a heartbeat as the SDK does: as soon as its throttle allows."""
        is_held_back = token in self._beats
        self._beats[token] = details
        if not is_held_back:
            self._process.spawn(self._send_heartbeats(token, converter))

    async def _send_heartbeats(self, token: bytes, converter: DataConverter) -> None:
        while (details := self._beats[token]) is not None:
            self._beats[token] = None
            payloads = await converter.encode(details)
            await asyncio.sleep(self._server.chance.choice(_ON_ITS_WAY))
            activity = self._server.activities.get(token)
            if activity is None:
                self.stop(token, sdk.ActivityCancellationDetails(not_found=True))
                break
            activity.beat(payloads)
            if activity.is_cancel_requested:
                self.stop(token, sdk.ActivityCancellationDetails(cancel_requested=True))
            await asyncio.sleep(THROTTLE_SECONDS)
        del self._beats[token]

    def stop(self, token: bytes, why: sdk.ActivityCancellationDetails) -> None:
        """Cancel the code of an activity."""
        context, task = self._contexts.get(token), self._by_token.get(token)
        if context is None or task is None or context.cancelled_event.is_set():
            return
        context.cancellation_details.details = why
        context.cancelled_event.set()
        task.cancel()

    def leave(self) -> None:
        """Tell all running code that the worker shuts down."""
        for token in [*self._by_token]:
            self._contexts[token].worker_shutdown_event.set()
            self.stop(token, sdk.ActivityCancellationDetails(worker_shutdown=True))


async def _failure(error: BaseException, converter: DataConverter) -> Failure:
    failure = Failure()
    await converter.encode_failure(error, failure)
    return failure


def _event() -> _CompositeEvent:
    return _CompositeEvent(thread_event=threading.Event(), async_event=asyncio.Event())
