"""The data converter of a deployment, by its settings: encryption, and storage of large payloads."""

from __future__ import annotations

import os
import sys

from temporalio.converter import DataConverter, DefaultFailureConverter, ExternalStorage

from abeyance.settings import Settings
from abeyance.storage.backends import blobs_at
from abeyance.storage.blobs import FolderBlobs
from abeyance.storage.converter import PayloadBlobs, PayloadConverter, SealedPayloadConverter
from abeyance.storage.encryption import Encryption
from abeyance.temporal.workarounds.payloads import FailureConverter


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
