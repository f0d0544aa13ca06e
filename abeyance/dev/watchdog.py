"""Kill a process that hangs after it was asked to stop.

C code that holds the GIL, such as a runaway regular expression, blocks the event loop, signal handlers
and timers of a process. So a separate process counts the seconds, started through `parent_death`:

    python -I -S watchdog.py SIGNAL_FD LOOP_FD SECONDS

Python's C signal handler needs no GIL and writes the number of each signal to a file descriptor
(`signal.set_wakeup_fd`). The watchdog reads it from SIGNAL_FD, passes it on to the event loop at LOOP_FD,
and kills its parent if that still runs SECONDS later.

The script imports little, and only from the standard library, because it runs beside every worker.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

_STOPS: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""Signals that ask a process to stop."""


def watchdog(signal_fd: int, loop_fd: int, seconds: float) -> list[str]:
    """Return the command of a watchdog, which must inherit the two file descriptors."""
    words = map(str, (signal_fd, loop_fd, seconds))
    return [sys.executable, "-I", "-S", __file__, *words]


def main(arguments: Sequence[str]) -> None:
    """Watch the parent process until it ends or has to be killed."""
    signal_fd, loop_fd, seconds = int(arguments[0]), int(arguments[1]), float(arguments[2])
    # A Ctrl-C in a terminal reaches the watchdog too, but is meant for its parent.
    for number in _STOPS:
        signal.signal(number, signal.SIG_IGN)
    deadline: float | None = None
    while deadline is None or time.monotonic() < deadline:
        left = None if deadline is None else deadline - time.monotonic()
        if not select.select([signal_fd], [], [], left)[0]:
            break
        numbers = os.read(signal_fd, 64)
        if not numbers:
            return
        # The buffer is full only if the loop has ignored many signals.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(loop_fd, numbers)
        if deadline is None and not _STOPS.isdisjoint(numbers):
            deadline = time.monotonic() + seconds
    parent = os.getppid()
    sys.stderr.write(f"process {parent} did not stop within {seconds:g} s: killing it\n")
    sys.stderr.flush()
    os.kill(parent, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
