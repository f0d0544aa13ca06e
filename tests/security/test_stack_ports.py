"""No port that `abeyance dev` opens obeys a page of another origin, or tells it anything."""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from dev_stack import Place, Stack
from ports import listening

from abeyance.dev.ports import CLOSED_TO_BROWSERS

pytestmark = pytest.mark.slow

HOST: Final = "127.0.0.1"
RUN: Final = "refund"
OF_TEMPORAL: Final = f"/api/v1/namespaces/default/workflows/{RUN}"
ANSWER: Final = {"response": 5, "principal": {"subject": "ceo", "capabilities": ["*"]}}
# A page may send such bodies as `text/plain`, without a preflight request.
CALLS: Final[tuple[tuple[str, str, Any], ...]] = (
    ("POST", f"{OF_TEMPORAL}/update/respond", {"request": {"input": {"args": [ANSWER]}}}),
    ("POST", f"{OF_TEMPORAL}/signal/cancel", {"input": [{}]}),
    ("POST", f"{OF_TEMPORAL}/terminate", {}),
    ("POST", f"/runs/{RUN}/respond", {"response": 5}),
    ("POST", f"/runs/{RUN}/cancel", {}),
    ("GET", "/api/v1/namespaces/default/workflows", None),
    ("GET", f"/runs/{RUN}", None),
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Place(tmp_path_factory.mktemp("plain")).stack("--in-memory") as running:
        running.start(RUN, amount=2)
        yield running


def said(port: int, head: list[str], body: bytes = b"") -> bytes:
    """Return the first bytes of a port's answer; none if it only closes the connection."""
    text = "\r\n".join([*head, f"Content-Length: {len(body)}", "Connection: close", "", ""])
    with socket.create_connection((HOST, port), timeout=10) as connection:
        connection.sendall(text.encode() + body)
        try:
            return connection.recv(16)
        except ConnectionResetError:
            return b""


def statuses(port: int) -> dict[str, bytes]:
    """Return a port's answer to each call that a foreign page can make."""
    evil = f"evil.test:{port}"
    callers = {
        "a page of another origin": [f"Host: {HOST}:{port}", "Origin: http://evil.test"],
        "a page of another port": [f"Host: {HOST}:{port}", f"Origin: http://{HOST}:1"],
        "a page under a name that leads here": [f"Host: {evil}", f"Origin: http://{evil}"],
        "the same, that only reads": [f"Host: {evil}", "Sec-Fetch-Site: same-origin"],
    }
    return {
        f"{caller}: {method} {path}": said(
            port,
            [f"{method} {path} HTTP/1.1", *who, "Content-Type: text/plain"],
            b"" if body is None else json.dumps(body).encode(),
        )
        for caller, who in callers.items()
        for method, path, body in CALLS
    }


def is_http(port: int) -> bool:
    return said(port, ["GET / HTTP/1.1", f"Host: {HOST}:{port}"]).startswith(b"HTTP/")


def is_untouched(stack: Stack) -> bool:
    view: dict[str, Any] = httpx.get(f"{stack.api}/runs/{RUN}", timeout=30).json()
    (question,) = view["interrupts"]
    return (view["status"], question["status"], view["metrics"]["cancel_count"]) == (
        "awaiting-input",
        "open",
        0,
    )


def test_a_foreign_page_gets_403_at_every_port_that_it_can_reach_and_nothing_happens(
    stack: Stack,
) -> None:
    ports = listening(stack.processes())
    reachable = {port for port in ports - {*CLOSED_TO_BROWSERS} if is_http(port)}
    told = {port: statuses(port) for port in ports}

    assert reachable == {int(stack.api.rpartition(":")[2])}
    for port in reachable:
        assert {call: said for call, said in told[port].items() if b" 403" not in said} == {}
    assert is_untouched(stack)


def test_http_ports_of_temporal_are_closed_to_browsers(stack: Stack) -> None:
    temporal = {port for port in listening(stack.processes()) if port in CLOSED_TO_BROWSERS}

    # These are Temporal's HTTP API and its metrics.
    assert len(temporal) == 2
    assert all(is_http(port) for port in temporal)


def test_temporals_http_api_refuses_every_host_that_a_browser_can_name(stack: Stack) -> None:
    # This holds even if some browser does connect to the port.
    asked = "/api/v1/namespaces"
    answers = {
        (port, host): said(port, [f"GET {asked} HTTP/1.1", f"Host: {host}"])
        for port in listening(stack.processes())
        for host in (f"{HOST}:{port}", HOST, f"localhost:{port}", "[::1]", "evil.test", "")
        if port in CLOSED_TO_BROWSERS
    }
    statuses = {
        port: {said for (at, _), said in answers.items() if at == port} for port, _ in answers
    }

    assert {b"HTTP/1.1 403 For"} in statuses.values(), "the HTTP API"
    assert not any(b" 200" in answer for answer in answers.values())


def test_the_ports_that_speak_grpc_understand_nothing_that_a_browser_says(stack: Stack) -> None:
    ports = {port for port in listening(stack.processes()) if not is_http(port)}
    assert int(stack.temporal.rpartition(":")[2]) in ports

    for port in ports:
        # The port answers with a settings frame of HTTP/2, and closes: not HTTP that a browser can read.
        assert {answer[3:4] for answer in statuses(port).values()} <= {b"\x04", b""}
        # A browser speaks HTTP/2 only inside TLS, which the port does not speak.
        context = ssl.create_default_context()
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection((HOST, port), timeout=10) as connection,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            context.wrap_socket(connection, server_hostname="localhost")
    assert is_untouched(stack)


def test_files_of_the_stack_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    with Place(tmp_path).stack() as running:
        running.start(RUN, amount=2)
        data = tmp_path / "data"
        modes = {each.name: each.stat().st_mode & 0o777 for each in (data, *data.iterdir())}

    assert modes["data"] == 0o700
    assert modes["logs"] == 0o700
    assert {mode for name, mode in modes.items() if re.fullmatch("temporal.db(-.*)?", name)} == {
        0o600
    }


def test_a_database_of_an_earlier_version_is_closed_to_others_too(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    place = Place(tmp_path)
    with place.stack() as running:
        running.process.terminate()
        running.process.wait(timeout=15)
    (data / "temporal.db").chmod(0o644)

    with place.stack():
        assert (data / "temporal.db").stat().st_mode & 0o777 == 0o600
        assert (data / "logs").stat().st_mode & 0o777 == 0o700
        assert data.stat().st_mode & 0o777 == 0o755, "whose folder it was decides who comes in"
