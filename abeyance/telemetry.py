"""What our processes tell about themselves: how it is written down, and what is not worth telling."""

from __future__ import annotations

import logging
from typing import Final

_FORM: Final = "%(asctime)s %(levelname)s %(name)s | %(message)s"
_CONTINUED: Final = "\n    "


class _WithoutForgery(logging.Formatter):
    """Lets only a record begin a line.

    Much of what is told was written by somebody else, such as the text of an exception: what follows its
    line breaks is indented, and what a terminal would obey, or nobody would see, is written as its code.
    """

    def format(self, record: logging.LogRecord) -> str:
        lines = super().format(record).split("\n")
        return _CONTINUED.join(map(_visible, lines))


def _visible(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in line
    )


class _WithoutMemoSize(logging.Filter):
    """Drops the SDK's advice that a memo is over 2 KB: ours has a budget of its own, far below the
    server's bound, and is the run's event log.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return "TMPRL1103" not in record.getMessage()


def log_to_stderr() -> None:
    """Write down what this process tells, without what the Temporal SDK tells for nothing."""
    handler = logging.StreamHandler()
    handler.setFormatter(_WithoutForgery(_FORM))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for name in (
        "temporalio",
        "temporalio.worker",
        "temporalio.client",
        "temporalio.worker._workflow",
    ):
        logging.getLogger(name).addFilter(_WithoutMemoSize())
