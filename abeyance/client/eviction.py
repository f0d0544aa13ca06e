"""The limit of active runs, and evictions among the open runs of a deployment."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Literal, TypeAlias

from temporalio.exceptions import ApplicationError

from abeyance import commands, names
from abeyance.client.records import Records
from abeyance.client.rpc import DELETED, WorkflowRpc
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.history.description import RunEnded
from abeyance.records import runs
from abeyance.records.runs import ActiveRun
from abeyance.util import gather_limited

Policy: TypeAlias = Literal["evict-lru", "reject"]
"""The reaction of a start to the limit of active runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many runs may be active (0: no limit), and what a start does if it finds no room."""

    bound: int = 0
    policy: Policy = "evict-lru"


UNBOUNDED: Final = Room()

_LAG: Final = 3.0
"""Seconds after which a start, and the end that an eviction asks for, are recorded."""
_REMEMBERED: Final = 60.0
_FRESH: Final = 10.0
"""Seconds for which a list of runs by activity is reused."""
_MAX_LISTED: Final = 200
"""How many run ids one query may list."""


class Capacity:
    """The limit of active runs, as one process applies it. `evict` halts a run if it can."""

    def __init__(self, records: Records, evict: Callable[[str], Awaitable[bool]]) -> None:
        self._records = records
        self._evict = evict
        self._lock = asyncio.Lock()
        self._started: dict[str, float] = {}
        self._evicted: dict[str, float] = {}
        self._oldest: deque[str] = deque()
        self._listed_at = float("-inf")

    async def make_room(self, run_id: str, room: Room) -> None:
        """Make room for this run among the active ones.

        Raises `too_many_runs` if there is no room and the policy is `reject`.
        """
        if not (bound := room.bound):
            return
        async with self._lock:
            now = asyncio.get_running_loop().time()
            active = await self._active(now)
            if active >= bound and room.policy == "reject":
                raise Refusal(
                    Code.TOO_MANY_RUNS,
                    f"{active} runs are active, and {bound} may be (ABEYANCE_MAX_ACTIVE_RUNS). Wait for "
                    "some to end, cancel some, or try again later.",
                    limit=bound,
                    actual=active,
                )
            await self._evict_oldest(active - bound + 1, now)
            self._started[run_id] = now

    def forget(self, run_id: str) -> None:
        """Give back the room of a run that did not start."""
        self._started.pop(run_id, None)

    async def _active(self, now: float) -> int:
        self._started = _since(now - _LAG, self._started)
        self._evicted = _since(now - _REMEMBERED, self._evicted)
        going = [*_since(now - _LAG, self._evicted)][-_MAX_LISTED:]
        coming = [run_id for run_id in self._started if run_id not in self._evicted][-_MAX_LISTED:]
        return await self._records.read(runs.active, coming=coming, going=going)

    async def _evict_oldest(self, count: int, now: float) -> None:
        if count <= 0:
            return
        if now - self._listed_at > _FRESH or len(self._oldest) < count:
            oldest = await self._records.read(runs.by_activity)
            self._oldest = deque(run.run_id for run in oldest)
            self._listed_at = now
        while count > 0 and self._oldest:
            run_id = self._oldest.popleft()
            if run_id not in self._evicted and await self._evict(run_id):
                self._evicted[run_id] = now
                count -= 1


def _since(moment: float, times: Mapping[str, float]) -> dict[str, float]:
    return {run_id: at for run_id, at in times.items() if at >= moment}


_SPARED: Final = DELETED | {Code.NATIVELY_PAUSED}
_CHUNK: Final = 100
_logger = logging.getLogger("abeyance.evictions")


class Evictions:
    """The evictions among the open runs of one deployment."""

    def __init__(self, line: WorkflowRpc, records: Records) -> None:
        self._line = line
        self._records = records

    async def for_another(self, run_id: str) -> bool:
        """Halt a run to make room for another; return whether it did."""
        return await self._one(run_id, commands.Evict(actor="max_active_runs"))

    async def inactive(self, seconds: float, actor: str, *, most: int | None) -> list[str]:
        """Halt the runs that were inactive for so many seconds, and return their ids."""
        since = datetime.now(UTC) - timedelta(seconds=seconds)
        inactive = await self._records.read(runs.by_activity, inactive_since=since)
        return await self._all(inactive, commands.Evict(inactive_since=since, actor=actor), most)

    async def beyond(
        self, keep: int, actor: str, *, gone: frozenset[str], most: int | None
    ) -> list[str]:
        """Halt all but the `keep` most recently active runs, and return their ids.

        `gone` are runs that were halted just now, and may not be recorded so yet.
        """
        open_ = await self._records.read(runs.by_activity)
        left = [run for run in open_ if run.run_id not in gone]
        surplus = left[: max(0, len(left) - keep)]
        return await self._all(surplus, commands.Evict(actor=actor), most)

    async def _all(
        self, chosen: list[ActiveRun], order: commands.Evict, most: int | None
    ) -> list[str]:
        left = [run.run_id for run in chosen]
        evicted: list[str] = []
        while left and (most is None or len(evicted) < most):
            # Some runs are ending already, which is not recorded yet, so others may be needed.
            size = _CHUNK if most is None else min(_CHUNK, most - len(evicted))
            chunk, left = left[:size], left[size:]
            done = await gather_limited(chunk, partial(self._if_reached, order=order))
            evicted += [
                run_id for run_id, was_evicted in zip(chunk, done, strict=True) if was_evicted
            ]
        return evicted

    async def _if_reached(self, run_id: str, order: commands.Evict) -> bool:
        try:
            return await self._one(run_id, order)
        except Unavailable as error:
            # The next eviction tries this run again, and the others go on.
            _logger.warning("run=%s | not evicted: %s", run_id, error)
            return False

    async def _one(self, run_id: str, order: commands.Evict) -> bool:
        try:
            await self._line.update(run_id, "evict", order, None)
        except ApplicationError as error:
            if error.type != names.STILL_ACTIVE:
                raise
            return False
        except RunEnded:
            return False
        except Refusal as refusal:
            if refusal.code not in _SPARED:
                raise
            return False
        return True
