"""Select the blob storage from the settings: a folder, or a bucket.

The storage of a bucket is an extension: the entry point of the group `abeyance.storage` with the name of
a scheme (`s3`) makes `Blobs` of a bucket's name and a prefix, and raises SettingsError if it lacks its
library.

Only processes of one machine can read a folder. If Temporal runs elsewhere, other workers and APIs may
run elsewhere too, and could not read the blobs. So such a folder must be declared shared.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from temporalio.envconfig import ClientConfig, ClientConnectConfig

from abeyance import extensions
from abeyance.errors import AbeyanceError, SettingsError, Unavailable
from abeyance.settings import Bucket, Settings, bucket_of
from abeyance.storage.blobs import Blobs, FolderBlobs, MemoryBlobs
from abeyance.storage.encryption import EncryptedBlobs
from abeyance.util import is_loopback

DEFAULT_FOLDER: Final = Path(".abeyance/blobs")
"""The blobs of `abeyance dev` by default, below its current directory."""
DEFAULT_ADDRESS: Final = "127.0.0.1:7233"
"""The default address of Temporal."""


def blobs_at(storage: str) -> Blobs:
    """Return the blobs of a storage setting, without decryption."""
    bucket = bucket_of(storage)
    return FolderBlobs(storage) if bucket is None else _in(bucket)


@cache
def _in(bucket: Bucket) -> Blobs:
    # A client is slow to make, and holds connections.
    blobs: Blobs = extensions.load(extensions.STORAGE, bucket.scheme)(bucket.name, bucket.prefix)
    return blobs


def blobs_of(settings: Settings) -> Blobs:
    """Return the blobs of a deployment, encrypted if it has keys.

    Without a configured storage they are in a folder below the current directory, if Temporal runs on
    this machine. Raises SettingsError if it does not.
    """
    address = temporal_address()
    storage = settings.storage
    if storage is None:
        if not is_on_this_machine(address):
            raise SettingsError(
                f"no storage is configured, which agents need: Temporal is at {address}, so other "
                "workers may run elsewhere. Set ABEYANCE_STORAGE to s3://bucket/prefix, or to a folder "
                "that all of them share"
            )
        storage = str(DEFAULT_FOLDER)
    _check_shared(settings, address)
    return EncryptedBlobs(
        blobs_at(storage), settings.keyring, is_required=settings.encryption_required
    )


async def storage_fault(settings: Settings) -> AbeyanceError | None:
    """Write a small blob, read it, and delete it; return what is wrong with the storage, if anything.

    Nothing is left behind. A SettingsError says what to do about it, an Unavailable does not.
    """
    data, run_id = b"abeyance storage", f"abeyance-storage-{uuid.uuid4().hex}"
    new = _new_folders(settings.storage or str(DEFAULT_FOLDER))
    try:
        blobs = blobs_of(settings)
        is_same = await blobs.get(await blobs.put(run_id, data)) == data
        await blobs.delete_run(run_id)
    except AbeyanceError as error:
        return error
    finally:
        for folder in new:
            # A worker may use the folder by now.
            with suppress(OSError):
                folder.rmdir()
    if is_same:
        return None
    return Unavailable(f"{settings.storage} returned other data than was written")


def _new_folders(storage: str) -> list[Path]:
    """Return the folders that the first write to a storage makes, the innermost first."""
    if bucket_of(storage) is not None:
        return []
    folder = Path(storage).absolute()
    return [each for each in (folder, *folder.parents) if not os.path.lexists(each)]


class ConfiguredBlobs:
    """The blobs of the settings, opened on first use: runs without agents and large values need none.

    Each method raises SettingsError if none are configured.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def _blobs(self) -> Blobs:
        return blobs_of(self._settings)

    async def put(self, run_id: str, data: bytes) -> str:
        return await self._blobs.put(run_id, data)

    async def get(self, ref: str) -> bytes:
        return await self._blobs.get(ref)

    async def delete(self, ref: str) -> None:
        await self._blobs.delete(ref)

    async def delete_run(self, run_id: str) -> int:
        return await self._blobs.delete_run(run_id)


def kept_blobs(settings: Settings) -> Blobs:
    """Return the storage that may have blobs of runs. Without a configured storage, and with Temporal
    elsewhere, no run has stored any.
    """
    if settings.storage is None and not is_on_this_machine(temporal_address()):
        return MemoryBlobs()
    return ConfiguredBlobs(settings)


def check_reach(settings: Settings, address: str | None = None) -> None:
    """Raise SettingsError if the storage is a file, or if workers and APIs elsewhere could not read it. A
    process checks this when it starts. Later, a file in that place counts as an unavailable storage.

    `address` is the address of Temporal (host:port); the default is the environment's.
    """
    storage = settings.storage
    if storage is not None and bucket_of(storage) is None and Path(storage).is_file():
        raise SettingsError(f"ABEYANCE_STORAGE={storage!r} is a file: name a folder")
    _check_shared(settings, address or temporal_address())


def _check_shared(settings: Settings, address: str) -> None:
    storage = settings.storage
    if storage is None:
        return
    if (bucket := bucket_of(storage)) is not None:
        _in(bucket)
    elif not settings.storage_shared and not is_on_this_machine(address):
        raise SettingsError(
            f"ABEYANCE_STORAGE={storage!r} is a folder, and Temporal is at {address}: a worker or an API "
            "elsewhere cannot read it. If all of them mount that folder, set "
            "ABEYANCE_STORAGE_SHARED=1; else use s3://bucket/prefix"
        )


def temporal_address() -> str:
    """Return the address of Temporal (host:port) from the environment."""
    return temporal_config().get("target_host") or DEFAULT_ADDRESS


def temporal_config() -> ClientConnectConfig:
    """Return the connection to Temporal from the environment, or from the profile that it names.

    Raises SettingsError if a file that it names cannot be read, or has no such profile.
    """
    try:
        return ClientConfig.load_client_connect_config()
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise SettingsError(
            f"the variables TEMPORAL_*, or Temporal's configuration file, cannot be used: {reason}"
        ) from error


def is_on_this_machine(address: str) -> bool:
    """Return True if an address (host:port) is on the loopback of this machine."""
    return is_loopback(urlsplit(f"//{address}").hostname or "")
