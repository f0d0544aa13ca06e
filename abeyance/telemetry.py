"""What our processes tell about themselves: names, and what is not worth telling."""

from __future__ import annotations

import logging


class _WithoutMemoSize(logging.Filter):
    """Drops the SDK's advice that a memo is over 2 KB: ours has a budget of its own, far below the
    server's bound, and is the run's event log.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return "TMPRL1103" not in record.getMessage()


def quiet_the_sdk() -> None:
    """Drop the lines of the Temporal SDK that say nothing to an operator of ours."""
    for name in (
        "temporalio",
        "temporalio.worker",
        "temporalio.client",
        "temporalio.worker._workflow",
    ):
        logging.getLogger(name).addFilter(_WithoutMemoSize())
