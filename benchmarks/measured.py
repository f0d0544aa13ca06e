"""What trials measured, folded over the rounds, as two tables: the numbers, and ratios to the floor.

A ratio is taken within each round, between trials that were made one soon after the other, so that
what drifts from round to round falls out of it; the table shows the median over the rounds and, in
brackets, the least and the most. A ratio above 1 is dearer than the floor, whatever is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

from contender import Contender

Samples: TypeAlias = Mapping[str, Sequence[float]]
"""What one trial measured: by name, one number or one for each run."""

Fold: TypeAlias = Callable[[Sequence[float]], float]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, the name of its samples, and how many of them become one number."""

    title: str
    samples: str
    fold: Fold = median
    more_is_better: bool = False
    digits: int = 1


def percentile(percent: float) -> Fold:
    """The smallest sample that at least so many per cent of them do not exceed."""

    def fold(samples: Sequence[float]) -> float:
        return sorted(samples)[max(0, math.ceil(len(samples) * percent / 100) - 1)]

    return fold


class Measured:
    """All trials of a workload: by contender, one for each round."""

    def __init__(self, contenders: Sequence[Contender], columns: Sequence[Column]) -> None:
        self._contenders = contenders
        self._columns = columns
        self._rounds: dict[str, list[Samples]] = {contender.name: [] for contender in contenders}

    def add(self, contender: Contender, samples: Samples) -> None:
        """Take in a trial."""
        self._rounds[contender.name].append(samples)

    def numbers(self) -> str:
        """A table of what was measured, over all rounds."""
        return self._table(self._columns, self._number)

    def ratios(self) -> str:
        """A table of ratios to the floor."""
        columns = [column for column in self._columns if column.fold is not sum]
        return self._table(columns, self._ratio)

    def _table(self, columns: Sequence[Column], cell: Callable[[Contender, Column], str]) -> str:
        rows = [["contender", *(column.title for column in columns)]]
        rows += [
            [contender.title, *(cell(contender, column) for column in columns)]
            for contender in self._contenders
        ]
        lines = [f"| {' | '.join(row)} |" for row in rows]
        return "\n".join([lines[0], f"|---|{'---:|' * len(columns)}", *lines[1:]])

    def _number(self, contender: Contender, column: Column) -> str:
        pooled = [
            sample
            for samples in self._rounds[contender.name]
            for sample in samples.get(column.samples, ())
        ]
        return f"{column.fold(pooled):.{column.digits}f}" if pooled else ""

    def _ratio(self, contender: Contender, column: Column) -> str:
        ours, floor = self._rounds[contender.name], self._rounds.get(contender.floor)
        if floor is None:
            return ""
        ratios = [
            column.fold(mine[column.samples]) / column.fold(other[column.samples])
            for mine, other in zip(ours, floor, strict=True)
            if column.samples in mine
            and column.samples in other
            and column.fold(other[column.samples])
        ]
        if column.more_is_better:
            ratios = [1 / ratio for ratio in ratios]
        if not ratios or contender.name == contender.floor:
            return "1" if ratios else ""
        return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
