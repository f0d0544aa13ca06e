"""How a command ends: its exit code, and leaving a process that has used the Temporal SDK.

code  means                                                          a script may
0     done; of a run that was waited for: it completed               go on
1     a run failed, was halted or cancelled; a graph has faults      read why, and mend it
2     wrong usage or settings; nothing was asked of the API          mend the command
3     the API refused: nothing has changed                           read the code of the problem
4     the API, or what it needs, cannot be reached                   repeat the same command later
130   interrupted by Ctrl-C; runs go on                              repeat the same command
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
from enum import IntEnum
from typing import NoReturn

from abeyance.errors import AbeyanceError, GraphError, SettingsError, Unavailable


class ExitCode(IntEnum):
    """What the exit code of a command tells; the table above is the contract."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    AWAY = 4
    INTERRUPTED = 130


def code_of(error: AbeyanceError) -> ExitCode:
    """The exit code of a command that ends with an error."""
    match error:
        case SettingsError() | GraphError():
            return ExitCode.USAGE
        case Unavailable():
            return ExitCode.AWAY
        case _:
            return ExitCode.REFUSED


def code_of_run(status: str) -> ExitCode:
    """The exit code of a command that has waited for the end of a run, by the run's status."""
    return ExitCode.DONE if status == "completed" else ExitCode.FAILED


def leave(code: int) -> NoReturn:
    """End this process with an exit code, now.

    Threads of the Temporal SDK may still enter the interpreter while it is taken down, which crashes
    it now and then (tried: 4 times in 75 of `abeyance setup` on a busy machine). And a node that is
    stuck in a thread would keep a worker that was told to stop for ever.
    """
    if "temporalio" not in sys.modules:
        sys.exit(code)
    logging.shutdown()
    atexit._run_exitfuncs()  # noqa: SLF001  (there is no other way to run them before `_exit`)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
