"""One `advance` in progress: the run, which the rules change in place, and the effects so far.

It is created at the beginning of an `advance`, passed down through the rules, and discarded at the end.
Rows of the run's tables change in place; the mappings in a row are replaced, never changed, so an effect
may carry them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from abeyance.core.effects import Effect, Publish
from abeyance.core.json import Json
from abeyance.core.ledger import Interrupt
from abeyance.core.state import FanOut, RunState, Scope, copied
from abeyance.core.visit import IN_SCOPE, Transition, Visit, VisitState, transition

FARTHEST: Final = 100 * 365 * 24 * 3600.0
"""In seconds. Timers and calendars end not much later."""


class Step:
    """A run that is being changed, at one moment `now`.

    `is_put_together`: the run does not come from an `advance`, so anything in it may be over.
    """

    __slots__ = ("_kept", "_left", "effects", "now", "run")

    def __init__(self, run: RunState, now: datetime, *, is_put_together: bool = False) -> None:
        self.run = run
        self.now = now
        self.effects: list[Effect] = []
        self._kept: RunState | None = None
        # The scopes that something has left. During a pause nothing is looked after.
        is_known = run.pause is None and not is_put_together
        self._left: deque[str] | None = deque() if is_known else None

    def keep(self) -> None:
        """Keep the run as it is now, for a retry: what follows ends it."""
        self._kept = copied(self.run)

    def kept(self) -> RunState:
        """Return the run that was kept, or as it is now."""
        return self._kept or copied(self.run)

    def adopt(self, state: RunState) -> None:
        """Go on with another run in place of this one."""
        self.run.become(state)
        self._left = None

    def after(self, seconds: float) -> datetime:
        """Return the time in so many seconds: at least now, and at most a hundred years ahead."""
        return self.now + timedelta(seconds=max(0.0, min(FARTHEST, seconds)))

    def add_visit(self, visit: Visit) -> Visit:
        """Add a visit behind all others: a new one, or one that was dropped."""
        self.run.visits[visit.address] = visit
        return visit

    def add_scope(self, scope: Scope) -> None:
        """Add a new scope behind all others."""
        self.run.scopes[scope.address] = scope
        self._leave(scope.address)

    def move(self, visit: Visit, name: Transition, to: VisitState) -> None:
        """Change the state of a visit of the run. Raises IllegalTransitionError as `transition` does."""
        transition(visit, name, to)
        self.run.visits.moved(visit.address)

    def drop_visit(self, address: str) -> None:
        del self.run.visits[address]
        self._leave(address.rpartition(";")[0])

    def drop_scope(self, address: str) -> None:
        """Remove a scope, with the gates in it."""
        for gate in self.run.gates.found(IN_SCOPE, address):
            del self.run.gates[gate.question]
        del self.run.scopes[address]

    def put_fans(self, scope: Scope, fans: Mapping[str, FanOut]) -> None:
        scope.fans = fans
        self.run.scopes.moved(scope.address)

    def _leave(self, scope: str) -> None:
        if self._left is not None:
            self._left.append(scope)

    @property
    def has_left(self) -> bool:
        """Whether a fan-out may have ended: none is over before a visit has left it."""
        return self._left is None or bool(self._left)

    def left(self) -> Iterator[Scope]:
        """Yield the scopes that may have nothing in them any more, each once until it is left again."""
        if self._left is None:
            self._left = deque(self.run.scopes)
        while self._left:
            if (scope := self.run.scopes.get(self._left.popleft())) is not None:
                yield scope

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def publish(
        self,
        type_: str,
        address: str | None = None,
        actor: str | None = None,
        *,
        audit: Mapping[str, Json] | None = None,
        **data: Json,
    ) -> int:
        """Publish an event, and return its number. `audit` is what the audit alone adds to it."""
        self.run.events_published += 1
        number = self.run.events_published
        self.emit(
            Publish(
                number=number,
                time=self.now,
                type=type_,
                address=address,
                actor=actor,
                data=data,
                audit=audit,
            )
        )
        return number

    def publish_about(
        self,
        interrupt: Interrupt,
        type_: str,
        by: str | None = None,
        *,
        audit: Mapping[str, Json] | None = None,
        **data: Json,
    ) -> int:
        about = {"id": interrupt.id, "name": interrupt.name, **data}
        return self.publish(type_, interrupt.address, by, audit=audit, **about)
