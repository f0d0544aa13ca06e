"""The application (`create_app`) and its server (`serve`).

An application has no state of runs, so any number of processes can serve the same runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from abeyance import tracing
from abeyance.api import inbox, links, openapi, problems, protocols, signin
from abeyance.api.auth import Tokens
from abeyance.api.dependencies import KNOWN_PARAMETERS, Backend, TemporalConnection
from abeyance.api.jwt import JwtVerifier
from abeyance.api.oidc import OidcClient
from abeyance.api.origin_guard import OriginGuard
from abeyance.api.routers import (
    admin,
    approvals,
    batch,
    control,
    conversations,
    delegations,
    events,
    grants,
    health,
    interrupts,
    messages,
    runs,
)
from abeyance.api.routers import graphs as graphs_router
from abeyance.api.sessions import Sessions
from abeyance.app import load_graphs
from abeyance.authoring.graph import Graph
from abeyance.client import Client
from abeyance.errors import SettingsError, Unavailable
from abeyance.notifications.config import load_notifications
from abeyance.settings import Settings
from abeyance.storage.backends import check_reach
from abeyance.util import API_VERSION, is_loopback

_BACKLOG: Final = 2048
_MAX_PORT: Final = 65_535
_SHUTDOWN_SECONDS: Final = 3
"""The time that running requests get when the service stops."""
_MAX_HEAD_BYTES: Final = 32_768
_MAX_CONNECTIONS: Final = 800
"""Beyond this number a process responds with 503. Systems allow 1,024 open files by default."""
_KEEP_ALIVE: Final = 75
"""In seconds: a proxy closes an idle connection sooner, so that none of its requests is lost."""
_logger = logging.getLogger("abeyance.api")


def create_app(
    settings: Settings, graphs: Mapping[str, Graph], client: Client | None = None
) -> FastAPI:
    """Return the application for these graphs.

    Without a `client` it connects to Temporal as the environment says, and responds with 503 meanwhile.
    Raises SettingsError if the tokens file, the token issuer, the notifications file or an installed
    protocol cannot be used.
    """
    issuer = JwtVerifier.read(settings)
    sessions = Sessions.read(settings)
    backend = Backend(
        settings=settings,
        graphs=graphs,
        tokens=Tokens(
            settings.tokens_file, issuer, oidc_issuer=settings.oidc_issuer, sessions=sessions
        ),
        connection=TemporalConnection(client),
        sessions=sessions,
        oidc=OidcClient.read(settings, issuer),
        notifications=load_notifications(settings, delivers=False),
    )

    spoken = protocols.installed()
    served: list[protocols.Serving] = []

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for each in served:
                await stack.enter_async_context(each())
            await stack.enter_async_context(backend.connection.keep_connecting(settings))
            yield

    app = FastAPI(
        title="Abeyance",
        version=API_VERSION,
        lifespan=lifespan,
        # These pages load scripts from other hosts.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=openapi.REFUSALS,
    )
    app.state.backend = backend
    app.add_middleware(HeadMiddleware)
    app.add_middleware(health.BehindMiddleware, backend=backend)
    if settings.enable_metrics:
        health.install_metrics(app)
    # The last middleware runs first: a request that the guard refuses is not an operation.
    has_codec = bool(settings.keyring) or settings.storage is not None
    app.add_middleware(
        OriginGuard,
        hosts=(*settings.allowed_hosts, *_host_of(settings.public_url)),
        tokens=backend.tokens,
        max_body_size=settings.max_body_size,
        has_codec=has_codec,
        ui_origins=settings.ui_origin,
        protocols=spoken,
        protocol_origins=settings.allowed_origins,
    )
    for part in (health, inbox, links, signin):
        app.include_router(part.router)
    for part in (
        graphs_router,
        runs,
        interrupts,
        approvals,
        delegations,
        grants,
        control,
        messages,
        events,
    ):
        app.include_router(part.router, dependencies=[KNOWN_PARAMETERS])
    app.include_router(admin.audit_router, dependencies=[KNOWN_PARAMETERS])
    for part in (conversations, batch, admin):
        app.include_router(part.router, dependencies=[KNOWN_PARAMETERS])
    served += filter(None, [each.install(app) for each in spoken])
    if has_codec:
        app.include_router(admin.codec_router)
    problems.install(app)
    openapi.install(app)
    return app


class HeadMiddleware:
    """ASGI middleware that answers a HEAD like a GET of the same path, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                # Complete the response here: a stream would never complete it.
                await send({"type": "http.response.body"})

        if scope["type"] == "http" and scope["method"] == "HEAD":
            await self._app({**scope, "method": "GET"}, receive, send_head)
        else:
            await self._app(scope, receive, send)


def _host_of(url: str | None) -> tuple[str, ...]:
    return () if url is None else (urlsplit(url).netloc,)


class Server(uvicorn.Server):
    """A server of the API. Running requests get `grace` seconds when it stops."""

    def __init__(self, app: ASGIApp, *, grace: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
                limit_concurrency=_MAX_CONNECTIONS,
                timeout_keep_alive=_KEEP_ALIVE,
                lifespan="on",
                ws="none",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=grace,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not handle signals.

        The default implementation raises them again after the shutdown, which ends the process before
        the caller can clean up.
        """
        yield


async def serve(settings: Settings, host: str, port: int) -> None:
    """Serve the API until cancelled, or until SIGTERM or SIGINT.

    Port 0 is any free port, which the log names. The service starts without Temporal, and responds with
    503 until it reaches Temporal. Raises SettingsError if the graphs, tokens, storage, host or port
    cannot be used.
    """
    graphs = load_graphs(settings.app)
    check_reach(settings)
    tracing.begin("abeyance-api")
    if not settings.has_authentication and not is_loopback(host):
        raise SettingsError(
            f"without authentication the API listens on loopback only, not on {host!r}: listen on "
            "127.0.0.1, or set ABEYANCE_TOKENS_FILE, ABEYANCE_JWT_ISSUER with its audience and keys, or "
            "ABEYANCE_OIDC_ISSUER"
        )
    if settings.has_authentication:
        hosts = (*settings.allowed_hosts, f"{host}:{port}".lower())
        settings = settings.model_copy(update={"allowed_hosts": hosts})
    app = create_app(settings, graphs)
    with contextlib.closing(listen(host, port)) as listener:
        name = f"[{host}]" if ":" in host else host
        _logger.info("url=http://%s:%d | the API listens", name, listener.getsockname()[1])
        server = Server(app, grace=_SHUTDOWN_SECONDS)
        backend: Backend = app.state.backend
        await _run(server, listener, backend.stopping)


async def _run(server: Server, listener: socket.socket, stopping: asyncio.Event) -> None:
    def stop() -> None:
        stopping.set()
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


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises SettingsError if the address cannot be used."""
    if not 0 <= port <= _MAX_PORT:
        raise SettingsError(
            f"the API cannot listen on {host}:{port}: use a port from 0 to {_MAX_PORT}"
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
        remedy = (
            "stop the program that uses the port, or choose another one"
            if error.errno == errno.EADDRINUSE
            else "use an address of this machine, and a port that this user may open"
        )
        raise SettingsError(
            f"the API cannot listen on {host}:{port} ({error.strerror}): {remedy}"
        ) from error
    return listener
