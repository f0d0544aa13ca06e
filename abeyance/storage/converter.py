"""The parts of the data converter: pydantic JSON with stamps, and the storage of large payloads, which
leaves a reference in the history. `abeyance.temporal.connection` combines the parts by the settings.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import secrets
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final, Never

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError
from pydantic import TypeAdapter, ValidationError
from temporalio import activity
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.failure.v1 import Failure
from temporalio.common import RawValue
from temporalio.contrib.pydantic import (
    PydanticJSONPlainPayloadConverter,
    PydanticPayloadConverter,
)
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    EncodingPayloadConverter,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
    WorkflowSerializationContext,
)
from temporalio.exceptions import ApplicationError

from abeyance import names, wire
from abeyance.core.effects import VisitInput
from abeyance.core.spec import GraphSpec
from abeyance.errors import BlockedCode, Code, SettingsError, Unavailable
from abeyance.keyring import Keyring, NotSealed, WrongKey
from abeyance.storage import sparse
from abeyance.storage.blobs import BlobMissing, Blobs
from abeyance.storage.encryption import (
    ENCODING,
    REFUSED,
    STAMP,
    is_open,
    opened,
    refused,
)


async def decoded(converter: DataConverter, document: Mapping[str, Any]) -> dict[str, Any]:
    """Decrypt and load all payloads of a JSON document.

    Raises ValueError for an invalid document, WrongKey and BlobMissing.
    """
    payloads = _read(document)
    # Show open payloads as they are, even where a run would refuse them.
    closed = [payload for payload in payloads if not is_open(payload)]
    values = iter(await converter.decode(closed, [RawValue] * len(closed)))
    shown = (payload if is_open(payload) else next(values).payload for payload in payloads)
    return _written([inflated(payload) for payload in shown])


async def encoded(converter: DataConverter, document: Mapping[str, Any]) -> dict[str, Any]:
    """Store and encrypt all payloads of a JSON document. Raises ValueError and Unavailable."""
    return _written(await converter.encode([RawValue(payload) for payload in _read(document)]))


def _read(document: Mapping[str, Any]) -> list[Payload]:
    try:
        # A newer Temporal may add fields.
        return list(ParseDict(dict(document), Payloads(), ignore_unknown_fields=True).payloads)
    except ParseError as error:
        raise ValueError(f"the document has no valid Temporal payloads: {error}") from error


def _written(payloads: list[Payload]) -> dict[str, Any]:
    # MessageToDict omits an empty list.
    return {"payloads": [], **MessageToDict(Payloads(payloads=payloads))}


UNREADABLE: Final = (
    Unavailable,
    SettingsError,
    # A reference without storage, an unknown encoding, invalid data.
    RuntimeError,
    KeyError,
    ValueError,
    DecodeError,
)
"""Errors of reading a payload: the key or the storage is missing, or the payload is damaged."""


_LACKED: Final = (
    (NotSealed, BlockedCode.PAYLOAD_UNREADABLE),
    (WrongKey, BlockedCode.KEY_MISSING),
    (BlobMissing, BlockedCode.STORAGE_UNAVAILABLE),
    (SettingsError, BlockedCode.STORAGE_UNAVAILABLE),
    (Unavailable, BlockedCode.STORAGE_UNAVAILABLE),
)
"""The thing that a process lacked, by the type of its error: the first that fits."""
_BY_NAME: Final = {kind.__name__: code for kind, code in _LACKED}


def storage_code(error: BaseException) -> BlockedCode:
    """Return the code of an error that came up while a payload was stored or read."""
    codes = (code for kind, code in _LACKED if isinstance(error, kind))
    return next(codes, BlockedCode.PAYLOAD_UNREADABLE)


def unread_by(failure: Failure) -> tuple[BlockedCode, str] | None:
    """Return the code and the message of what a worker lacked, from its failed workflow task."""
    while (code := _BY_NAME.get(failure.application_failure_info.type)) is None:
        if not failure.HasField("cause"):
            return None
        failure = failure.cause
    return code, failure.message


_NONCE: Final = "abeyance-update"
_logger = logging.getLogger("abeyance.storage")
_DRIVER: Final = "abeyance"
_REFERENCE: Final = "ref"
_SEALED: Final = "sealed"
"""Claim key of an encrypted reference, in base64."""
_MOST_INFLATED: Final = 2**27
_LONG_GRAPH: Final = 1_000
"""In bytes of its JSON."""
_FASTEST: Final = 1
"""The level of `zlib`."""
WHY: Final = "unreadable-because"
"""Metadata key of the reason in a payload that was passed on undecrypted."""


class _Reading(EncodingPayloadConverter):
    """Reads an encoding that no value is written in: `read` returns a payload's value, or raises."""

    def __init__(self, encoding: str, read: Callable[[Payload, type | None], Any]) -> None:
        self._encoding = encoding
        self._read = read

    @property
    def encoding(self) -> str:
        return self._encoding

    def to_payload(self, value: Any) -> None:  # noqa: ARG002
        return None

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        return self._read(payload, type_hint)


