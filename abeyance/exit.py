"""Leaving a process that has used the Temporal SDK."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
from typing import NoReturn


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
