"""When a run's history has grown so long that the run has to be handed over to a new one.

Three things grow: events, bytes, and updates (the server refuses them beyond a bound of its own). At
the soft mark the run waits for a moment in which no code of it runs. At four times that it makes one.
"""

from __future__ import annotations

from dataclasses import dataclass

from abeyance.core.state import Rotation

_SOFT_BYTES = 2_000_000
_SOFT_UPDATES = 400
_HARD = 4


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
