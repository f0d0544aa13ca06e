"""The libraries still need our workarounds: a test that fails here names code that can go.

`test_queries_without_cache.py` covers queries of a run that is not cached, and fails if no query comes
ahead of its task. The SDK's behaviour changes only with its version, so the tests that need a server
are in the slow lane.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporal_site import eventually
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.client import Client as TemporalClient
from temporalio.client import (
    Interceptor,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import RawValue, RetryPolicy
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    ExternalStorage,
    PayloadCodec,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
)
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from abeyance.keyring import WrongKey
from abeyance.storage.encryption import ENCODING
from abeyance.temporal.connection import data_converter
from abeyance.temporal.workarounds.calls import PAUSED_NATIVELY
from abeyance.temporal.workarounds.long_tasks import allow_long_tasks
from abeyance.temporal.workarounds.payloads import FailureConverter

LOCKED = RawValue(Payload(metadata={"encoding": b"json/plain", "locked": b""}, data=b"1"))
"""A payload that no worker here can decode."""
FAILED = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
_MINUTE = timedelta(minutes=1)


class Lock(PayloadCodec):
    """A codec without the key."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        if any("locked" in payload.metadata for payload in payloads):
            raise RuntimeError("the key is missing")
        return list(payloads)


@workflow.defn
class Listens:
    """Waits for the number 0."""

    def __init__(self) -> None:
        self._numbers: list[int] = []

    @workflow.run
    async def run(self) -> list[int]:
        await workflow.wait_condition(lambda: 0 in self._numbers)
        return self._numbers

    @workflow.signal
    def hear(self, number: int) -> None:
        self._numbers.append(number)

    @workflow.update
    async def ask(self) -> None:
        """Never answered where no worker is."""


@workflow.defn
class Works:
    """Calls an activity with an argument that may be locked."""

    @workflow.run
    async def run(self, is_locked: bool) -> str:
        argument = LOCKED if is_locked else "open"
        result: str = await workflow.execute_activity(
            "work",
            argument,
            result_type=str,
            schedule_to_close_timeout=_MINUTE,
            heartbeat_timeout=_MINUTE,
            retry_policy=RetryPolicy(maximum_attempts=3, initial_interval=timedelta(seconds=0.1)),
        )
        return result


class Typed:
    """Takes an argument that has a type."""

    @workflow.run
    async def run(self, is_locked: bool) -> None:
        """End at once."""


def test_the_sdk_gives_a_dynamic_workflow_its_arguments_unread() -> None:
    with pytest.raises(TypeError, match=r"Sequence\[temporalio.common.RawValue\]"):
        workflow.defn(dynamic=True)(Typed)


@workflow.defn
class WorksAtOnce:
    """Starts its activity in its constructor."""

    @workflow.init
    def __init__(self) -> None:
        self._work = workflow.start_activity(
            "work", "open", result_type=str, schedule_to_close_timeout=_MINUTE
        )

    @workflow.run
    async def run(self) -> str:
        result: str = await self._work
        return result


class Bench:
    """A task queue, and a client with the SDK's own converter or another one."""

    def __init__(
        self, temporal: TemporalClient, *interceptors: Interceptor, **converter: Any
    ) -> None:
        config = temporal.config()
        config["data_converter"] = replace(DataConverter.default, **converter)
        config["interceptors"] = list(interceptors)
        self.client = TemporalClient(**config)
        self.queue = f"workarounds-{uuid.uuid4().hex[:12]}"

    def worker(self, work: Callable[..., Any] | None = None) -> Worker:
        return Worker(
            self.client,
            task_queue=self.queue,
            workflows=[Listens, Works, WorksAtOnce],
            activities=[] if work is None else [activity.defn(name="work")(work)],
            workflow_runner=UnsandboxedWorkflowRunner(),
        )

    async def start(self, run: Any, *args: Any) -> WorkflowHandle[Any, Any]:
        return await self.client.start_workflow(
            run, args=args, id=f"{self.queue}-run", task_queue=self.queue
        )


@pytest.mark.slow
async def test_the_sdk_fails_a_task_with_a_signal_that_cannot_be_decoded(
    temporal: TemporalClient,
) -> None:
    bench = Bench(temporal, payload_codec=Lock())
    run = await bench.start(Listens.run)
    await run.signal("hear", LOCKED)

    async def has_failed() -> bool:
        events = (await run.fetch_history()).events
        return EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED in [event.event_type for event in events]

    async with bench.worker():
        await eventually(has_failed)
        await run.terminate()


@pytest.mark.slow
async def test_the_sdk_drops_a_signal_of_another_type(temporal: TemporalClient) -> None:
    bench = Bench(temporal)
    run = await bench.start(Listens.run)
    for argument in ("one", 2, 0):
        await run.signal("hear", argument)
    async with bench.worker():
        assert await run.result() == [2, 0]


@pytest.mark.slow
async def test_the_sdk_fails_an_attempt_whose_argument_cannot_be_decoded_without_calling_the_code(
    temporal: TemporalClient,
) -> None:
    called: list[int] = []

    async def work(argument: RawValue) -> str:
        called.append(activity.info().attempt)
        return "done"

    bench = Bench(temporal, payload_codec=Lock())
    async with bench.worker(work):
        with pytest.raises(WorkflowFailureError):
            await (await bench.start(Works.run, True)).result()

    assert called == []


