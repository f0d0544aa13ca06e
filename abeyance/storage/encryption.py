"""Encryption of what travels through Temporal, and of blobs, by the keys of one keyring.

All of it is sealed for one run, and nothing that was sealed for another is taken in its place. What came
before encryption was turned on stays readable, unless all has to be sealed (`is_required`). What is
encrypted and cannot be opened is an error that names the key: nothing encrypted is ever passed on as if
it were a value.
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
"""How an encrypted payload is marked."""
REFUSED: Final = "binary/refused"
"""How a payload is marked that is not taken; its data is the reason, as text."""
STAMP: Final = "abeyance-stamp"
"""Where a payload has its stamp. It counts for something only if it was sealed with the rest."""
_REFERENCE: Final = ExternalStorageReference.DESCRIPTOR.full_name.encode()
_KEY_ID: Final = "encryption-key-id"
"""Where it says which key it takes; that is read by people only."""
_SCHEDULED: Final = "janitor:"
"""How the ids of workflows begin that a schedule starts. What they get is sealed before all of the id is
known."""
_REMEDY: Final = "send it by a client or an API that has the same keys and settings"
_OPEN: Final = f"it is not encrypted, and ABEYANCE_ENCRYPTION_REQUIRED is set: {_REMEDY}"


class Encryption(PayloadCodec, WithSerializationContext):
    """The codec of payloads. Those of `stored_from` bytes on will be kept in storage.

    With `is_required` what is not sealed is refused. The SDK tells it for which run it works; where none
    is told, it seals for none, and opens what was sealed for any: that is for showing only.
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
            # What is sent again as it was kept: it is encrypted where it is.
            return payload
        data = payload.SerializeToString(deterministic=True)
        is_kept = len(data) >= self._stored_from
        sealed = self._keys.seal(data, run_id=self._run_id or "", repeatable=is_kept)
        return Payload(metadata=self._metadata, data=sealed)

    def _decoded(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCODING.encode():
            return refused(_OPEN) if self.is_required else _unstamped(payload)
        try:
            inner, owner = opened(payload, self._keys), owner_of(payload.data)
        except NotSealed as error:
            return refused(str(error))
        if self._run_id is None or _is_for(self._run_id, owner):
            return inner
        if owner:
            return refused(f"it was sealed for {owner!r}, and came to {self._run_id!r}")
        # As Temporal's own tools have it sealed, which do not say for which run it is.
        if self.is_required:
            return refused(f"it was sealed for no run, and came to {self._run_id!r}: {_REMEDY}")
        return _unstamped(inner)


def is_reference(payload: Payload) -> bool:
    """Whether a payload stands for one that is kept in storage."""
    return payload.metadata.get("messageType") == _REFERENCE


def is_open(payload: Payload) -> bool:
    """Whether a payload is neither encrypted nor a reference."""
    return payload.metadata.get("encoding") != ENCODING.encode() and not is_reference(payload)


def opened(payload: Payload, keys: Keyring) -> Payload:
    """The payload that was encrypted as this one, for whatever run. Raises WrongKey."""
    return Payload.FromString(keys.open(payload.data))


def refused(why: str) -> Payload:
    """What stands in the place of a payload that is not taken: it has no value, but a reason."""
    return Payload(metadata={"encoding": REFUSED.encode()}, data=why.encode())


def _unstamped(payload: Payload) -> Payload:
    if STAMP not in payload.metadata:
        return payload
    kept = {name: value for name, value in payload.metadata.items() if name != STAMP}
    return Payload(metadata=kept, data=payload.data)


def _is_for(run_id: str, owner: str) -> bool:
    return owner == run_id or (owner.startswith(_SCHEDULED) and run_id.startswith(f"{owner}-"))


class EncryptedBlobs:
    """Blobs that are encrypted where they are kept, each for its run. Without keys it only finds out what
    is encrypted; with `is_required` what is not is refused.
    """

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

    async def delete_run(self, run_id: str) -> int:
        return await self._blobs.delete_run(run_id)
