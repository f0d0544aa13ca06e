"""How a patch merges into a field: `Annotated[list[str], append]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from abeyance.core import spec


@dataclass(frozen=True, slots=True)
class Reducer:
    """A mark on a field of the state."""

    name: spec.Reducer


append: Final = Reducer("append")
"""Extend a list by a list."""

merge: Final = Reducer("merge")
"""Update a mapping."""

add: Final = Reducer("add")
"""Sum numbers."""

union: Final = Reducer("union")
"""Keep the distinct items of lists, in the order in which they first came."""
