"""The tables of the records.

Lists filter and sort by columns; the rest of a row is a document (`abeyance.records.documents`).
Moments are integers, in microseconds since 1970 in UTC, which every database sorts alike.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_Long: Final = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows itself only if the column is an INTEGER."""
_Ordered: Final = Text().with_variant(Text(collation="C"), "postgresql")
"""A text by its code points, as SQLite sorts it, and not by the language of the database."""
GRANTED: Final = "approval.granted"
"""The type of the event of a call that an earlier approval covers: nobody was asked about it."""


def _where(condition: str, of_sqlite: str | None = None) -> dict[str, Any]:
    """Return the options of an index that covers only the rows that fulfil a condition."""
    return {
        "postgresql_where": text(condition),
        "sqlite_where": text(of_sqlite or condition),
    }


# Written as queries write it: SQLite has no booleans.
_IS_NEWEST: Final = _where("is_newest", "is_newest = 1")
_HAS_ENDED: Final = _where("ended_at IS NOT NULL")
_IS_OPEN: Final = _where("ended_at IS NULL AND is_newest", "ended_at IS NULL AND is_newest = 1")
_IS_BLOCKED: Final = _where(
    "is_newest AND (is_blocked OR hindered IS NOT NULL)",
    "is_newest = 1 AND (is_blocked = 1 OR hindered IS NOT NULL)",
)
_IS_LISTED: Final = _where("listed IS NOT NULL")
_IS_SETTLED: Final = _where("settled_at IS NOT NULL")
_IS_GRANTED: Final = _where(f"type = '{GRANTED}'")
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

deployments: Final = Table(
    "deployments",
    metadata,
    Column("id", Integer, primary_key=True),
    # The id that Temporal gave the namespace: names repeat from one server to the next.
    Column("namespace", Text, nullable=False),
    Column("task_queue", Text, nullable=False),
    # Distinguishes the positions of events from those of a database that was here before.
    Column("made_at", BigInteger, nullable=False, default=lambda: micros(datetime.now(UTC))),
    UniqueConstraint("namespace", "task_queue"),
)

