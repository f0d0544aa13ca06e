"""What stands in front of Temporal's UI: it lets its own pages through, unchanged, and nobody else."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from ports import free_port

from abeyance.api.temporal_ui import serve_ui

HOST = "127.0.0.1"


class Upstream(BaseHTTPRequestHandler):
    """Says what it was asked, as the UI's server would see it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        told = {
            "method": self.command,
            "target": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": self.rfile.read(size).decode(),
        }
        text = json.dumps(told).encode()
        self.send_response(201)
        self.send_header("Set-Cookie", "a=1")
        self.send_header("Set-Cookie", "b=2")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with ThreadingHTTPServer((HOST, 0), Upstream) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://{HOST}:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


@asynccontextmanager
async def shown(upstream: str, *hosts: str) -> AsyncIterator[httpx.AsyncClient]:
    port = free_port()
    async with (
        serve_ui(upstream, host=HOST, port=port, hosts=hosts),
        httpx.AsyncClient(base_url=f"http://{HOST}:{port}", trust_env=False) as http,
    ):
        yield http


async def test_a_call_of_its_own_page_goes_through_as_it_is(upstream: str) -> None:
    async with shown(upstream) as http:
        origin = str(http.base_url).rstrip("/")
        answer = await http.post(
            "/api/v1/a%2Fb?query=%22x%22&page=2",
            content="{not json",
            headers={"Origin": origin, "Content-Type": "text/plain", "X-CSRF-Token": "t"},
        )

    told = answer.json()
    assert (answer.status_code, told["method"], told["body"]) == (201, "POST", "{not json")
    assert told["target"] == "/api/v1/a%2Fb?query=%22x%22&page=2"
    assert told["headers"]["x-csrf-token"] == "t"
    assert told["headers"]["host"] == upstream.removeprefix("http://")
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", {"Host": "evil.test"}),
        ("GET", {"Origin": "http://evil.test"}),
        ("GET", {"Sec-Fetch-Site": "cross-site"}),
        ("POST", {"Origin": "http://127.0.0.1:1"}),
        ("POST", {"Origin": "null"}),
        ("POST", {"Sec-Fetch-Site": "same-origin"}),
        ("POST", {}),
        ("OPTIONS", {"Origin": "http://evil.test", "Access-Control-Request-Method": "POST"}),
    ],
    ids=str,
)
async def test_nobody_else_gets_through(
    upstream: str, method: str, headers: dict[str, str]
) -> None:
    async with shown(upstream) as http:
        answer = await http.request(method, "/api/v1/namespaces", headers=headers)

    assert answer.status_code == 403
    assert answer.json()["code"] == "foreign_origin"


async def test_a_host_that_the_settings_allow_may_call(upstream: str) -> None:
    async with shown(upstream, "dev.example") as http:
        answer = await http.get("/", headers={"Host": "dev.example"})

    assert answer.status_code == 201


@pytest.mark.parametrize("target", ["http://evil.test/x", "//evil.test/x", "*"])
async def test_whatever_is_called_it_is_the_ui_that_is_asked(upstream: str, target: str) -> None:
    async with shown(upstream) as http:
        port = http.base_url.port or 0
        said = f"GET {target} HTTP/1.1\r\nHost: {HOST}:{port}\r\nConnection: close\r\n\r\n"
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(said.encode())
        answer = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()

    told = json.loads(answer.partition("\r\n\r\n")[2])
    assert told["headers"]["host"] == upstream.removeprefix("http://")
    assert told["target"].lstrip("/") == target.lstrip("/")


async def test_while_the_ui_is_away_it_says_so() -> None:
    with socket.create_server((HOST, 0)) as taken:
        nobody = taken.getsockname()[1]
    async with shown(f"http://{HOST}:{nobody}") as http:
        answer = await http.get("/")

    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
