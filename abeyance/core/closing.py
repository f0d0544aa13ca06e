"""From the beginning of an ending to its close.

First what still runs is waited for, then the `finally` nodes run, one after another in the order of
their declaration, and then the run is finished. A finally node that fails is recorded beside the
outcome and hides nothing.
"""

from __future__ import annotations

from dataclasses import replace

from abeyance.core import flow
from abeyance.core.draft import Draft
from abeyance.core.effects import Finish
from abeyance.core.state import Ending


def proceed(draft: Draft, ending: Ending) -> bool:
    """Take the next step towards the close. True if there was one."""
    if draft.state.finished or draft.state.visits:
        return False
    if ending.finally_left:
        node, *left = ending.finally_left
        draft.state.ending = replace(ending, finally_left=tuple(left), grace_until=None)
        flow.enter(draft, draft.state.root.address, node, is_finally=True)
        return True
    draft.state.ending = replace(ending, grace_until=None)
    draft.state.finished = True
    draft.want(Finish())
    return True
