"""The plan of a rewind: the events that it discards, and the code that has run since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import func, select

from abeyance import views
from abeyance.core.address import Address
from abeyance.core.policy import TIMEOUT
from abeyance.records.documents import Transaction
from abeyance.records.events import of_run
from abeyance.records.selecting import the_run
from abeyance.records.tables import events, moment, runs

_ALL: Final = 1_000_000
_SETTLED: Final = frozenset({"interrupt.answered", "interrupt.cancelled", "interrupt.expired"})
_BEGIN: Final = frozenset({"node.started", "tool.started"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The first execution of a run, its status, and the number and the time of its latest event
    `run.rewound`.
    """

    origin: str
    status: str
    rewound_by: int | None
    rewound_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The task in which a question was asked, whether the deadline or the hold of a question ended in it,
    and whether the asked question waited for an answer after it.
    """

    task: str
    by_deadline: bool
    has_waited: bool


def asked_in(tx: Transaction, run_id: str, interrupt_id: str) -> Asked | None:
    """Return the task in which a run last asked a question; None if never, or discarded."""
    query = (
        select(events.c.type, events.c.data, events.c.task, events.c.actor)
        .join(runs, events.c.run == runs.c.id)
        .where(*the_run(tx.deployment, run_id))
        .where(events.c.type.startswith("interrupt."), events.c.rewound_by.is_(None))
        .where(events.c.task.is_not(None))
    )
    task, settled_in, late, held = None, None, set(), set()
    for row in tx.connection.execute(query.order_by(events.c.number)):
        if row.actor == TIMEOUT:
            late.add(row.task)
        id_ = tx.documents.read(row.data).get("id")
        if row.type == "interrupt.held":
            held.add(id_)
        elif row.type == "interrupt.answered" and id_ in held:
            late.add(row.task)
        elif row.type == "interrupt.reopened":
            held.discard(id_)
        if id_ != interrupt_id:
            continue
        if row.type == "interrupt.opened":
            task = row.task
        elif row.type in _SETTLED:
            settled_in = row.task
    if task is None:
        return None
    return Asked(task=task, by_deadline=task in late, has_waited=task != settled_in)


def standing(tx: Transaction, run_id: str) -> Standing | None:
    """Return where a run stands; None if there is none of this id."""
    is_rewind = (events.c.run == runs.c.id) & (events.c.number == runs.c.rewound_by)
    query = (
        select(runs.c.origin, runs.c.status, runs.c.rewound_by, events.c.at)
        .outerjoin(events, is_rewind)
        .where(*the_run(tx.deployment, run_id))
    )
    found = tx.connection.execute(query).one_or_none()
    return found and Standing(
        origin=found.origin,
        status=found.status,
        rewound_by=found.rewound_by,
        rewound_at=None if found.at is None else moment(found.at),
    )


def kept(tx: Transaction, run_id: str, tasks: str, *, keeps: bool) -> int:
    """Return the number of a run's last event before some tasks, or with `keeps` of the last in them.

    `tasks` is one task, or an execution, which means all of its tasks. If they have no event, the number
    is higher than that of any event.
    """
    which = func.max(events.c.number) if keeps else func.min(events.c.number) - 1
    query = (
        select(which)
        .join(runs, events.c.run == runs.c.id)
        .where(*the_run(tx.deployment, run_id))
        .where(events.c.rewound_by.is_(None))
        .where((events.c.task == tasks) | events.c.task.startswith(f"{tasks}/"))
    )
    number = tx.connection.execute(query).scalar_one()
    return _ALL if number is None else int(number)


def since(
    tx: Transaction, run_id: str, number: int
) -> tuple[list[views.Event], list[views.Effect], list[str]]:
    """Return the events of a run after a number, the code that ran since, and the code under way then."""
    told = of_run(tx, run_id, limit=_ALL)
    discarded = [event for event in told if int(event.id) > number]
    return discarded, effects(told, number), [*under_way(told, number)]


def effects(told: Sequence[views.Event], number: int) -> list[views.Effect]:
    """Return the code that has run after an event: what began then, and what was under way."""
    return [*{**under_way(told, number), **_begun_after(told, number)}.values()]


def under_way(told: Sequence[views.Event], number: int) -> dict[str, views.Effect]:
    """Return the code that had begun at an event and was not over, by address."""
    begun: dict[str, views.Effect] = {}
    for event in told:
        address = event.address
        if address is None or int(event.id) > number:
            continue
        if event.type in _BEGIN:
            begun[address] = _effect(event, address)
        elif event.type == "interrupt.opened":
            # Code that has asked a question is over.
            for asking in [each for each in begun if f"{address};".startswith(f"{each};")]:
                del begun[asking]
        elif event.type.startswith(("node.", "tool.")) and event.type != "node.blocked":
            begun.pop(address, None)
    return begun


def _begun_after(told: Sequence[views.Event], number: int) -> dict[str, views.Effect]:
    begun: dict[str, views.Effect] = {}
    for event in told:
        if event.address is None or int(event.id) <= number or event.type not in _BEGIN:
            continue
        before = begun.get(event.address)
        begun[event.address] = (
            _effect(event, event.address)
            if before is None
            else before.model_copy(update={"attempts": before.attempts + 1})
        )
    return begun


def _effect(event: views.Event, address: str) -> views.Effect:
    label = Address.parse(address).label
    return views.Effect(node=label, address=address, at=event.time, attempts=1)
