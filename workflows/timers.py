"""The timer of a run: one for its nearest deadline.

The result of a local activity may come in one workflow task, and be replayed in the one before (tried). A
timer that is set and taken back in one task is never sent. So one that was set in the one task and taken
back in the next would, in a replay, be in the history and not be wanted, and the run would be stuck. What
is not needed any more is therefore taken back only when both sides are in a later task; until then it may
ring, which does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

StartTimer: TypeAlias = "Callable[[datetime, str], asyncio.Task[None]]"
"""Starts to wait for a moment, with a text that says what for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timer:
    moment: datetime
    task: asyncio.Task[None]
    sent_by: int


class DeadlineTimer:
    """The timers of one run. `ring` starts one."""

    def __init__(self, ring: StartTimer) -> None:
        self._ring = ring
        self._timer: _Timer | None = None
        self._old: list[_Timer] = []

    def set(self, moment: datetime | None, summary: str, *, tasks: int, is_local: bool) -> None:
        """Ring at that moment and at no other; None is never.

        `tasks` counts the workflow tasks so far that brought something else than results of local
        activities; `is_local`: what was heard of last is such a result.
        """
        if moment != (None if self._timer is None else self._timer.moment):
            if self._timer is not None:
                self._old.append(self._timer)
                self._timer = None
        else:
            moment = None
        for old in [old for old in self._old if self._may_go(old, tasks, is_local=is_local)]:
            self._old.remove(old)
            old.task.cancel()
        if moment is not None:
            # What a local result sets may be set in the task after, which is the next that is counted.
            sent_by = tasks + 1 if is_local else tasks
            task = self._ring(moment, summary)
            self._timer = _Timer(moment=moment, task=task, sent_by=sent_by)

    def _may_go(self, old: _Timer, tasks: int, *, is_local: bool) -> bool:
        is_sent = not is_local and old.sent_by < tasks
        return is_sent or old.task.done()
