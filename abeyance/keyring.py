"""Keys for what is kept encrypted: the first seals, and each opens what it has sealed.

What is sealed begins with the id of its key and that of the run that it belongs to, both in the clear,
and neither can be changed unnoticed. It is encrypted by AES-GCM with a key of its own, derived from that
key and a salt, so that one key serves for any number of things. The salt comes from chance. For what is
large and kept in storage it comes from the content instead: then the same bytes are the same when they
are sealed again for the same run, and are kept once (docs/concepts/adr/0010-storage.md).
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
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_MAGIC: Final = b"\x00abeyance-sealed-2\x00"
_KEY_BYTES: Final = 32
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_OWNER_BYTES: Final = 2
"""How many bytes say how long the id of the run is."""
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_FORM: Final = "id:key[,id:key...], where a key is 32 bytes in base64"


class WrongKey(Unavailable):
    """Something is encrypted, and no key of this process opens it."""


class NotSealed(WrongKey):
    """Something is not encrypted and has to be, or was sealed for another run than it came to."""


class Keyring:
    """Keys by their ids; the first of them seals."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = dict(keys)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The keys of a text such as `2026b:<base64>,2026a:<base64>`.

        Raises ValueError saying which of them cannot be used, and never showing one.
        """
        keys: dict[str, bytes] = {}
        for number, entry in enumerate(text.split(","), 1):
            name, colon, encoded = entry.strip().partition(":")
            if not colon or not _ID.fullmatch(name):
                raise ValueError(
                    f"entry {number} does not begin with the id of a key; write {_FORM}"
                )
            if name in keys:
                raise ValueError(f"two keys have the id {name!r}; give each an id of its own")
            keys[name] = _key(name, encoded)
        return cls(keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def sealing_id(self) -> str:
        """The id of the key that seals."""
        return next(iter(self._keys))

    def seal(self, data: bytes, *, run_id: str = "", repeatable: bool = False) -> bytes:
        """The bytes, encrypted by the first key, for one run; for none without `run_id`.

        With `repeatable` the same bytes give the same again, so that whoever sees both can tell that
        they are equal, and nothing else.
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
        # Of the head too: one nonce for two runs would betray the key by which GCM authenticates.
        salt = _derived(key, b"salt", head + data)[:size] if repeatable else os.urandom(size)
        return head + salt + _cipher(key, salt).encrypt(salt[_SALT_BYTES:], data, head)

    def open(self, sealed: bytes) -> bytes:
        """What was sealed. Raises WrongKey naming the id of the key that it takes."""
        from cryptography.exceptions import InvalidTag

        name, _, end = _head(sealed)
        head = sealed[:end]
        key = self._keys.get(name)
        if key is None:
            known = ", ".join(map(repr, self._keys)) or "none"
            raise WrongKey(
                f"this is encrypted by the key {name!r}, which this process has not (it has {known}): "
                "add that key to ABEYANCE_ENCRYPTION_KEYS"
            )
        body = end + _SALT_BYTES + _NONCE_BYTES
        salt = sealed[end:body]
        try:
            return _cipher(key, salt).decrypt(salt[_SALT_BYTES:], sealed[body:], head)
        except (InvalidTag, ValueError) as error:
            raise WrongKey(
                f"this cannot be decrypted by the key {name!r}: it is damaged, or "
                "ABEYANCE_ENCRYPTION_KEYS gives that id to another key than it had"
            ) from error


def is_sealed(data: bytes) -> bool:
    """Whether bytes are sealed, by whatever key."""
    return data.startswith(_MAGIC)


def owner_of(sealed: bytes) -> str:
    """The id of the run for which something was sealed; "" for none. It is true of what can be opened.

    Raises NotSealed for what says none.
    """
    return _head(sealed)[1]


def _head(sealed: bytes) -> tuple[str, str, int]:
    """The id of the key, that of the run, and where the head ends."""
    start = len(_MAGIC) + 1
    if not is_sealed(sealed) or len(sealed) < start:
        raise NotSealed("what should be encrypted does not say by which key: it is damaged")
    middle = start + sealed[start - 1]
    begin = middle + _OWNER_BYTES
    end = begin + int.from_bytes(sealed[middle:begin], "big")
    key_id, owner = sealed[start:middle], sealed[begin:end]
    return key_id.decode("ascii", "replace"), owner.decode("utf-8", "replace"), end


def _key(name: str, encoded: str) -> bytes:
    try:
        key = base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"the key {name!r} is not base64; write {_FORM}") from None
    if len(key) != _KEY_BYTES:
        raise ValueError(f"the key {name!r} has {len(key)} bytes; write {_FORM}")
    return key


def _derived(key: bytes, purpose: bytes, data: bytes) -> bytes:
    return hmac.digest(key, b"abeyance " + purpose + b"\x00" + data, "sha256")


def _cipher(key: bytes, salt: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(_derived(key, b"key", salt[:_SALT_BYTES]))
