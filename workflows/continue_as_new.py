"""Measure the growth of a history deterministically, and continue as new when it is due.

Events, bytes and updates grow; the server limits each of them. At the soft limit the run continues as new
once none of its code runs. At four times that limit it stops its code to do so. An idle run continues as
new much earlier: a worker that does not have the run in memory replays its history before it acts on an
answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from abeyance import names, wire
    from abeyance.core import machine
    from abeyance.core.state import Rotation, RunState, parted
    from abeyance.storage.converter import deflated

_SOFT_BYTES: Final = 2_000_000
_SOFT_UPDATES: Final = 400
_HARD: Final = 4
_IDLE_EVENTS: Final = 60
"""An idle run gets rid of a longer history that has outgrown the state which began it: to replay so many
events takes some 15 ms."""
_MAX_IDLE_EVENTS: Final = 200
"""An idle run gets rid of a longer history, however large its state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Growth of a history since the run started or continued as new."""

    events: int
    bytes: int
    updates: int


def due(growth: Growth, *, soft_events: int) -> Rotation | None:
    """Return the urgency of a continue-as-new. `soft_events` is `continue_as_new_after`."""
    fullest = max(
        growth.events / soft_events, growth.bytes / _SOFT_BYTES, growth.updates / _SOFT_UPDATES
    )
    if fullest >= _HARD:
        return "hard"
    return "soft" if fullest >= 1 else None


class History:
    """The history of one Temporal run. `updates` counts its accepted updates."""

    def __init__(self) -> None:
        info = workflow.info()
        self.updates = 0
        self._length = info.get_current_history_length()
        self._base = Growth(events=self._length, bytes=info.get_current_history_size(), updates=0)
        self._growth = Growth(events=0, bytes=0, updates=0)
        self._idle_events = _IDLE_EVENTS

    @property
    def is_long(self) -> bool:
        """Whether an idle run should get rid of this history."""
        grown = self._growth
        is_outgrown = grown.bytes > self._base.bytes or grown.events > _MAX_IDLE_EVENTS
        return is_outgrown and grown.events > self._idle_events

    def keep(self) -> None:
        """Keep this history, because the state is too large: if idle, until its events have doubled."""
        self._idle_events = 2 * self._growth.events

    def grew(self, *, is_local: bool) -> bool:
        """Account for new events. Return True if they came with a new workflow task."""
        if is_local:
            # A replay may deliver the result of a local activity one workflow task earlier, with a
            # shorter history (tested). So count it instead of reading the length.
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
        """Return the urgency of a continue-as-new. `soft_events` is `continue_as_new_after`."""
        return due(replace(self._growth, updates=self.updates), soft_events=soft_events)


def is_now(state: RunState, history: History) -> bool:
    """Return whether the run continues as new, if nothing else is under way."""
    return machine.may_rotate(state) or (history.is_long and machine.is_idle(state))


def hand_over(state: RunState, start: wire.StartRun) -> None:
    """Continue as new. Return only if the state is too large for that.

    Temporal refuses larger payloads, and the workflow task would then fail forever.
    """
    carry, graph, by_scope = parted(state)
    # A time instead of a count, so that it grows even after a reset.
    moment = int(workflow.now().timestamp() * 1_000_000)
    generation = max(moment, start.generation + 1)
    changes = {"generation": generation}
    arguments = [start.model_copy(update=changes), graph, by_scope, carry]
    payloads = workflow.payload_converter().to_payloads(arguments)
    limit = state.limits.visit_bytes
    if _bytes(payloads) > limit:
        # Only if they are too large, because nobody can read deflated payloads in Temporal's UI.
        payloads = [payloads[0], *map(deflated, payloads[1:])]
    if (carried := _bytes(payloads)) > limit:
        workflow.logger.warning(
            "bytes=%d limit=%d | the history is long, but the state is too large to continue as new",
            carried,
            limit,
        )
        return
    # Without a memo argument the new history would have the memo of the start.
    memo = dict(workflow.memo())
    created = {"created_at": state.created_at.isoformat()}
    memo[names.MEMO_START] = {**memo.get(names.MEMO_START, {}), **created}
    # As payloads, so that a large state is not written twice.
    workflow.continue_as_new(args=[RawValue(each) for each in payloads], memo=memo)


def _bytes(payloads: Sequence[Payload]) -> int:
    return sum(payload.ByteSize() for payload in payloads)
