"""Encryption of payloads and blobs with one keyring.

Data is sealed for one run and refused by any other. Data from before encryption was turned on stays
readable, unless encryption is required (`is_required`). Encrypted data that cannot be opened is an error
that names the key; it is never passed on as a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1 import ExternalStorageReference
from temporalio.converter import (
    ActivitySerializationContext,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)

from abeyance.keyring import Keyring, NotSealed, is_sealed, owner_of
from abeyance.storage.blobs import Blobs, folder_of

ENCODING: Final = "binary/encrypted"
"""The encoding of an encrypted payload."""
REFUSED: Final = "binary/refused"
"""The encoding of a refused payload; its data is the reason as text."""
STAMP: Final = "abeyance-stamp"
"""Metadata key of the stamp. A stamp counts only if it was sealed with the payload."""
_REFERENCE: Final = ExternalStorageReference.DESCRIPTOR.full_name.encode()
_KEY_ID: Final = "encryption-key-id"
"""Metadata key of the key id, for people only."""
_REMEDY: Final = "send it by a client or an API that has the same keys and settings"
_OPEN: Final = f"it is not encrypted, and ABEYANCE_ENCRYPTION_REQUIRED is set: {_REMEDY}"


class Encryption(PayloadCodec, WithSerializationContext):
    """The payload codec. Payloads of `stored_from` bytes or more go to storage.

    With `is_required` it refuses unsealed payloads. The SDK sets the run by a context; without one the
    codec seals for no run and opens payloads of any run, for display only.
    """

    def __init__(
        self,
        keys: Keyring,
        *,
        stored_from: int,
        is_required: bool = False,
        run_id: str | None = None,
    ) -> None:
        self.is_required: Final = is_required
        self._keys = keys
        self._stored_from = stored_from
        self._run_id = run_id
        self._metadata = {"encoding": ENCODING.encode(), _KEY_ID: keys.sealing_id.encode()}

    def with_context(self, context: SerializationContext) -> Self:
        if not isinstance(context, WorkflowSerializationContext | ActivitySerializationContext):
            return self
        return type(self)(
            self._keys,
            stored_from=self._stored_from,
            is_required=self.is_required,
            run_id=context.workflow_id or "",
        )

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._encoded(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._decoded(payload) for payload in payloads]

    def _encoded(self, payload: Payload) -> Payload:
        if is_reference(payload):
            # The payload is already encrypted in the storage.
            return payload
        data = payload.SerializeToString(deterministic=True)
        is_stored = len(data) >= self._stored_from
        sealed = self._keys.seal(data, run_id=self._run_id or "", repeatable=is_stored)
        return Payload(metadata=self._metadata, data=sealed)

    def _decoded(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCODING.encode():
            return refused(_OPEN) if self.is_required else _unstamped(payload)
        try:
            inner, owner = opened(payload, self._keys), owner_of(payload.data)
        except NotSealed as error:
            return refused(str(error))
        if self._run_id is None or owner == self._run_id:
            return inner
        if owner:
            return refused(f"it was sealed for {owner!r}, and came to {self._run_id!r}")
        # Temporal's own tools seal without naming a run.
        if self.is_required:
            return refused(f"it was sealed for no run, and came to {self._run_id!r}: {_REMEDY}")
        return _unstamped(inner)


def is_reference(payload: Payload) -> bool:
    """Return True if a payload refers to one in storage."""
    return payload.metadata.get("messageType") == _REFERENCE


def is_open(payload: Payload) -> bool:
    """Return True if a payload is neither encrypted nor a reference."""
    return payload.metadata.get("encoding") != ENCODING.encode() and not is_reference(payload)


def opened(payload: Payload, keys: Keyring) -> Payload:
    """Decrypt a payload of any run. Raises WrongKey."""
    return Payload.FromString(keys.open(payload.data))


def refused(why: str) -> Payload:
    """Return the replacement of a refused payload: it has a reason instead of a value."""
    return Payload(metadata={"encoding": REFUSED.encode()}, data=why.encode())


def _unstamped(payload: Payload) -> Payload:
    if STAMP not in payload.metadata:
        return payload
    metadata = {name: value for name, value in payload.metadata.items() if name != STAMP}
    return Payload(metadata=metadata, data=payload.data)


class EncryptedBlobs:
    """Blobs sealed for their runs. Sealed blobs need keys; `is_required` refuses unsealed ones."""

    def __init__(self, blobs: Blobs, keys: Keyring, *, is_required: bool = False) -> None:
        self._blobs = blobs
        self._keys = keys
        self._is_required = is_required

    async def put(self, run_id: str, data: bytes) -> str:
        sealed = self._keys.seal(data, run_id=run_id, repeatable=True) if self._keys else data
        return await self._blobs.put(run_id, sealed)

    async def get(self, ref: str) -> bytes:
        data = await self._blobs.get(ref)
        if not is_sealed(data):
            if self._is_required:
                raise NotSealed(f"the blob {ref} is refused: {_OPEN}")
            return data
        opened_ = self._keys.open(data)
        if not ref.startswith(f"{folder_of(owner_of(data))}/"):
            raise NotSealed(f"the blob {ref} is refused: it was sealed for {owner_of(data)!r}")
        return opened_

    async def delete(self, ref: str) -> None:
        await self._blobs.delete(ref)

    async def delete_run(self, run_id: str) -> int:
        return await self._blobs.delete_run(run_id)