def _undecrypted(payload: Payload, _hint: type | None) -> Never:
    """Raise for an encrypted payload: encryption is off, or the codec could not decrypt it."""
    if WHY in payload.metadata:
        raise WrongKey(payload.metadata[WHY].decode())
    opened(payload, Keyring({}))
    raise AssertionError("a keyring without keys cannot decrypt")


def _refused(payload: Payload, _hint: type | None) -> Never:
    raise reason_of(payload)


class PayloadRefused(NotSealed, ApplicationError):
    """A refused payload was read. A start with such a payload fails, and an update is rejected."""

    def __init__(self, why: str) -> None:
        NotSealed.__init__(self, why)
        message = f"The payload is refused: {why}."
        ApplicationError.__init__(self, message, type=Code.NOT_SEALED, non_retryable=True)

    def __str__(self) -> str:
        return self.message


def is_refused(payload: Payload) -> bool:
    """Return True if the codec refused a payload."""
    return payload.metadata.get("encoding") == REFUSED.encode()


def reason_of(payload: Payload) -> PayloadRefused:
    """Return the error that tells why the codec refused a payload."""
    return PayloadRefused(payload.data.decode(errors="replace"))


def is_unread(payload: Payload) -> bool:
    """Return True if the codec could not decrypt a payload."""
    return payload.metadata.get("encoding") == ENCODING.encode()


_GRAPHS: Final = TypeAdapter(GraphSpec)


@lru_cache(maxsize=16)
def _graph_of(data: bytes) -> GraphSpec:
    """Return the graph of a payload. The runs of one graph share it in the memory of their worker."""
    return _GRAPHS.validate_json(data)


class _Json(PydanticJSONPlainPayloadConverter):
    def to_payload(self, value: Any) -> Payload | None:
        match value:
            case GraphSpec() | VisitInput() | wire.StartRun() | wire.VisitReport():
                data = sparse.written(value)
                payload = Payload(metadata={"encoding": self.encoding.encode()}, data=data)
                # Every run has its graph, and people hardly ever read it in Temporal's UI.
                is_long = isinstance(value, GraphSpec) and len(data) > _LONG_GRAPH
                return deflated(payload) if is_long else payload
            case _:
                return super().to_payload(value)

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        if type_hint is GraphSpec:
            return _graph_of(payload.data)
        return super().from_payload(payload, type_hint)


_JSON: Final = _Json()


def deflated(payload: Payload) -> Payload:
    """Return a deflated payload of JSON: a thirtieth of the bytes, if it has thousands of like visits."""
    if payload.metadata.get("encoding") == names.DEFLATED.encode():
        return payload
    data = zlib.compress(payload.data, _FASTEST)
    return Payload(metadata={"encoding": names.DEFLATED.encode()}, data=data)


