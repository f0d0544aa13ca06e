"""The checks that every request and its body must pass."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

import pytest
from stack import Api, app_for, new_id, problem, served
from temporal_site import Site

TYPED = {"Content-Type": "application/json"}


async def test_a_host_that_is_not_ours_is_refused(api: Api) -> None:
    for host in (
        "evil.example",
        f"evil.example:{api.port}",
        "127.0.0.1",
        f"localhost:{api.port + 1}",
        f"localhost.evil.example:{api.port}",
        f"127.0.0.1.evil.example:{api.port}",
        f"evil@127.0.0.1:{api.port}",
        f"127.0.0.1:{api.port}/evil",
        "",
    ):
        response = await api.http.get("/graphs", headers={"Host": host})
        found = problem(response, 403, "foreign_origin")
        assert "ABEYANCE_ALLOWED_HOSTS" in found["detail"]


async def test_every_name_of_loopback_with_our_port_is_ours(api: Api) -> None:
    for host in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]", "127.0.0.2"):
        response = await api.http.get("/graphs", headers={"Host": f"{host}:{api.port}"})
        assert response.status_code == 200, response.text


async def test_two_hosts_are_none(api: Api) -> None:
    ours = f"Host: 127.0.0.1:{api.port}\r\n".encode()
    answer = await api.raw(b"GET /graphs HTTP/1.1\r\n" + ours + ours + b"\r\n")

    assert b" 200 " not in answer.splitlines()[0]


async def test_a_name_that_the_operator_allows_is_ours(site: Site) -> None:
    app = app_for(site, allowed_hosts=("abeyance.example", "other.example:8443"))
    async with served(app) as api:
        statuses = {
            host: (await api.http.get("/graphs", headers={"Host": host})).status_code
            for host in (
                "abeyance.example",
                "Abeyance.Example:444",
                "other.example:8443",
                "other.example",
            )
        }
        page = {"Host": "abeyance.example", "Origin": "https://abeyance.example"}
        from_our_page = await api.http.get("/graphs", headers=page)

    assert list(statuses.values()) == [200, 200, 200, 403]
    assert from_our_page.status_code == 200


async def test_health_is_served_to_any_host(api: Api) -> None:
    for path in ("/healthz", "/readyz"):
        response = await api.http.get(path, headers={"Host": "10.0.0.7:8000"})
        assert response.status_code == 200, response.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Origin": "file://"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "something-new"},
    ],
)
async def test_a_request_of_a_foreign_page_is_refused_and_does_nothing(
    api: Api, headers: dict[str, str]
) -> None:
    run_id = new_id()
    body = {"graph": "gated", "input": {}, "run_id": run_id}

    problem(await api.http.post("/runs", json=body, headers=headers), 403, "foreign_origin")
    problem(await api.http.get("/graphs", headers=headers), 403, "foreign_origin")
    problem(await api.http.get("/healthz", headers=headers), 403, "foreign_origin")
    problem(await api.http.get(f"/runs/{run_id}"), 404, "unknown_run")


async def test_our_own_pages_may_call(api: Api) -> None:
    for headers in (
        {"Origin": api.url, "Sec-Fetch-Site": "same-origin"},
        {"Origin": f"http://localhost:{api.port}", "Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ):
        assert (await api.http.get("/graphs", headers=headers)).status_code == 200


async def test_other_origins_cannot_read(api: Api) -> None:
    asked = await api.http.request(
        "OPTIONS",
        "/runs",
        headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"},
    )
    own = await api.http.get("/graphs", headers={"Origin": api.url})

    problem(asked, 403, "foreign_origin")
    for response in (asked, own):
        assert not [name for name in response.headers if name.startswith("access-control")]
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "text/plain;application/json"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Type": "application/jsonx"},
        {"X-Abeyance-Request": "1"},
    ],
)
async def test_a_change_is_sent_as_json_or_it_is_refused(api: Api, headers: dict[str, str]) -> None:
    run_id = new_id()
    body = json.dumps({"graph": "gated", "input": {}, "run_id": run_id})
    response = await api.http.post("/runs", content=body, headers=headers)

    problem(response, 415, "unsupported_media_type")
    problem(await api.http.get(f"/runs/{run_id}"), 404, "unknown_run")


async def test_an_empty_body_needs_a_header_that_no_foreign_page_can_send(
    api: Api, standing: tuple[str, str]
) -> None:
    run_id, _ = standing
    bare = await api.http.post(f"/runs/{run_id}/cancel")

    found = problem(bare, 415, "unsupported_media_type")
    assert found["detail"] == (
        "Set the header Content-Type: application/json or, for a call without a body, "
        "X-Abeyance-Request: 1."
    )
    assert (await api.http.get(f"/runs/{run_id}")).json()["status"] == "awaiting-input"


async def test_a_method_that_nobody_knows_is_checked_like_one_that_changes_something(
    api: Api, standing: tuple[str, str]
) -> None:
    run_id, _ = standing
    path = f"/runs/{run_id}"
    bare = await api.http.request("FROB", path)
    large = await api.http.request("FROB", path, content=b" " * 1_000_001, headers=TYPED)
    passed = await api.http.request("FROB", path, json={})

    problem(bare, 415, "unsupported_media_type")
    problem(large, 413, "payload_too_large")
    assert passed.status_code == 405


async def test_json_may_say_its_character_set(api: Api) -> None:
    for kind in ("application/json; charset=utf-8", "Application/JSON;charset=UTF-8"):
        body = json.dumps({"graph": "gated", "input": {}})
        headers = {"Content-Type": kind}
        assert (await api.http.post("/runs", content=body, headers=headers)).status_code == 201


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", ""),
        (b"graph=gated", ""),
        (b'{"graph": "gated", "input": {},}', ""),
        (b'{"graph": "gated", "input": {}} {}', ""),
        (b'{"graph": "gated", "input": {"amount": NaN}}', "NaN"),
        (b'{"graph": "gated", "input": {"amount": -Infinity}}', "-Infinity"),
        (b'{"graph": "gated", "input": {"amount": 1e400}}', "1e400"),
        (
            b'{"graph": "gated", "input": {"amount": ' + b"9" * 5000 + b"}}",
            f"JSON: the number {'9' * 47}... is too large.",
        ),
        (b'{"graph": "g\xe4ted", "input": {}}', "UTF-8"),
        (b'\xef\xbb\xbf{"graph": "gated", "input": {}}', ""),
        ('{"graph": "gated", "input": {}}'.encode("utf-16"), "UTF-8"),
        (b'{"graph": "gated", "input": {"log": ["\\ud800"]}}', "surrogate"),
        (b'{"graph": "gated", "input": ' + b"[" * 64 + b"]" * 64 + b"}", "64"),
        (b"[" * 50_000, "64"),
        (b'{"a":' * 50_000, "64"),
        (b"[" * 50_000 + b"]" * 50_000, "64"),
        (b'{"graph": "gated", "input": {"a": 1, "a": 2}}', "'a' twice"),
        (b'{"graph": "gated", "input": {}, "gr\\u0061ph": "gates"}', "'graph' twice"),
    ],
)
async def test_a_body_that_is_not_json_is_malformed(api: Api, body: bytes, told: str) -> None:
    response = await api.http.post("/runs", content=body, headers=TYPED)

    assert told in problem(response, 400, "malformed_body")["detail"]


async def test_text_of_every_script_passes_through_unharmed(api: Api) -> None:
    _, (gate, _) = await api.waiting("gates")
    answer = "größer \U0001f600 \u0000 \u2028 漢字"
    response = await api.http.post(f"/interrupts/{gate}/respond", json={"response": answer})

    assert response.status_code == 200, response.text
    assert (await api.interrupt(gate))["answer"] == answer


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_too_large_body_is_refused_with_the_limit(api: Api, chunked: bool) -> None:
    size = 3_000_000

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, size, 50_000):
            yield b" " * min(50_000, size - start)

    content = chunks() if chunked else b" " * size
    response = await api.http.post("/runs", content=content, headers=TYPED)

    found = problem(response, 413, "payload_too_large")
    assert found["limit"] == 1_000_000
    assert found.get("actual") == (None if chunked else size)


async def test_a_body_of_just_the_limit_is_read(api: Api) -> None:
    start, end = b'{"graph": "nope", "input": "', b'"}'
    body = start + b"x" * (1_000_000 - len(start) - len(end)) + end

    problem(await api.http.post("/runs", content=body, headers=TYPED), 404, "unknown_graph")


async def test_a_too_large_body_is_refused_before_it_is_sent(api: Api) -> None:
    head = (
        f"POST /runs HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\nContent-Type: application/json\r\n"
        "Content-Length: 2000000\r\nExpect: 100-continue\r\n\r\n"
    )
    answer = await api.raw(head.encode())

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"payload_too_large" in answer


async def test_a_body_without_end_is_not_read_to_its_end(site: Site) -> None:
    async with served(app_for(site, max_body_size=1_000)) as api:
        head = (
            f"POST /runs HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )

        def endless() -> Iterator[bytes]:
            for _ in range(1_000):
                yield b"400\r\n" + b" " * 0x400 + b"\r\n"

        # There is no last chunk: the API can only answer if it stops reading.
        answer = await api.raw(head.encode() + b"".join(endless()))

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer.lower()


async def test_a_caller_that_hangs_up_in_the_middle_starts_nothing(api: Api) -> None:
    run_id = new_id()
    body = json.dumps({"graph": "gated", "input": {}, "run_id": run_id}).encode()
    head = (
        f"POST /runs HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body) + 1}\r\n\r\n"
    )
    _, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(head.encode() + body)
    await writer.drain()
    writer.close()
    await writer.wait_closed()

    problem(await api.http.get(f"/runs/{run_id}"), 404, "unknown_run")
