"""The walk of one hop, where its nodes run: what comes after the visits that are done.

It is decided by the rules of a run, on a run that has only the branch of the hop. So the run that gets
what was done decides the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from abeyance.core import machine
from abeyance.core.copying import replace
from abeyance.core.effects import Hop, RunNode, VisitInput
from abeyance.core.events import VisitEnded
from abeyance.core.fusing import MAX_NODES, scope_of
from abeyance.core.json import size
from abeyance.core.outcome import Finished, Ran
from abeyance.core.state import Limits, RunState, Scope
from abeyance.core.visit import Running, Visit

MAX_BYTES: Final = 300_000
"""How large the changes of the visits of a hop may grow until it has to end: beside those of one more
visit they travel in one piece.
"""
REST: Final = "rest"
"""Stands for everything else in the run, so that it does not end when the branch does."""


class Walk:
    """The way from the visit `first` on, as far as its activity can go."""

    def __init__(self, first: VisitInput) -> None:
        self._first = first
        self._state: RunState | None = None
        self._waiting = [first]
        self._made = 0
        self._bytes = 0

    def after(self, ran: Ran) -> VisitInput | None:
        """Return the visit to run after this one, which was the last to be returned, or is the first.

        None: it is the run that decides.
        """
        hop, outcome = self._first.hop, ran.outcome
        if hop is None or not isinstance(outcome, Finished) or outcome.sends is not None:
            return None
        self._made += 1
        self._bytes += size(
            [outcome.patch, outcome.journal, [[e.name, e.data] for e in outcome.emitted]]
        )
        if self._made >= MAX_NODES or self._bytes > MAX_BYTES:
            return None
        before = self._state or _branch(self._first, hop, ran.began)
        ended = VisitEnded(now=ran.ended, visit=ran.visit, outcome=outcome)
        self._state, effects = machine.advance(before, ended)
        started = [each.input for each in effects if isinstance(each, RunNode)]
        self._waiting = [*self._waiting[1:], *started]
        # All that is left has to be code that may run here.
        is_code = all(each.kind == "visit" for each in started)
        is_all = len(self._state.visits) == len(self._waiting) + 1
        if self._state.ending is not None or not self._waiting or not is_code or not is_all:
            return None
        return replace(
            self._waiting[0],
            root=self._first.root,
            path=self._first.path,
            execution=self._first.execution,
            origin=self._first.origin,
        )


def following(first: VisitInput, done: Iterable[Ran]) -> VisitInput | None:
    """Return the visit that is the next to run in the activity of `first`, after those that are done."""
    walk, next_ = Walk(first), None
    for ran in done:
        next_ = walk.after(ran)
    return next_


def _branch(first: VisitInput, hop: Hop, now: datetime) -> RunState:
    """Return the run as if it had only the branch of a visit, which runs."""
    address = scope_of(first.address)
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
            REST: Visit(address=REST, scope="", node="", state=Running()),
        },
        salt=first.salt,
    )
