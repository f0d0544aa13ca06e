"""The page that shows what was measured: the tables of each workload stand between two comments of it."""

from __future__ import annotations

import re
from pathlib import Path


def shown(page: str, workload: str, measured: str) -> str:
    """Return the page with what was measured for a workload, in place of what it had.

    Raises ValueError for a page without a place for it.
    """
    place = re.compile(rf"(<!-- measured: {re.escape(workload)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if place.search(page) is None:
        message = (
            f"the page has no place for {workload}: write the lines <!-- measured: {workload} --> "
            "and <!-- end --> where its tables are to stand"
        )
        raise ValueError(message)
    return place.sub(lambda found: f"{found[1]}\n{measured.strip()}\n\n{found[2]}", page)


def write(path: Path, workload: str, measured: str) -> None:
    """Write what was measured for a workload into a page. Raises as `shown`."""
    path.write_text(shown(path.read_text(encoding="utf-8"), workload, measured), encoding="utf-8")
