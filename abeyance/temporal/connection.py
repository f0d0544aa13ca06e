"""Reaching Temporal, as its own environment configuration says."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client as TemporalClient
from temporalio.envconfig import ClientConfig
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError

from abeyance.errors import SettingsError, Unavailable
from abeyance.metrics import METRICS
from abeyance.settings import Settings, load_settings
from abeyance.storage.converter import data_converter
from abeyance.storage.location import (
    DEFAULT_ADDRESS,
    DEFAULT_FOLDER,
    check_reach,
    is_on_this_machine,
)
from abeyance.traces import Tracing, are_on

_QUOTED: Final = re.compile('"([^"]+)"')
_QUICKLY: Final = timedelta(seconds=2)
_A_TURN: Final = timedelta(seconds=70)


async def connect_temporal(
    address: str | None = None,
    *,
    namespace: str | None = None,
    metrics_address: str | None = None,
    settings: Settings | None = None,
) -> TemporalClient:
    """A connection to Temporal, as its environment configuration says.

    `address` (host:port) and `namespace` go before the environment. `settings` say how payloads are
    encrypted and where large ones are kept; without them, those of the environment. Raises Unavailable
    if nothing answers there, and SettingsError if it is no address, or if others could not read what is
    kept.
    """
    is_told = settings is not None
    settings = settings or load_settings()
    config = ClientConfig.load_client_connect_config()
    if address is not None:
        config["target_host"] = address
    if namespace is not None:
        config["namespace"] = namespace
    target = config.setdefault("target_host", DEFAULT_ADDRESS)
    check_reach(settings, target)
    # Who only looks in beside `abeyance dev` need not be told where it keeps what is large.
    reads = None if is_told or not is_on_this_machine(target) else DEFAULT_FOLDER
    runtime = None
    if metrics_address is not None:
        metrics = PrometheusConfig(
            bind_address=metrics_address,
            durations_as_seconds=True,
            histogram_bucket_overrides={m.exposed: m.buckets for m in METRICS if m.buckets},
        )
        runtime = Runtime(telemetry=TelemetryConfig(metrics=metrics))
    try:
        return await TemporalClient.connect(
            **config,
            data_converter=data_converter(settings, reads=reads),
            runtime=runtime,
            interceptors=[Tracing()] if are_on() else [],
        )
    except RuntimeError as error:
        raise Unavailable(
            f"Temporal does not answer at {target}: start it, or set TEMPORAL_ADDRESS "
            f"({_why(error)})"
        ) from error
    except ValueError as error:
        raise SettingsError(
            f"TEMPORAL_ADDRESS: {target!r} is no address, write host:port ({error})"
        ) from error


def _why(error: RuntimeError) -> str:
    # The SDK tells a chain of causes as its libraries write them down; the last is the system's own.
    causes = _QUOTED.findall(str(error))
    return str(causes[-1] if causes else error)


async def pollers(temporal: TemporalClient, task_queue: str) -> int:
    """How many processes have asked for work on a task queue within the last 70 seconds.

    A worker asks at least once a minute, and the server tells who asked in the last five: one that
    was killed is noticed when it has missed a turn. Raises Unavailable if Temporal does not answer.
    """
    question = DescribeTaskQueueRequest(
        namespace=temporal.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    try:
        told = await temporal.workflow_service.describe_task_queue(question, timeout=_QUICKLY)
    except RPCError as error:
        raise Unavailable(f"Temporal does not answer ({error.message})") from error
    oldest = datetime.now(UTC) - _A_TURN
    return sum(poller.last_access_time.ToDatetime(tzinfo=UTC) >= oldest for poller in told.pollers)
