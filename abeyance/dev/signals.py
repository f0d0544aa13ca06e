"""Being told to stop: by Ctrl-C, by SIGTERM, or because the terminal has gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator

from abeyance.dev.parent_death import STDIN, leashed
from abeyance.dev.watchdog import watchdog


@contextlib.contextmanager
def cancelled_by_signals(at_once: Callable[[], None]) -> Iterator[None]:
    """Cancel the current task at the first Ctrl-C, SIGTERM or hang-up; call `at_once` at the next."""
    task = asyncio.current_task()
    heard: list[int] = []

    def hear(number: int) -> None:
        heard.append(number)
        if len(heard) > 1:
            at_once()
        elif task is not None:
            task.cancel()

    with _hearing(hear):
        yield


@contextlib.contextmanager
def stopped_by_signals(*, within: float) -> Iterator[asyncio.Event]:
    """An event that is set at Ctrl-C, SIGTERM or a hang-up.

    If this process is still here `within` seconds later it is killed, whatever it hangs in. To be entered
    in its main thread.
    """
    stop = asyncio.Event()
    with _hearing(lambda _: stop.set()) as numbers, _watched(numbers, stop, within):
        yield stop


@contextlib.contextmanager
def _watched(numbers: list[int], stop: asyncio.Event, seconds: float) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    # The loop hears of signals by way of the watchdog; and without it, should that be gone.
    for number in numbers:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
        signal.siginterrupt(number, False)  # noqa: FBT003  (it has no name)
    ours, theirs = socket.socketpair()
    os.set_blocking(ours.fileno(), False)
    with ours, theirs:
        of_the_loop = signal.set_wakeup_fd(ours.fileno(), warn_on_full_buffer=False)
        try:
            beside = subprocess.Popen(  # noqa: S603  (it is our own)
                leashed(os.getpid(), watchdog(theirs.fileno(), of_the_loop, seconds)),
                stdin=STDIN,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), of_the_loop),
            )
            theirs.close()
            with beside:
                try:
                    yield
                finally:
                    beside.kill()
        finally:
            signal.set_wakeup_fd(of_the_loop)


@contextlib.contextmanager
def _hearing(hear: Callable[[int], None]) -> Iterator[list[int]]:
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # it is ignored under nohup
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, hear, number)
    try:
        yield [*numbers]
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
