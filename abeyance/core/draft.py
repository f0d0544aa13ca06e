"""One `advance` in progress: the run so far, and what it wants done so far.

The only mutable thing in the core. It is made at the beginning of an `advance`, handed down through
the rules, and thrown away: nobody outside ever sees one, and a refusal leaves the run that it was
made from as it was.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from abeyance.core.canonical import Json
from abeyance.core.effects import Effect, Publish
from abeyance.core.events import Event
from abeyance.core.model import GraphSpec
from abeyance.core.state import Counters, RunState, Scope, Visit

_FARTHEST = 100 * 365 * 24 * 3600.0
"""In seconds. No timer can be set much farther, and no calendar goes on for ever."""


class Draft:
    """A run that is being changed, at one moment `now`."""

    __slots__ = ("effects", "following", "now", "state")

    def __init__(self, state: RunState, now: datetime) -> None:
        self.state = state
        self.now = now
        self.effects: list[Effect] = []
        self.following: list[Event] = []

    def after(self, seconds: float) -> datetime:
        """The moment in so many seconds: not before now, and at the latest in a hundred years."""
        return self.now + timedelta(seconds=max(0.0, min(_FARTHEST, seconds)))

    def change(self, **changes: Any) -> None:
        """Replace fields of the run."""
        self.state = replace(self.state, **changes)

    def count(self, **increments: int) -> None:
        """Add to the run's counters."""
        old = self.state.counters
        new: Counters = replace(
            old, **{name: getattr(old, name) + step for name, step in increments.items()}
        )
        self.change(counters=new)

    def put_scope(self, scope: Scope) -> None:
        """Set one scope."""
        self.change(scopes={**self.state.scopes, scope.address: scope})

    def drop_scope(self, address: str) -> None:
        """Forget one scope."""
        self.change(scopes={key: s for key, s in self.state.scopes.items() if key != address})

    def put_visit(self, visit: Visit) -> None:
        """Set one visit; a new one comes after all others."""
        self.change(visits={**self.state.visits, visit.address: visit})

    def drop_visit(self, address: str) -> None:
        """Forget a visit."""
        self.change(visits={key: v for key, v in self.state.visits.items() if key != address})

    def graph(self, scope: str) -> GraphSpec:
        """The graph that is walked in a scope."""
        return self.state.graph_of(scope)

    def follow(self, event: Event) -> None:
        """Let an event happen right after this one."""
        self.following.append(event)

    def want(self, effect: Effect) -> None:
        """Ask for an effect."""
        self.effects.append(effect)

    def tell(
        self, type_: str, address: str | None = None, actor: str | None = None, **data: Json
    ) -> int:
        """Publish a fact; returns its number."""
        number = self.state.facts + 1
        self.change(facts=number)
        self.want(
            Publish(
                number=number, time=self.now, type=type_, address=address, actor=actor, data=data
            )
        )
        return number
