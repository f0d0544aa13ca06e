"""How far long work has come, drawn on stderr where somebody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from abeyance.commands.terminal import can_draw


@contextmanager
def progress(
    told: str, total: int | None = None, *, is_quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """What to call with the number of things that were done since the last time.

    `total` None: nobody knows how many there are. Without a terminal, without `rich`, and where
    `is_quiet`, nothing is drawn.
    """
    if is_quiet or not can_draw():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(told, total=total)
        yield lambda count: bar.advance(task, count)
