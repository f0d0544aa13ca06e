"""How much a run's history has grown, in a way that a replay sees the same, and when it is too long.

Three things grow: events, bytes, and updates (the server refuses them beyond a bound of its own). At
the soft mark the run waits for a moment in which no code of it runs. At four times that it makes one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from abeyance.core.state import Rotation

_SOFT_BYTES: Final = 2_000_000
_SOFT_UPDATES: Final = 400
_HARD: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How much a history has grown since its run began or was handed over."""

    events: int
    bytes: int
    updates: int


def due(growth: Growth, *, soft_events: int) -> Rotation | None:
    """Whether a hand-over is due, and how urgently. `soft_events` is `continue_as_new_after`."""
    fullest = max(
        growth.events / soft_events, growth.bytes / _SOFT_BYTES, growth.updates / _SOFT_UPDATES
    )
    if fullest >= _HARD:
        return "hard"
    return "soft" if fullest >= 1 else None


class History:
    """The history of one Temporal run. `updates` counts those that were accepted in it."""

    def __init__(self) -> None:
        info = workflow.info()
        self.updates = 0
        self._length = info.get_current_history_length()
        self._base = Growth(events=self._length, bytes=info.get_current_history_size(), updates=0)
        self._growth = Growth(events=0, bytes=0, updates=0)

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
        self._growth = Growth(
            events=max(length - self._base.events, self._growth.events),
            bytes=info.get_current_history_size() - self._base.bytes,
            updates=0,
        )
        return True

    def due(self, soft_events: int) -> Rotation | None:
        """Whether a hand-over is due, and how urgently. `soft_events` is `continue_as_new_after`."""
        return due(replace(self._growth, updates=self.updates), soft_events=soft_events)


with workflow.unsafe.imports_passed_through():
    from abeyance import wire
    from abeyance.core.state import RunState, parted


def hand_over(state: RunState, start: wire.StartRun, used: tuple[str, ...]) -> None:
    """Continue as new. Returns only if the run is too large for that as it is.

    `used` are the nonces of the last orders.
    Temporal takes what a visit may be given, and no more: otherwise the task would fail again and again,
    and nobody could reach the run.
    """
    carry, graph, by_scope = parted(state)
    # The moment, not a count: after a reset, too, it is larger than any before.
    moment = int(workflow.now().timestamp() * 1_000_000)
    generation = max(moment, start.generation + 1)
    news = {"generation": generation, "used": used}
    arguments = [start.model_copy(update=news), graph, by_scope, carry]
    payloads = workflow.payload_converter().to_payloads(arguments)
    carried = sum(payload.ByteSize() for payload in payloads)
    if carried > state.limits.visit_bytes:
        workflow.logger.warning(
            "bytes=%d most=%d | the history is long, and the run is too large to be handed over",
            carried,
            state.limits.visit_bytes,
        )
        return
    # A new history has the memo that the run was started with, unless it is given another.
    memo = {key: value for key, value in workflow.memo().items() if key != wire.MEMO_FACTS}
    workflow.continue_as_new(args=arguments, memo=memo)