runs: Final = Table(
    "runs",
    metadata,
    Column("id", _Long, primary_key=True),
    Column("deployment", ForeignKey("deployments.id"), nullable=False),
    Column("run_id", Text, nullable=False),
    Column("origin", Text, nullable=False),
    # The number of the latest batch.
    Column("batch", BigInteger, nullable=False),
    # The number and the hash of the latest event.
    Column("told", Integer, nullable=False),
    Column("hash", Text, nullable=False),
    # An id may be used again, and lists have its newest run only.
    Column("is_newest", Boolean, nullable=False),
    Column("graph", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("conversation_id", Text),
    Column("session_type", Text, nullable=False),
    Column("started_by", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("active_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("is_blocked", Boolean, nullable=False),
    # The latest rewind of the run, and the number of its event.
    Column("rewind", Text),
    Column("rewound_by", Integer),
    # Why no worker can continue the run, NULL if one can: the run cannot record that itself.
    Column("hindered", Text),
    Column("search", Text, nullable=False),
    Column("view", Text, nullable=False),
    # Data that no list needs: unread messages, and references to transcripts.
    Column("extras", Text, nullable=False),
    UniqueConstraint("deployment", "run_id", "origin"),
    # SQLite looks at the row for every column that its index lacks.
    Index(None, "deployment", "created_at", "id", "is_newest", **_IS_NEWEST),
    Index(None, "deployment", "status", "is_newest", **_IS_NEWEST),
    Index(None, "deployment", "active_at", "id", "is_newest", **_IS_NEWEST),
    # In the order of the list: SQLite would rather read all runs in it than sort those found.
    Index(None, "deployment", "conversation_id", "created_at", "id", "is_newest", **_IS_NEWEST),
    Index(None, "deployment", "ended_at", **_HAS_ENDED),
    # Blocked runs are few, or should be.
    Index("ix_runs_blocked", "deployment", "is_newest", "created_at", "id", **_IS_BLOCKED),
)

labels: Final = Table(
    "labels",
    metadata,
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("label", Text, primary_key=True),
    Index(None, "label", "run"),
)

questions: Final = Table(
    "questions",
    metadata,
    Column("id", _Long, primary_key=True),
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("deployment", ForeignKey("deployments.id"), nullable=False),
    Column("interrupt_id", _Ordered, nullable=False),
    # The number of the batch that wrote it.
    Column("batch", BigInteger, nullable=False),
    Column("status", Text, nullable=False),
    # The list that shows the question, `open` or `held`. No list shows a settled question, or one of a
    # run that has ended or whose id a later run has.
    Column("listed", Text),
    # For reports: the outcome of a settled question, and who answered it, one name a line.
    Column("outcome", Text),
    Column("deciders", Text),
    # The graph of the run, so that reports need not look it up.
    Column("graph", Text, nullable=False),
    Column("capability", Text),
    # 0 is high, so that an ascending order puts it first; risks are negative for the same reason.
    Column("priority", Integer, nullable=False),
    Column("risk", Integer, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("settled_at", BigInteger),
    Column("deadline", BigInteger),
    # The deadline, or the end of time, so that an index puts questions without a deadline last.
    Column("due", BigInteger, nullable=False),
    # The number of the event that discarded it, 0 if it stands. NULLs would not be unique.
    Column("rewound_by", Integer, nullable=False),
    Column("search", Text, nullable=False),
    Column("view", Text, nullable=False),
    # The content that people were shown; a settled question keeps little of it.
    Column("shown", Text),
    UniqueConstraint("run", "interrupt_id", "rewound_by"),
    *(
        # Each has only the listed questions, which are few of all that were ever asked.
        Index(None, "deployment", "listed", *key, "interrupt_id", **_IS_LISTED)
        for key in (["due"], ["created_at", "due"], ["priority", "due"], ["risk", "due"])
    ),
)

people: Final = Table(
    "people",
    metadata,
    Column("question", ForeignKey("questions.id", ondelete="CASCADE"), primary_key=True),
    # A subject, or `group:` and the name of a group.
    Column("who", Text, primary_key=True),
    Column("why", Text, primary_key=True),
    Column("since", BigInteger),
    Column("until", BigInteger),
    Index(None, "who"),
)
"""The people whom a question is for: `why` is assignee, escalation, quorum or claim."""

events: Final = Table(
    "events",
    metadata,
    Column("position", _Long, primary_key=True),
    Column("deployment", ForeignKey("deployments.id"), nullable=False),
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    # NULL if this is not an event of the run: then it happened outside, after the event that `after`
    # names.
    Column("number", Integer),
    Column("after", Integer),
    Column("at", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("address", Text),
    Column("actor", Text),
    Column("capability", Text),
    Column("data", Text, nullable=False),
    # For the audit alone.
    Column("audit", Text),
    # Covers the row and the hash of the event before.
    Column("hash", Text, nullable=False),
    Column("task", Text),
    # The number of the event that discarded it.
    Column("rewound_by", Integer),
    UniqueConstraint("run", "number"),
    Index(None, "deployment", "position", "at"),
    Index(None, "deployment", "at", "position", **_IS_GRANTED),
    # A position is given once, even after the latest events were deleted.
    sqlite_autoincrement=True,
)

claims: Final = Table(
    "claims",
    metadata,
    Column("id", _Long, primary_key=True),
    Column("deployment", ForeignKey("deployments.id"), nullable=False),
    Column("conversation_id", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("session_type", Text, nullable=False),
    # Distinguishes the starts of an id, which may be used again.
    Column("token", Text, nullable=False),
    Column("claimed_at", BigInteger, nullable=False),
    UniqueConstraint("token"),
    Index(None, "deployment", "conversation_id"),
)

delegations: Final = Table(
    "delegations",
    metadata,
    Column("number", _Long, primary_key=True),
    Column("deployment", ForeignKey("deployments.id"), nullable=False),
    Column("id", Text, nullable=False),
    # If the request that made a deleted delegation is repeated, it must not make it again.
    Column("is_deleted", Boolean, nullable=False),
    Column("document", Text, nullable=False),
    UniqueConstraint("deployment", "id"),
)

grants: Final = Table(
    "grants",
    metadata,
    Column("number", _Long, primary_key=True),
    Column("deployment", ForeignKey("deployments.id"), nullable=False),
    Column("id", Text, nullable=False),
    # The run that made it, and the number of its event there.
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("event", Integer, nullable=False),
    # Whether it is for that run alone.
    Column("is_of_run", Boolean, nullable=False),
    Column("tool", Text, nullable=False),
    Column("graph", Text, nullable=False),
    Column("made_by", Text, nullable=False),
    Column("until", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    # None if nobody knows, because the records were made anew.
    Column("revoked_by", Text),
    Column("document", Text, nullable=False),
    UniqueConstraint("deployment", "id"),
    Index(None, "deployment", "tool"),
    Index(None, "deployment", "made_by"),
    Index(None, "run"),
)
"""Remembered approvals."""

grant_uses: Final = Table(
    "grant_uses",
    metadata,
    # A reindex may write a use before its grant.
    Column("deployment", ForeignKey("deployments.id"), primary_key=True),
    Column("grant_id", Text, primary_key=True),
    # The first execution of the run, and the address of the call in it.
    Column("origin", Text, primary_key=True),
    Column("call", Text, primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
)
"""The calls that ran under a grant."""

erased: Final = Table(
    "erased",
    metadata,
    Column("deployment", ForeignKey("deployments.id"), primary_key=True),
    Column("run_id", Text, primary_key=True),
    # A run that began later is another run, and was not erased.
    Column("at", BigInteger, nullable=False),
    Column("tombstone", Text, nullable=False),
    Column("is_done", Boolean, nullable=False),
)
"""The runs that were erased."""

followers: Final = Table(
    "followers",
    metadata,
    Column("deployment", ForeignKey("deployments.id"), primary_key=True),
    Column("name", Text, primary_key=True),
    # The cursor up to which the stream of all runs was read; empty at first.
    Column("cursor", Text, nullable=False),
    # The process that follows, and until when.
    Column("holder", Text, nullable=False),
    Column("held_until", BigInteger, nullable=False),
)
"""Programs that follow the stream of all runs, one process of each at a time."""

slack_messages: Final = Table(
    "slack_messages",
    metadata,
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("interrupt_id", Text, primary_key=True),
    Column("channel", Text, primary_key=True),
    # Slack's id of the message; none while it is posted.
    Column("ts", Text),
    # The hash of the message's content.
    Column("shown", Text, nullable=False),
    Column("begun_at", BigInteger, nullable=False),
)

# The columns that lists filter by and search in. With them SQLite need not read the rows, which are far
# apart. The indices of PostgreSQL cannot hold long texts, and it reads rows faster.
for _index in (
    Index(
        "ix_runs_filters",
        *(runs.c.deployment, runs.c.status, runs.c.graph, runs.c.conversation_id),
        *(runs.c.started_by, runs.c.is_blocked, runs.c.is_newest, runs.c.search),
        **_IS_NEWEST,
    ),
    Index(
        "ix_runs_open_filters",
        *(runs.c.deployment, runs.c.active_at, runs.c.run_id, runs.c.status, runs.c.is_blocked),
        *(runs.c.started_by, runs.c.ended_at, runs.c.is_newest),
        **_IS_OPEN,
    ),
    Index(
        "ix_questions_filters",
        *(questions.c.deployment, questions.c.listed, questions.c.run, questions.c.capability),
        *(questions.c.graph, questions.c.priority, questions.c.risk),
        *(questions.c.due, questions.c.search),
        **_IS_LISTED,
    ),
    Index(
        "ix_questions_settled_filters",
        *(questions.c.deployment, questions.c.settled_at, questions.c.id, questions.c.run),
        *(questions.c.outcome, questions.c.capability, questions.c.graph, questions.c.deciders),
        **_IS_SETTLED,
    ),
):
    _index.ddl_if(dialect="sqlite")
Index(
    "ix_questions_settled",
    *(questions.c.deployment, questions.c.settled_at, questions.c.id),
    postgresql_include=["run", "outcome"],
    **_IS_SETTLED,
).ddl_if(dialect="postgresql")
Index(
    "ix_runs_open",
    *(runs.c.deployment, runs.c.active_at, runs.c.run_id),
    postgresql_include=["id", "status", "is_blocked", "is_newest", "ended_at"],
    **_IS_OPEN,
).ddl_if(dialect="postgresql")
Index(
    "ix_questions_listed",
    *(questions.c.deployment, questions.c.listed),
    postgresql_include=["id", "run", "graph", "priority", "risk", "due"],
    **_IS_LISTED,
).ddl_if(dialect="postgresql")

FAR: Final = 2**62
"""The moment after all others."""


def micros(moment: datetime) -> int:
    """Return a moment as the number that columns store."""
    return (moment - _EPOCH) // _MICROSECOND


def micros_or_none(moment: datetime | None) -> int | None:
    """Return a moment as the number that columns store, None for None."""
    return None if moment is None else micros(moment)


def moment(number: int) -> datetime:
    """Return the moment that a column stores."""
    return _EPOCH + number * _MICROSECOND
