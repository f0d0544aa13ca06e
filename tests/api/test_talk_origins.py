"""Which pages may talk to a graph: our own, and those of named origins if they have a token."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from stack import Api, app_for, problem, served
from temporal_site import Site

CHAT = "https://chat.example"
PAGE = {"Origin": CHAT, "Sec-Fetch-Site": "cross-site"}
TOKEN = {"Authorization": "Bearer a-token"}
ALLOWED = "access-control-allow-origin"
BODY = {"threadId": "t", "runId": "1", "messages": []}


@pytest_asyncio.fixture(scope="module")
async def opened(site: Site, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    file: Path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    hashed = hashlib.sha256(b"a-token").hexdigest()
    file.write_text(json.dumps([{"subject": "ada", "sha256": hashed, "capabilities": ["*"]}]))
    async with served(app_for(site, tokens_file=file, allowed_origins=(CHAT,))) as api:
        yield api


async def test_a_page_of_a_named_origin_talks_with_a_token(opened: Api) -> None:
    asked = await opened.http.options("/agui/gated", headers=PAGE)
    answer = await opened.http.post("/agui/gated", json=BODY, headers={**PAGE, **TOKEN})

    assert (asked.status_code, asked.headers[ALLOWED]) == (204, CHAT)
    assert "authorization" in asked.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in answer.headers
    assert answer.headers[ALLOWED] == CHAT
    problem(answer, 404, "unknown_graph")


async def test_it_needs_a_token_although_somebody_has_signed_in(opened: Api) -> None:
    signed_in = await opened.http.post("/signin", json={"token": "a-token"})
    cookies = {"Cookie": signed_in.headers["set-cookie"].partition(";")[0]}
    answer = await opened.http.post("/agui/gated", json=BODY, headers={**PAGE, **cookies})

    problem(answer, 401, "unauthenticated")


async def test_without_authentication_no_other_origin_is_allowed(site: Site) -> None:
    async with served(app_for(site, allowed_origins=(CHAT,))) as api:
        refused = await api.http.post("/agui/gated", json=BODY, headers={**PAGE, **TOKEN})
        other = await api.http.post(
            "/agui/gated", json=BODY, headers={"Origin": "https://evil.example"}
        )

    assert "without tokens" in problem(refused, 403, "foreign_origin")["detail"]
    assert "only pages of this service" in problem(other, 403, "foreign_origin")["detail"]
