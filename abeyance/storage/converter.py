"""How values travel through Temporal: as JSON, by pydantic, the same for clients, workers and replay.

Where the settings say so, a payload is encrypted, and one that is large is kept in storage, with a
reference in its place. This is the one place that puts these together.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, Never

from google.protobuf.message import DecodeError
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
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
)
from temporalio.converter import PayloadConverter as SdkPayloadConverter

from abeyance.errors import SettingsError, Unavailable
from abeyance.keyring import Keyring, WrongKey
from abeyance.settings import Settings
from abeyance.storage.blobs import Blobs, FolderBlobs
from abeyance.storage.encryption import ENCODING, Encryption, opened
from abeyance.storage.location import blobs_at

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


def is_unread(payload: Payload) -> bool:
    """Whether a payload has come through the codec as it was sent, so that nobody here can read it."""
    return payload.metadata.get("encoding") == ENCODING.encode()


class PassingOn(PayloadCodec, WithSerializationContext):
    """Decodes as another codec does, and passes on what that cannot: whoever wants its value is told why.

    For workflows. Whatever they are brought is decoded before they see any of it, and if that fails it is
    brought again, for ever, also where it is a signal that nobody can read.
    """

    def __init__(self, codec: PayloadCodec) -> None:
        self._codec = codec

    def with_context(self, context: SerializationContext) -> PassingOn:
        if not isinstance(self._codec, WithSerializationContext):
            return self
        return PassingOn(self._codec.with_context(context))

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return await self._codec.encode(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [await self._decoded(payload) for payload in payloads]

    async def _decoded(self, payload: Payload) -> Payload:
        try:
            (found,) = await self._codec.decode([payload])
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


_CONVERTERS: Final = (*PydanticPayloadConverter().converters.values(), _Undecrypted())
"""Shared, because they remember how to read each type, and each run gets a payload converter anew."""


class PayloadConverter(CompositePayloadConverter):
    """The conversion of single values."""

    def __init__(self) -> None:
        super().__init__(*_CONVERTERS)


class PayloadBlobs(StorageDriver):
    """Keeps payloads as blobs of their runs. They come to it encrypted, if they are to be."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

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
        return [StorageDriverClaim(claim_data={_REFERENCE: ref}) for ref in refs]

    async def retrieve(
        self,
        context: StorageDriverRetrieveContext,  # noqa: ARG002
        claims: Sequence[StorageDriverClaim],
    ) -> list[Payload]:
        refs = (claim.claim_data.get(_REFERENCE, "") for claim in claims)
        return [
            Payload.FromString(data)
            for data in await asyncio.gather(*(self._blobs.get(ref) for ref in refs))
        ]


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
    storage = None
    if settings.storage is not None:
        drivers = [PayloadBlobs(blobs_at(settings.storage))]
        storage = ExternalStorage(drivers=drivers, payload_size_threshold=settings.max_payload)
    elif reads is not None:
        drivers = [PayloadBlobs(FolderBlobs(reads))]
        storage = ExternalStorage(drivers=drivers, payload_size_threshold=sys.maxsize)
    if not settings.keyring:
        return DataConverter(
            payload_converter_class=PayloadConverter,
            failure_converter_class=DefaultFailureConverter,
            external_storage=storage,
        )
    kept_from = sys.maxsize if settings.storage is None else settings.max_payload
    return DataConverter(
        payload_converter_class=PayloadConverter,
        payload_codec=Encryption(settings.keyring, stored_from=kept_from),
        failure_converter_class=FailureConverter,
        external_storage=storage,
    )


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
