"""The queries that are measured beside millions of rows: those of the product, by what is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeAlias

from abeyance import Principal
from abeyance.core.policy import ReadRights
from abeyance.filters import ApprovalsFilter, EventFilter, InboxFilter, RunFilter
from abeyance.records import approvals, audit, events, grants, questions, removing, runs
from abeyance.records.documents import Transaction

Query: TypeAlias = Callable[[Transaction], Any]

PREFIX: Final = "copy-"
_ONE: Final = f"{PREFIX}000-042"
_READS: Final = ReadRights.of({"team": ["team-5"]})
_FIRST_OF: Final = 500


def queries(now: datetime) -> Mapping[str, Query]:
    """Return the queries by what is read."""
    month, year = now - timedelta(days=30), now - timedelta(days=400)
    inbox = {
        "of a capability": InboxFilter(capabilities=frozenset({"refunds:approve-5"})),
        "mine": InboxFilter(mine=Principal(subject="person-7", groups=("finance-5",))),
        "of a graph": InboxFilter(graph="refund-5"),
        "started by": InboxFilter(started_by="starter-5"),
        "of high priority": InboxFilter(priority="high"),
        "of labels": InboxFilter(reads=_READS),
        "search, one": InboxFilter(q="copy-001-045"),
        "search, some": InboxFilter(q="supplier-45x"),
        "search, all": InboxFilter(q="parcel"),
        "search, none": InboxFilter(q="zeppelin"),
        "search, two letters": InboxFilter(q="5x"),
    }
    listed = {
        "newest": RunFilter(),
        "by activity": RunFilter(order="-activity"),
        "waiting": RunFilter(statuses=frozenset({"awaiting-input"})),
        "completed": RunFilter(statuses=frozenset({"completed"})),
        "of a graph": RunFilter(graph="refund-5"),
        "of a label": RunFilter(labels=("team=team-5",)),
        "started by": RunFilter(started_by="starter-5"),
        "of a conversation": RunFilter(conversation_id="copy-001-045-talk"),
        "blocked": RunFilter(blocked=True),
        "of a month": RunFilter(since=month),
        "search, one": RunFilter(q="copy-001-045"),
        "search, none": RunFilter(q="zeppelin"),
    }
    report = {
        "30 days": ApprovalsFilter(),
        "a year": ApprovalsFilter(since=year),
        "a year, of a person": ApprovalsFilter(since=year, person="person-7"),
        "a year, granted": ApprovalsFilter(since=year, outcomes=frozenset({"granted"})),
        "a year, of labels": ApprovalsFilter(since=year, reads=_READS),
    }
    stream = {
        "all": EventFilter(),
        "of a graph": EventFilter(graph="refund-5"),
        "of a rare type": EventFilter(types=("approval.remembered",)),
    }
    sums = ["reason.amount"]
    return {
        **{
            f"inbox by {order}": partial(questions.inbox, filters=InboxFilter(), order=order)
            for order in ("deadline", "age", "priority", "risk", "-deadline")
        },
        "inbox: two pages": lambda tx: _second(questions.inbox, tx, InboxFilter()),
        **{f"inbox: {name}": partial(questions.inbox, filters=of) for name, of in inbox.items()},
        **{f"runs: {name}": partial(runs.page, filters=of) for name, of in listed.items()},
        "runs: two pages": lambda tx: _second(runs.page, tx, RunFilter()),
        **{f"report: {name}": partial(approvals.page, filters=of) for name, of in report.items()},
        "report: 30 days, sum": lambda tx: approvals.page(tx, ApprovalsFilter(), sums=sums),
        "report: 80 days, sum": lambda tx: approvals.page(
            tx, ApprovalsFilter(since=now - timedelta(days=80)), sums=sums
        ),
        **{f"stream: {name}": partial(_half, filters=of) for name, of in stream.items()},
        "stream: since a month": lambda tx: events.place_before(tx, month),
        "run": lambda tx: runs.run(tx, _ONE),
        "run: events": lambda tx: events.part_of_run(tx, _ONE),
        "run: audit": lambda tx: audit.contents(tx, _ONE),
        "grants: all": lambda tx: grants.listed(tx, now),
        "grants: of one": lambda tx: grants.listed(tx, now, f"{PREFIX}001-boss"),
        "runs, how many are active": partial(runs.active, coming=["a"], going=["b"]),
        "runs to evict": partial(runs.by_activity, inactive_since=month),
        "runs at work": runs.at_work,
        "runs that Temporal has ended": lambda tx: runs.unsettled(
            tx, {f"{PREFIX}{n:03}-042": "" for n in range(_FIRST_OF)}
        ),
        "runs of a conversation": lambda tx: runs.of_conversation(
            tx, "copy-001-045-talk", session_type=None, reads=ReadRights()
        ),
        "runs kept long enough": partial(removing.ended_before, until=now - timedelta(days=300)),
    }


def _second(read: Callable[..., Any], tx: Transaction, filters: object) -> Any:
    return read(tx, filters, cursor=read(tx, filters).next_cursor)


def _half(tx: Transaction, filters: EventFilter) -> Any:
    return events.of_all(tx, filters, after=events.newest(tx.connection) // 2)
