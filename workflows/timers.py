"""The timer for the nearest deadline of a run.

A replay may deliver the result of a local activity one workflow task earlier (tested). A timer that is
started and cancelled in the same task is never sent. So a timer that was started in one task and
cancelled in the next could, in a replay, be in the history without its command, and the run would be
stuck. Therefore a timer is cancelled only when both would be in a later task; until then it may fire,
which is harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

StartTimer: TypeAlias = "Callable[[datetime, str], asyncio.Task[None]]"
"""Starts a timer for a moment, with a summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timer:
    moment: datetime
    task: asyncio.Task[None]
    sent_by: int


class DeadlineTimer:
    """The timers of one run. `start` starts one."""

    def __init__(self, start: StartTimer) -> None:
        self._start = start
        self._timer: _Timer | None = None
        self._old: list[_Timer] = []

    def set(self, moment: datetime | None, summary: str, *, tasks: int, is_local: bool) -> None:
        """Set the timer to a moment, None for never.

        `tasks` counts the workflow tasks so far with events other than results of local activities;
        `is_local` is True if the last event was such a result.
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
            # After a local result the command may belong to the next counted task.
            sent_by = tasks + 1 if is_local else tasks
            task = self._start(moment, summary)
            self._timer = _Timer(moment=moment, task=task, sent_by=sent_by)

    def _may_go(self, old: _Timer, tasks: int, *, is_local: bool) -> bool:
        is_sent = not is_local and old.sent_by < tasks
        return is_sent or old.task.done()
