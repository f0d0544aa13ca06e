"""Encryption of what travels through Temporal, and of blobs, by the keys of one keyring.

What came before encryption was turned on stays readable. What is encrypted and cannot be opened is an
error that names the key: nothing encrypted is ever passed on as if it were a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1 import ExternalStorageReference
from temporalio.converter import PayloadCodec

from abeyance.keyring import Keyring, is_sealed
from abeyance.storage.blobs import Blobs

ENCODING: Final = "binary/encrypted"
"""How an encrypted payload is marked."""
_REFERENCE: Final = ExternalStorageReference.DESCRIPTOR.full_name.encode()
_KEY_ID: Final = "encryption-key-id"
"""Where it says which key it takes; that is read by people only."""


class Encryption(PayloadCodec):
    """The codec of payloads. Those of `stored_from` bytes on will be kept in storage."""

    def __init__(self, keys: Keyring, *, stored_from: int) -> None:
        self._keys = keys
        self._stored_from = stored_from
        self._metadata = {"encoding": ENCODING.encode(), _KEY_ID: keys.sealing_id.encode()}

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._encoded(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [opened(payload, self._keys) for payload in payloads]

    def _encoded(self, payload: Payload) -> Payload:
        if is_reference(payload):
            # What is sent again as it was kept: it is encrypted where it is.
            return payload
        data = payload.SerializeToString(deterministic=True)
        sealed = self._keys.seal(data, repeatable=len(data) >= self._stored_from)
        return Payload(metadata=self._metadata, data=sealed)


def is_reference(payload: Payload) -> bool:
    """Whether a payload stands for one that is kept in storage."""
    return payload.metadata.get("messageType") == _REFERENCE


def opened(payload: Payload, keys: Keyring) -> Payload:
    """The payload that was encrypted as this one. Raises WrongKey."""
    if payload.metadata.get("encoding") != ENCODING.encode():
        return payload
    return Payload.FromString(keys.open(payload.data))


class EncryptedBlobs:
    """Blobs that are encrypted where they are kept. Without keys it only finds out what is encrypted."""

    def __init__(self, blobs: Blobs, keys: Keyring) -> None:
        self._blobs = blobs
        self._keys = keys

    async def put(self, run_id: str, data: bytes) -> str:
        sealed = self._keys.seal(data, repeatable=True) if self._keys else data
        return await self._blobs.put(run_id, sealed)

    async def get(self, ref: str) -> bytes:
        data = await self._blobs.get(ref)
        return self._keys.open(data) if is_sealed(data) else data

    async def delete_run(self, run_id: str) -> int:
        return await self._blobs.delete_run(run_id)
