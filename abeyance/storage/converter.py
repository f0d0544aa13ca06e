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
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
)

from abeyance.errors import Unavailable
from abeyance.keyring import Keyring
from abeyance.settings import Settings
from abeyance.storage.blobs import Blobs, FolderBlobs
from abeyance.storage.encryption import ENCODING, Encryption, opened
from abeyance.storage.location import blobs_at

_DRIVER: Final = "abeyance"
_REFERENCE: Final = "ref"


class _Undecrypted(EncodingPayloadConverter):
    """Meets what is encrypted where encryption is off, and says which key it takes."""

    @property
    def encoding(self) -> str:
        return ENCODING

    def to_payload(self, value: Any) -> None:  # noqa: ARG002
        return None

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Never:  # noqa: ARG002
        opened(payload, Keyring({}))
        raise AssertionError("an empty keyring opens nothing")


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
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
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
            except Unavailable as error:
                if not forgiving:
                    raise
                told = {"message": f"why is not known here: {error}"}
            failure.message = told.get("message", "")
            failure.ClearField("encoded_attributes")
        if not failure.HasField("cause"):
            return
        failure = failure.cause
