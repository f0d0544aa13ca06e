"""The filters of lists of runs, interrupts and events.

Where a filter takes several names, a plain string is one name.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from abeyance.core.policy import ALL_RUNS, Principal, ReadRights
from abeyance.core.terms import Priority

Order: TypeAlias = Literal[
    "deadline", "age", "priority", "risk", "-deadline", "-age", "-priority", "-risk"
]
"""The order of a list of questions: the nearest deadline first and none last, the oldest, the highest
priority or risk. `-` turns the whole list around.
"""
RunOrder: TypeAlias = Literal["age", "activity", "-age", "-activity"]
"""The order of a list of runs: the oldest first, or the longest inactive. `-` reverses it."""
Outcome: TypeAlias = Literal["approved", "rejected", "answered", "expired", "withdrawn", "granted"]
"""The outcome of a question. `answered` is an answer that is neither yes nor no, and `granted` a call
that an earlier approval covers, so that nobody was asked.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """A filter of runs.

    It selects runs with one of `statuses` and all of `labels`, that are `blocked` or (False) are not,
    that started at `since` or later and before `until`, in which every word of `q` occurs, and that
    `reads` lets the caller see. Empty and None select all.
    """

    statuses: frozenset[str] = frozenset()
    graph: str | None = None
    conversation_id: str | None = None
    labels: tuple[str, ...] = ()
    blocked: bool | None = None
    q: str | None = None
    started_by: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    order: RunOrder = "-age"
    reads: ReadRights = ALL_RUNS

    def __post_init__(self) -> None:
        _take_one_name(self, statuses=frozenset, labels=tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxFilter:
    """A filter of interrupts that are `open` or `held`.

    It selects interrupts with one of `ids`, one of `capabilities` (one that ends in `*` selects all with
    that prefix), a deadline before `before`, an `assignee` (a subject, or `group:finance`), a `priority`,
    a risk of `min_risk` or more, in which every word of `q` occurs, and of runs that `reads` lets the
    caller see. Empty and None select all. `mine` selects interrupts that are assigned to a principal or
    their groups, or that the principal has claimed.
    """

    status: Literal["open", "held"] = "open"
    ids: frozenset[str] = frozenset()
    capabilities: frozenset[str] = frozenset()
    graph: str | None = None
    conversation_id: str | None = None
    before: datetime | None = None
    assignee: str | None = None
    mine: Principal | None = None
    priority: Priority | None = None
    min_risk: int | None = None
    order: Order = "deadline"
    q: str | None = None
    started_by: str | None = None
    reads: ReadRights = ALL_RUNS

    def __post_init__(self) -> None:
        _take_one_name(self, ids=frozenset, capabilities=frozenset)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """A filter of the events of all runs.

    It selects events of one of `types`, of one of `capabilities`, and of runs that `reads` lets the
    caller see. Empty and None select all.

    A type or a capability that ends in `*` selects all with that prefix (`interrupt.*`). Only events of
    interrupts have a capability.
    """

    types: tuple[str, ...] = ()
    graph: str | None = None
    capabilities: tuple[str, ...] = ()
    reads: ReadRights = ALL_RUNS

    def __post_init__(self) -> None:
        _take_one_name(self, types=tuple, capabilities=tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalsFilter:
    """A filter of the report of approvals.

    It selects questions settled at `since` or later and before `until`, with one of `outcomes`, of one of
    `capabilities` (one that ends in `*` selects all with that prefix), of a `graph`, of runs that `reads`
    lets the caller see, and that `person` has answered or voted on, for themselves or for somebody else,
    or that somebody else answered for `person`. Empty and None select all, but `until` defaults to now,
    and `since` to 30 days before.
    """

    since: datetime | None = None
    until: datetime | None = None
    person: str | None = None
    capabilities: tuple[str, ...] = ()
    graph: str | None = None
    outcomes: frozenset[Outcome] = frozenset()
    reads: ReadRights = ALL_RUNS

    def __post_init__(self) -> None:
        _take_one_name(self, capabilities=tuple, outcomes=frozenset)


def _take_one_name(filters: object, **kinds: type[tuple[str, ...] | frozenset[str]]) -> None:
    # A string is a collection of characters, and a `*` among them would select everything.
    for field, kind in kinds.items():
        if isinstance(name := getattr(filters, field), str):
            object.__setattr__(filters, field, kind((name,)))
