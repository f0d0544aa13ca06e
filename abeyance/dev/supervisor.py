"""Supervise a group of processes: restart them, or end all of them.

A supervisor starts its program, restarts it when it dies, and gives up after too many restarts. Then the
whole group ends, because a part of it would look alive without doing work. Each program has its own
process group: a Ctrl-C in the terminal reaches only this process, which stops the programs in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from abeyance.core.text import truncate
from abeyance.dev.parent_death import STDIN, leashed
from abeyance.errors import SettingsError, Unavailable

T = TypeVar("T")

_MOST_RESTARTS: Final = 5
_WINDOW: Final = 60.0
_FIRST_PAUSE: Final = 0.1
_TAIL: Final = 8_192
_FOLLOW: Final = 0.2
"""Seconds until a log is read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A supervised program.

    `command` starts with the path of an executable and runs in `directory`. `log` gets its output; its
    lines that contain `announced` are announced. The program may take `patience` seconds to stop. It is
    not restarted after the exit code `wrong_settings`, or if it `loses_its_state`, which is the reason as
    text. With `awaits_change` it is started again by `restart` after wrong settings, instead of ending
    the group. `umask` is -1 to inherit ours.
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
    announced: str | None = None


class Supervisor:
    """Restarts one program until it is stopped.

    `announce` gets a message for every restart, and the announced lines of its log.
    """

    def __init__(self, program: Program, announce: Callable[[str], None]) -> None:
        self.program = program
        self.pid: int | None = None
        self._announce = announce
        self._stop = asyncio.Event()
        self._again = asyncio.Event()
        self._deaths: deque[float] = deque(maxlen=_MOST_RESTARTS + 1)
        self._log_from = 0
        self.task = asyncio.create_task(self._keep(), name=program.name)

    async def stop(self) -> None:
        """Terminate the program, and kill it after its patience."""
        self._stop.set()
        await asyncio.wait([self.task])

    def restart(self) -> None:
        """Terminate the program and start it again, at once."""
        self._again.set()

    def kill(self) -> None:
        """Kill the program."""
        self._stop.set()
        if self.pid is not None:
            _kill_group(self.pid)

    async def _keep(self) -> None:
        while not self._stop.is_set():
            code = await self._run_once()
            if self._stop.is_set():
                return
            pause: float | None = 0.0 if self._again.is_set() else self._pause_before_restart(code)
            await _first_of(self._stop, self._again, timeout=pause)

    async def _run_once(self) -> int:
        program = self.program
        self._again.clear()
        with program.log.open("ab") as log:
            self._log_from = log.tell()
            process = await asyncio.create_subprocess_exec(
                *leashed(os.getpid(), program.command),
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
        asked = asyncio.create_task(_first_of(self._stop, self._again, timeout=None))
        following = asyncio.create_task(self._follow_log())
        try:
            await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                process.terminate()
                await asyncio.wait({ended}, timeout=program.patience)
        finally:
            asked.cancel()
            following.cancel()
            # Also ends the children of the program, and the program itself if it ignored SIGTERM.
            _kill_group(process.pid)
            self.pid = None
        return await ended

    async def _follow_log(self) -> None:
        announced = self.program.announced
        if announced is None:
            return
        with self.program.log.open(encoding="utf-8", errors="replace") as log:
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
        program, now = self.program, time.monotonic()
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
        recent = [death for death in self._deaths if now - death <= _WINDOW]
        if len(recent) > _MOST_RESTARTS:
            raise Unavailable(
                f"{problem}{last and f': {last}'}. It stopped {len(recent)} times within a minute, so "
                f"the whole stack was shut down: see {program.log}"
            )
        self._announce(f"{problem}; it is being restarted")
        return float(_FIRST_PAUSE * 2 ** (len(recent) - 1))


class ProcessGroup:
    """Programs that end together. `announce` gets a message for every restart."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._supervisors: dict[str, Supervisor] = {}
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, program: Program) -> None:
        """Start and supervise a program."""
        supervisor = Supervisor(program, self._announce)
        supervisor.task.add_done_callback(self._note_end)
        self._supervisors[program.name] = supervisor

    def pid(self, name: str) -> int | None:
        """Return the process id of a program, or None."""
        return self._supervisors[name].pid

    async def while_whole(self, work: Awaitable[T]) -> T:
        """Do some work, and raise the error of a program that cannot be restarted meanwhile."""
        working = asyncio.ensure_future(work)
        try:
            futures: set[asyncio.Future[T] | asyncio.Future[None]] = {working, self._lost}
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
            if self._lost.done():
                self._lost.result()
            return await working
        finally:
            working.cancel()
            await asyncio.wait({working})
            if not working.cancelled():
                working.exception()  # mark as retrieved: the error of the program takes precedence

    async def stop(self, *names: str) -> None:
        """Stop these programs in parallel. Names that were never started are ignored."""
        supervisors = [self._supervisors[name] for name in names if name in self._supervisors]
        await asyncio.gather(*(supervisor.stop() for supervisor in supervisors))

    def restart(self, *names: str) -> None:
        """Terminate these programs and start them again."""
        for name in names:
            self._supervisors[name].restart()

    def kill(self) -> None:
        """Kill all programs."""
        for supervisor in self._supervisors.values():
            supervisor.kill()

    def _note_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._lost.done():
            self._lost.set_exception(error)
            # Mark as retrieved: while the group stops, nothing awaits it.
            self._lost.exception()


async def _first_of(*events: asyncio.Event, timeout: float | None) -> None:
    """Wait until one of the events is set, or for so many seconds."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


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


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