def inflated(payload: Payload) -> Payload:
    """Return a deflated payload as plain JSON, and others unchanged. Raises ValueError for damage."""
    if payload.metadata.get("encoding") != names.DEFLATED.encode():
        return payload
    reader = zlib.decompressobj()
    try:
        data = reader.decompress(payload.data, _MOST_INFLATED)
    except zlib.error as error:
        raise ValueError(f"a deflated payload is damaged: {error}") from error
    if not reader.eof:
        raise ValueError(f"a deflated payload has no end within {_MOST_INFLATED} bytes")
    return Payload(metadata={"encoding": _JSON.encoding.encode()}, data=data)


_CONVERTERS: Final = tuple(
    _JSON if isinstance(each, PydanticJSONPlainPayloadConverter) else each
    for each in (
        *PydanticPayloadConverter().converters.values(),
        _Reading(names.DEFLATED, lambda payload, hint: _JSON.from_payload(inflated(payload), hint)),
        _Reading(ENCODING, _undecrypted),
        _Reading(REFUSED, _refused),
    )
)
"""Shared, because they cache how to read each type, and each run gets a new payload converter."""


class PayloadConverter(CompositePayloadConverter):
    """Converts values, with their stamps in the metadata."""

    def __init__(self) -> None:
        super().__init__(*_CONVERTERS)

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        payloads = super().to_payloads(values)
        for value, payload in zip(values, payloads, strict=True):
            if isinstance(value, wire.Stamped) and value.stamp is not None:
                payload.metadata[STAMP] = value.stamp.model_dump_json().encode()
        return payloads

    def from_payloads(
        self, payloads: Sequence[Payload], type_hints: list[type] | None = None
    ) -> list[Any]:
        values = super().from_payloads(payloads, type_hints)
        return [
            value.stamped(stamp)
            if isinstance(value, wire.Stamped) and (stamp := stamp_of(payload)) is not None
            else value
            for value, payload in zip(values, payloads, strict=True)
        ]


class SealedPayloadConverter(PayloadConverter):
    """Also requires that the start of a run has a stamp: for required encryption."""

    def from_payloads(
        self, payloads: Sequence[Payload], type_hints: list[type] | None = None
    ) -> list[Any]:
        values = super().from_payloads(payloads, type_hints)
        for value in values:
            if isinstance(value, wire.StartRun) and (
                value.stamp is None or value.stamp.order != names.START_ORDER
            ):
                raise PayloadRefused(
                    "the run was started by a process without ABEYANCE_ENCRYPTION_REQUIRED; set it for "
                    "all processes that start runs, and start the run again"
                )
        return values


def stamp_of(payload: Payload) -> wire.Stamp | None:
    """Return the stamp that was sealed with a payload; None without a valid one."""
    if STAMP not in payload.metadata:
        return None
    try:
        return wire.Stamp.model_validate_json(payload.metadata[STAMP])
    except ValidationError:
        return None


@dataclass(slots=True)
class StoredForUpdate:
    """The blobs that one attempt to send an update has stored, and that nothing else refers to."""

    nonce: bytes
    deletions: list[Callable[[], Awaitable[None]]] = field(default_factory=list)

    def own(self, payload: Payload) -> Payload:
        """Return a payload that gets a blob of its own, even if another payload has the same value."""
        return Payload(metadata={**payload.metadata, _NONCE: self.nonce}, data=payload.data)

    async def delete(self) -> None:
        """Delete the blobs. A blob that cannot be deleted now is deleted with its run."""
        for delete in self.deletions:
            try:
                await delete()
            except Unavailable as error:
                _logger.warning("a blob of a refused update is kept: %s", error)


_UPDATE: Final[ContextVar[StoredForUpdate | None]] = ContextVar("_UPDATE", default=None)


@contextmanager
def storing_for_update() -> Iterator[StoredForUpdate]:
    """Keep account of the blobs stored for an update, which may be refused."""
    stored = StoredForUpdate(secrets.token_bytes(16))
    token = _UPDATE.set(stored)
    try:
        yield stored
    finally:
        _UPDATE.reset(token)


