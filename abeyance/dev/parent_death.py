"""Kill a program when the process that started it dies.

A process killed with SIGKILL cannot stop its children, so it starts them through this script:

    python -I -S parent_death.py PARENT USER:GROUP PROGRAM [ARGUMENT...]

On Linux the script asks the kernel to kill it when the parent dies, and then executes the program. The
request survives `exec`, so it works for any binary and adds no process. Elsewhere a fork of the script
watches stdin: a pipe whose other end only the parent holds, and which closes with the parent.

The script imports little, and only from the standard library, because it runs before every process.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Sequence
from typing import Final, TypeAlias

Owner: TypeAlias = tuple[int, int]
"""The ids of the user and the group that run a program."""

_PR_SET_PDEATHSIG: Final = 1
_LOOK_EVERY: Final = 0.5
"""Seconds until the watching fork notices that the program has ended."""

STDIN: Final = -3 if sys.platform == "linux" else -1
"""Stdin of the program: `subprocess.DEVNULL` on Linux, else `subprocess.PIPE` for the watching fork."""


def leashed(parent: int, command: Sequence[str], *, owner: Owner | None = None) -> list[str]:
    """Return a command that runs `command` until it or the process `parent` ends, as `owner`.

    The main thread of `parent` must start it, with `STDIN` as stdin.
    """
    ids = "" if owner is None else "{}:{}".format(*owner)
    return [sys.executable, "-I", "-S", __file__, str(parent), ids, *command]


def main(arguments: Sequence[str]) -> None:
    """Set up the parent watch and execute the program."""
    parent, owner, command = int(arguments[0]), arguments[1], arguments[2:]
    if owner:
        # The user who runs the program may not be allowed to read the files of Python.
        import ctypes  # noqa: F401, PLC0415

        # First: it makes the kernel forget what it was asked.
        user, group = map(int, owner.split(":"))
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)
    if sys.platform == "linux":
        die_with_parent()
    else:
        watch()
    if os.getppid() != parent:
        sys.exit("the parent process ended before its program started")
    os.execv(command[0], [*command])  # noqa: S606  (the parent passes the command)


def die_with_parent() -> None:
    """Ask the kernel to kill this process as soon as the thread that started it has ended."""
    import ctypes  # noqa: PLC0415  (needed on Linux only)

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")


def watch() -> None:
    """Fork a process that kills this one when stdin closes."""
    program = os.getpid()
    if os.fork() != 0:
        with open(os.devnull) as devnull:  # noqa: PTH123  (pathlib takes longer to import than this)
            os.dup2(devnull.fileno(), 0)
        return
    while os.getppid() == program:
        if select.select([0], [], [], _LOOK_EVERY)[0]:
            os.kill(program, signal.SIGKILL)
            break
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