@pytest.mark.slow
async def test_the_sdk_never_retries_an_attempt_whose_heartbeat_details_cannot_be_decoded(
    temporal: TemporalClient,
) -> None:
    called: list[int] = []

    async def work(argument: str) -> str:
        called.append(activity.info().attempt)
        if len(called) > 1:
            return "done"
        activity.heartbeat(LOCKED)
        raise ApplicationError("the first attempt fails")

    bench = Bench(temporal, payload_codec=Lock())
    async with bench.worker(work):
        with pytest.raises(WorkflowFailureError):
            await (await bench.start(Works.run, False)).result()

    assert called == [1]


def test_the_sdk_drops_the_text_of_a_failure_that_cannot_be_read() -> None:
    failure = Failure(message="Encoded failure")
    failure.application_failure_info.SetInParent()
    failure.encoded_attributes.metadata["encoding"] = ENCODING.encode()
    converter = data_converter().payload_converter

    read = DefaultFailureConverterWithEncodedAttributes().from_failure(failure, converter)

    assert isinstance(read, ApplicationError)
    assert read.message == "Encoded failure"
    with pytest.raises(WrongKey):
        FailureConverter().from_failure(failure, converter)


@workflow.defn
class Slow:
    """A workflow whose only task takes longer than two seconds."""

    @workflow.run
    async def run(self) -> None:
        time.sleep(2.5)  # noqa: ASYNC251  (it is to hold its task up)


@pytest.mark.parametrize("is_allowed", [pytest.param(False, marks=pytest.mark.slow), True])
async def test_the_sdk_fails_a_task_that_takes_longer_than_two_seconds(
    temporal: TemporalClient, *, is_allowed: bool
) -> None:
    queue = f"slow-{uuid.uuid4().hex}"
    worker = Worker(
        temporal,
        task_queue=queue,
        workflows=[Slow],
        workflow_runner=UnsandboxedWorkflowRunner(),
        graceful_shutdown_timeout=timedelta(0),
    )
    if is_allowed:
        allow_long_tasks(worker)
    async with worker:
        run = await temporal.start_workflow(Slow.run, id=queue, task_queue=queue)

        async def is_decided() -> bool:
            events = {event.event_type async for event in run.fetch_history_events()}
            return bool(events & {FAILED, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED})

        await eventually(is_decided)
        events = {event.event_type async for event in run.fetch_history_events()}
        assert (FAILED in events) is not is_allowed
        if not is_allowed:
            await run.terminate()


@pytest.mark.slow
async def test_the_sdk_holds_heartbeats_back(temporal: TemporalClient) -> None:
    bench = Bench(temporal)
    stored: list[bytes] = []

    async def work(argument: str) -> str:
        handle = bench.client.get_workflow_handle(activity.info().workflow_id or "")

        async def details() -> bytes:
            (pending,) = (await handle.describe()).raw_description.pending_activities
            return b"".join(payload.data for payload in pending.heartbeat_details.payloads)

        async def is_first() -> bool:
            return await details() == b"1"

        activity.heartbeat(1)
        await eventually(is_first)
        activity.heartbeat(2)
        # Another process would read this now if this one were lost.
        stored.append(await details())
        return "done"

    async with bench.worker(work):
        await (await bench.start(Works.run, False)).result()

    assert stored == [b"1"]


class Noting(StorageDriver):
    """Keeps payloads, and the targets for which they were stored."""

    def __init__(self) -> None:
        self.payloads: list[Payload] = []
        self.targets: list[Any] = []

    def name(self) -> str:
        return "noting"

    def type(self) -> str:
        return "noting"

    async def store(
        self, context: StorageDriverStoreContext, payloads: Sequence[Payload]
    ) -> list[StorageDriverClaim]:
        self.targets.append(context.target)
        self.payloads += payloads
        last = len(self.payloads)
        first = last - len(payloads)
        return [StorageDriverClaim(claim_data={"at": str(at)}) for at in range(first, last)]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        return [self.payloads[int(claim.claim_data["at"])] for claim in claims]


@pytest.mark.slow
async def test_the_sdk_does_not_say_of_which_run_the_heartbeat_details_are_that_it_stores(
    temporal: TemporalClient,
) -> None:
    driver = Noting()

    async def work(argument: str) -> str:
        activity.heartbeat("x" * 2_000)
        await eventually(lambda: driver.targets)
        return "done"

    storage = ExternalStorage(drivers=[driver], payload_size_threshold=1_000)
    bench = Bench(temporal, external_storage=storage)
    async with bench.worker(work):
        await (await bench.start(Works.run, False)).result()

    (target,) = driver.targets
    assert not isinstance(target, StorageDriverWorkflowInfo)


def test_the_sdk_has_no_status_for_a_workflow_that_an_operator_has_paused() -> None:
    with pytest.raises(ValueError, match="WorkflowExecutionStatus"):
        WorkflowExecutionStatus(PAUSED_NATIVELY)


@pytest.mark.slow
async def test_the_sdk_hides_the_cancellation_of_an_update(temporal: TemporalClient) -> None:
    run = await Bench(temporal).start(Listens.run)

    with pytest.raises(WorkflowUpdateRPCTimeoutOrCancelledError):
        async with asyncio.timeout(0.3):
            await run.execute_update(Listens.ask)
    await run.terminate()


@pytest.mark.slow
async def test_the_sdk_loses_the_trace_of_an_activity_that_a_constructor_starts(
    temporal: TemporalClient,
) -> None:
    async def work(argument: str) -> str:
        return argument

    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    bench = Bench(temporal, TracingInterceptor(provider.get_tracer("test")))
    async with bench.worker(work):
        await (await bench.start(WorksAtOnce.run)).result()
    spans = {span.name: span for span in kept.get_finished_spans()}
    begun, ran = spans["StartWorkflow:WorksAtOnce"].context, spans["RunActivity:work"].context

    assert begun is not None
    assert ran is not None
    assert begun.trace_id != ran.trace_id
