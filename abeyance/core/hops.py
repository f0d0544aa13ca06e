"""The walk of one hop, where its nodes run: what comes after the visits that are done.

It is decided by the rules of a run, on a run that has only the branch of the hop. So the run that gets
what was done decides the same.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from abeyance.core import machine
from abeyance.core.address import Address
from abeyance.core.effects import Hop, RunNode, VisitInput
from abeyance.core.events import VisitEnded
from abeyance.core.fusing import MAX_NODES
from abeyance.core.json import size
from abeyance.core.outcome import Finished, Ran
from abeyance.core.state import Limits, RunState, Scope
from abeyance.core.visit import Running, Visit

MAX_BYTES: Final = 300_000
"""How large the changes of the visits of a hop may grow until it has to end: beside those of one more
visit they travel in one piece.
"""
_REST: Final = "rest"
"""Stands for everything else in the run, so that it does not end when the branch does."""


def following(first: VisitInput, done: tuple[Ran, ...]) -> VisitInput | None:
    """Return the visit that is the next to run in the activity of `first`; None if the run decides.

    `done` are the visits that have run there, `first` among them, in their order.
    """
    last = done[-1].outcome
    if first.hop is None or not isinstance(last, Finished) or last.sends is not None:
        return None
    carried = sum(size([ran.outcome.patch, _emitted(ran)]) for ran in done)
    if len(done) >= MAX_NODES or carried > MAX_BYTES:
        return None
    ended = VisitEnded(
        now=done[-1].ended, visit=first.address, outcome=done[0].outcome, then=done[1:]
    )
    state, effects = machine.advance(_branch(first, first.hop, done[0].began), ended)
    waiting = [each.input for each in effects if isinstance(each, RunNode)]
    is_all = len(state.visits) == len(waiting) + 1
    if state.ending is not None or not waiting or not is_all or waiting[0].kind != "visit":
        return None
    return replace(
        waiting[0],
        root=first.root,
        path=first.path,
        execution=first.execution,
        origin=first.origin,
        hop=None,
    )


def _emitted(ran: Ran) -> list[object]:
    return (
        [[e.name, e.data] for e in ran.outcome.emitted] if isinstance(ran.outcome, Finished) else []
    )


def _branch(first: VisitInput, hop: Hop, now: datetime) -> RunState:
    """Return the run as if it had only the branch of a visit, which runs."""
    address = str(Address(Address.parse(first.address).segments[:-1]))
    own = {key.rpartition("/")[2]: answer for key, answer in first.own_answers.items()}
    scope = Scope(
        address=address,
        values=first.values,
        size=size(first.values),
        tokens=hop.tokens,
        ordinals=hop.ordinals,
        visit_counts=hop.visit_counts,
        answers={**first.answers, **own},
        answerers=first.answerers,
    )
    visit = Visit(
        address=first.address,
        scope=address,
        node=first.node,
        approvals=hop.approvals,
        activations=first.activation,
        state=Running(),
    )
    return RunState(
        run_id=first.run_id,
        spec=hop.graph,
        limits=Limits(max_visits=hop.max_visits, visit_bytes=hop.visit_bytes),
        created_at=now,
        updated_at=now,
        last_activity_at=now,
        scopes={address: scope},
        visits={
            first.address: visit,
            _REST: Visit(address=_REST, scope="", node="", state=Running()),
        },
        salt=first.salt,
    )
