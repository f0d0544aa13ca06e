"""Processes that are kept up together, or ended together.

Each program has a keeper. A keeper starts it, starts it again when it dies, and gives up when that
happens too often; then the whole group has to end, because half of it would look alive and do
nothing. A program is started in a process group of its own: the Ctrl-C of a terminal reaches only us,
and we say who stops in which order.
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

from abeyance.dev.parent_death import STDIN, leashed
from abeyance.errors import SettingsError, Unavailable

T = TypeVar("T")

_MOST_RESTARTS: Final = 5
_WINDOW: Final = 60.0
_FIRST_PAUSE: Final = 0.1
_TAIL: Final = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Something that is kept up.

    `command` starts with the path of an executable and runs in `directory`. `log` gets what it
    writes. `patience` is how many seconds it may take to stop. `wrong_settings` is the exit code by
    which it says that no other attempt would go better, if it has one. `loses_its_state` says why
    another start would not do, if so. `umask` is that of the process, -1 for our own.
    """

    name: str
    command: Sequence[str]
    directory: Path
    environment: Mapping[str, str]
    log: Path
    patience: float
    wrong_settings: int | None = None
    loses_its_state: str | None = None
    umask: int = -1


class Supervisor:
    """Keeps one program up until it is told to stop. `announce` is told of every restart."""

    def __init__(self, program: Program, announce: Callable[[str], None]) -> None:
        self.program = program
        self.pid: int | None = None
        self._announce = announce
        self._stop = asyncio.Event()
        self._deaths: deque[float] = deque(maxlen=_MOST_RESTARTS + 1)
        self._log_from = 0
        self.task = asyncio.create_task(self._keep(), name=program.name)

    async def stop(self) -> None:
        """Ask the program to end, and see to it that it does within its patience."""
        self._stop.set()
        await asyncio.wait([self.task])

    def kill(self) -> None:
        """End the program now."""
        self._stop.set()
        if self.pid is not None:
            _kill_group(self.pid)

    async def _keep(self) -> None:
        while not self._stop.is_set():
            code = await self._run_once()
            if self._stop.is_set():
                return
            pause = self._pause_before_restart(code)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)

    async def _run_once(self) -> int:
        program = self.program
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
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                process.terminate()
                await asyncio.wait({ended}, timeout=program.patience)
        finally:
            stopped.cancel()
            # What the program has started itself goes with it, and it too if it does not listen.
            _kill_group(process.pid)
            self.pid = None
        return await ended

    def _pause_before_restart(self, code: int) -> float:
        """Seconds to wait. Raises SettingsError or Unavailable when it is no use starting again."""
        program, now = self.program, time.monotonic()
        told = f"the {program.name} {_how(code)}"
        # A process that is killed has no last word: the last line is about something else.
        last = _last_line(program.log, self._log_from) if code > 0 else ""
        if code == program.wrong_settings:
            raise SettingsError(last.removeprefix("abeyance: ") or told)
        if program.loses_its_state:
            raise Unavailable(f"{told}, and {program.loses_its_state}")
        self._deaths.append(now)
        recent = [death for death in self._deaths if now - death <= _WINDOW]
        if len(recent) > _MOST_RESTARTS:
            raise Unavailable(
                f"{told}{last and f': {last}'}. It has stopped {len(recent)} times within a minute, so "
                f"everything was shut down. Its log is {program.log}"
            )
        self._announce(f"{told}; it is being restarted")
        return float(_FIRST_PAUSE * 2 ** (len(recent) - 1))


class ProcessGroup:
    """Programs that end together. `announce` is told of every restart."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._keepers: dict[str, Supervisor] = {}
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, program: Program) -> None:
        """Keep this program up from now on."""
        keeper = Supervisor(program, self._announce)
        keeper.task.add_done_callback(self._note_end)
        self._keepers[program.name] = keeper

    def pid(self, name: str) -> int | None:
        """The process that runs a program now, if one does."""
        return self._keepers[name].pid

    async def while_whole(self, work: Awaitable[T]) -> T:
        """Do some work, unless a program is lost for good before that: then raise why."""
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
                working.exception()  # seen, though what was lost counts for more

    async def stop(self, *names: str) -> None:
        """Stop these programs together. Those that were never started do not matter."""
        keepers = [self._keepers[name] for name in names if name in self._keepers]
        await asyncio.gather(*(keeper.stop() for keeper in keepers))

    def kill(self) -> None:
        """End everything now."""
        for keeper in self._keepers.values():
            keeper.kill()

    def _note_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._lost.done():
            self._lost.set_exception(error)
            # Now it counts as seen: while the group stops, nobody may be waiting for it any more.
            self._lost.exception()


def _how(code: int) -> str:
    if code >= 0:
        return f"stopped with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed ({signal.Signals(-code).name})"
    return f"was killed (signal {-code})"


def _last_line(log: Path, start: int) -> str:
    # The last line after `start` that says something, cut to a readable length.
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - _TAIL))
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines()]
    return next((line[:500] for line in reversed(lines) if line), "")


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
