"""How values travel through Temporal: as JSON, by pydantic, the same for clients, workers and replay.

Where the settings say so, a payload is encrypted, and one that is large is kept in storage, with a
reference in its place. This is the one place that puts these together.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Never

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError
from pydantic import ValidationError
from temporalio import activity
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.failure.v1 import Failure
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
    EncodingPayloadConverter,
    ExternalStorage,
    PayloadCodec,
    SerializationContext,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
    WithSerializationContext,
    WorkflowSerializationContext,
)
from temporalio.converter import PayloadConverter as SdkPayloadConverter
from temporalio.exceptions import ApplicationError

from abeyance import wire
from abeyance.errors import Code, SettingsError, Unavailable
from abeyance.keyring import Keyring, NotSealed, WrongKey
from abeyance.settings import Settings
from abeyance.storage.backends import blobs_at
from abeyance.storage.blobs import Blobs, FolderBlobs
from abeyance.storage.encryption import (
    ENCODING,
    REFUSED,
    STAMP,
    Encryption,
    is_open,
    opened,
    refused,
)


async def decoded(converter: DataConverter, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with each payload as it was before it was stored and encrypted.

    Raises ValueError if it is no document of payloads, WrongKey and BlobMissing.
    """
    payloads = _read(document)
    # What anybody can read is shown as it is, also where no run would take it.
    closed = [payload for payload in payloads if not is_open(payload)]
    values = iter(await converter.decode(closed, [RawValue] * len(closed)))
    return _written([payload if is_open(payload) else next(values).payload for payload in payloads])


