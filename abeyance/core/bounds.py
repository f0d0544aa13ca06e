"""Limits of work: the retries of a visit, and what an agent may use.

*Retries.* Only an attempt that failed, or was lost with its worker, counts. `retry_for` is a span of time
from the beginning of the first attempt that counts. It runs on whatever happens, also while the run is
paused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """The attempts at a visit that count: how many, and the seconds since the first one began. `since` is
    when that was, by the run's clock.
    """

    count: int = 0
    seconds: float = 0.0
    since: datetime | None = None

    def with_failed(self, seconds: float) -> Attempts:
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


Limit: TypeAlias = Literal["usd", "tokens", "time", "turns"]
LIMITS: Final[tuple[Limit, ...]] = ("usd", "tokens", "time", "turns")

_MOST_UNPRICED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Limits: `usd` at the prices of the models, `tokens` sent and received, `time` in seconds of work,
    and `turns` of models. None means no limit.
    """

    usd: float | None = None
    tokens: int | None = None
    time: float | None = None
    turns: int | None = None

    def set(self) -> Iterator[tuple[Limit, float]]:
        """Yield the limits that there are."""
        for name in LIMITS:
            if (amount := getattr(self, name)) is not None:
                yield name, amount

    def raised_to(self, other: Amounts) -> Amounts:
        """Return the larger of each limit. A limit that only `other` has is left out."""
        raised: dict[str, Any] = {
            name: max(amount, getattr(other, name) or 0) for name, amount in self.set()
        }
        return replace(self, **raised)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The amounts used, with the names of `Amounts`, and the number of tool `calls`."""

    usd: float = 0.0
    tokens: int = 0
    time: float = 0.0
    turns: int = 0
    calls: int = 0

    def plus(self, more: Use) -> Use:
        return Use(
            # Rounded, so that many small amounts do not add up to odd digits.
            usd=round(self.usd + more.usd, 9),
            tokens=self.tokens + more.tokens,
            time=round(self.time + more.time, 3),
            turns=self.turns + more.turns,
            calls=self.calls + more.calls,
        )

    def reaches(self, limits: Amounts) -> tuple[Limit, ...]:
        return tuple(name for name, amount in limits.set() if getattr(self, name) >= amount)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The use of a graph with a budget: in all, and `by` the names of agents, tools and nodes.

    `raised` are the limits that people have raised. `unpriced` are the models whose price is not known.
    """

    used: Use = field(default_factory=Use)
    by: Mapping[str, Use] = field(default_factory=dict)
    raised: Amounts = field(default_factory=Amounts)
    unpriced: tuple[str, ...] = ()

    def charged(self, name: str, use: Use) -> Account:
        by = {**self.by, name: self.by.get(name, Use()).plus(use)}
        return replace(self, used=self.used.plus(use), by=by)

    def without_price(self, model: str) -> Account:
        """Return the account with one more model whose price is not known."""
        if model in self.unpriced or len(self.unpriced) >= _MOST_UNPRICED:
            return self
        return replace(self, unpriced=(*self.unpriced, model))
