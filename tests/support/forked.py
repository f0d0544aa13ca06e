"""A process that forks another for each connection to its socket.

Importing the library of a tool server takes most of a second of processor time, and nearly every test
starts its own server. So one process imports the library, and the servers are its forks.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

_STREAMS = 3


def fork_for_each(path: Path, main: Callable[[list[str]], None]) -> None:
    """Run `main` in a fork for each `mcp_launcher.py` that connects, until standard input is closed."""
    # Ended forks must leave no zombies, because tests check whether a fork still runs.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(64)
        print("ready", flush=True)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            line, _ = listener.accept()
            with line:
                if os.fork() == 0:
                    listener.close()
                    _become(line, main)


def _become(line: socket.socket, main: Callable[[list[str]], None]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    text, streams, _, _ = socket.recv_fds(line, 65_536, _STREAMS)
    while not text.endswith(b"\n"):
        text += line.recv(65_536)
    order = json.loads(text)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    threading.Thread(target=_end_with, args=[line], daemon=True).start()
    code = 1
    try:
        main(order["arguments"])
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)


def _end_with(line: socket.socket) -> None:
    """End this process when the launcher has ended."""
    line.recv(1)
    os._exit(0)
