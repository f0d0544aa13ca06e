"""Keep programs running, and end them together.

A program that dies is started again, and given up after too many deaths. Then all other programs end,
because a part of a stack would look alive without doing work. Each program has its own process group: a
Ctrl-C in the terminal reaches only this process, which stops the programs in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from abeyance.core.text import truncate
from abeyance.dev.parent_death import STDIN, Owner, leashed
from abeyance.errors import SettingsError, Unavailable

_MOST_RESTARTS: Final = 5
_WINDOW: Final = 60.0
_PAUSE: Final = 0.3
"""Seconds between a death and the next start."""
_TAIL: Final = 8_192
_FOLLOW: Final = 0.2
"""Seconds until a log is read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A supervised program.

    `command` starts with the path of an executable and runs in `directory`. `log` gets its output; its
    lines that contain `announced` are announced. The program may take `patience` seconds to stop. It is
    not restarted after the exit code `wrong_settings`, or if it `loses_its_state`, which is the reason as
    text. With `awaits_change` it is started again by `restart` after wrong settings, instead of being
    given up. `umask` is -1 to inherit ours. `owner` runs the program instead of the user of this process,
    and `stops_by` is the signal that terminates it.
    """

    name: str
    command: Sequence[str]
    directory: Path
    environment: Mapping[str, str]
    log: Path
    patience: float
    wrong_settings: int | None = None
    loses_its_state: str | None = None
    awaits_change: bool = False
    umask: int = -1
    owner: Owner | None = None
    stops_by: signal.Signals = signal.SIGTERM
    announced: str | None = None


class Supervisor:
    """Keeps one program running.

    `announce` gets a message for every restart, and the announced lines of its log.
    """

    def __init__(self, program: Program, announce: Callable[[str], None]) -> None:
        self.pid: int | None = None
        self._program = program
        self._announce = announce
        self._again = asyncio.Event()
        self._deaths: deque[float] = deque(maxlen=_MOST_RESTARTS + 1)
        self._log_from = 0

    async def keep(self) -> None:
        """Keep the program running until this is cancelled; then terminate it.

        Raises SettingsError or Unavailable where another start would not help.
        """
        while True:
            code = await self._run_once()
            if not self._again.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause_before_restart(code)):
                        await self._again.wait()

    def restart(self) -> None:
        """Terminate the program and start it again, at once."""
        self._again.set()

    def kill(self) -> None:
        """Kill the program, with what it has started."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def _run_once(self) -> int:
        program = self._program
        self._again.clear()
        with program.log.open("ab") as log:
            self._log_from = log.tell()
            process = await asyncio.create_subprocess_exec(
                *leashed(os.getpid(), program.command, owner=program.owner),
                stdin=STDIN,
                stdout=log,
                stderr=log,
                cwd=program.directory,
                env=program.environment,
                process_group=0,
                umask=program.umask,
            )
        self.pid = process.pid
        if self._deaths:
            self._announce(f"the {program.name} is running again (process {process.pid})")
        ended = asyncio.create_task(process.wait())
        beside = [asyncio.create_task(self._again.wait()), asyncio.create_task(self._follow_log())]
        try:
            await asyncio.wait({ended, beside[0]}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not ended.done():
                process.send_signal(program.stops_by)
                await asyncio.wait({ended}, timeout=program.patience)
            for task in beside:
                task.cancel()
            self.kill()
            self.pid = None
            await ended
        return ended.result()

    async def _follow_log(self) -> None:
        announced = self._program.announced
        if announced is None:
            return
        with self._program.log.open(encoding="utf-8", errors="replace") as log:
            log.seek(self._log_from)
            line = ""
            while True:
                line += log.readline()
                if not line.endswith("\n"):
                    await asyncio.sleep(_FOLLOW)
                    continue
                if announced in line:
                    # Without the time and the logger.
                    self._announce(line.strip().partition(" | ")[2] or line.strip())
                line = ""

    def _pause_before_restart(self, code: int) -> float | None:
        """Return the seconds to wait, or None to wait for `restart`.

        Raises SettingsError or Unavailable instead of a restart.
        """
        program, now = self._program, time.monotonic()
        problem = f"the {program.name} {_how(code)}"
        # The last line of a killed process does not explain its end.
        last = _last_line(program.log, self._log_from) if code > 0 else ""
        if code == program.wrong_settings:
            reason = last.removeprefix("abeyance: ") or problem
            if not program.awaits_change:
                raise SettingsError(reason)
            self._announce(f"{reason}; the {program.name} is down until a file changes")
            return None
        if program.loses_its_state:
            raise Unavailable(f"{problem}, and {program.loses_its_state}")
        self._deaths.append(now)
        if len(self._deaths) > _MOST_RESTARTS and now - self._deaths[0] <= _WINDOW:
            raise Unavailable(
                f"{problem}{last and f': {last}'}. It stopped {len(self._deaths)} times within a minute, "
                f"so the whole stack was shut down: see {program.log}"
            )
        self._announce(f"{problem}; it is being restarted")
        return _PAUSE


@contextlib.asynccontextmanager
async def together(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do endless work while this context is open.

    Raises the error of work that fails, and cancels what is done in the context.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            working = [tasks.create_task(work) for work in works]
            yield
            for task in working:
                task.cancel()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


def _how(code: int) -> str:
    if code >= 0:
        return f"stopped with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed ({signal.Signals(-code).name})"
    return f"was killed (signal {-code})"


def _last_line(log: Path, start: int) -> str:
    # The last non-empty line after `start`, truncated.
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - _TAIL))
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines()]
    return next((truncate(line, 500) for line in reversed(lines) if line), "")
