"""The whole stack in one process: the API on a free port, over a real Temporal server and a worker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import ssl
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import httpx
from fastapi import FastAPI
from temporal_site import Site

from abeyance.api.app import Server, create_app, listen
from abeyance.api.problems import MEDIA_TYPE
from abeyance.settings import Settings

PLAIN: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""A context for clients without TLS, which would otherwise read the certificates of all authorities."""
_PARAMETER: Final = re.compile(r"\{[^}]+\}")


class Api:
    """An API that is up. `http` checks every response against the OpenAPI document."""

    def __init__(self, app: FastAPI, server: Server, port: int) -> None:
        self.app = app
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.server = server
        self.http = httpx.AsyncClient(
            base_url=self.url,
            timeout=40,
            trust_env=False,
            verify=PLAIN,
            event_hooks={"response": [self._check_documented]},
        )

    @property
    def under_way(self) -> int:
        """How many calls the API is handling."""
        return len(self.server.server_state.tasks)

    def narrow(self) -> None:
        """Shrink the send buffers, so that little data waits on its way to the connected clients."""
        for connection in list(self.server.server_state.connections):
            wire = connection.transport.get_extra_info("socket")
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            connection.transport.set_write_buffer_limits(high=0)

    def kill(self) -> None:
        """Cut every connection and stop, even during calls."""
        self.server.should_exit = True
        self.server.force_exit = True
        for connection in list(self.server.server_state.connections):
            connection.transport.abort()

    async def raw(self, request: bytes) -> bytes:
        """Send bytes, and return the first response."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            # The server may respond and close before it has read everything.
            with contextlib.suppress(ConnectionError):
                writer.write(request)
                await writer.drain()
            async with asyncio.timeout(30):
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                return head + (await reader.readexactly(int(length[1])) if length else b"")
        finally:
            writer.close()

    async def start(self, graph: str, input: Mapping[str, Any], **fields: Any) -> str:
        """Start a run under a new id and return the id."""
        body = {"graph": graph, "input": dict(input), "run_id": new_id(), **fields}
        response = await self.http.post("/runs", json=body)
        assert response.status_code == 201, response.text
        return str(response.json()["run_id"])

    async def until(self, run_id: str, *statuses: str) -> dict[str, Any]:
        """Wait until the run has one of these statuses, and return its view."""
        query = {"wait": "PT30S", "until": ",".join(statuses)}
        view: dict[str, Any] = {}
        for _ in "12":
            view = (await self.http.get(f"/runs/{run_id}", params=query)).json()
            if view["status"] in statuses:
                return view
        raise AssertionError(f"{run_id} is not {' or '.join(statuses)}: {view}")

    async def waiting(
        self, graph: str, input: Mapping[str, Any] | None = None, **fields: Any
    ) -> tuple[str, list[str]]:
        """Start a run, wait until it awaits input, and return its id and the ids of its questions."""
        run_id = await self.start(graph, input or {}, **fields)
        view = await self.until(run_id, "awaiting-input")
        return run_id, [entry["id"] for entry in view["interrupts"]]

    async def interrupt(self, id_: str) -> dict[str, Any]:
        """Return an interrupt as it is now."""
        found: dict[str, Any] = (await self.http.get(f"/interrupts/{id_}")).json()
        return found

    async def _check_documented(self, response: httpx.Response) -> None:
        await response.aread()
        if (documented := self._answers(response.request)) is None:
            return
        status = str(response.status_code)
        answer = f"{response.request.method} {response.request.url.path} answers {status}"
        found = documented.get(status) or documented.get("4XX" if status < "500" else status)
        assert found, f"{answer}, which the document does not say: {response.text}"
        if response.status_code == 204:
            return
        content = resolved(_documented(self.app)[0], found)["content"]
        kind = response.headers["content-type"].partition(";")[0]
        assert {kind, "*/*"} & {*content}, f"{answer} as {kind}"
        if kind == MEDIA_TYPE:
            example = content[kind]["examples"].get(response.json()["code"])
            assert example, f"{answer} with an unknown code: {response.text}"
            assert example["value"]["status"] == response.status_code

    def _answers(self, request: httpx.Request) -> dict[str, Any] | None:
        method = request.method.lower()
        for pattern, calls in _documented(self.app)[1]:
            if pattern.fullmatch(request.url.path) and method in calls:
                found: dict[str, Any] = calls[method]["responses"]
                return found
        return None


def resolved(document: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a document, or the part to which it refers."""
    found = part
    for name in part.get("$ref", "#").removeprefix("#").strip("/").split("/"):
        found = document[name] if found is part and name else found[name] if name else found
    return found


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of an API without settings."""
    return _documented(create_app(Settings(), {}))[0]


_Calls: TypeAlias = list[tuple[re.Pattern[str], dict[str, Any]]]
_DOCUMENTS: Final[dict[tuple[Any, ...], tuple[dict[str, Any], _Calls]]] = {}
"""The documents by the settings that change them. Making one takes half a second."""


def _documented(app: FastAPI) -> tuple[dict[str, Any], _Calls]:
    """Return the application's OpenAPI document, and its calls with patterns of their paths."""
    settings: Settings = app.state.backend.settings
    optional = (settings.enable_metrics, bool(settings.keyring), settings.storage is None)
    parts = (len(app.routes), *optional)
    if parts not in _DOCUMENTS:
        document = app.openapi()
        _DOCUMENTS[parts] = (
            document,
            [
                (re.compile(_PARAMETER.sub("[^/]+", template)), calls)
                for template, calls in document["paths"].items()
            ],
        )
    return _DOCUMENTS[parts]


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[Api]:
    """Serve an application on a free port of 127.0.0.1."""
    # As in production. A listener of `socket.create_server` does not name TCP as its protocol, so asyncio
    # would leave Nagle's algorithm on, and each response would wait 40 ms for an acknowledgement.
    listener = listen("127.0.0.1", 0)
    server = Server(app, grace=2)
    api = Api(app, server, listener.getsockname()[1])
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            assert not serving.done(), "the API did not start"
            await asyncio.sleep(0.01)
        async with api.http:
            yield api
    finally:
        server.should_exit = True
        await serving
        listener.close()


