"""Being told to stop: by Ctrl-C, by SIGTERM, or because the terminal has gone."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator


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
def stopped_by_signals() -> Iterator[asyncio.Event]:
    """An event that is set at Ctrl-C, SIGTERM or a hang-up."""
    stop = asyncio.Event()
    with _hearing(lambda _: stop.set()):
        yield stop


@contextlib.contextmanager
def _hearing(hear: Callable[[int], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # it is ignored under nohup
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, hear, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
