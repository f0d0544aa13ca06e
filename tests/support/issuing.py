"""A token issuer with its own keys, and a server on loopback that publishes them."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import jwt
from answering import Answering, answering
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt import InsecureKeyLengthWarning
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://login.example/"
AUDIENCE = "abeyance"
GONE = object()
"""The value of a claim that the token leaves out."""

Private: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
_FAMILIES: dict[str, Any] = {"RS": RSAAlgorithm, "PS": RSAAlgorithm, "ES": ECAlgorithm}
_CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


def new_key(algorithm: str = "RS256", *, bits: int = 2048) -> Private:
    """Return a new key for this signature algorithm."""
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    if algorithm in _CURVES:
        return ec.generate_private_key(_CURVES[algorithm])
    return rsa.generate_private_key(public_exponent=65_537, key_size=bits)


def published(key: Private, algorithm: str = "RS256", **fields: Any) -> dict[str, Any]:
    """Return the public key as an entry of a key set."""
    family = _FAMILIES.get(algorithm[:2], OKPAlgorithm)
    return {**json.loads(family.to_jwk(key.public_key())), **fields}


def claims_of(**changed: Any) -> dict[str, Any]:
    """Return the claims of a valid token, with changes."""
    now = int(time.time())
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ada",
        "iat": now,
        "exp": now + 300,
        "capabilities": ["runs:read"],
        **changed,
    }
    return {name: value for name, value in claims.items() if value is not GONE}


def signed(
    key: Private, kid: str | None, *, algorithm: str = "RS256", **changed: Any
) -> dict[str, str]:
    """Return the request header with a token of these claims."""
    headers = {} if kid is None else {"kid": kid}
    # The library's encoder refuses some invalid claims, which another issuer may still have written.
    body = json.dumps(claims_of(**changed)).encode()
    with warnings.catch_warnings(category=InsecureKeyLengthWarning, action="ignore"):
        token = jwt.PyJWS().encode(body, key, algorithm=algorithm, headers=headers)
    return {"Authorization": f"Bearer {token}"}


class Publisher:
    """Publishes `keys`, or `body` if it is set, with this `status`; `asked` counts the requests."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = []
        self.status = 200
        self.body: bytes | None = None
        self.asked = 0
        self.url = ""


@contextmanager
def publishing() -> Iterator[Publisher]:
    publisher = Publisher()

    class Handler(Answering):
        def get(self) -> None:
            publisher.asked += 1
            body = {"keys": publisher.keys} if publisher.body is None else publisher.body
            again = {"Location": publisher.url} if publisher.status == 302 else {}
            self.answer(publisher.status, body, **again)

    with answering(Handler) as url:
        publisher.url = f"{url}/keys"
        yield publisher
