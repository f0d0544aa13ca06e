"""Stop on Ctrl-C, SIGTERM or SIGHUP."""

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
    """Cancel the current task at the first signal, and call `at_once` at the second."""
    task = asyncio.current_task()
    received: list[int] = []

    def on_signal(number: int) -> None:
        received.append(number)
        if len(received) > 1:
            at_once()
        elif task is not None:
            task.cancel()

    with _handle_signals(on_signal):
        yield


@contextlib.contextmanager
def stopped_by_signals(*, within: float) -> Iterator[asyncio.Event]:
    """Yield an event that a signal sets.

    A process that still runs `within` seconds after the signal is killed, even if it hangs in C code. The
    main thread must enter this context.
    """
    stop = asyncio.Event()
    with _handle_signals(lambda _: stop.set()) as numbers, _watched(numbers, stop, within):
        yield stop


@contextlib.contextmanager
def _watched(numbers: list[int], stop: asyncio.Event, seconds: float) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    # The watchdog passes signals on to the loop; these handlers work without the watchdog.
    for number in numbers:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
        signal.siginterrupt(number, False)  # noqa: FBT003  (positional only)
    ours, theirs = socket.socketpair()
    os.set_blocking(ours.fileno(), False)
    with ours, theirs:
        loop_fd = signal.set_wakeup_fd(ours.fileno(), warn_on_full_buffer=False)
        try:
            process = subprocess.Popen(  # noqa: S603  (our own script)
                leashed(os.getpid(), watchdog(theirs.fileno(), loop_fd, seconds)),
                stdin=STDIN,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), loop_fd),
            )
            theirs.close()
            with process:
                try:
                    yield
                finally:
                    process.kill()
        finally:
            signal.set_wakeup_fd(loop_fd)


@contextlib.contextmanager
def _handle_signals(handler: Callable[[int], None]) -> Iterator[list[int]]:
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored under nohup
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, handler, number)
    try:
        yield [*numbers]
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
