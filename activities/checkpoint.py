"""What a visit measures when it writes its journal down: how often, how long, and whether it could."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from temporalio.common import MetricMeter

from abeyance import metrics


class Checkpoints:
    """Counts and times the writings of a journal: a finished step, or a counted attempt."""

    def __init__(self, meter: MetricMeter) -> None:
        self._operations = meter.create_counter(
            metrics.CHECKPOINTS.exposed, metrics.CHECKPOINTS.says
        )
        self._latency = meter.create_histogram_float(
            metrics.CHECKPOINT_LATENCY.exposed, metrics.CHECKPOINT_LATENCY.says
        )

    @contextmanager
    def written(self) -> Iterator[None]:
        """Measure one writing, which is an error if it raises."""
        began = time.monotonic()
        status: metrics.Outcome = "error"
        kind: metrics.Checkpoint = "journal"
        try:
            yield
            status = "success"
        finally:
            self._operations.add(1, {"kind": kind, "status": status})
            self._latency.record((time.monotonic() - began) * 1000, {"kind": kind})
