"""The codec, by which Temporal's UI and command line make payloads readable."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from google.protobuf.json_format import MessageToDict
from sealed_site import a_key
from stack import Api, problem, served
from stored import LARGE, SECRET, connected, letters, shows
from temporal_cli import Operator
from temporal_site import Site
from temporalio.api.common.v1 import Payloads
from temporalio.client import Client as TemporalClient

from abeyance.api.app import create_app
from abeyance.client import Client
from abeyance.settings import Settings

UI = "http://127.0.0.1:8233"


@pytest_asyncio.fixture(scope="module")
async def api(
    temporal: TemporalClient, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Api]:
    folder = tmp_path_factory.mktemp("codec")
    settings = Settings(storage=str(folder), encryption_keys=a_key("first"), ui_origin=(UI,))
    client = Client(connected(temporal, settings))
    async with served(create_app(settings, {}, client)) as api:
        yield api


async def as_temporal_has(api: Api, *values: Any) -> dict[str, Any]:
    """Return values as the UI gets them from Temporal's server."""
    converter = api.app.state.backend.connection.client.temporal.data_converter
    found: dict[str, Any] = MessageToDict(Payloads(payloads=await converter.encode(values)))
    return found


def values_of(response: httpx.Response) -> list[Any]:
    assert response.status_code == 200, response.text
    payloads = response.json()["payloads"]
    assert {base64.b64decode(each["metadata"]["encoding"]) for each in payloads} <= {b"json/plain"}
    return [json.loads(base64.b64decode(each["data"])) for each in payloads]


async def test_the_codec_decodes_encrypted_and_stored_payloads(api: Api) -> None:
    asked = await as_temporal_has(api, {"a": SECRET}, LARGE)
    assert "ExternalStorageReference" in base64.b64decode(
        asked["payloads"][1]["metadata"]["messageType"]
    ).decode("ascii")

    assert values_of(await api.http.post("/codec/decode", json=asked)) == [{"a": SECRET}, LARGE]


async def test_the_codec_encrypts_and_decodes_again(api: Api) -> None:
    plain = base64.b64encode(json.dumps({"actor": SECRET}).encode()).decode()
    encoding = base64.b64encode(b"json/plain").decode()
    asked = {"payloads": [{"metadata": {"encoding": encoding}, "data": plain}]}
    encoded = await api.http.post("/codec/encode", json=asked)

    (payload,) = encoded.json()["payloads"]
    assert base64.b64decode(payload["metadata"]["encoding"]) == b"binary/encrypted"
    assert base64.b64decode(payload["metadata"]["encryption-key-id"]) == b"first"
    decoded = await api.http.post("/codec/decode", json=encoded.json())
    assert values_of(decoded) == [{"actor": SECRET}]


async def test_the_codec_leaves_plain_payloads_unchanged(api: Api) -> None:
    plain = base64.b64encode(b"7").decode()
    encoding = base64.b64encode(b"json/plain").decode()
    asked = {"payloads": [{"metadata": {"encoding": encoding}, "data": plain}]}

    assert values_of(await api.http.post("/codec/decode", json=asked)) == [7]
    assert (await api.http.post("/codec/decode", json={})).json() == {"payloads": []}


@pytest.mark.parametrize("body", [{"payloads": 7}, {"payloads": [{"data": 7}]}])
async def test_the_codec_refuses_bodies_that_are_not_payloads(
    api: Api, body: dict[str, Any]
) -> None:
    response = await api.http.post("/codec/decode", json=body)

    found = problem(response, 422, "invalid_body")
    assert "no valid Temporal payloads" in found["errors"][0]["message"]


async def test_a_key_that_is_not_there_is_named_and_nothing_is_passed_on(
    api: Api, temporal: TemporalClient, tmp_path: Path
) -> None:
    asked = await as_temporal_has(api, {"a": SECRET})
    other = Settings(encryption_keys=f"other:{base64.b64encode(os.urandom(32)).decode()}")
    client = Client(connected(temporal, other))
    async with served(create_app(other, {}, client)) as without:
        response = await without.http.post("/codec/decode", json=asked)

    found = problem(response, 503, "unavailable")
    assert "key 'first'" in found["detail"]


