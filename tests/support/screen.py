"""A terminal in which a test runs a command."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from contextlib import suppress

from dev_stack import Stack, command


class Screen:
    """A terminal of 30 lines that runs a command."""

    def __init__(self, stack: Stack, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self._text = ""
        self.process = subprocess.Popen(
            command(*arguments),
            cwd=stack.place.folder,
            env={**stack.place.environment, "ABEYANCE_URL": stack.api, "TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def shows(self, word: str) -> bool:
        """Return whether the word has appeared since the last word that was found."""
        if select.select([self._ours], [], [], 0)[0]:
            # Reading fails once no process has the terminal open.
            with suppress(OSError):
                self._text += os.read(self._ours, 65_536).decode("utf-8", "replace")
        _, found, rest = self._text.partition(word)
        if found:
            self._text = rest
        return bool(found)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
