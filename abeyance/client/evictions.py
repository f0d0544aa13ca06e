"""Halting runs that nobody cares for any more, or that are too many.

What goes is chosen by what visibility knows of the runs; each run judges for itself whether it was as
inactive as it has to be.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from temporalio.exceptions import ApplicationError

from abeyance import wire
from abeyance.client.line import Line, RunEnded
from abeyance.client.recency import Active, Recency
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.parallel import each
from abeyance.temporal.turnstile import Turn

_SPARED: Final = frozenset({Code.NATIVELY_PAUSED, Code.UNKNOWN_RUN})
_CHUNK: Final = 100
_logger = logging.getLogger("abeyance.evictions")


class Evictions:
    """The evictions among the open runs of one deployment."""

    def __init__(self, line: Line, recency: Recency) -> None:
        self._line = line
        self._recency = recency

    async def for_another(self, run_id: str) -> bool:
        """Halt a run in whose place another starts; returns whether it is halted by that."""
        return await self._one(run_id, wire.Evict(actor="max_active_runs"))

    async def inactive(self, seconds: float, actor: str, *, most: int | None) -> list[str]:
        """Halt the runs to which nothing has happened for so long, and return their ids."""
        since = datetime.now(UTC) - timedelta(seconds=seconds)
        found = await self._recency.runs(inactive_since=since)
        return await self._all(found, wire.Evict(inactive_since=since, actor=actor), most)

    async def beyond(
        self, keep: int, actor: str, *, gone: frozenset[str], most: int | None
    ) -> list[str]:
        """Halt all but the most recently active, and return their ids.

        `gone` are runs that were halted just now, which visibility may not know.
        """
        left = [run for run in await self._recency.runs() if run.run_id not in gone]
        surplus = left[: max(0, len(left) - keep)]
        return await self._all(surplus, wire.Evict(actor=actor), most)

    async def _all(self, runs: list[Active], order: wire.Evict, most: int | None) -> list[str]:
        left = [run.run_id for run in runs]
        evicted: list[str] = []
        while left and (most is None or len(evicted) < most):
            # Some are on their way out already, and are listed only because visibility is late.
            wanted = _CHUNK if most is None else min(_CHUNK, most - len(evicted))
            chunk, left = left[:wanted], left[wanted:]
            done = await each(chunk, partial(self._if_reached, order=order))
            evicted += [
                run_id for run_id, was_evicted in zip(chunk, done, strict=True) if was_evicted
            ]
        return evicted

    async def _if_reached(self, run_id: str, order: wire.Evict) -> bool:
        try:
            return await self._one(run_id, order)
        except Unavailable as error:
            # It stays until the next time; the others need not.
            _logger.warning("run=%s | not evicted: %s", run_id, error)
            return False

    async def _one(self, run_id: str, order: wire.Evict) -> bool:
        try:
            await self._line.update(run_id, "evict", order, None, Turn.SEND_MESSAGE)
        except ApplicationError as error:
            if error.type != wire.STILL_ACTIVE:
                raise
            return False
        except RunEnded:
            return False
        except Refusal as refusal:
            if refusal.code not in _SPARED:
                raise
            return False
        return True
