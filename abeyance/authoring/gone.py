"""Options of earlier declarations, and what to write instead of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

GONE: Final[Mapping[str, str]] = {
    "budget": "give each agent one, as Agent(..., budget=Budget(...))",
    "fuse": "set local on nodes that are done within seconds",
}


def faults_of_gone(label: str, options: Iterable[str]) -> Iterator[str]:
    """Yield a fault for each option that is gone. Raise TypeError for an option that never existed."""
    for name in options:
        if name not in GONE:
            raise TypeError(f"{label} has no option {name!r}")
        yield f"{label}: {name}= is gone: {GONE[name]}"
