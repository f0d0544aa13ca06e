"""Forks of runs of the core."""

from __future__ import annotations

from core_drive import Drive, restored

from abeyance.core import events
from abeyance.core.policy import Principal
from abeyance.core.snapshots import forked

ROOT = Principal(subject="root", capabilities=("*",))


def fork(run: Drive, back: int = 0, *, principal: Principal = ROOT) -> Drive:
    """The fork of a run, which has started from what was written down; the run is as it was."""
    written = run.state
    copy = Drive(run.state.spec)
    copy.now, copy.effects = run.now, []
    made = forked(run.state, run_id="f", salt="", back=back, now=run.now, principal=principal)
    assert restored(made) == made
    copy.state = made
    copy.feed(events.Restored)
    assert run.state is written
    return copy
