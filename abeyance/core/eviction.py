"""Halting a run that nobody has done anything to for long, or in whose place another wants to start.

Whoever evicts knows only roughly when a run was active last. The run itself knows: so an eviction for
inactivity says since when, and a run that was active after that stays.
"""

from __future__ import annotations

from typing import Final

from abeyance.core import ending
from abeyance.core.draft import Draft
from abeyance.core.events import Evicted
from abeyance.core.state import RunState

REASON: Final = "evicted"
"""Why a run was halted that was evicted."""


def applies(state: RunState, event: Evicted) -> bool:
    """Whether the run would be halted: it does not end already, and is as inactive as it has to be."""
    if state.finished or state.ending is not None:
        return False
    if event.inactive_since is None:
        return True
    waits_until = any(entry.deadline is not None for entry in state.ledger.open.values())
    return state.last_activity_at <= event.inactive_since and not waits_until


def evict(draft: Draft, event: Evicted) -> None:
    """Halt the run, if it applies."""
    if applies(draft.state, event):
        ending.begin(draft, "halted", REASON, actor=event.actor)
