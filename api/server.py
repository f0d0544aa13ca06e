"""The server of the API: uvicorn's, with the settings of this service and no signal handlers."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from abeyance.settings import Settings

_MAX_HEAD_BYTES: Final = 32_768


class Server(uvicorn.Server):
    """A server of the API. Running requests get `grace` seconds when it stops."""

    def __init__(self, app: ASGIApp, settings: Settings, *, grace: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
                limit_concurrency=settings.max_connections,
                timeout_keep_alive=math.ceil(settings.keep_alive),
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
