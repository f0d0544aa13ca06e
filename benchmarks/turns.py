"""Trials that take turns: each runs for a moment, while all others are stopped.

What else the machine does then weighs on all of them alike. A trial ends its turn by stopping its own
process with SIGSTOP, which also keeps it from polling; SIGCONT begins its next turn.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from tempfile import TemporaryFile
from typing import Final

from abeyance.dev.parent_death import STDIN, leashed

_FLAG: Final = "--turns"
_TRIAL_SECONDS: Final = 7_200


def begin() -> None:
    """Wait for the first turn, if this process is a trial beside others."""
    signal.alarm(_TRIAL_SECONDS)
    end_turn()


def end_turn() -> None:
    """Let the other trials of the round have their turns, if there are any."""
    if _FLAG in sys.argv:
        os.kill(os.getpid(), signal.SIGSTOP)


class Trial:
    """A trial in a process of its own."""

    def __init__(self, command: Sequence[str]) -> None:
        self._printed = TemporaryFile()  # noqa: SIM115  (it is read when the process has ended)
        self._process = subprocess.Popen(
            leashed(os.getpid(), [sys.executable, *command, _FLAG]),
            stdin=STDIN,
            stdout=self._printed,
        )
        self._wait()

    def has_ended(self) -> bool:
        """Let it have a turn, and return whether it has ended."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGCONT)
            self._wait()
        return self._process.returncode is not None

    def _wait(self) -> None:
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self._process.returncode = os.waitstatus_to_exitcode(status)

    @property
    def last_line(self) -> bytes | None:
        """What it printed last; None if it failed."""
        self._printed.seek(0)
        lines = self._printed.read().splitlines()
        return lines[-1] if self._process.returncode == 0 and lines else None
