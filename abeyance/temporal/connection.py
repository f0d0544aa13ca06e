"""Connect to Temporal with the data converter of a deployment, and set up its namespace."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import IndexedValueType, TaskQueueType
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeTaskQueueRequest,
    PollActivityTaskQueueRequest,
    UpdateNamespaceRequest,
)
from temporalio.client import Client as TemporalClient
from temporalio.converter import DataConverter, DefaultFailureConverter, ExternalStorage
from temporalio.runtime import Runtime
from temporalio.service import GrpcCompression, RPCError, RPCStatusCode

from abeyance.errors import SettingsError, Unavailable
from abeyance.names import SEARCH_ATTRIBUTES
from abeyance.records.database import Scope
from abeyance.settings import Settings, load_settings
from abeyance.storage.backends import (
    DEFAULT_ADDRESS,
    DEFAULT_FOLDER,
    blobs_at,
    check_reach,
    is_on_this_machine,
    temporal_config,
)
from abeyance.storage.blobs import FolderBlobs
from abeyance.storage.converter import PayloadBlobs, PayloadConverter, SealedPayloadConverter
from abeyance.storage.encryption import Encryption
from abeyance.temporal.retry import TEMPORARY, attempts, no_namespace, retry_until
from abeyance.temporal.workarounds.payloads import FailureConverter
from abeyance.temporal.workarounds.tracing import Tracing
from abeyance.tracing import are_on

T = TypeVar("T")

_logger = logging.getLogger("abeyance.temporal")
_QUOTED: Final = re.compile('"([^"]+)"')


async def connect_temporal(
    address: str | None = None,
    *,
    namespace: str | None = None,
    settings: Settings | None = None,
    runtime: Runtime | None = None,
) -> TemporalClient:
    """Connect to Temporal with its environment configuration.

    `address` (host:port) and `namespace` override the environment. `settings` (default: from the
    environment) configure encryption and storage; `runtime` is the SDK's. Raises Unavailable if nothing
    answers or the namespace is missing, and SettingsError if the address is invalid or processes on other
    machines could not read the storage.
    """
    is_explicit = settings is not None
    settings = settings or load_settings()
    config = temporal_config()
    if address is not None:
        config["target_host"] = address
    if namespace is not None:
        config["namespace"] = namespace
    if config.get("namespace") == "":
        raise SettingsError("TEMPORAL_NAMESPACE is empty: name a namespace, or unset it")
    target = config.setdefault("target_host", DEFAULT_ADDRESS)
    check_reach(settings, target)
    is_local = is_on_this_machine(target)
    # A client beside `abeyance dev` can read its payloads without configuration.
    reads = DEFAULT_FOLDER if is_local and not is_explicit else None
    try:
        temporal = await TemporalClient.connect(
            **config,
            data_converter=data_converter(settings, reads=reads),
            runtime=runtime,
            interceptors=[Tracing()] if are_on() else [],
            # Without a network in between, compression costs both sides a tenth of their time.
            grpc_compression=GrpcCompression.NONE if is_local else GrpcCompression.GZIP,
        )
    except RuntimeError as error:
        raise Unavailable(
            f"Temporal does not answer at {target}: start it, or set TEMPORAL_ADDRESS "
            f"({_why(error)})"
        ) from error
    except ValueError as error:
        raise SettingsError(
            f"TEMPORAL_ADDRESS: {target!r} is not an address ({error}): write host:port"
        ) from error
    try:
        await retention(temporal)
    except SettingsError:
        # Credentials that cannot read the namespace may still run workflows in it.
        _logger.debug("the namespace %r cannot be read", temporal.namespace)
    return temporal


def _why(error: RuntimeError) -> str:
    # The SDK prints a chain of causes; the last quoted one comes from the operating system.
    if "InvalidContentType" in str(error):
        return "TLS is off here: TEMPORAL_TLS, TEMPORAL_API_KEY or a certificate turns it on"
    causes = _QUOTED.findall(str(error))
    return str(causes[-1] if causes else error)


def data_converter(
    settings: Settings | None = None, *, reads: str | os.PathLike[str] | None = None
) -> DataConverter:
    """Return the converter that all clients and workers of one deployment share.

    Without settings it neither encrypts nor stores payloads. `reads` is a folder to read payloads from,
    but not to write to, if the settings name no storage.
    """
    settings = settings or Settings.model_construct()
    keys, is_required = settings.keyring, settings.encryption_required
    storage = None
    if settings.storage is not None:
        drivers = [PayloadBlobs(blobs_at(settings.storage), keys, is_required=is_required)]
        storage = ExternalStorage(drivers=drivers, payload_size_threshold=settings.max_payload)
    elif reads is not None:
        drivers = [PayloadBlobs(FolderBlobs(reads), keys, is_required=is_required)]
        storage = ExternalStorage(drivers=drivers, payload_size_threshold=sys.maxsize)
    if not keys:
        return DataConverter(
            payload_converter_class=PayloadConverter,
            failure_converter_class=DefaultFailureConverter,
            external_storage=storage,
        )
    stored_from = sys.maxsize if settings.storage is None else settings.max_payload
    return DataConverter(
        payload_converter_class=SealedPayloadConverter if is_required else PayloadConverter,
        payload_codec=Encryption(keys, stored_from=stored_from, is_required=is_required),
        failure_converter_class=FailureConverter,
        external_storage=storage,
    )


_RPC: Final = timedelta(seconds=5)
_SHORTEST: Final = timedelta(days=1)
_KEYWORD: Final = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
_VISIBLE_WITHIN: Final = 15.0
"""Seconds until a new attribute is visible on all servers."""


async def register_search_attributes(temporal: TemporalClient) -> list[str]:
    """Register missing search attributes in the namespace, and return their names.

    Raises SettingsError if one exists with another type or cannot be added, and Unavailable if the server
    does not answer.
    """
    missing = await missing_search_attributes(temporal)
    if not missing:
        return []
    request = AddSearchAttributesRequest(
        namespace=temporal.namespace, search_attributes=dict.fromkeys(missing, _KEYWORD)
    )
    try:
        await _called(temporal.operator_service.add_search_attributes, request)
    except RPCError as error:
        # Another process may register them at the same time.
        if error.status != RPCStatusCode.ALREADY_EXISTS:
            listed = ", ".join(f"{name} (Keyword)" for name in missing)
            raise namespace_error(
                f"add the search attributes {listed} to", temporal, error
            ) from error
    deadline = asyncio.get_running_loop().time() + _VISIBLE_WITHIN
    while left := await missing_search_attributes(temporal):
        if asyncio.get_running_loop().time() > deadline:
            raise Unavailable(
                f"the search attributes {', '.join(left)} were added to the namespace "
                f"{temporal.namespace!r}, but the server does not show them yet: try again"
            )
        await asyncio.sleep(0.05)
    return missing


async def retention(temporal: TemporalClient) -> timedelta:
    """Return the time for which the namespace keeps ended runs."""
    request = DescribeNamespaceRequest(namespace=temporal.namespace)
    try:
        response = await _called(temporal.workflow_service.describe_namespace, request)
    except RPCError as error:
        raise namespace_error("read", temporal, error) from error
    return timedelta(seconds=response.config.workflow_execution_retention_ttl.seconds)


class OwnScope:
    """The scope of one deployment, by the id that Temporal gave its namespace.

    `patience` is the number of seconds for which the first read keeps asking Temporal.
    """

    def __init__(self, temporal: TemporalClient, task_queue: str, *, patience: float) -> None:
        self._temporal = temporal
        self._task_queue = task_queue
        self._patience = patience
        self.known: Scope | None = None
        """The scope; None until it is read."""

    async def read(self) -> Scope:
        """Return the scope. Raises Unavailable."""
        if self.known is None:
            request = DescribeNamespaceRequest(namespace=self._temporal.namespace)
            service = self._temporal.workflow_service
            found = await retry_until(
                f"the namespace {self._temporal.namespace!r}",
                lambda: service.describe_namespace(request, timeout=_RPC),
                seconds=self._patience,
            )
            self.known = Scope(namespace=found.namespace_info.id, task_queue=self._task_queue)
        return self.known


async def has_namespace(temporal: TemporalClient, id_: str) -> bool:
    """Return whether Temporal shows a namespace with this id; False if the caller may not see it."""
    try:
        uuid.UUID(id_)
    except ValueError:
        # For other text, Temporal (1.30) fails with an unknown error instead of not found.
        return False
    try:
        await _called(
            temporal.workflow_service.describe_namespace, DescribeNamespaceRequest(id=id_)
        )
    except RPCError as error:
        if error.status in TEMPORARY:
            raise namespace_error("read", temporal, error) from error
        return False
    return True


async def set_retention(temporal: TemporalClient, length: timedelta) -> None:
    """Set how long the namespace keeps ended runs, including past ones.

    Raises SettingsError if it is shorter than the server allows, and Unavailable.
    """
    if length < _SHORTEST:
        raise SettingsError(
            f"a retention of {length} is too short: Temporal keeps ended runs for at least a day; write "
            "30d or P30D"
        )
    duration = Duration(seconds=int(length.total_seconds()))
    request = UpdateNamespaceRequest(
        namespace=temporal.namespace,
        config=NamespaceConfig(workflow_execution_retention_ttl=duration),
    )
    try:
        await _called(temporal.workflow_service.update_namespace, request)
    except RPCError as error:
        raise namespace_error(f"set a retention of {length} for", temporal, error) from error


async def missing_search_attributes(temporal: TemporalClient) -> list[str]:
    """Return the search attributes that the namespace lacks. Raises as `register_search_attributes`."""
    request = ListSearchAttributesRequest(namespace=temporal.namespace)
    try:
        response = await _called(temporal.operator_service.list_search_attributes, request)
    except RPCError as error:
        raise namespace_error("list the search attributes of", temporal, error) from error
    registered: Mapping[str, IndexedValueType.ValueType] = response.custom_attributes
    for name in SEARCH_ATTRIBUTES:
        if registered.get(name, _KEYWORD) != _KEYWORD:
            raise SettingsError(
                f"the search attribute {name} of the namespace {temporal.namespace!r} has the type "
                f"{IndexedValueType.Name(registered[name])}, but needs Keyword: remove it, or use "
                "another namespace"
            )
    return [name for name in SEARCH_ATTRIBUTES if name not in registered]


async def clock_offset(temporal: TemporalClient) -> timedelta:
    """Return by how much the clock of this machine is ahead of the server's.

    The server tells its time only as the moment at which a worker polled, so this polls a task queue that
    nobody else uses. Raises Unavailable.
    """
    queue = TaskQueue(name=f"abeyance-clock-{uuid.uuid4().hex}")
    poll = PollActivityTaskQueueRequest(
        namespace=temporal.namespace, task_queue=queue, identity="abeyance doctor"
    )
    question = DescribeTaskQueueRequest(
        namespace=temporal.namespace,
        task_queue=queue,
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
    )
    service = temporal.workflow_service
    asked = datetime.now(UTC)
    polling = asyncio.create_task(service.poll_activity_task_queue(poll, timeout=_RPC))
    try:
        while not polling.done():
            response = await service.describe_task_queue(question, timeout=_RPC)
            if response.pollers:
                return asked - response.pollers[0].last_access_time.ToDatetime(tzinfo=UTC)
            await asyncio.sleep(0.05)
    except RPCError as error:
        raise namespace_error("read the time of", temporal, error) from error
    finally:
        polling.cancel()
        await asyncio.wait({polling})
    raise Unavailable(f"the server did not tell its time within {_RPC.total_seconds():g} s")


async def _called(call: Callable[..., Awaitable[T]], request: object) -> T:
    """Send an idempotent request, up to three times while it fails for a temporary reason.

    The SDK does not repeat a call whose connection closed (CANCELLED) or that took too long.
    """
    left = 3
    async for _ in attempts():
        left -= 1
        try:
            return await call(request, timeout=_RPC)
        except RPCError as error:
            if not left or error.status not in TEMPORARY:
                raise
    raise AssertionError("attempts have no end")


def namespace_error(
    what: str, temporal: TemporalClient, error: RPCError
) -> SettingsError | Unavailable:
    """Return the error of a failed operation on the namespace."""
    if (missing := no_namespace(error)) is not None:
        return Unavailable(missing)
    text = f"could not {what} the namespace {temporal.namespace!r}: {error.message} ({error.status.name})"
    return Unavailable(text) if error.status in TEMPORARY else SettingsError(text)
