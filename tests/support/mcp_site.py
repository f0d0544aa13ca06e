"""MCP tool servers for tests, and people who answer their questions."""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from abeyance.authoring.interrupts import Suspended, lowered
from abeyance.contrib.mcp.client.elicitation import Answer, Elicitation, elicitation_question
from abeyance.contrib.mcp.client.server import McpServer

SCRIPT = Path(__file__).parent.parent / "agents" / "mcp_servers.py"
LAUNCHER = Path(__file__).with_name("mcp_launcher.py")
YES = {"action": "accept", "content": {"sure": True}}


class People:
    """Answers questions by their names. A question without an answer suspends the call."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {name.replace("_", "."): answer for name, answer in answers.items()}
        self.asked: list[Elicitation] = []

    async def __call__(self, elicitation: Elicitation) -> Answer:
        self.asked.append(elicitation)
        if elicitation.name not in self.answers:
            question = lowered(elicitation_question(elicitation))
            raise Suspended([question], elicitation.saved)
        return Answer.of(self.answers[elicitation.name])


@functools.cache
def forks() -> list[str]:
    """Start the process whose forks are servers, and return the command that starts a server."""
    folder = Path(tempfile.mkdtemp(prefix="forks-"))
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), "forks", str(folder / "socket")],
        env={**os.environ, "PYTHONPATH": str(LAUNCHER.parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def end() -> None:
        process.communicate()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return [sys.executable, "-I", "-S", str(LAUNCHER), str(folder / "socket")]


def started(folder: Path, *, older: bool = False, forked: bool = True, **options: Any) -> McpServer:
    """Return a server that a command starts. An `older` server only knows the protocols of 2025.

    If it is not `forked`, the server is itself the process that the command starts.
    """
    start = forks() if forked else [sys.executable, str(SCRIPT)]
    command = [*start, "stdio", str(folder), *(["--older"] if older else [])]
    return McpServer(name="local", command=command, **options)


class Site:
    """A server over HTTP. A test can end it, and start another one on the same folder."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*forks(), "http", str(folder), *arguments], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def server(self, **options: Any) -> McpServer:
        return McpServer(name="remote", url=f"http://127.0.0.1:{self.port}/mcp", **options)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        # The fork ends by itself a moment after its launcher.
        while self._listens():
            time.sleep(0.01)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def site(folder: Path, *arguments: str) -> Iterator[Site]:
    running = Site(folder, *arguments)
    try:
        yield running
    finally:
        running.end()


def deeds(folder: Path) -> list[str]:
    """Return what the tools did, in order."""
    file = folder / "deeds"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


async def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for a condition, and fail if that takes too long."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
