"""What work has used: the limits of a budget, and the account that a graph with a budget keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

Limit: TypeAlias = Literal["usd", "tokens", "time", "turns"]
LIMITS: Final[tuple[Limit, ...]] = ("usd", "tokens", "time", "turns")

_MOST_UNPRICED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Limits: `usd` at the prices of the models, `tokens` sent and received, `time` in seconds of work,
    and `turns` of models. None is no limit.
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
        """Return the larger of each limit. One that only `other` has is none."""
        raised: dict[str, Any] = {
            name: max(amount, getattr(other, name) or 0) for name, amount in self.set()
        }
        return replace(self, **raised)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What was used, with the names of `Amounts`, and how many `calls` of tools were made."""

    usd: float = 0.0
    tokens: int = 0
    time: float = 0.0
    turns: int = 0
    calls: int = 0

    def plus(self, more: Use) -> Use:
        """Return the sum."""
        return Use(
            # Rounded, so that many small amounts do not add up to odd digits.
            usd=round(self.usd + more.usd, 9),
            tokens=self.tokens + more.tokens,
            time=round(self.time + more.time, 3),
            turns=self.turns + more.turns,
            calls=self.calls + more.calls,
        )

    def reaches(self, limits: Amounts) -> tuple[Limit, ...]:
        """Return the limits that are used up."""
        return tuple(name for name, amount in limits.set() if getattr(self, name) >= amount)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What a graph with a budget has used: in all, and `by` the names of agents, tools and nodes.

    `raised` are the limits that people have raised. `unpriced` are the models whose price is not known.
    """

    used: Use = field(default_factory=Use)
    by: Mapping[str, Use] = field(default_factory=dict)
    raised: Amounts = field(default_factory=Amounts)
    unpriced: tuple[str, ...] = ()

    def charged(self, name: str, use: Use) -> Account:
        """Return the account after more work."""
        by = {**self.by, name: self.by.get(name, Use()).plus(use)}
        return replace(self, used=self.used.plus(use), by=by)

    def without_price(self, model: str) -> Account:
        """Return the account with one more model whose price is not known."""
        if model in self.unpriced or len(self.unpriced) >= _MOST_UNPRICED:
            return self
        return replace(self, unpriced=(*self.unpriced, model))
