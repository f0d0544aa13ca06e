"""The undo log of a scope, so that a person can have its last visits done again.

The order of visits is unambiguous only while a scope has one branch, no fan-out and no open join: then
its last twenty finished visits are kept, each with an undo of its changes. Effects outside the run are
not undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from abeyance.core import items
from abeyance.core.json import Json, size
from abeyance.core.state import RunState, Step
from abeyance.core.visit import BY_SCOPE, Undo, Visit
from abeyance.core.working_state import WorkingState

MAX_ENTRIES: Final = 20
"""Maximum number of visits in the log."""
_MOST_BYTES: Final = 200_000
"""Maximum size of the log, which is part of the snapshot."""


def is_linear(state: RunState, scope_address: str) -> bool:
    """Return whether a scope has at most one branch now, and no fan-out or open join."""
    scope = state.scopes[scope_address]
    branches = state.visit_table.count(BY_SCOPE, scope_address)
    return branches <= 1 and not scope.fans and not scope.tokens


def changing(visit: Visit, before: Mapping[str, Json], changed: Iterable[str]) -> None:
    """Record fields as they were `before` a visit changes them; only its first change of a field
    counts.
    """
    undo = visit.undo or Undo()
    recorded = {*undo.fields, *undo.absent}
    changed = [name for name in changed if name not in recorded]
    fields = {name: before[name] for name in changed if name in before}
    absent = tuple(name for name in changed if name not in before)
    visit.undo = Undo(fields={**undo.fields, **fields}, absent=(*undo.absent, *absent))


def leave(draft: WorkingState, visit: Visit) -> None:
    """Append a finished visit to its scope's trail, or clear the trail."""
    scope = draft.state.scopes[visit.scope]
    if visit.members or not is_linear(draft.state, visit.scope):
        if scope.trail:
            draft.scope(visit.scope).trail = ()
        return
    undo = visit.undo or Undo()
    step = Step(
        node=visit.node,
        address=visit.address,
        undo=undo,
        size=size(undo.fields),
        approvals=visit.approvals,
    )
    trail = (*scope.trail, step)[-MAX_ENTRIES:]
    while trail and sum(each.size for each in trail) > _MOST_BYTES:
        trail = trail[1:]
    draft.scope(visit.scope).trail = trail


def back(draft: WorkingState, scope_address: str, steps: int) -> Step:
    """Undo the last `steps` visits of a scope; return the earliest of them."""
    scope = draft.scope(scope_address)
    undone = scope.trail[-steps:]
    values = dict(scope.values)
    for step in reversed(undone):
        apply_undo(values, step.undo)
    scope.trail = scope.trail[: len(scope.trail) - steps]
    items.put_values(draft, scope_address, values)
    return undone[0]


def apply_undo(values: dict[str, Json], undo: Undo) -> None:
    """Restore what a visit has changed."""
    values.update(undo.fields)
    for name in undo.absent:
        values.pop(name, None)
