"""How a batch gets from a run to the activity that writes it, within one process.

An argument of a local activity is encoded, encrypted and, if it is large, stored. So it is a number only.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from abeyance.records.batch import Batch

_MOST: Final = 2_000
"""More executions than a worker has in its cache."""


class HandOver:
    """The latest batch of each execution that was not taken yet."""

    def __init__(self) -> None:
        self._batches: OrderedDict[str, Batch] = OrderedDict()

    def put(self, execution: str, batch: Batch) -> None:
        """Lay a batch down, in place of an earlier one of the execution."""
        self._batches[execution] = batch
        self._batches.move_to_end(execution)
        if len(self._batches) > _MOST:
            self._batches.popitem(last=False)

    def take(self, execution: str, number: int) -> Batch | None:
        """Take the batch with this number; None if it is not here."""
        batch = self._batches.pop(execution, None)
        return batch if batch is not None and batch.number == number else None
