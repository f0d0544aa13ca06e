"""Encryption keys: the first key seals, and every key opens what it has sealed.

Sealed data begins with the id of its key and of its run, both in clear text and authenticated. It is
encrypted by AES-GCM with a key derived from the named key and a salt, so one key can seal any amount of
data. The salt is random. For data in storage it is derived from the content instead: sealing the same
bytes again for the same run gives the same result, which is stored once
(docs/internals/adr/0010-storage.md).

The key of the audit signs, by ed25519. Its public half is all that a verification needs.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Self

from abeyance.errors import Unavailable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_MAGIC: Final = b"\x00abeyance-sealed-2\x00"
_KEY_BYTES: Final = 32
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_OWNER_BYTES: Final = 2
"""The bytes that hold the length of the run id."""
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_FORM: Final = "id:key[,id:key...], where a key is 32 bytes in base64"
_SIGNING_FORM: Final = "32 bytes in base64, as `openssl rand -base64 32` prints for a private key"


class WrongKey(Unavailable):
    """Data is encrypted, and no key of this process opens it."""


class NotSealed(WrongKey):
    """Data is not encrypted though it must be, or was sealed for another run."""


class Keyring:
    """Keys by their ids; the first of them seals."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = dict(keys)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse keys such as `2026b:<base64>,2026a:<base64>`.

        Raises ValueError, which names the invalid key but never shows it.
        """
        keys: dict[str, bytes] = {}
        for number, entry in enumerate(text.split(","), 1):
            name, colon, encoded = entry.strip().partition(":")
            if not colon or not _ID.fullmatch(name):
                raise ValueError(f"entry {number} does not begin with a key id; write {_FORM}")
            if name in keys:
                raise ValueError(f"two keys have the id {name!r}; give each its own id")
            keys[name] = _decoded_key(f"the key {name!r}", encoded, _FORM)
        return cls(keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def sealing_id(self) -> str:
        """Return the id of the key that seals."""
        return next(iter(self._keys))

    def seal(self, data: bytes, *, run_id: str = "", repeatable: bool = False) -> bytes:
        """Encrypt bytes with the first key, for one run, or for none without `run_id`.

        With `repeatable` equal bytes give equal results, which reveals that they are equal.
        """
        name = self.sealing_id
        key = self._keys[name]
        owner = run_id.encode()
        head = (
            _MAGIC
            + bytes([len(name)])
            + name.encode()
            + len(owner).to_bytes(_OWNER_BYTES, "big")
            + owner
        )
        size = _SALT_BYTES + _NONCE_BYTES
        # Includes the head: reusing a nonce for two runs would reveal the authentication key of GCM.
        salt = _derived(key, b"salt", head + data)[:size] if repeatable else os.urandom(size)
        return head + salt + _cipher(key, salt).encrypt(salt[_SALT_BYTES:], data, head)

    def open(self, sealed: bytes) -> bytes:
        """Decrypt sealed data. Raises WrongKey, naming the id of the required key."""
        from cryptography.exceptions import InvalidTag

        name, _, end = _head(sealed)
        head = sealed[:end]
        key = self._keys.get(name)
        if key is None:
            key_ids = ", ".join(map(repr, self._keys)) or "none"
            raise WrongKey(
                f"this is encrypted with the key {name!r}, which this process lacks (it has {key_ids}): "
                "add that key to ABEYANCE_ENCRYPTION_KEYS"
            )
        body = end + _SALT_BYTES + _NONCE_BYTES
        salt = sealed[end:body]
        try:
            return _cipher(key, salt).decrypt(salt[_SALT_BYTES:], sealed[body:], head)
        except (InvalidTag, ValueError) as error:
            raise WrongKey(
                f"this cannot be decrypted with the key {name!r}: it is damaged, or that id names "
                "another key in ABEYANCE_ENCRYPTION_KEYS than it did"
            ) from error


class SigningKey:
    """The private key that signs audits and tombstones."""

    def __init__(self, private: bytes) -> None:
        self._private = private

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a private key, 32 bytes in base64. Raises ValueError, which never shows it."""
        return cls(_decoded_key("the private key", text, _SIGNING_FORM))

    @property
    def public(self) -> str:
        """The public key, in base64."""
        return base64.b64encode(self._key().public_key().public_bytes_raw()).decode()

    def sign(self, data: bytes) -> str:
        """Return the signature of bytes, in base64."""
        return base64.b64encode(self._key().sign(data)).decode()

    def _key(self) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self._private)


class VerifyingKey:
    """The public key of a SigningKey."""

    def __init__(self, public: bytes) -> None:
        self._public = public

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a public key, 32 bytes in base64. Raises ValueError."""
        return cls(_decoded_key("the public key", text, _SIGNING_FORM))

    def verifies(self, signature: str, data: bytes) -> bool:
        """Return whether a signature (base64) belongs to these bytes."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        key = Ed25519PublicKey.from_public_bytes(self._public)
        try:
            signed = base64.b64decode(signature, validate=True)
            key.verify(signed, data)
        except (InvalidSignature, ValueError):
            return False
        # Base64 has several texts for the same bytes.
        return base64.b64encode(signed).decode() == signature


def is_sealed(data: bytes) -> bool:
    """Return True if bytes are sealed, with any key."""
    return data.startswith(_MAGIC)


def owner_of(sealed: bytes) -> str:
    """Return the id of the run that data was sealed for, "" for none. Trust it only once opened.

    Raises NotSealed if the data has no valid head.
    """
    return _head(sealed)[1]


def _head(sealed: bytes) -> tuple[str, str, int]:
    """Return the key id, the run id, and the end of the head."""
    start = len(_MAGIC) + 1
    if not is_sealed(sealed) or len(sealed) < start:
        raise NotSealed("encrypted data names no key: it is damaged")
    middle = start + sealed[start - 1]
    begin = middle + _OWNER_BYTES
    end = begin + int.from_bytes(sealed[middle:begin], "big")
    key_id, owner = sealed[start:middle], sealed[begin:end]
    return key_id.decode("ascii", "replace"), owner.decode("utf-8", "replace"), end


def _decoded_key(what: str, encoded: str, form: str) -> bytes:
    try:
        key = base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{what} is not base64; write {form}") from None
    if len(key) != _KEY_BYTES:
        raise ValueError(f"{what} has {len(key)} bytes; write {form}")
    return key


def _derived(key: bytes, purpose: bytes, data: bytes) -> bytes:
    return hmac.digest(key, b"abeyance " + purpose + b"\x00" + data, "sha256")


def _cipher(key: bytes, salt: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(_derived(key, b"key", salt[:_SALT_BYTES]))
