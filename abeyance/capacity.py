"""Room for one more run: how many may be active, and which one goes for a new one.

It is approximate. What is active is known from visibility, which is up to a second late, and each
process knows only of its own what it has evicted since: so for seconds a few runs more may be active
than allowed, and the next start sees to it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeAlias

from abeyance.errors import Code, Refusal
from abeyance.recency import Recency

Policy: TypeAlias = Literal["evict-lru", "reject"]
"""What happens to a start when as many runs are active as may be."""

_LAG: Final = 3.0
"""Seconds for which a run that was evicted may still be counted."""
_REMEMBERED: Final = 60.0
_FRESH: Final = 10.0
"""Seconds for which a list of runs by their activity is good enough to choose from."""


class Capacity:
    """The room of one process's starts. `evict` halts a run, and says whether it did."""

    def __init__(self, recency: Recency, evict: Callable[[str], Awaitable[bool]]) -> None:
        self._recency = recency
        self._evict = evict
        self._lock = asyncio.Lock()
        self._evicted: dict[str, float] = {}
        self._oldest: deque[str] = deque()
        self._listed_at = float("-inf")

    async def make_room(self, bound: int, policy: Policy) -> None:
        """Let there be room for one more run where `bound` may be active; 0 is any number.

        Raises `too_many_runs` if there is none and the policy is to reject.
        """
        if not bound:
            return
        async with self._lock:
            now = asyncio.get_running_loop().time()
            self._evicted = {
                run_id: at for run_id, at in self._evicted.items() if now - at < _REMEMBERED
            }
            going = sum(now - at < _LAG for at in self._evicted.values())
            active = await self._recency.count() - going
            if active < bound:
                return
            if policy == "reject":
                raise Refusal(
                    Code.TOO_MANY_RUNS,
                    f"{active} runs are active, and {bound} may be (ABEYANCE_MAX_ACTIVE_RUNS). Wait for "
                    "some to end, cancel some, or try again later.",
                    limit=bound,
                    actual=active,
                )
            await self._evict_oldest(active - bound + 1, now)

    async def _evict_oldest(self, wanted: int, now: float) -> None:
        if now - self._listed_at > _FRESH or len(self._oldest) < wanted:
            self._oldest = deque(run.run_id for run in await self._recency.runs())
            self._listed_at = now
        while wanted > 0 and self._oldest:
            run_id = self._oldest.popleft()
            if run_id not in self._evicted and await self._evict(run_id):
                self._evicted[run_id] = now
                wanted -= 1
