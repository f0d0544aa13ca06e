"""What a scope has done last, so that a person may have it done again.

Only while a scope has one branch, no fan-out and no open join is it clear what came before what: then
its finished visits are kept, the last twenty, each with what takes back what it changed. Effects in the
world are not taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from abeyance.core import items
from abeyance.core.json import Json, size
from abeyance.core.state import RunState, Step, Undo, Visit
from abeyance.core.working_state import WorkingState

MAX_ENTRIES: Final = 20
"""How many visits are remembered."""
_MOST_BYTES: Final = 200_000
"""What takes them back may be this large in all: a snapshot has to hold it."""


def is_linear(state: RunState, scope_address: str) -> bool:
    """Whether a scope has at most one branch now, and nothing that waits for another."""
    scope = state.scopes[scope_address]
    branches = sum(visit.scope == scope_address for visit in state.visits.values())
    return branches <= 1 and not scope.fans and not scope.tokens


def changing(visit: Visit, before: Mapping[str, Json], changed: Iterable[str]) -> None:
    """A visit changes fields that were as they are `before`; the first change of a field is the one to
    take back.
    """
    known = visit.undo or Undo()
    seen = {*known.fields, *known.absent}
    changed = [name for name in changed if name not in seen]
    fields = {name: before[name] for name in changed if name in before}
    absent = tuple(name for name in changed if name not in before)
    visit.undo = Undo(fields={**known.fields, **fields}, absent=(*known.absent, *absent))


def leave(draft: WorkingState, visit: Visit) -> None:
    """A visit is over: it is the last of its scope's trail, or the end of the trail."""
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
    kept = (*scope.trail, step)[-MAX_ENTRIES:]
    while kept and sum(each.size for each in kept) > _MOST_BYTES:
        kept = kept[1:]
    draft.scope(visit.scope).trail = kept


def back(draft: WorkingState, scope_address: str, steps: int) -> Step:
    """Take back the last `steps` visits of a scope; returns the earliest of them."""
    scope = draft.scope(scope_address)
    undone = scope.trail[-steps:]
    values = dict(scope.values)
    for step in reversed(undone):
        apply_undo(values, step.undo)
    scope.trail = scope.trail[: len(scope.trail) - steps]
    items.put_values(draft, scope_address, values)
    return undone[0]


def apply_undo(values: dict[str, Json], undo: Undo) -> None:
    """Put back what a visit has changed."""
    values.update(undo.fields)
    for name in undo.absent:
        values.pop(name, None)
