"""Stop on Ctrl-C, SIGTERM or SIGHUP."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import signal
from collections.abc import Callable, Iterator


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

    A process that still runs `within` seconds after the first signal ends with exit code 1, and writes to
    stderr what each of its threads does: even if the event loop is blocked. The main thread must enter
    this context.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    is_told = False

    def on_signal(*_: object) -> None:
        nonlocal is_told
        if not is_told:
            faulthandler.dump_traceback_later(within, exit=True)
        is_told = True
        loop.call_soon_threadsafe(stop.set)

    # The loop's handlers wake the loop. Python calls these, also while the loop is blocked.
    with _handle_signals(lambda _: None) as numbers:
        for number in numbers:
            signal.signal(number, on_signal)
            signal.siginterrupt(number, False)  # noqa: FBT003  (positional only)
        try:
            yield stop
        finally:
            faulthandler.cancel_dump_traceback_later()


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
