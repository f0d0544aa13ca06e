"""A random source that records every draw, so that a schedule can be repeated and made shorter."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")


class Chance(Random):
    """Draw from `seed`, or repeat the draws of an earlier schedule, and draw zeros after their end.

    Zero is always the simplest draw: the first of a list, no fault, no delay. So if draws are removed
    from a schedule, the rest is a valid schedule, and a shorter one.
    """

    def __init__(self, seed: int = 0, draws: Sequence[int] | None = None) -> None:
        super().__init__(seed)
        self.origin = seed
        self._earlier = draws
        self.draws: list[int] = []

    def below(self, bound: int) -> int:
        """Return a number from 0 to less than `bound`."""
        if self._earlier is None:
            drawn = int(super().random() * bound)
        else:
            at = len(self.draws)
            drawn = self._earlier[at] if at < len(self._earlier) else 0
            drawn = min(drawn, bound - 1)
        self.draws.append(drawn)
        return drawn

    def happens(self, share: float) -> bool:
        """Return True with the probability `share`."""
        if self._earlier is None:
            self.draws.append(int(super().random() < share))
            return bool(self.draws[-1])
        return bool(self.below(2))

    def choice(self, options: Sequence[T]) -> T:  # type: ignore[override]
        return options[self.below(len(options))]

    def choices(self, population: Sequence[T], weights: Any, **_: Any) -> list[T]:  # type: ignore[override]
        if self._earlier is None:
            sums = _sums(tuple(weights))
            drawn = bisect(sums, super().random() * sums[-1], 0, len(sums) - 1)
            self.draws.append(drawn)
            return [population[drawn]]
        return [population[self.below(len(population))]]

    def randint(self, a: int, b: int) -> int:
        return a + self.below(b - a + 1)


@cache
def _sums(weights: tuple[float, ...]) -> list[float]:
    return [*accumulate(weights)]
