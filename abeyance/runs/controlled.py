"""What a run says of the controls that came to it under a key.

Nothing answers a signal, so whoever sent one under a key asks afterwards what the key stands for.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypeAlias, assert_never

from abeyance import arrivals, wire
from abeyance.core import keys
from abeyance.core.events import CancelRequested, Paused, Resumed
from abeyance.errors import Unavailable
from abeyance.runs.line import Line

Order: TypeAlias = wire.Pause | wire.Resume | wire.Cancel


async def was_done(line: Line, run_id: str, order: Order) -> bool:
    """Whether the run has carried a control out under its key, be it now or before.

    False for an order without a key, and where no worker can be asked. Raises `unknown_run`, and
    `idempotency_conflict` if the key came with anything else.
    """
    if order.key is None:
        return False
    try:
        known = await line.query(run_id, "controls", dict[str, str])
    except Unavailable:
        return False
    return keys.is_repeat(known, _event(order))


def _event(order: Order) -> Paused | Resumed | CancelRequested:
    now = datetime.now(UTC)
    match order:
        case wire.Pause():
            return arrivals.paused(order, now)
        case wire.Resume():
            return arrivals.resumed(order, now)
        case wire.Cancel():
            return arrivals.cancel_requested(order, now)
        case _:
            assert_never(order)
