"""JSON Web Tokens: the API accepts those of its issuer, and names the fault of all others."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from issuing import (
    AUDIENCE,
    GONE,
    ISSUER,
    Publisher,
    claims_of,
    new_key,
    published,
    publishing,
    signed,
)
from stack import Api, app_for, new_id, problem, served
from temporal_site import Site

from abeyance import SettingsError
from abeyance.api import jwt
from abeyance.api.app import create_app
from abeyance.api.jwt import LEEWAY_SECONDS
from abeyance.settings import Settings

ALGORITHMS = jwt.ALGORITHMS
KEYS = {name: new_key(name) for name in ("RS256", "ES256", "ES384", "ES512", "EdDSA")}
KEYS |= {name: KEYS["RS256"] for name in ALGORITHMS if name not in KEYS}
KEY = KEYS["RS256"]
SMALL = new_key(bits=1024)
GRANT = {
    "subject": "bob",
    "sha256": hashlib.sha256(b"b-token").hexdigest(),
    "capabilities": ["runs:read"],
}


def settings_of(publisher: Publisher, **more: Any) -> dict[str, Any]:
    return {
        "jwt_issuer": ISSUER,
        "jwt_audience": AUDIENCE,
        "jwt_jwks": publisher.url,
        **more,
    }


def publish(publisher: Publisher) -> None:
    publisher.keys = [
        *(published(key, name, kid=name) for name, key in KEYS.items()),
        published(SMALL, kid="small"),
    ]


@pytest_asyncio.fixture(scope="module")
async def guarded(site: Site, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    file = tmp_path_factory.mktemp("issued") / "tokens.json"
    file.write_text(json.dumps([GRANT]))
    with publishing() as publisher:
        publish(publisher)
        settings = settings_of(publisher, tokens_file=file)
        async with served(app_for(site, **settings)) as api:
            yield api


def made_by_hand(head: dict[str, Any], secret: bytes = b"", **changed: Any) -> dict[str, str]:
    """Return a token that an attacker could write, signed with a text that is not secret."""
    parts = [json.dumps(part).encode() for part in (head, claims_of(**changed))]
    body = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    seal = hmac.digest(secret, body, "sha256") if secret else b""
    end = base64.urlsafe_b64encode(seal).rstrip(b"=")
    return {"Authorization": f"Bearer {(body + b'.' + end).decode()}"}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_token_of_the_issuer_names_who_acts_and_what_they_may_do(
    guarded: Api, algorithm: str
) -> None:
    headers = signed(KEYS[algorithm], algorithm, algorithm=algorithm, sub="Zoë")
    refused = await guarded.http.post("/runs", json={"graph": "gated"}, headers=headers)

    found = problem(refused, 403, "capability_required")
    assert found["capability"] == "runs:start"
    assert (await guarded.http.get("/me", headers=headers)).json()["subject"] == "Zoë"


@pytest.mark.parametrize(
    "listed",
    [["runs:read"], ["a", "runs:read"], "runs:read", " openid  runs:read admin"],
)
async def test_capabilities_are_a_list_or_words(guarded: Api, listed: Any) -> None:
    headers = signed(KEY, "RS256", capabilities=listed)

    assert (await guarded.http.get("/graphs", headers=headers)).status_code == 200


async def test_groups_come_with_the_claim_that_a_setting_names_and_read_rights_with_theirs(
    site: Site, guarded: Api
) -> None:
    claims: dict[str, Any] = {"groups": ["finance"], "reads": {"team": "finance"}}
    headers = signed(KEY, "RS256", **claims, abeyance={"in": "eu us"})
    me = (await guarded.http.get("/me", headers=headers)).json()
    with publishing() as publisher:
        publish(publisher)
        named = {"jwt_groups": "abeyance.in"}
        async with served(app_for(site, **settings_of(publisher, **named))) as api:
            nested = (await api.http.get("/me", headers=headers)).json()

    assert (me["groups"], me["reads"]) == (["finance"], {"team": ["finance"]})
    assert (nested["groups"], nested["reads"]) == (["eu", "us"], me["reads"])
    assert me["expires_at"] is not None


async def test_the_subject_is_the_claim_that_a_setting_names(site: Site) -> None:
    with publishing() as publisher:
        publish(publisher)
        settings = settings_of(publisher, jwt_subject="email")
        async with served(app_for(site, **settings)) as api:
            named = await api.http.get("/me", headers=signed(KEY, "RS256", email="ada@example.com"))
            for email in (GONE, None, 7, "", "timeout"):
                headers = signed(KEY, "RS256", email=email)
                refused = await api.http.get("/me", headers=headers)
                assert "email" in problem(refused, 401, "unauthenticated")["detail"]

    assert named.json()["subject"] == "ada@example.com"


@pytest.mark.parametrize("listed", [["*"], "*", ["runs:read", "*"], "openid * runs:read"])
async def test_an_issuer_never_allows_everything(guarded: Api, listed: Any) -> None:
    refused = await guarded.http.get("/graphs", headers=signed(KEY, "RS256", capabilities=listed))

    assert "list each one" in problem(refused, 401, "unauthenticated")["detail"]


@pytest.mark.parametrize("listed", [[], "", "runs:start", ["runs:read runs:start"], None, GONE])
async def test_a_token_without_capabilities_allows_nothing(guarded: Api, listed: Any) -> None:
    headers = signed(KEY, "RS256", capabilities=listed)

    problem(await guarded.http.get("/graphs", headers=headers), 403, "capability_required")


@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("realm_access.roles", {"realm_access": {"roles": ["runs:read"]}}),
        ("https://a.example/may", {"https://a.example/may": ["runs:read"]}),
        (
            "resource_access.my.app.roles",
            {"resource_access": {"my": {"app": 1}, "my.app": {"roles": ["runs:read"]}}},
        ),
    ],
)
async def test_capabilities_may_stand_in_a_claim_within_others(
    site: Site, name: str, claims: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with publishing() as publisher:
        publish(publisher)
        settings = settings_of(publisher, jwt_capabilities=name)
        async with served(app_for(site, **settings)) as api:
            headers = signed(KEY, "RS256", capabilities=["admin"], **claims)
            assert (await api.http.get("/graphs", headers=headers)).status_code == 200
            for other in ({}, {"realm_access": ["roles"]}, {"realm_access": {"roles": None}}):
                headers = signed(KEY, "RS256", **other)
                refused = await api.http.get("/graphs", headers=headers)
                problem(refused, 403, "capability_required")

    assert caplog.text.count(f"a token has no claim {name}, so its owner has no capabilities") == 1


NOW = int(time.time())
DAY = 86_400
"""In seconds: longer than a run of the tests takes after they are collected."""


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"exp": NOW - DAY}, "has expired (exp)"),
        ({"exp": GONE}, "lacks the claim exp"),
        ({"exp": "soon"}, "valid JSON Web Token"),
        ({"exp": (NOW + DAY) * 1_000}, "exp counts seconds"),
        ({"exp": 10**400}, "exp counts seconds"),
        ({"nbf": NOW + DAY}, "is not valid yet (nbf"),
        ({"nbf": "soon"}, "valid JSON Web Token"),
        ({"iat": NOW + DAY}, "is not valid yet (nbf, iat)"),
        ({"iat": "soon"}, "iat is not a number"),
        ({"iss": "https://other.example/"}, "another issuer (iss)"),
        ({"iss": [ISSUER]}, "another issuer (iss)"),
        ({"iss": GONE}, "lacks the claim iss"),
        ({"aud": "others"}, "another audience (aud)"),
        ({"aud": ["others"]}, "another audience (aud)"),
        ({"aud": 7}, "another audience (aud)"),
        ({"aud": GONE}, "lacks the claim aud"),
        ({"aud": []}, "lacks the claim aud"),
        ({"sub": GONE}, "lacks the claim sub"),
        ({"sub": 7}, "sub is not a string"),
        ({"sub": " ada"}, "(sub)"),
        ({"sub": "a\ud800"}, "(sub)"),
        ({"sub": "timeout"}, "reserved"),
        ({"capabilities": 7}, "capabilities takes"),
        ({"capabilities": ["runs:read", 7]}, "capabilities takes"),
        ({"capabilities": ["a\ud800"]}, "capabilities takes"),
        ({"capabilities": [f"c{n}" for n in range(201)]}, "capabilities takes"),
        ({"capabilities": "x" * 257}, "capabilities takes"),
        ({"groups": {"finance": True}}, "groups takes"),
        ({"reads": {"team": []}}, "reads takes"),
    ],
)
async def test_a_wrong_claim_is_named(guarded: Api, changed: dict[str, Any], told: str) -> None:
    headers = signed(KEY, "RS256", **changed)
    refused = await guarded.http.get("/graphs", headers=headers)

    found = problem(refused, 401, "unauthenticated")
    assert told in found["detail"]
    assert headers["Authorization"].split()[1] not in refused.text
    assert refused.headers["www-authenticate"].startswith("Bearer")


async def test_clocks_may_be_a_little_apart(guarded: Api) -> None:
    apart = LEEWAY_SECONDS - 5
    now = int(time.time())
    claims: list[dict[str, Any]] = [
        {"exp": now - apart},
        {"iat": now + apart},
        {"nbf": now + apart},
    ]
    for changed in claims:
        headers = signed(KEY, "RS256", **changed)
        assert (await guarded.http.get("/graphs", headers=headers)).status_code == 200


async def test_a_stream_ends_when_the_token_expires_that_it_began_with(guarded: Api) -> None:
    may_start = signed(KEY, "RS256", capabilities=["runs:start"])
    body: dict[str, Any] = {"graph": "gated", "input": {}, "run_id": new_id()}
    assert (await guarded.http.post("/runs", json=body, headers=may_start)).status_code == 201
    # Two seconds are usually enough for the API to accept the token. A slow machine gets more.
    for seconds in (2, 6, 30):
        ends = int(time.time()) + 1 - LEEWAY_SECONDS + seconds
        headers = {**signed(KEY, "RS256", exp=ends), "Accept": "text/event-stream"}
        async with asyncio.timeout(seconds + 20):
            told = await guarded.http.get(f"/runs/{body['run_id']}/events", headers=headers)
        if told.status_code == 200:
            break

    assert time.time() >= ends + LEEWAY_SECONDS
    assert "event: interrupt.opened" in told.text
    assert told.text.endswith(
        ": the token has expired: reconnect with a new token and the last id\n\n"
    )


async def test_a_token_that_anybody_could_make_is_refused(guarded: Api) -> None:
    pem = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    pem_der = KEY.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    attempts = [
        made_by_hand({"alg": "none"}),
        made_by_hand({"alg": "None", "kid": "RS256"}),
        made_by_hand({"alg": "", "kid": "RS256"}),
        made_by_hand({"kid": "RS256"}),
        made_by_hand({"alg": ["RS256"], "kid": "RS256"}),
        made_by_hand({"alg": "HS256", "kid": "RS256"}, pem),
        made_by_hand({"alg": "HS256", "kid": "RS256"}, pem_der),
        made_by_hand({"alg": "RS256", "kid": "RS256"}, pem),
        made_by_hand({"alg": "RS256", "kid": ["RS256"]}, pem),
        made_by_hand({"alg": "RS256", "kid": "RS256", "b64": False, "crit": ["b64"]}, pem),
        made_by_hand({"alg": "RS256", "kid": "RS256", "jwk": published(new_key())}, pem),
        signed(new_key(), "RS256"),
        signed(KEY, None),
        signed(KEY, "ES256"),
        signed(SMALL, "small"),
    ]
    for headers in attempts:
        problem(await guarded.http.get("/graphs", headers=headers), 401, "unauthenticated")


@pytest.mark.parametrize(
    "token", ["nobody's", "a.b", "a.b.c", "....", "é.é.é", "e30.e30.e30", "x" * 20_000]
)
async def test_a_text_that_is_not_a_token_is_refused(guarded: Api, token: str) -> None:
    headers = {b"Authorization": b"Bearer " + token.encode("latin-1")}

    problem(await guarded.http.get("/graphs", headers=headers), 401, "unauthenticated")


async def test_a_token_of_the_issuer_alone_is_authentication_and_nothing_of_it_is_kept(
    site: Site,
) -> None:
    with publishing() as publisher:
        publisher.keys = [published(KEY, kid="k")]
        settings = settings_of(publisher, jwt_capabilities="https://abeyance.example/may")
        async with served(app_for(site, **settings)) as api:
            may = {"https://abeyance.example/may": "runs:start runs:read", "nonce": "n0nce"}
            headers = signed(KEY, "k", capabilities=["admin"], **may)
            problem(await api.http.get("/graphs"), 401, "unauthenticated")
            problem(await api.http.get("/metrics", headers=headers), 403, "capability_required")
            body: dict[str, Any] = {"graph": "gated", "input": {}, "run_id": new_id()}
            assert (await api.http.post("/runs", json=body, headers=headers)).status_code == 201

    history = await site.client.temporal.get_workflow_handle(body["run_id"]).fetch_history()
    kept = history.to_json() + b"".join(_payloads(history.to_json())).decode()
    assert '"ada"' in kept
    for secret in (*headers["Authorization"].split()[1].split("."), "n0nce"):
        assert secret not in kept


def _payloads(history: str) -> list[bytes]:
    def walk(value: Any) -> list[bytes]:
        match value:
            case {"data": str(data), "metadata": _}:
                return [base64.b64decode(data)]
            case dict():
                return [found for inner in value.values() for found in walk(inner)]
            case list():
                return [found for inner in value for found in walk(inner)]
            case _:
                return []

    return walk(json.loads(history))


async def test_while_keys_cannot_be_fetched_only_hashed_tokens_are_let_in(
    site: Site, tmp_path: Path
) -> None:
    file = tmp_path / "tokens.json"
    file.write_text(json.dumps([GRANT]))
    with publishing() as publisher:
        settings = settings_of(publisher, tokens_file=file)
    # No server listens at the publisher's address now.
    async with served(app_for(site, **settings)) as api:
        refused = await api.http.get("/graphs", headers=signed(KEY, "k"))
        hashed = await api.http.get("/graphs", headers={"Authorization": "Bearer b-token"})
        unknown = await api.http.get("/graphs", headers={"Authorization": "Bearer other"})
        unsigned = await api.http.get("/graphs", headers=made_by_hand({"alg": "none"}))

    found = problem(refused, 503, "unavailable")
    assert "keys" in found["detail"]
    assert publisher.url not in refused.text
    assert int(refused.headers["retry-after"]) >= 1
    assert hashed.status_code == 200
    problem(unknown, 401, "unauthenticated")
    problem(unsigned, 401, "unauthenticated")


@pytest.mark.parametrize("missing", ["jwt_issuer", "jwt_audience", "jwt_jwks"])
def test_half_of_an_issuer_stops_the_start_and_says_what_is_missing(missing: str) -> None:
    given = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks": "https://login.example/k"}
    with pytest.raises(SettingsError) as caught:
        create_app(Settings.model_validate({**given, missing: None}), {})

    assert f"ABEYANCE_{missing.upper()} must be set too" in str(caught.value)
    only = {name: value for name, value in given.items() if name == missing}
    with pytest.raises(SettingsError, match=r"ABEYANCE_JWT_.* and ABEYANCE_JWT_.* must be set too"):
        create_app(Settings.model_validate(only), {})
