"""Where blobs are kept: what the settings say of it, and who can reach it.

A folder is reached by the processes of one machine. Where Temporal is elsewhere, so may the other worker
or API be, and would look for a blob in vain: then a folder has to be said to be shared.
"""

from __future__ import annotations

from functools import cache, cached_property
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from temporalio.envconfig import ClientConfig

from abeyance.errors import SettingsError
from abeyance.settings import Settings, bucket_of
from abeyance.storage import s3
from abeyance.storage.blobs import Blobs, FolderBlobs
from abeyance.storage.encryption import EncryptedBlobs
from abeyance.util import is_loopback

DEFAULT_FOLDER: Final = Path(".abeyance/blobs")
"""Where `abeyance dev` keeps blobs unless told otherwise, below the directory in which it is started."""
DEFAULT_ADDRESS: Final = "127.0.0.1:7233"
"""Where Temporal is if nobody says otherwise."""


def blobs_at(storage: str) -> Blobs:
    """The blobs of a storage as the setting names it, as they are kept."""
    if (named := bucket_of(storage)) is None:
        return FolderBlobs(storage)
    s3.check_installed()
    return _in_bucket(*named)


@cache
def _in_bucket(bucket: str, prefix: str) -> Blobs:
    # A client of S3 takes a moment to be made, and keeps connections.
    return s3.S3Blobs(bucket, prefix)


def blobs_of(settings: Settings) -> Blobs:
    """The blobs of a deployment, encrypted if it has keys.

    Where no storage is configured they are in a folder below the current directory, provided that
    Temporal is on this machine. Raises SettingsError if it is not.
    """
    address = temporal_address()
    storage = settings.storage
    if storage is None:
        if not is_on_this_machine(address):
            raise SettingsError(
                f"there is nowhere to keep blobs, which agents need: Temporal is at {address}, so other "
                "workers may be elsewhere too. Set ABEYANCE_STORAGE to s3://bucket/prefix, or to a "
                "folder that all of them share"
            )
        storage = str(DEFAULT_FOLDER)
    check_reach(settings, address)
    return EncryptedBlobs(
        blobs_at(storage), settings.keyring, is_required=settings.encryption_required
    )


class ConfiguredBlobs:
    """The blobs that the settings name, looked for when they are first needed: runs without agents and
    large values need none. Each method raises SettingsError where there are none.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def _found(self) -> Blobs:
        return blobs_of(self._settings)

    async def put(self, run_id: str, data: bytes) -> str:
        return await self._found.put(run_id, data)

    async def get(self, ref: str) -> bytes:
        return await self._found.get(ref)

    async def delete_run(self, run_id: str) -> int:
        return await self._found.delete_run(run_id)


def check_reach(settings: Settings, address: str | None = None) -> None:
    """Raise SettingsError if others who serve the same runs could not read what is kept here.

    `address` is that of Temporal (host:port), else the one that the environment names.
    """
    if settings.storage is None:
        return
    if bucket_of(settings.storage) is not None:
        s3.check_installed()
        return
    address = address or temporal_address()
    if not settings.storage_shared and not is_on_this_machine(address):
        raise SettingsError(
            f"ABEYANCE_STORAGE={settings.storage!r} is a folder, and Temporal is at {address}: a worker "
            "or an API elsewhere could not read it. If all of them mount that folder, set "
            "ABEYANCE_STORAGE_SHARED=1; else use s3://bucket/prefix"
        )


def temporal_address() -> str:
    """Where the environment says that Temporal is (host:port)."""
    return ClientConfig.load_client_connect_config().get("target_host") or DEFAULT_ADDRESS


def is_on_this_machine(address: str) -> bool:
    """Whether an address (host:port) is one of this machine alone."""
    return is_loopback(urlsplit(f"//{address}").hostname or "")
