"""Attacks by strangers, foreign pages and slow callers on the HTTP API.

Other attacks on the API, and the tests that show how they fail:

| attack | tests |
|---|---|
| host names, rebinding, origins, Sec-Fetch, content types, sizes of bodies | tests/api/test_guard.py |
| framing, links from other sites, what the page may load | tests/api/test_inbox_page.py |
| markup in the texts of a run | tests/api/test_inbox_page.py, tests/browser/test_inbox.py |
| too many connections | tests/api/test_connections.py |
| JSON Web Tokens: algorithms, keys, claims, `*` | tests/api/test_issued_tokens.py, test_keyset.py |
| hashed tokens, claimed principals | tests/api/test_auth.py |
| the capability of each call and question | tests/docs/test_security_page.py, test_approvals.py |
| digests and repeats of answers | tests/api/test_batch.py |
| keys: another's, another body, a refused answer's | tests/core/test_keys.py, tests/api/test_keys.py |
| JSON: NaN, 1e999, surrogates, BOM, UTF-16, depth, repeated keys | tests/api/test_guard.py |
| odd cursors, durations, dates, queries | tests/api/test_other_forms.py, test_schemathesis.py |
| the codec: origins, `admin`, JSON | tests/storage/test_codec.py |
| streams that outlast their token or their reader | test_issued_tokens.py, test_events.py |
| unseen or reordered text that people decide by | tests/security/test_shown_to_approvers.py |
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sample_graphs import gated
from stack import Api, app_for, head_of, new_id, problem, served, status_of, typed
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance.api.dependencies import hash_of
from abeyance.api.origin_guard import MAX_VALUES, check_body, check_json
from abeyance.errors import Refusal

JSON = {"Content-Type": "application/json"}
TOKENS = {
    "ada": ["runs:start", "runs:read", "runs:control", "runs:respond"],
    "root": ["*"],
    "odd": ["RUNS:READ", "runs:", "runs", "runs:*", " runs:read", "runs:read,runs:start"],
}
DIGESTS = {name: hashlib.sha256(name.encode()).hexdigest() for name in TOKENS}


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


@pytest_asyncio.fixture(scope="module")
async def site(temporal: TemporalClient) -> AsyncIterator[Site]:
    site = Site(temporal, gated())
    async with site.worker():
        yield site


@pytest.fixture(scope="module")
def tokens_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("perimeter") / "tokens.json"
    grants = [
        {"subject": name, "sha256": DIGESTS[name], "capabilities": capabilities}
        for name, capabilities in TOKENS.items()
    ]
    file.write_text(json.dumps(grants))
    return file


@pytest_asyncio.fixture(scope="module")
async def locked(site: Site, tokens_file: Path) -> AsyncIterator[Api]:
    async with served(app_for(site, tokens_file=tokens_file)) as api:
        yield api


@pytest_asyncio.fixture(scope="module")
async def unlocked(site: Site) -> AsyncIterator[Api]:
    """An API that requires no token."""
    async with served(app_for(site)) as api:
        yield api


# Callers who are not known yet


@pytest.mark.parametrize("path", ["/runs", "/healthz"])
@pytest.mark.parametrize("token", ["", "Authorization: Bearer nobody's"])
async def test_a_stranger_is_refused_before_a_byte_of_the_body_is_read(
    locked: Api, path: str, token: str
) -> None:
    lines = ["Content-Length: 900000", *([token] if token else [])]
    answer = await locked.raw(typed(locked, *lines, path=path))

    assert status_of(answer) == 401
    assert b'"code":"unauthenticated"' in answer


async def test_a_stranger_who_waits_for_leave_to_send_a_body_does_not_get_it(locked: Api) -> None:
    answer = await locked.raw(typed(locked, "Content-Length: 10", "Expect: 100-continue"))

    assert status_of(answer) == 401
    assert b"connection: close" in answer.lower()


async def test_the_connection_of_a_stranger_can_be_used_with_a_token(locked: Api) -> None:
    body = json.dumps({"graph": "gated", "input": {}}).encode()
    lines = [f"Content-Length: {len(body)}", "Content-Type: application/json"]
    request = head_of(locked, "/runs", *lines) + body
    known = head_of(locked, "/runs", *lines, "Authorization: Bearer ada") + body
    reader, writer = await asyncio.open_connection("127.0.0.1", locked.port)
    try:
        found = []
        for sent in (request, known):
            writer.write(sent)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
            length = head.lower().split(b"content-length: ")[1].split()[0]
            await reader.readexactly(int(length))
            found.append(status_of(head))
    finally:
        writer.close()

    assert found == [401, 201]


@pytest.mark.parametrize(
    "headers",
    [
        [("Authorization", f"Bearer {DIGESTS['ada']}")],
        [("Authorization", "Bearer ada"), ("Authorization", "Bearer nobody")],
        [("Authorization", "Bearer nobody"), ("Authorization", "Bearer ada")],
        [("Authorization", "Bearer ada, Bearer root")],
        [("Cookie", "token=ada")],
        [("X-Authorization", "Bearer ada")],
    ],
)
async def test_a_token_is_its_text_in_one_header(
    locked: Api, headers: list[tuple[str, str]]
) -> None:
    problem(await locked.http.get("/graphs", headers=headers), 401, "unauthenticated")
    problem(await locked.http.get("/graphs?access_token=ada"), 401, "unauthenticated")


async def test_a_text_that_resembles_a_capability_grants_nothing(locked: Api) -> None:
    response = await locked.http.get("/runs", headers=bearer("odd"))

    problem(response, 403, "capability_required")


# The values of a body


@pytest.mark.parametrize(
    ("body", "actual"),
    [
        (b"[" + b"1.5," * MAX_VALUES + b"1]", MAX_VALUES + 2),
        (b"[" + b'"",' * MAX_VALUES + b"1]", MAX_VALUES + 2),
        (b"[" + b'{"a":1},' * MAX_VALUES + b"1]", 2 * MAX_VALUES + 2),
        # An empty list counts as a place for a value too.
        (b"[" + b"[]," * MAX_VALUES + b"1]", 2 * MAX_VALUES + 2),
        (b'["' + b"," * MAX_VALUES + b'"' + b",1" * MAX_VALUES + b"]", MAX_VALUES + 2),
        # This stops being JSON only at a point that a parser reaches after long work.
        (b"[" + b"[]," * MAX_VALUES + b'"', 2 * MAX_VALUES + 2),
    ],
)
async def test_a_body_of_too_many_values_is_refused_with_their_number(
    locked: Api, body: bytes, actual: int
) -> None:
    assert len(body) < 1_000_000
    response = await locked.http.post("/runs", content=body, headers={**bearer("ada"), **JSON})

    found = problem(response, 413, "payload_too_large")
    assert (found["limit"], found["actual"]) == (MAX_VALUES, actual)
    assert str(actual) in found["detail"]


@pytest.mark.parametrize(
    "text", ["[{," * 100_000, '"[' * 100_000, "\\" * 50_001, '\\"],' * 90_000, ",\\"]
)
async def test_brackets_and_commas_in_a_text_do_not_count_as_values(text: str) -> None:
    check_json(json.dumps({"a": [text, {"b": text}], text[:50]: 1}).encode())


async def test_brackets_may_nest_64_deep_and_no_deeper() -> None:
    check_json(b"[" * 64 + b"]" * 64)
    with pytest.raises(Refusal, match="64"):
        check_json(b"[" * 65 + b"]" * 65)


async def test_a_body_may_have_exactly_the_most_values() -> None:
    check_json(b"[" + b"1," * (MAX_VALUES - 2) + b"1]")
    with pytest.raises(Refusal) as caught:
        check_json(b"[" + b"1," * (MAX_VALUES - 1) + b"1]")

    assert caught.value.details == {"limit": MAX_VALUES, "actual": MAX_VALUES + 1}


async def test_others_go_on_while_a_large_body_is_parsed() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await check_body(b"[" + b"1.5," * (MAX_VALUES - 2) + b"1]")
    task.cancel()

    assert turns > 0


async def test_only_an_administrator_sends_the_codec_more_and_only_where_it_is(
    site: Site, locked: Api, tokens_file: Path, tmp_path: Path
) -> None:
    content = json.dumps({"payloads": [{"metadata": {}, "data": "x" * 2_000_000}]})

    async def status(api: Api, name: str, path: str = "/codec/decode") -> int:
        headers = {**bearer(name), **JSON}
        return (await api.http.post(path, content=content, headers=headers)).status_code

    settings = {"tokens_file": tokens_file, "storage": str(tmp_path)}
    async with served(app_for(site, **settings)) as api:
        found = [await status(api, "root"), await status(api, "ada")]
        elsewhere = await status(api, "root", "/runs")

    assert found == [200, 413]
    assert elsewhere == 413
    assert await status(locked, "root") == 413


# Requests that a proxy and the API could read in two ways


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 2", "Content-Length: 3"],
        ["Content-Length: 2, 3"],
        ["Content-Length: +2"],
        ["Content-Length: 0x2"],
        ["Content-Length: -1"],
        ["Content-Length : 2"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: gzip, chunked"],
    ],
)
async def test_a_request_of_two_meanings_is_refused(locked: Api, lines: list[str]) -> None:
    answer = await locked.raw(typed(locked, "Authorization: Bearer ada", *lines) + b"{}")

    assert status_of(answer) in (400, 501), answer
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize(
    "request_line", ["GET http://evil.example/graphs HTTP/1.1", "GET /graphs HTTP/1.0"]
)
async def test_a_foreign_host_is_refused_in_every_form_of_a_request(
    locked: Api, request_line: str
) -> None:
    lines = [request_line, "Host: evil.example", "Authorization: Bearer ada", "", ""]
    answer = await locked.raw("\r\n".join(lines).encode())

    assert status_of(answer) in (403, 404)
    assert b"gated" not in answer


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Type: text/plain", "Content-Type: application/json"],
        ["Content-Type: text/plain, application/json"],
        ["Origin: http://127.0.0.1:1", "Origin: null"],
        ["Content-Type: application/json", "Origin: http://127.0.0.1:{port}.evil.example"],
        ["Content-Type: application/json", "Origin: http://127.0.0.1:{port}/evil"],
        ["Content-Type: application/json", "Origin: http://127.0.0.1:{port}", "Origin: null"],
        ["X-HTTP-Method-Override: GET"],
    ],
)
async def test_odd_requests_that_a_browser_might_let_through_are_refused(
    unlocked: Api, lines: list[str]
) -> None:
    run_id = new_id()
    body = json.dumps({"graph": "gated", "input": {}, "run_id": run_id}).encode()
    sent = [line.format(port=unlocked.port) for line in lines]
    request = head_of(unlocked, "/runs", *sent, f"Content-Length: {len(body)}") + body

    assert status_of(await unlocked.raw(request)) in (403, 415)
    problem(await unlocked.http.get(f"/runs/{run_id}"), 404, "unknown_run")


@pytest.mark.parametrize(
    "path",
    [
        "/inbox/../guard.py",
        "/inbox/..%2f..%2fguard.py",
        "/inbox/%2e%2e/guard.py",
        "/inbox/form.js%00.css",
        "/inbox/form.js;a=b",
        "//evil.example/inbox",
        "/runs/%00",
        "/runs/a%0d%0aX-Evil:%201",
        "/runs/conversation:x",
        "/runs/..%2f..%2fetc%2fpasswd",
        "/runs/" + "x" * 20_000,
        "/interrupts/" + "x" * 20_000,
        "/graphs/%F0%9F%98%80",
    ],
)
async def test_odd_paths_are_unknown(unlocked: Api, path: str) -> None:
    answer = await unlocked.raw(head_of(unlocked, path, method="GET"))

    assert status_of(answer) == 404, answer
    assert b"\nx-evil" not in answer.lower()
    assert b"location:" not in answer.lower()


# Run ids that are made from keys


async def test_different_keys_make_different_ids() -> None:
    pairs = [("a", "b|c"), ("a|b", "c"), ('a", "b', "c"), ("a", 'b", "c'), ("ab", "c"), ("a", "bc")]

    assert len({hash_of(*pair) for pair in pairs}) == len(pairs)


async def test_the_id_that_somebodys_key_makes_cannot_be_taken(locked: Api) -> None:
    body: dict[str, Any] = {"graph": "gated", "input": {}}
    key = {"Idempotency-Key": "7f3c1b52"}
    owner = await locked.http.post("/runs", json=body, headers={**bearer("root"), **key})
    taken = {**body, "run_id": owner.json()["run_id"]}
    refused = await locked.http.post("/runs", json=taken, headers=bearer("ada"))
    with_key = await locked.http.post("/runs", json=taken, headers={**bearer("ada"), **key})
    read = await locked.http.get(f"/runs/{taken['run_id']}", headers=bearer("ada"))

    for response in (refused, with_key):
        assert "Idempotency-Key" in problem(response, 422, "invalid_run_id")["detail"]
    assert owner.status_code == 201
    assert read.json()["started_by"] == "root"
