"""Tying a program to the life of the process that starts it, whatever ends that process.

A process that is killed with -9 cannot stop its children, so it starts them through this file:

    python -I -S leash.py PARENT PROGRAM [ARGUMENT...]

On Linux the kernel is asked to kill us when the parent dies, and then we become the program: the
request outlives `exec`, so it holds for a binary that knows nothing of it, and there is no process
more than without us. Elsewhere a copy of us stays beside the program and looks at our standard
input: that is a pipe whose other end only the parent holds, and it closes with the parent.

Only the standard library, and little of it: this runs before every start of a process.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Sequence
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_LOOK_EVERY: Final = 0.5
"""Seconds until a copy of us notices that the program beside it has ended."""

STDIN: Final = -3 if sys.platform == "linux" else -1
"""What a leashed program is started with: `subprocess.DEVNULL`, or `subprocess.PIPE` to be watched."""


def leashed(parent: int, command: Sequence[str]) -> list[str]:
    """The command that runs `command` until it ends or the process `parent` does.

    It has to be started by the main thread of `parent`, with `STDIN` as its standard input.
    """
    return [sys.executable, "-I", "-S", __file__, str(parent), *command]


def main(arguments: Sequence[str]) -> None:
    """Become the program that is named, on a leash."""
    parent, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        die_with_parent()
    else:
        watch()
    if os.getppid() != parent:
        sys.exit("the process that starts this one ended first")
    os.execv(command[0], [*command])  # noqa: S606  (it is the command of whoever started us)


def die_with_parent() -> None:
    """Ask the kernel to kill this process as soon as the thread that started it has ended."""
    import ctypes  # noqa: PLC0415  (it is not needed elsewhere)

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")


def watch() -> None:
    """Leave a copy of us behind that kills this process when our standard input closes."""
    program = os.getpid()
    if os.fork() != 0:
        with open(os.devnull) as nothing:  # noqa: PTH123  (pathlib takes longer to import than this)
            os.dup2(nothing.fileno(), 0)
        return
    while os.getppid() == program:
        if select.select([0], [], [], _LOOK_EVERY)[0]:
            os.kill(program, signal.SIGKILL)
            break
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