async def encoded(converter: DataConverter, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with each payload as it is sent to Temporal. Raises ValueError and Unavailable."""
    return _written(await converter.encode([RawValue(payload) for payload in _read(document)]))


def _read(document: Mapping[str, Any]) -> list[Payload]:
    try:
        # A newer Temporal may tell more of a payload than we know of.
        return list(ParseDict(dict(document), Payloads(), ignore_unknown_fields=True).payloads)
    except ParseError as error:
        raise ValueError(f"these are no payloads as Temporal writes them: {error}") from error


def _written(payloads: list[Payload]) -> dict[str, Any]:
    # Nothing in, nothing out: a list that is empty would be left out.
    return {"payloads": [], **MessageToDict(Payloads(payloads=payloads))}


UNREADABLE: Final = (
    Unavailable,
    SettingsError,
    # A large value that is kept in storage where there is none, a form that nobody knows, a value that is
    # none.
    RuntimeError,
    KeyError,
    ValueError,
    DecodeError,
)
"""What reading a payload raises: the key or the storage is not there, or it is damaged."""

_DRIVER: Final = "abeyance"
_REFERENCE: Final = "ref"
_SEALED: Final = "sealed"
"""Where a claim has its reference if that is encrypted, in base64."""
_WHY: Final = "unreadable-because"
"""Where a payload that was passed on unread says why."""


class _Undecrypted(EncodingPayloadConverter):
    """Meets what is encrypted where encryption is off, or was passed on unread, and says why."""

    @property
    def encoding(self) -> str:
        return ENCODING

    def to_payload(self, value: Any) -> None:  # noqa: ARG002
        return None

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Never:  # noqa: ARG002
        if _WHY in payload.metadata:
            raise WrongKey(payload.metadata[_WHY].decode())
        opened(payload, Keyring({}))
        raise AssertionError("an empty keyring opens nothing")


class _Refused(EncodingPayloadConverter):
    """Meets what the codec refused, and says why."""

    @property
    def encoding(self) -> str:
        return REFUSED

    def to_payload(self, value: Any) -> None:  # noqa: ARG002
        return None

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Never:  # noqa: ARG002
        raise NotTaken(payload.data.decode(errors="replace"))


class NotTaken(NotSealed, ApplicationError):
    """What was refused is to be read. Whoever reads a run is told so; the run itself does not wait for
    what it will never take: a start fails by this, and an update is rejected.
    """

    def __init__(self, why: str) -> None:
        NotSealed.__init__(self, why)
        told = f"This is refused: {why}."
        ApplicationError.__init__(self, told, type=Code.NOT_SEALED, non_retryable=True)

    def __str__(self) -> str:
        return self.message


def is_unread(payload: Payload) -> bool:
    """Whether a payload has come through the codec as it was sent, so that nobody here can read it."""
    return payload.metadata.get("encoding") == ENCODING.encode()


class PassingOn(PayloadCodec, WithSerializationContext):
    """Decodes as another codec does, and passes on what that cannot: whoever wants its value is told why.

    For workflows. Whatever they are brought is decoded before they see any of it, and if that fails it is
    brought again, for ever, also where it is a signal that nobody can read.
    """

    def __init__(self, codec: PayloadCodec) -> None:
        self.codec: Final = codec

    def with_context(self, context: SerializationContext) -> PassingOn:
        if not isinstance(self.codec, WithSerializationContext):
            return self
        return PassingOn(self.codec.with_context(context))

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return await self.codec.encode(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [await self._decoded(payload) for payload in payloads]

    async def _decoded(self, payload: Payload) -> Payload:
        try:
            (found,) = await self.codec.decode([payload])
        except UNREADABLE as error:
            marked = {"encoding": ENCODING.encode(), _WHY: str(error).encode()}
            return Payload(metadata=marked, data=payload.data)
        return found


class FailureConverter(DefaultFailureConverterWithEncodedAttributes):
    """The conversion of failures with encrypted texts. The SDK's own leaves out what it cannot read."""

    def from_failure(
        self, failure: Failure, payload_converter: SdkPayloadConverter
    ) -> BaseException:
        if failure.HasField("encoded_attributes"):
            payload_converter.from_payloads([failure.encoded_attributes])
        return super().from_failure(failure, payload_converter)


_CONVERTERS: Final = (*PydanticPayloadConverter().converters.values(), _Undecrypted(), _Refused())
"""Shared, because they remember how to read each type, and each run gets a payload converter anew."""


class PayloadConverter(CompositePayloadConverter):
    """The conversion of single values. The stamp of one goes beside it."""

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
    """The same, where all has to be sealed: a run begins by a start that is stamped as one."""

    def from_payloads(
        self, payloads: Sequence[Payload], type_hints: list[type] | None = None
    ) -> list[Any]:
        values = super().from_payloads(payloads, type_hints)
        for value in values:
            if isinstance(value, wire.StartRun) and (
                value.stamp is None or value.stamp.order != wire.WORKFLOW
            ):
                raise NotTaken(
                    "the run was started by a process that has no ABEYANCE_ENCRYPTION_REQUIRED; set it "
                    "for all that start runs, and start it again"
                )
        return values


def stamp_of(payload: Payload) -> wire.Stamp | None:
    """The stamp that was sealed with a payload; None if there is none that we have written."""
    try:
        return wire.Stamp.model_validate_json(payload.metadata.get(STAMP, b""))
    except ValidationError:
        return None


class PayloadBlobs(StorageDriver):
    """Keeps payloads as blobs of their runs. They come to it encrypted, if they are to be.

    With keys the references are encrypted too; with `is_required` no other leads anywhere.
    """

    def __init__(self, blobs: Blobs, keys: Keyring, *, is_required: bool) -> None:
        self._blobs = blobs
        self._keys = keys
        self._is_required = is_required

    def name(self) -> str:
        # It stands in histories: wherever blobs are moved to, they are found by it.
        return _DRIVER

    def type(self) -> str:
        return _DRIVER

    async def store(
        self, context: StorageDriverStoreContext, payloads: Sequence[Payload]
    ) -> list[StorageDriverClaim]:
        run_id = _run_of(context)
        refs = await asyncio.gather(
            *(
                self._blobs.put(run_id, each.SerializeToString(deterministic=True))
                for each in payloads
            )
        )
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
        # For which run it is sealed is looked at when it is opened.
        if _SEALED in claim:
            try:
                ref = self._keys.open(base64.b64decode(claim[_SEALED])).decode()
            except (NotSealed, binascii.Error) as error:
                return refused(f"it is a reference that is damaged ({error})")
        elif self._is_required:
            return refused("it is a reference that is not encrypted, and all has to be")
        else:
            ref = claim.get(_REFERENCE, "")
        return Payload.FromString(await self._blobs.get(ref))


def _run_of(context: StorageDriverStoreContext) -> str:
    if isinstance(context.target, StorageDriverWorkflowInfo):
        return context.target.id or ""
    # Of what a visit writes down while it goes on, the SDK tells the activity at best.
    return (activity.info().workflow_id or "") if activity.in_activity() else ""


def data_converter(
    settings: Settings | None = None, *, reads: str | os.PathLike[str] | None = None
) -> DataConverter:
    """The converter that every client and worker of one deployment must share.

    Without settings nothing is encrypted, nor kept in storage. `reads` is a folder in which payloads are
    looked for, and none kept, where the settings name no storage.
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
    kept_from = sys.maxsize if settings.storage is None else settings.max_payload
    return DataConverter(
        payload_converter_class=SealedPayloadConverter if is_required else PayloadConverter,
        payload_codec=Encryption(keys, stored_from=kept_from, is_required=is_required),
        failure_converter_class=FailureConverter,
        external_storage=storage,
    )


def of_run(converter: DataConverter, run_id: str) -> DataConverter:
    """The converter for what is of one run, or of another workflow that has this id."""
    return converter.with_context(WorkflowSerializationContext(namespace="", workflow_id=run_id))


def is_all_sealed(converter: DataConverter) -> bool:
    """Whether only what is sealed is taken."""
    codec = converter.payload_codec
    if isinstance(codec, PassingOn):
        codec = codec.codec
    return isinstance(codec, Encryption) and codec.is_required


async def decode_message(
    converter: DataConverter, failure: Failure, *, forgiving: bool = False
) -> None:
    """Put the text of a failure, and of its causes, back to where it is if nothing is encrypted.

    What cannot be read raises Unavailable; `forgiving`, it is told in the place of the text.
    """
    while True:
        if failure.HasField("encoded_attributes"):
            try:
                (told,) = await converter.decode([failure.encoded_attributes])
            except UNREADABLE as error:
                if not forgiving:
                    raise
                told = {"message": f"why is not known here: {error}"}
            failure.message = told.get("message", "")
            failure.ClearField("encoded_attributes")
        if not failure.HasField("cause"):
            return
        failure = failure.cause