def app_for(site: Site, **settings: Any) -> FastAPI:
    """Return an application for the graphs of a site."""
    return create_app(
        Settings(task_queue=site.settings.task_queue, **settings), site.graphs, site.client
    )


async def stream_events(response: httpx.Response) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the events of a stream, after a check that each event's lines agree."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            event = json.loads(fields["data"])
            assert (event["id"], event["type"]) == (fields["id"], fields["event"])
            yield event
            fields = {}


@asynccontextmanager
async def streaming(
    api: Api, path: str, headers: Mapping[str, str] | None = None, **query: Any
) -> AsyncIterator[AsyncGenerator[dict[str, Any], None]]:
    """Open a stream, check its headers, and yield its events."""
    accept = {"Accept": "text/event-stream", **(headers or {})}
    async with (
        httpx.AsyncClient(base_url=api.url, timeout=40, trust_env=False, verify=PLAIN) as http,
        http.stream("GET", path, headers=accept, params=query) as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-accel-buffering"] == "no"
        async with contextlib.aclosing(stream_events(response)) as events:
            yield events


def new_id(prefix: str = "run") -> str:
    """Return a new id."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check that a response is this problem, and return it."""
    assert response.headers["content-type"] == MEDIA_TYPE, response.text
    found: dict[str, Any] = response.json()
    assert (response.status_code, found["code"]) == (status, code), found
    assert found["status"] == status
    assert found["type"]
    assert found["title"]
    assert found["detail"]
    return found


def head_of(api: Api, path: str = "/runs", *lines: str, method: str = "POST") -> bytes:
    """Return the head of a request, with the empty line behind it."""
    all_of_it = (f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{api.port}", *lines, "", "")
    return "\r\n".join(all_of_it).encode()


def typed(api: Api, *lines: str, path: str = "/runs") -> bytes:
    """Return the head of a request with a JSON body."""
    return head_of(api, path, "Content-Type: application/json", *lines)


def status_of(answer: bytes) -> int:
    """Return the status of a raw response."""
    return int(answer.split()[1])
