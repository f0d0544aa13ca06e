"""Retries of a visit: how many, after which pauses, and for how long.

Only an attempt that failed, or was lost with its worker, counts. `retry_for` is a span of time from the
beginning of the first attempt that counts: whatever happens in it takes of it, a pause of the run too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """The attempts at a visit that count: how many, and the seconds since the first one began. `since` is
    when that was, by the run's clock.
    """

    count: int = 0
    seconds: float = 0.0
    since: datetime | None = None

    def with_failed(self, seconds: float) -> Attempts:
        """Return these and another one, which failed `seconds` later."""
        return replace(self, count=self.count + 1, seconds=self.seconds + seconds)

    def with_lost(self, count: int, seconds: float = 0.0) -> Attempts:
        """Return these and others that were lost with their workers, as of `seconds` later."""
        return replace(self, count=self.count + count, seconds=self.seconds + seconds)

    def as_of(self, now: datetime) -> Attempts:
        """Return the same at this time of the run."""
        if not self.count:
            return self
        since = self.since or now - timedelta(seconds=self.seconds)
        return replace(self, since=since, seconds=max(0.0, (now - since).total_seconds()))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Bounds and pauses of retries. Times are in seconds.

    `retries` is the number of attempts after the first; None does not bound it. No attempt begins after
    `retry_for`; None does not bound it. The first pause is `first`, each further one `factor` times as
    long, and none longer than `most`.
    """

    retries: int | None = 3
    first: float = 1.0
    factor: float = 2.0
    most: float = 60.0
    retry_for: float | None = None

    def pause_before(self, retry: int) -> float:
        """Return the pause before the nth retry, counted from 1."""
        try:
            return min(self.most, self.first * self.factor ** (retry - 1))
        except OverflowError:
            return self.most

    def pause_after(self, attempts: Attempts) -> float | None:
        """Return the pause until the next attempt, after at least one; None if none is left."""
        pause = self.pause_before(attempts.count)
        is_late = self.retry_for is not None and attempts.seconds + pause > self.retry_for
        return None if is_late or self._is_used_up(attempts) else pause

    def why_none_left(self, attempts: Attempts) -> str:
        """Return the bound that `attempts` have reached, for a person."""
        if self._is_used_up(attempts):
            return f"No retries are left (retries={self.retries})."
        return f"No retries are left (retry_for={self.retry_for:g} s)."

    def _is_used_up(self, attempts: Attempts) -> bool:
        return self.retries is not None and attempts.count > self.retries
