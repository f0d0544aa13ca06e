"""One `advance` in progress: a working copy of the run, and the effects so far.

The only mutable thing in the core. It is created at the beginning of an `advance`, passed down through
the rules, and discarded at the end. `state` is a copy of the run that the rules change in place. Its
contents are still those of the previous run, and frozen, until a rule requests the one visit, scope or
item that it changes (`visit`, `scope`, `item`): that one is copied once, and every later request
returns the same copy until `frozen` ends the draft. So the previous run stays unchanged, also after a
refusal, and only what changes is copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import compress
from operator import attrgetter, is_not
from typing import Final, TypeVar

from abeyance.core.copying import freeze, frozen, is_working, make_working, working
from abeyance.core.effects import Effect, Publish
from abeyance.core.json import Json
from abeyance.core.ledger import Interrupt, InterruptTable, Ledger
from abeyance.core.spec import GraphSpec
from abeyance.core.state import Counters, FanOut, Item, RunState, Scope, ScopeTable
from abeyance.core.tables import Row
from abeyance.core.visit import IN_SCOPE, FanOutBranch, GateTable, Visit, VisitTable

_T = TypeVar("_T")

_FARTHEST: Final = 100 * 365 * 24 * 3600.0
"""In seconds. Timers and calendars end not much later."""
_FIELDS: Final = tuple(RunState.__dataclass_fields__)
_MANY: Final = 64
"""So many copies are frozen in the middle of a draft: what is not settled is searched each time."""
_fields_of: Final = attrgetter(*_FIELDS)


class WorkingState:
    """A run that is being changed, at one moment `now`."""

    __slots__ = (
        "_before",
        "_copies",
        "_gates",
        "_kept",
        "_left",
        "_open",
        "_scopes",
        "_settled",
        "_visits",
        "effects",
        "now",
        "state",
    )

    def __init__(self, state: RunState, now: datetime) -> None:
        # Scopes that something has left: no other may be over, unless the run was put together or paused.
        self._left: deque[str] | None = None
        if state.pause is None and isinstance(state.scopes, ScopeTable):
            self._left = deque()
        self._before = before = state.in_tables()
        self.state = working(before)
        self.now = now
        self.effects: list[Effect] = []
        self._copies: list[object] = [self.state]
        self._kept: RunState | None = None
        self._visits: VisitTable | None = None
        self._scopes: ScopeTable | None = None
        self._open: InterruptTable | None = None
        self._gates: GateTable | None = None
        self._settled: dict[str, Interrupt] | None = None

    def frozen(self, *, is_touched: bool = True) -> RunState:
        """End the draft, and return the run, frozen: the previous one if nothing has changed.

        `is_touched`: set `updated_at` if anything has changed.
        """
        before, state = self._before, self.state
        changed = set(compress(_FIELDS, map(is_not, _fields_of(before), _fields_of(state))))
        if changed and is_touched:
            state.updated_at = self.now
        for each in self._copies:
            freeze(each)
        if changed <= {"visits"} and (self._visits is None or self._visits.is_like(before.visits)):
            # A waiting visit was copied, and has not changed.
            return before
        self._settle_tables()
        return state

    def settle(self) -> None:
        """Freeze what has changed so far, if it is much. Nobody holds a part of the draft now."""
        if len(self._copies) <= _MANY:
            return
        for each in self._copies[1:]:
            freeze(each)
        del self._copies[1:]
        self._settle_tables()

    def _settle_tables(self) -> None:
        for table in (self._visits, self._scopes, self._open, self._gates):
            if table is not None:
                table.settle()

    def snapshot(self) -> RunState:
        """Return the run as it is now, frozen. The draft goes on, and does not change it."""
        state, ledger = self.state, self.state.ledger
        return frozen(
            state,
            visits=state.visits if self._visits is None else self._visits.copied(frozen),
            scopes=state.scopes if self._scopes is None else self._scopes.copied(_frozen_scope),
            gates=state.gates if self._gates is None else self._gates.copied(),
            ledger=Ledger(open=ledger.open_table.copied(), settled=dict(ledger.settled))
            if is_working(ledger)
            else ledger,
            counters=frozen(state.counters),
        )

    def keep(self) -> None:
        """Keep the run as it is now, for a retry if what follows ends it."""
        if self.state.ending is None:
            self._kept = self.snapshot()

    def kept(self) -> RunState:
        """Return the run that was kept last, or as it is now."""
        return self._kept or self.snapshot()

    def adopt(self, state: RunState) -> None:
        """Go on with another run in place of this one."""
        self.state = self._copy(state.in_tables())
        self._visits = self._scopes = self._open = self._gates = None
        self._settled = self._left = None

    def after(self, seconds: float) -> datetime:
        """Return the time in so many seconds: at least now, and at most a hundred years ahead."""
        return self.now + timedelta(seconds=max(0.0, min(_FARTHEST, seconds)))

    @property
    def visits(self) -> VisitTable:
        """The visits, in a mutable mapping."""
        if self._visits is None:
            self.state.visits = self._visits = self.state.visit_table.copied()
        return self._visits

    @property
    def scopes(self) -> ScopeTable:
        """The scopes, in a mutable mapping."""
        if self._scopes is None:
            self.state.scopes = self._scopes = self.state.scope_table.copied()
        return self._scopes

    @property
    def open(self) -> InterruptTable:
        """The open interrupts, in a mutable mapping."""
        if self._open is None:
            self._ledger().open = self._open = self.state.ledger.open_table.copied()
        return self._open

    @property
    def gates(self) -> GateTable:
        """The gates, in a mutable mapping."""
        if self._gates is None:
            self.state.gates = self._gates = self.state.gate_table.copied()
        return self._gates

    @property
    def settled(self) -> dict[str, Interrupt]:
        """The settled interrupts, in a mutable mapping."""
        if self._settled is None:
            self._ledger().settled = self._settled = dict(self.state.ledger.settled)
        return self._settled

    def _ledger(self) -> Ledger:
        if not is_working(self.state.ledger):
            self.state.ledger = self._copy(self.state.ledger)
        return self.state.ledger

    @property
    def counters(self) -> Counters:
        """The mutable counters of the run."""
        if not is_working(self.state.counters):
            self.state.counters = self._copy(self.state.counters)
        return self.state.counters

    def visit(self, address: str) -> Visit:
        """Return a visit to change."""
        visit = self.state.visits[address]
        if not is_working(visit):
            self.visits[address] = visit = self._copy(visit)
        return visit

    def scope(self, address: str) -> Scope:
        """Return a scope to change."""
        scope = self.state.scopes[address]
        if not is_working(scope):
            self.scopes[address] = scope = self._copy(scope)
        return scope

    def fan(self, scope_address: str, address: str) -> FanOut:
        """Return a fan-out to change."""
        fan = self.state.scopes[scope_address].fans[address]
        if not is_working(fan):
            fan = self._copy(fan)
            fan.items = Row.of(fan.items).copied()
            scope = self.scope(scope_address)
            scope.fans = {**scope.fans, address: fan}
        return fan

    def item(self, scope_address: str, member: FanOutBranch) -> Item:
        """Return an item of a fan-out to change."""
        item = self.state.scopes[scope_address].fans[member.fan].items[member.index]
        if not is_working(item):
            item = self._copy(item)
            Row.of(self.fan(scope_address, member.fan).items).put(member.index, item)
        return item

    def add_visit(self, visit: Visit) -> Visit:
        """Add a new visit behind all others."""
        self._copies.append(make_working(visit))
        self.visits[visit.address] = visit
        return visit

    def add_scope(self, scope: Scope) -> None:
        """Add a new scope behind all others."""
        self._copies.append(make_working(scope))
        self.scopes[scope.address] = scope
        self._leave(scope.address)

    def put_back(self, visit: Visit) -> None:
        """Put a dropped visit back, behind all others."""
        assert is_working(visit)  # noqa: S101 else the run before would be changed
        self.visits[visit.address] = visit

    def drop_visit(self, address: str) -> None:
        """Remove a visit."""
        self.visits.pop(address, None)
        self._leave(address.rpartition(";")[0])

    def drop_scope(self, address: str) -> None:
        """Remove a scope, with the gates in it."""
        for gate in self.state.gate_table.found(IN_SCOPE, address):
            del self.gates[gate.question]
        self.scopes.pop(address, None)

    def _leave(self, scope: str) -> None:
        if self._left is not None:
            self._left.append(scope)

    @property
    def has_left(self) -> bool:
        """Whether something may have come to its end: no fan-out is over before a visit has left it."""
        return self._left is None or bool(self._left)

    def left(self) -> Iterator[Scope]:
        """Yield the scopes that may have nothing in them any more, each once until it is left again."""
        if self._left is None:
            self._left = deque(self.state.scopes)
        while self._left:
            if (scope := self.state.scopes.get(self._left.popleft())) is not None:
                yield scope

    def graph(self, scope: str) -> GraphSpec:
        """Return the graph that is walked in a scope."""
        return self.state.graph_of(scope)

    def emit(self, effect: Effect) -> None:
        """Add an effect."""
        self.effects.append(effect)

    def publish(
        self,
        type_: str,
        address: str | None = None,
        actor: str | None = None,
        *,
        shown: Json = None,
        **data: Json,
    ) -> int:
        """Publish an event, and return its number. `shown` is what an interrupt shows a person."""
        self.state.events_published += 1
        number = self.state.events_published
        self.emit(
            Publish(
                number=number,
                time=self.now,
                type=type_,
                address=address,
                actor=actor,
                data=data,
                shown=shown,
            )
        )
        return number

    def publish_about(
        self, interrupt: Interrupt, type_: str, by: str | None = None, **data: Json
    ) -> int:
        """Publish an event about an interrupt."""
        about = {"id": interrupt.id, "name": interrupt.name, **data}
        return self.publish(type_, interrupt.address, by, **about)

    def _copy(self, value: _T) -> _T:
        copy = working(value)
        self._copies.append(copy)
        return copy


def _frozen_scope(scope: Scope) -> Scope:
    fans = {key: _frozen_fan(fan) for key, fan in scope.fans.items()}
    return frozen(scope, fans=fans) if fans else frozen(scope)


def _frozen_fan(fan: FanOut) -> FanOut:
    return frozen(fan, items=Row.of(fan.items).copied(frozen)) if is_working(fan) else fan