class PayloadBlobs(StorageDriver):
    """Stores payloads, which the codec has encrypted, as blobs of their runs.

    With keys it encrypts references too; with `is_required` it refuses unencrypted ones.
    """

    def __init__(self, blobs: Blobs, keys: Keyring, *, is_required: bool) -> None:
        self._blobs = blobs
        self._keys = keys
        self._is_required = is_required

    def name(self) -> str:
        # Recorded in histories, so independent of the storage.
        return _DRIVER

    def type(self) -> str:
        return _DRIVER

    async def store(
        self, context: StorageDriverStoreContext, payloads: Sequence[Payload]
    ) -> list[StorageDriverClaim]:
        run_id = _run_of(context)
        update = _UPDATE.get()
        refs = await asyncio.gather(
            *(
                self._blobs.put(run_id, of_update.SerializeToString(deterministic=True))
                for payload in payloads
                for of_update in [payload if update is None else update.own(payload)]
            )
        )
        if update is not None:
            update.deletions += [partial(self._blobs.delete, ref) for ref in refs]
        return [StorageDriverClaim(claim_data=self._claim(run_id, ref)) for ref in refs]

    async def retrieve(
        self,
        context: StorageDriverRetrieveContext,  # noqa: ARG002
        claims: Sequence[StorageDriverClaim],
    ) -> list[Payload]:
        return await asyncio.gather(*(self._payload(claim.claim_data) for claim in claims))

    def _claim(self, run_id: str, ref: str) -> dict[str, str]:
        if not self._keys:
            return {_REFERENCE: ref}
        return {_SEALED: base64.b64encode(self._keys.seal(ref.encode(), run_id=run_id)).decode()}

    async def _payload(self, claim: Mapping[str, str]) -> Payload:
        # Decryption of the payload verifies the run.
        if _SEALED in claim:
            try:
                ref = self._keys.open(base64.b64decode(claim[_SEALED])).decode()
            except (NotSealed, binascii.Error) as error:
                return refused(f"its reference is damaged ({error})")
        elif self._is_required:
            return refused(
                "its reference is not encrypted, and ABEYANCE_ENCRYPTION_REQUIRED is set"
            )
        else:
            ref = claim.get(_REFERENCE, "")
        return Payload.FromString(await self._blobs.get(ref))


def _run_of(context: StorageDriverStoreContext) -> str:
    if isinstance(context.target, StorageDriverWorkflowInfo):
        return context.target.id or ""
    # The target of heartbeat details is an activity without its run (SDK 1.35.0).
    return (activity.info().workflow_id or "") if activity.in_activity() else ""


def of_run(converter: DataConverter, run_id: str) -> DataConverter:
    """Return the converter for the run or workflow of this id."""
    return converter.with_context(WorkflowSerializationContext(namespace="", workflow_id=run_id))


def is_all_sealed(converter: DataConverter) -> bool:
    """Return True if the converter refuses unsealed payloads."""
    return converter.payload_converter_class is SealedPayloadConverter


async def decode_message(converter: DataConverter, failure: Failure) -> None:
    """Decrypt the messages of a failure and its causes in place; the reason replaces unreadable ones."""
    while True:
        if failure.HasField("encoded_attributes"):
            try:
                (attributes,) = await converter.decode([failure.encoded_attributes])
            except UNREADABLE as error:
                attributes = {"message": f"the message cannot be read: {error}"}
            failure.message = attributes.get("message", "")
            failure.ClearField("encoded_attributes")
        if not failure.HasField("cause"):
            return
        failure = failure.cause


def show_message(failure: Failure) -> None:
    """Decode the messages of a failure and its causes in place. This process has just made the failure,
    so its messages are encoded but not encrypted yet.
    """
    reader = PayloadConverter()
    while True:
        if failure.HasField("encoded_attributes"):
            failure.message = reader.from_payload(failure.encoded_attributes)["message"]
            failure.ClearField("encoded_attributes")
        if not failure.HasField("cause"):
            return
        failure = failure.cause
