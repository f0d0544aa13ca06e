"""The keys of an issuer: how often the API fetches them, how long they count, and which it accepts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from issuing import Publisher, new_key, published, publishing
from jwt.algorithms import ECAlgorithm

from abeyance.api import jwt
from abeyance.api.jwt import JwksCache
from abeyance.errors import SettingsError, Unavailable

PRIVATE = ec.generate_private_key(ec.SECP256R1())
KEY = published(new_key(), kid="a")
CURVE = published(PRIVATE, "ES256", kid="a")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with publishing() as publisher:
        publisher.keys = [KEY]
        yield publisher


async def test_keys_are_fetched_when_the_first_is_needed_and_then_kept(
    publisher: Publisher,
) -> None:
    keys = JwksCache(publisher.url)
    assert publisher.asked == 0

    found = await asyncio.gather(*(keys.key("a", "RS256") for _ in range(20)))

    assert all(key is not None for key in found)
    assert publisher.asked == 1


async def test_made_up_names_of_keys_do_not_make_us_fetch_at_will(publisher: Publisher) -> None:
    clock = Clock()
    keys = JwksCache(publisher.url, clock=clock)
    found = await asyncio.gather(*(keys.key(f"made-up-{n}", "RS256") for n in range(50)))
    assert found == [None] * 50
    assert publisher.asked == 1

    clock.now += jwt.COOLDOWN_SECONDS
    assert await keys.key("made-up", "RS256") is None
    assert publisher.asked == 2


async def test_a_new_key_is_found_after_the_rest_and_one_taken_back_within_its_time(
    publisher: Publisher,
) -> None:
    clock = Clock()
    keys = JwksCache(publisher.url, clock=clock)
    assert await keys.key("a", "RS256") is not None
    publisher.keys = [{**KEY, "kid": "b"}]

    assert await keys.key("b", "RS256") is None
    clock.now += jwt.COOLDOWN_SECONDS
    assert await keys.key("b", "RS256") is not None
    assert await keys.key("a", "RS256") is None

    publisher.keys = [KEY]
    clock.now += jwt.FRESH_SECONDS + 1
    assert await keys.key("b", "RS256") is None


async def test_keys_that_cannot_be_fetched_again_count_for_an_hour_and_no_longer(
    publisher: Publisher,
) -> None:
    clock = Clock()
    keys = JwksCache(publisher.url, clock=clock)
    await keys.key("a", "RS256")
    publisher.status = 500

    clock.now += jwt.STALE_SECONDS
    assert await keys.key("a", "RS256") is not None
    clock.now += 1
    with pytest.raises(Unavailable, match="cannot be fetched"):
        await keys.key("a", "RS256")
    publisher.status = 200
    with pytest.raises(Unavailable):
        await keys.key("a", "RS256")
    clock.now += jwt.COOLDOWN_SECONDS
    assert await keys.key("a", "RS256") is not None


async def test_whether_a_name_is_new_cannot_be_told_while_keys_cannot_be_fetched(
    publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    keys = JwksCache(publisher.url, clock=clock)
    await keys.key("a", "RS256")
    publisher.status = 500
    clock.now += jwt.COOLDOWN_SECONDS

    for _ in range(3):
        with pytest.raises(Unavailable):
            await keys.key("b", "RS256")
        clock.now += jwt.COOLDOWN_SECONDS
    assert await keys.key("a", "RS256") is not None
    assert publisher.asked == 4
    # The log tells the operator once what is wrong.
    (record,) = [record for record in caplog.records if record.name == "abeyance.api"]
    assert "cannot be fetched: ValueError: the answer is 500, not 200" in record.getMessage()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, None),
        (204, b""),
        # It redirects to itself: a client that follows it would never end.
        (302, None),
        (200, b"no JSON"),
        (200, b"[" * 200_000),
        (200, b"[]"),
        (200, b'{"keys": 7}'),
        (200, b'{"keys": []}'),
        (200, json.dumps({"keys": [KEY], "more": "x" * jwt.MAX_JWKS_BYTES}).encode()),
    ],
)
async def test_a_response_that_is_not_a_key_set_lets_nobody_in(
    publisher: Publisher, status: int, body: bytes | None
) -> None:
    publisher.status, publisher.body = status, body
    with pytest.raises(Unavailable):
        await JwksCache(publisher.url).key("a", "RS256")
    assert publisher.asked == 1


async def test_an_issuer_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwt, "FETCH_TIMEOUT_SECONDS", 0.2)
    closing = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await closing.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(20):
            with pytest.raises(Unavailable):
                await JwksCache(f"http://127.0.0.1:{port}/keys").key("a", "RS256")
        closing.set()


@pytest.mark.parametrize(
    "other",
    [
        {"kty": "oct", "kid": "a", "k": "c2VjcmV0"},
        {"kty": "RSA", "kid": "a"},
        {"kty": "EC", "kid": "a", "crv": "P-256", "x": "!", "y": "!"},
        {**KEY, "use": "enc"},
        {**KEY, "use": ["sig"]},
        {**KEY, "n": 7, "e": {}},
        {**KEY, "alg": "RSA-OAEP"},
        {**KEY, "alg": "none"},
        {**KEY, "alg": "HS256"},
        {**KEY, "alg": ["RS256"]},
        {**json.loads(ECAlgorithm.to_jwk(PRIVATE)), "kid": "a"},
        {**KEY, "kid": 7},
        {"kty": "AKP", "kid": "a"},
        "no key",
        None,
    ],
)
async def test_unusable_keys_of_a_key_set_are_skipped(publisher: Publisher, other: Any) -> None:
    publisher.keys = [other, KEY]
    keys = JwksCache(publisher.url)
    found = await keys.key("a", "RS256")
    assert found is not None
    assert (found.key_id, found.key_type) == ("a", "RSA")
    assert await keys.key("a", "ES256") is None

    publisher.keys = [other]
    with pytest.raises(Unavailable):
        await JwksCache(publisher.url).key("a", "RS256")


async def test_a_key_serves_only_the_algorithms_that_it_is_for(publisher: Publisher) -> None:
    publisher.keys = [{**KEY, "alg": "PS256"}, CURVE]
    keys = JwksCache(publisher.url)

    assert await keys.key("a", "RS256") is None
    assert await keys.key("a", "PS384") is None
    assert await keys.key("a", "ES384") is None
    for algorithm, kind in (("PS256", "RSA"), ("ES256", "EC")):
        found = await keys.key("a", algorithm)
        assert found is not None
        assert found.key_type == kind


async def test_a_token_without_a_name_is_for_the_only_key(publisher: Publisher) -> None:
    assert await JwksCache(publisher.url).key(None, "RS256") is not None

    publisher.keys = [KEY, CURVE]
    assert await JwksCache(publisher.url).key(None, "RS256") is None


async def test_a_file_of_keys_may_change_while_the_service_is_up(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [KEY]}))
    clock = Clock()
    keys = JwksCache(str(file), clock=clock)
    assert await keys.key("a", "RS256") is not None

    file.write_text(json.dumps({"keys": [{**KEY, "kid": "b"}]}))
    clock.now += jwt.COOLDOWN_SECONDS
    assert await keys.key("b", "RS256") is not None
    assert await keys.key("a", "RS256") is None


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "No such file"),
        ("hidden", "not JSON of the form"),
        ('{"keys": [{"kty": "oct", "k": "hidden"}]}', "no public key"),
    ],
)
def test_a_file_that_holds_no_keys_stops_the_start_and_is_not_shown(
    tmp_path: Path, content: str | None, told: str
) -> None:
    file = tmp_path / "keys.json"
    if content is not None:
        file.write_text(content)

    with pytest.raises(SettingsError, match=told) as caught:
        JwksCache(str(file))
    assert f"ABEYANCE_JWT_JWKS={file}" in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "place",
    [
        "http://login.example/keys",
        "ftp://login.example/keys",
        "file:///keys.json",
        "https://",
        "https://user:hidden@login.example/keys",
        "https://login.example:port/keys",
        "https://[::1/keys",
        "https://login.example/keys#first",
    ],
)
def test_an_address_that_is_not_safe_stops_the_start(place: str) -> None:
    with pytest.raises(SettingsError, match="ABEYANCE_JWT_JWKS") as caught:
        JwksCache(place)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("place", ["https://login.example/keys?of=us", "http://[::1]:8080/keys"])
def test_https_with_a_query_and_plain_http_on_loopback_are_safe(place: str) -> None:
    JwksCache(place)
