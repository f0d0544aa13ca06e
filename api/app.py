"""The application: what it is made of, and how it is served.

`create_app` puts the parts together; `serve` runs them on a port. An application keeps nothing of a
run in its process, so any number of them can serve the same runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI

from abeyance import tracing
from abeyance.api import inbox, openapi, problems
from abeyance.api.auth import Tokens
from abeyance.api.connections import Server
from abeyance.api.dependencies import Backend, TemporalConnection
from abeyance.api.jwt import JwtVerifier
from abeyance.api.metrics import measure
from abeyance.api.origin_guard import OriginGuard
from abeyance.api.path_params import DESCRIBED
from abeyance.api.routers import (
    admin,
    batch,
    codec,
    control,
    conversations,
    edits,
    events,
    health,
    interrupts,
    lists,
    messages,
    runs,
    transcripts,
)
from abeyance.api.routers import graphs as served
from abeyance.app import load_graphs
from abeyance.authoring.graph import Graph
from abeyance.client import Client
from abeyance.errors import SettingsError, Unavailable
from abeyance.settings import Settings
from abeyance.storage.backends import check_reach
from abeyance.util import is_loopback

_CONTRACT: Final = "0.1"
"""The version of what is promised to callers; it changes when the promise does."""
_BACKLOG: Final = 2048
_LAST_PORT: Final = 65_535
_SHUTDOWN_SECONDS: Final = 3
"""How long calls that are under way may go on when the service is told to stop."""


def create_app(
    settings: Settings, graphs: Mapping[str, Graph], client: Client | None = None
) -> FastAPI:
    """The application for these graphs.

    Without a `client` it reaches Temporal by itself, as the environment says, and answers 503 until it
    has. Raises SettingsError if the file of tokens, or the issuer of others, cannot be used.
    """
    backend = Backend(
        settings=settings,
        graphs=graphs,
        tokens=Tokens.read(settings.tokens_file, JwtVerifier.read(settings)),
        link=TemporalConnection(client),
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with backend.link.kept(settings):
            yield

    app = FastAPI(
        title="Abeyance",
        version=_CONTRACT,
        lifespan=lifespan,
        # The pages of the framework load their programs from other hosts.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.backend = backend
    if settings.enable_metrics:
        measure(app)
    # After it, so before it: what the guard turns away is no operation.
    has_codec = bool(settings.keyring) or settings.storage is not None
    app.add_middleware(
        OriginGuard,
        hosts=settings.allowed_hosts,
        tokens=backend.tokens,
        max_body_size=settings.max_body_size,
        has_codec=has_codec,
        ui_origins=settings.ui_origin,
    )
    for part in (health, inbox):
        app.include_router(part.router)
    for part in (served, lists, runs, interrupts, control, messages, edits, events):
        app.include_router(part.router, dependencies=[DESCRIBED])
    for part in (transcripts, conversations, batch, admin):
        app.include_router(part.router, dependencies=[DESCRIBED])
    if has_codec:
        app.include_router(codec.router)
    problems.install(app)
    openapi.install(app)
    return app


async def serve(settings: Settings, host: str, port: int) -> None:
    """Serve the API until cancelled, or until SIGTERM or SIGINT.

    Port 0 is any free one. Temporal may come later: until then calls are answered 503. Raises
    SettingsError if the graphs, the tokens, the storage, the host or the port cannot be used.
    """
    graphs = load_graphs(settings.app)
    check_reach(settings)
    tracing.begin("abeyance-api")
    if not settings.has_authentication and not is_loopback(host):
        raise SettingsError(
            f"without authentication the API listens on loopback only, not on {host!r}: listen on "
            "127.0.0.1, or set ABEYANCE_TOKENS_FILE, or ABEYANCE_JWT_ISSUER with its audience and keys"
        )
    if settings.has_authentication:
        hosts = (*settings.allowed_hosts, f"{host}:{port}".lower())
        settings = settings.model_copy(update={"allowed_hosts": hosts})
    app = create_app(settings, graphs)
    with contextlib.closing(bound(host, port)) as listener:
        server = Server(app, settings, grace=_SHUTDOWN_SECONDS)
        backend: Backend = app.state.backend
        await _until_told(server, listener, backend.leaving)


async def _until_told(server: Server, listener: socket.socket, leaving: asyncio.Event) -> None:
    def stop() -> None:
        leaving.set()
        server.should_exit = True

    serving = asyncio.create_task(server.serve(sockets=[listener]))
    with _signals(stop):
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            stop()
            await asyncio.wait({serving})
            raise
    if not server.started:
        raise Unavailable("the API did not start: see its log")


@contextlib.contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    handled = (signal.SIGINT, signal.SIGTERM)
    for number in handled:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises SettingsError if none can."""
    if not 0 <= port <= _LAST_PORT:
        raise SettingsError(
            f"the API cannot listen on {host}:{port}: use a port from 0 to {_LAST_PORT}"
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise SettingsError(f"the API cannot listen on {host!r}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"the API cannot listen on {host}:{port} ({error}): stop the program that uses the port, or "
            "choose another one"
        ) from error
    return listener
