"""How much a run's history has grown, in a way that a replay sees the same."""

from __future__ import annotations

from dataclasses import replace

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from abeyance.core import rotation
    from abeyance.core.state import Rotation


class History:
    """The history of one Temporal run. `updates` counts those that were accepted in it."""

    def __init__(self) -> None:
        info = workflow.info()
        self.updates = 0
        self._length = info.get_current_history_length()
        self._base = rotation.Growth(
            events=self._length, bytes=info.get_current_history_size(), updates=0
        )
        self._growth = rotation.Growth(events=0, bytes=0, updates=0)

    def grew(self, *, is_local: bool) -> bool:
        """Take in what has come: the result of a local activity, or anything else. True if it came
        with a new workflow task.
        """
        if is_local:
            # The result of a local activity may come in one workflow task and be replayed in the one
            # before, where the history is shorter (tried). So it is counted, not looked up.
            self._growth = replace(self._growth, events=self._growth.events + 1)
            return False
        info = workflow.info()
        length = info.get_current_history_length()
        if length == self._length:
            return False
        self._length = length
        self._growth = rotation.Growth(
            events=max(length - self._base.events, self._growth.events),
            bytes=info.get_current_history_size() - self._base.bytes,
            updates=0,
        )
        return True

    def due(self, soft_events: int) -> Rotation | None:
        """Whether a hand-over is due, and how urgently. `soft_events` is `continue_as_new_after`."""
        return rotation.due(replace(self._growth, updates=self.updates), soft_events=soft_events)
