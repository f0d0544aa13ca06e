"""Keys of earlier declarations, and what to write instead of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

GONE: Final[Mapping[str, str]] = {
    "budget": "give each agent one, as Agent(..., budget=Budget(...))",
    "fuse": "set local on nodes that are done within seconds",
}
