"""Room for one more run: how many may be active, and which one goes for a new one.

It is approximate. What is active is known from visibility, which is up to a second late. A process
corrects that for what it has started and evicted itself; of the others it knows nothing. So for seconds
a few runs more may be active than allowed, and the next start sees to it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, TypeAlias

from abeyance.client.recency import Recency
from abeyance.errors import Code, Refusal

Policy: TypeAlias = Literal["evict-lru", "reject"]
"""What happens to a start when as many runs are active as may be."""

_LAG: Final = 3.0
"""Seconds after which visibility has heard of what was done."""
_REMEMBERED: Final = 60.0
_FRESH: Final = 10.0
"""Seconds for which a list of runs by their activity is good enough to choose from."""
_MOST_ASKED: Final = 200
"""How many runs are asked about at once."""


class Capacity:
    """The room of one process's starts. `evict` halts a run, and says whether it did."""

    def __init__(self, recency: Recency, evict: Callable[[str], Awaitable[bool]]) -> None:
        self._recency = recency
        self._evict = evict
        self._lock = asyncio.Lock()
        self._started: dict[str, float] = {}
        self._evicted: dict[str, float] = {}
        self._oldest: deque[str] = deque()
        self._listed_at = float("-inf")

    async def make_room(self, run_id: str, bound: int, policy: Policy) -> None:
        """Let there be room for this run where `bound` may be active; 0 is any number.

        Raises `too_many_runs` if there is none and the policy is to reject.
        """
        if not bound:
            return
        async with self._lock:
            now = asyncio.get_running_loop().time()
            active = await self._active(now)
            if active >= bound and policy == "reject":
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
        """The run for which there was room did not start."""
        self._started.pop(run_id, None)

    async def _active(self, now: float) -> int:
        self._started = _since(now - _LAG, self._started)
        self._evicted = _since(now - _REMEMBERED, self._evicted)
        going = [*_since(now - _LAG, self._evicted)][-_MOST_ASKED:]
        coming = [run_id for run_id in self._started if run_id not in self._evicted][-_MOST_ASKED:]
        # Those of our own are left out of what is shown, and not subtracted from it: visibility hears of
        # them between any two questions.
        others = await self._recency.count(beside=[*going, *coming])
        return others + len(coming) - await self._recency.over(coming)

    async def _evict_oldest(self, wanted: int, now: float) -> None:
        if wanted <= 0:
            return
        if now - self._listed_at > _FRESH or len(self._oldest) < wanted:
            self._oldest = deque(run.run_id for run in await self._recency.runs())
            self._listed_at = now
        while wanted > 0 and self._oldest:
            run_id = self._oldest.popleft()
            if run_id not in self._evicted and await self._evict(run_id):
                self._evicted[run_id] = now
                wanted -= 1


def _since(moment: float, times: Mapping[str, float]) -> dict[str, float]:
    return {run_id: at for run_id, at in times.items() if at >= moment}