async def test_pages_of_the_ui_may_call_the_codec_and_nothing_else(api: Api) -> None:
    asked = await as_temporal_has(api, SECRET)
    page = {"Origin": UI, "Sec-Fetch-Site": "same-site", "X-Namespace": "default"}
    preflight = {**page, "Access-Control-Request-Method": "POST"}
    preflight["Access-Control-Request-Headers"] = "content-type,x-namespace"

    allowed = await api.http.options("/codec/decode", headers=preflight)
    assert (allowed.status_code, allowed.content) == (204, b"")
    assert allowed.headers["Access-Control-Allow-Methods"] == "POST"
    assert {"authorization", "content-type", "x-namespace"} == {
        *allowed.headers["Access-Control-Allow-Headers"].split(", ")
    }
    decoded = await api.http.post("/codec/decode", json=asked, headers=page)
    assert values_of(decoded) == [SECRET]
    for answer in (allowed, decoded):
        assert answer.headers["Access-Control-Allow-Origin"] == UI
        assert answer.headers["Access-Control-Allow-Credentials"] == "true"
        assert "Origin" in answer.headers["Vary"]

    for method, path in [("GET", "/runs"), ("OPTIONS", "/runs"), ("POST", "/runs")]:
        problem(await api.http.request(method, path, headers=page), 403, "foreign_origin")


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8234", "https://evil.example", "null"])
async def test_other_pages_may_not_call_the_codec(api: Api, origin: str) -> None:
    asked = await as_temporal_has(api, SECRET)
    for method in ("OPTIONS", "POST"):
        response = await api.http.request(
            method, "/codec/decode", json=asked, headers={"Origin": origin}
        )
        problem(response, 403, "foreign_origin")
        assert "Access-Control-Allow-Origin" not in response.headers


async def test_the_codec_requires_admin_with_authentication(
    temporal: TemporalClient, tmp_path: Path, keys: str
) -> None:
    grants = [
        {
            "subject": name,
            "sha256": hashlib.sha256(name.encode()).hexdigest(),
            "capabilities": [capability],
        }
        for name, capability in (("ada", "admin"), ("bea", "runs:read"))
    ]
    (tmp_path / "tokens").write_text(json.dumps(grants))
    settings = Settings(
        encryption_keys=keys, tokens_file=tmp_path / "tokens", ui_origin=(UI,), allowed_hosts=()
    )
    client = Client(connected(temporal, settings))
    async with served(create_app(settings, {}, client)) as api:
        asked = await as_temporal_has(api, SECRET)

        async def decode(**headers: str) -> httpx.Response:
            return await api.http.post("/codec/decode", json=asked, headers=headers)

        problem(await decode(), 401, "unauthenticated")
        refused = await decode(Authorization="Bearer bea", Origin=UI)
        problem(refused, 403, "capability_required")
        assert refused.headers["Access-Control-Allow-Origin"] == UI, "so that the page can tell why"
        assert values_of(await decode(Authorization="Bearer ada", Origin=UI)) == [SECRET]


async def test_an_api_without_encryption_and_storage_has_no_codec(temporal: TemporalClient) -> None:
    async with served(create_app(Settings(), {}, Client(temporal))) as api:
        assert (await api.http.post("/codec/decode", json={})).status_code == 404


async def test_temporals_command_line_shows_a_run_through_the_codec(
    temporal: TemporalClient, api: Api, tmp_path: Path
) -> None:
    site = Site(api.app.state.backend.connection.client.temporal, letters())
    run_id = await site.start({"given": LARGE})
    operator = Operator(temporal)
    command = ("show", run_id, "--output", "json")

    sealed = await operator.workflow(*command)
    readable = await operator.workflow(*command, "--codec-endpoint", f"{api.url}/codec")
    await site.temporal.get_workflow_handle(run_id).terminate()

    assert not shows(sealed.out, SECRET)
    assert shows(readable.out, LARGE)
