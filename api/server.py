"""The server of the API: uvicorn's, with bounds and without signal handlers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import uvicorn
from starlette.types import ASGIApp

_MAX_HEAD_BYTES: Final = 32_768
_MAX_CONNECTIONS: Final = 800
"""Beyond so many a process answers 503. A system allows a process 1,024 open files at first."""
_KEEP_ALIVE: Final = 75
"""In seconds: a proxy closes an idle connection before, so that none of its requests is lost."""


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
