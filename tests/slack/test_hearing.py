"""Signed requests: which are taken, and how the others are refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from slack_site import signature
from stack import PLAIN

from abeyance.contrib.slack import hearing

SECRET = "s3cret"
PRESS = urlencode({"payload": json.dumps({"type": "block_actions"})})


@asynccontextmanager
async def listening(heard: list[Mapping[str, Any]]) -> AsyncIterator[httpx.AsyncClient]:
    async def hear(payload: Mapping[str, Any]) -> None:
        heard.append(payload)

    async with hearing.by_requests(SECRET, hear, "127.0.0.1", 0) as (host, port):
        base = f"http://{host}:{port}"
        async with httpx.AsyncClient(base_url=base, verify=PLAIN, trust_env=False) as http:
            yield http


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/slack", 200),
        ("POST", "/slack/", 200),
        ("POST", "/", 404),
        ("POST", "/slack/other", 404),
        ("GET", "/slack", 405),
        ("PUT", "/slack", 405),
    ],
)
async def test_a_press_is_posted_to_one_path(method: str, path: str, status: int) -> None:
    heard: list[Mapping[str, Any]] = []
    async with listening(heard) as http:
        headers = signature(SECRET, PRESS)
        got = await http.request(method, path, content=PRESS, headers=headers)

    assert got.status_code == status
    assert got.headers.get("allow") == ("POST" if status == 405 else None)
    assert len(heard) == (status == 200)


async def test_a_request_body_is_bounded_with_or_without_its_length() -> None:
    body = PRESS + "&more=" + "x" * 1_000_000

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 100_000):
            yield body[start : start + 100_000].encode()

    heard: list[Mapping[str, Any]] = []
    async with listening(heard) as http:
        for content in (body.encode(), parts()):
            got = await http.post("/slack", content=content, headers=signature(SECRET, body))
            assert got.status_code == 413

    assert heard == []


async def test_odd_headers_are_not_a_signature() -> None:
    heard: list[Mapping[str, Any]] = []
    signed = signature(SECRET, PRESS)
    wrong: list[dict[str, Any]] = [
        {**signed, "x-slack-signature": "v0=\u00e9".encode()},
        {**signed, "x-slack-request-timestamp": "9" * 5_000},
        {**signed, "x-slack-request-timestamp": "\u0661".encode()},
    ]
    async with listening(heard) as http:
        refused = [await http.post("/slack", content=PRESS, headers=each) for each in wrong]

    assert {each.status_code for each in refused} == {401}
    assert heard == []
