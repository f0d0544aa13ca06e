"""The errors of `HttpClient` for wrong settings: another server than the API, and an unusable token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from abeyance.errors import SettingsError, Unavailable
from abeyance.http import HttpClient


async def first(client: HttpClient) -> Any:
    async with aclosing(client.events()) as events:
        return await anext(events)


CALLS: dict[str, Callable[[HttpClient], Awaitable[Any]]] = {
    "list": lambda client: client.runs.list(),
    "follow": first,
}


@asynccontextmanager
async def server(answer: bytes) -> AsyncIterator[str]:
    """Yield the host and port of a server that answers everything with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        yield f"{host}:{port}"


def response(status: int, body: str, kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} Any\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "answer",
    [
        response(200, "{}"),
        response(200, "[]"),
        response(200, '"x"'),
        response(404, '{"detail": "Not Found"}'),
        response(500, '{"error": "x"}'),
    ],
    ids=lambda answer: answer.decode().partition("Type: ")[2],
)
async def test_a_server_that_is_not_the_api_is_a_setting_to_correct(
    call: str, answer: bytes
) -> None:
    async with server(answer) as address, HttpClient(f"http://{address}") as client:
        with pytest.raises(SettingsError, match="to the address of an Abeyance API"):
            await CALLS[call](client)


@pytest.mark.parametrize(
    ("scheme", "answer"),
    [("http", b"\0\0\x18\4\0\0\0\0\0\0\4\0@\0\0"), ("https", response(400, "{}"))],
    ids=["grpc", "https to http"],
)
async def test_another_protocol_is_a_setting_to_correct(scheme: str, answer: bytes) -> None:
    async with server(answer) as address, HttpClient(f"{scheme}://{address}") as client:
        with pytest.raises(SettingsError, match="to the address of an Abeyance API"):
            await client.runs.list()


@pytest.mark.parametrize(
    ("scheme", "answer"),
    [
        ("http", b""),
        ("https", b""),
        ("http", response(200, "{}")[:-1]),
        ("http", response(503, "{}")),
        ("http", response(503, "<html>", "text/html")),
    ],
)
async def test_an_api_that_breaks_off_or_is_behind_a_proxy_is_only_away(
    scheme: str, answer: bytes
) -> None:
    async with server(answer) as address, HttpClient(f"{scheme}://{address}") as client:
        with pytest.raises(Unavailable):
            await client.runs.list()


@pytest.mark.parametrize("token", ["a\nb", "é", " ", "a b"])
def test_a_token_that_no_header_can_hold_is_a_setting_to_correct(token: str) -> None:
    with pytest.raises(SettingsError, match="ABEYANCE_TOKEN contains a character that no token"):
        HttpClient("http://127.0.0.1", token)
