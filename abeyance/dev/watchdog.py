"""Ending a process that was told to stop and does not listen any more.

A function in C that keeps the lock of the interpreter (a regular expression without an end, say) lets
no other thread of Python have a turn: neither the event loop, nor what handles signals, nor a timer.
So the one who counts the seconds is a process beside it, started on a leash (`leash`):

    python -I -S watchdog.py HEARD TOLD SECONDS

Python's own handler, which is C and needs no lock, writes the number of each signal to a descriptor
(`signal.set_wakeup_fd`). We read it at the other end (HEARD), pass it on to the event loop, which was to
get it (TOLD), and kill our parent if it is still there so many seconds later.

Only the standard library, and little of it: this runs beside every worker.
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
"""The signals that tell a process to stop."""


def watchdog(heard: int, told: int, seconds: float) -> list[str]:
    """The command of a watchdog, which inherits the two descriptors."""
    words = map(str, (heard, told, seconds))
    return [sys.executable, "-I", "-S", __file__, *words]


def main(arguments: Sequence[str]) -> None:
    """Watch over the process that started us, until it ends or has to be ended."""
    heard, told, seconds = int(arguments[0]), int(arguments[1]), float(arguments[2])
    # A Ctrl-C in a terminal reaches us too, and is meant for the process that we watch over.
    for number in _STOPS:
        signal.signal(number, signal.SIG_IGN)
    deadline: float | None = None
    while deadline is None or time.monotonic() < deadline:
        left = None if deadline is None else deadline - time.monotonic()
        if not select.select([heard], [], [], left)[0]:
            break
        numbers = os.read(heard, 64)
        if not numbers:
            return
        # Its buffer is full only if it was told often, and has not listened for long.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(told, numbers)
        if deadline is None and not _STOPS.isdisjoint(numbers):
            deadline = time.monotonic() + seconds
    parent = os.getppid()
    sys.stderr.write(
        f"process {parent} was told to stop {seconds:g} s ago and hangs: it is killed\n"
    )
    sys.stderr.flush()
    os.kill(parent, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
