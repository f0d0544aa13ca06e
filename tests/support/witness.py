"""A witness of what the code of a run was given, kept outside of the run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from abeyance.core.events import Message


@dataclass(kw_only=True)
class Witness:
    """What the code of one run's nodes was given.

    `heard` are the addresses that got a message, by its id; `paid` counts the calls of a tool that may
    run once, by key; `repeated` is what a model was told twice.
    """

    heard: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    paid: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    repeated: list[str] = field(default_factory=list)

    def read(self, address: str, found: Sequence[Message]) -> list[str]:
        """Note that a visit got messages; their ids."""
        for each in found:
            self.heard[each.message_id].add(address)
        return [each.message_id for each in found]
