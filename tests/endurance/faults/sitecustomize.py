"""Machine faults for processes of the long tests: a full disk, and a clock that jumps.

Python imports this module when it starts. The file `full` in the folder FAULTS makes the storage's disk
full. The file `jump-<pid>` contains the seconds by which the clock of that process is off.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

_FOLDER = Path(os.environ["FAULTS"])
_LOOK_EVERY = 0.1
_make_temporary = tempfile.mkstemp


def _mkstemp(*arguments: Any, **options: Any) -> tuple[int, str]:
    if (_FOLDER / "full").exists():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return _make_temporary(*arguments, **options)


def _follow() -> None:
    """Move the clock of this process while its file exists."""
    import time_machine

    file = _FOLDER / f"jump-{os.getpid()}"
    while True:
        if file.exists():
            ahead = dt.timedelta(seconds=float(file.read_text()))
            now = dt.datetime.now(dt.UTC)
            with time_machine.travel(now + ahead, tick=True):
                while file.exists():
                    time.sleep(_LOOK_EVERY)
        time.sleep(_LOOK_EVERY)


tempfile.mkstemp = _mkstemp  # type: ignore[assignment]
threading.Thread(target=_follow, daemon=True).start()
