"""What the model of a visit says, as heartbeats carry it to those who watch the run.

The server keeps the details of a heartbeat with the pending activity, and writes none of them into the
history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from temporalio.converter import DataConverter

from abeyance import wire
from abeyance.core import live_text
from abeyance.core.live_text import LiveText

_LIMIT: Final = 32_000
"""In bytes: the tail of one text."""
_LIMIT_OF_A_RUN: Final = 256_000
"""In bytes: the tails of all models of a run that speak at the same time in this worker. Temporal ends a
run whose state, with the heartbeats of its pending activities, takes 8 MB."""
_SHARE: Final = 8
"""A part has so many times fewer characters than a stored payload has bytes: a heartbeat must not wait
for the storage, nor leave texts there."""


class Speech:
    """What a model says in one attempt. `speaking` counts the speaking models of this worker, by run."""

    def __init__(self, run_id: str, speaking: Counter[str], converter: DataConverter) -> None:
        self._run_id = run_id
        self._speaking = speaking
        self._turn = 0
        self._said: Callable[[], str] | None = None
        self._sent: LiveText | None = None
        storage = converter.external_storage
        threshold = None if storage is None else storage.payload_size_threshold
        self._part = _LIMIT if threshold is None else max(1, threshold // _SHARE)

    def begin(self, turn: int, said: Callable[[], str]) -> None:
        """Speak from now on. `said()` returns all that was said so far in the turn."""
        if self._said is None:
            self._speaking[self._run_id] += 1
        self._turn, self._said = turn, said

    def end(self) -> None:
        """Speak no more."""
        if self._said is not None:
            self._said = None
            self._speaking[self._run_id] -= 1
            # Removes the run if it was the last.
            self._speaking += Counter()

    @property
    def has_more(self) -> bool:
        """Whether more was said than was sent."""
        return self._now() != self._sent

    def parts(self) -> list[wire.Journal]:
        """Return what is to be sent now, each part as details of their own."""
        self._sent = self._now()
        whole = [] if self._sent is None else live_text.parts(self._sent, self._part)
        return [wire.Journal(live=part) for part in whole]

    def _now(self) -> LiveText | None:
        if self._said is None:
            return None
        limit = min(_LIMIT, _LIMIT_OF_A_RUN // self._speaking[self._run_id])
        return live_text.tail(self._turn, self._said(), limit)
