"""APIs that tests kill: separate processes over one shared Temporal server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from killable import KillableServer
from ports import free_port
from temporal_site import eventually

_ROOT = Path(__file__).parents[2]
_SERVE = """\
import asyncio, sys
from abeyance.api.app import serve
from abeyance.settings import load_settings
asyncio.run(serve(load_settings(), "127.0.0.1", int(sys.argv[1])))
"""
_DEFECT = "Exception in ASGI application"


class ApiProcess:
    """An API process that is up, and an HTTP client for it."""

    def __init__(self, process: subprocess.Popen[bytes], http: httpx.AsyncClient) -> None:
        self.http = http
        self._process = process

    def kill(self) -> None:
        """Kill the API as kill -9 does: open calls get no response."""
        self._process.kill()
        self._process.wait()


@asynccontextmanager
async def api_process(server: KillableServer, app: str, log: Path) -> AsyncIterator[ApiProcess]:
    """Start an API process, wait until it and a worker are up, and kill it at the end."""
    port = free_port()
    process = _started(server, app, log, port)
    # No limit on connections, because many people call at once.
    limits = httpx.Limits(max_connections=None)
    url = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=url, timeout=40, trust_env=False, limits=limits) as http:
        api = ApiProcess(process, http)

        async def is_ready() -> bool:
            assert process.poll() is None, log.read_text(encoding="utf-8")
            try:
                return (await http.get("/readyz")).status_code == httpx.codes.OK
            except httpx.TransportError:
                return False

        try:
            await eventually(is_ready, seconds=90)
            yield api
        finally:
            api.kill()
    # Every 500 is a defect, even if the kill kept the response from its caller.
    told = log.read_text(encoding="utf-8")
    assert _DEFECT not in told, told


def _started(server: KillableServer, app: str, log: Path, port: int) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "ABEYANCE_APP": app,
        "TEMPORAL_ADDRESS": f"127.0.0.1:{server.port}",
        "PYTHONPATH": os.pathsep.join([str(_ROOT), str(Path(__file__).parent)]),
    }
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(port)],
            env=environment,
            cwd=log.parent,
            stdout=out,
            stderr=out,
        )
