"""The first tables."""

from typing import Any, Final

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_IS_NEWEST: Final[dict[str, Any]] = {
    "postgresql_where": sa.text("is_newest"),
    "sqlite_where": sa.text("is_newest = 1"),
}
_IS_LISTED: Final[dict[str, Any]] = {
    "postgresql_where": sa.text("listed IS NOT NULL"),
    "sqlite_where": sa.text("listed IS NOT NULL"),
}
_IS_SETTLED: Final[dict[str, Any]] = {
    "postgresql_where": sa.text("settled_at IS NOT NULL"),
    "sqlite_where": sa.text("settled_at IS NOT NULL"),
}
_IS_GRANTED: Final[dict[str, Any]] = {
    "postgresql_where": sa.text("type = 'approval.granted'"),
    "sqlite_where": sa.text("type = 'approval.granted'"),
}


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "deployments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("task_queue", sa.Text(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_deployments"),
        sa.UniqueConstraint("namespace", "task_queue", name="uq_deployments_namespace_task_queue"),
    )
    op.create_table(
        "runs",
        sa.Column("id", _LONG, nullable=False),
        sa.Column("deployment", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("told", sa.Integer(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("is_newest", sa.Boolean(), nullable=False),
        sa.Column("graph", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text()),
        sa.Column("session_type", sa.Text(), nullable=False),
        sa.Column("started_by", sa.Text()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("active_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger()),
        sa.Column("is_blocked", sa.Boolean(), nullable=False),
        sa.Column("rewind", sa.Text()),
        sa.Column("rewound_by", sa.Integer()),
        sa.Column("hindered", sa.Text()),
        sa.Column("search", sa.Text(), nullable=False),
        sa.Column("view", sa.Text(), nullable=False),
        sa.Column("extras", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["deployment"], ["deployments.id"], name="fk_runs_deployment"),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.UniqueConstraint(
            "deployment", "run_id", "origin", name="uq_runs_deployment_run_id_origin"
        ),
    )
    op.create_index("ix_runs_deployment_conversation_id", "runs", ["deployment", "conversation_id"])
    op.create_index(
        "ix_runs_deployment_created_at_id_is_newest",
        "runs",
        ["deployment", "created_at", "id", "is_newest"],
        **_IS_NEWEST,
    )
    op.create_index(
        "ix_runs_deployment_status_is_newest",
        "runs",
        ["deployment", "status", "is_newest"],
        **_IS_NEWEST,
    )
    op.create_index("ix_runs_deployment_ended_at", "runs", ["deployment", "ended_at"])
    op.create_table(
        "erased",
        sa.Column("deployment", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("tombstone", sa.Text(), nullable=False),
        sa.Column("is_done", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["deployment"], ["deployments.id"], name="fk_erased_deployment"),
        sa.PrimaryKeyConstraint("deployment", "run_id", name="pk_erased"),
    )
    op.create_table(
        "events",
        sa.Column("position", _LONG, nullable=False),
        sa.Column("deployment", sa.Integer(), nullable=False),
        sa.Column("run", _LONG, nullable=False),
        sa.Column("number", sa.Integer()),
        sa.Column("after", sa.Integer()),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("address", sa.Text()),
        sa.Column("actor", sa.Text()),
        sa.Column("capability", sa.Text()),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("audit", sa.Text()),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("task", sa.Text()),
        sa.Column("rewound_by", sa.Integer()),
        sa.ForeignKeyConstraint(["deployment"], ["deployments.id"], name="fk_events_deployment"),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="fk_events_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("position", name="pk_events"),
        sa.UniqueConstraint("run", "number", name="uq_events_run_number"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_deployment_position_at", "events", ["deployment", "position", "at"])
    op.create_index(
        "ix_events_deployment_at_position",
        "events",
        ["deployment", "at", "position"],
        **_IS_GRANTED,
    )
    op.create_table(
        "labels",
        sa.Column("run", _LONG, nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="fk_labels_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run", "label", name="pk_labels"),
    )
    op.create_index("ix_labels_label_run", "labels", ["label", "run"])
    op.create_table(
        "questions",
        sa.Column("id", _LONG, nullable=False),
        sa.Column("run", _LONG, nullable=False),
        sa.Column("deployment", sa.Integer(), nullable=False),
        sa.Column(
            "interrupt_id",
            sa.Text().with_variant(sa.Text(collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("listed", sa.Text()),
        sa.Column("outcome", sa.Text()),
        sa.Column("deciders", sa.Text()),
        sa.Column("graph", sa.Text(), nullable=False),
        sa.Column("capability", sa.Text()),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("risk", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("settled_at", sa.BigInteger()),
        sa.Column("deadline", sa.BigInteger()),
        sa.Column("due", sa.BigInteger(), nullable=False),
        sa.Column("rewound_by", sa.Integer(), nullable=False),
        sa.Column("search", sa.Text(), nullable=False),
        sa.Column("view", sa.Text(), nullable=False),
        sa.Column("shown", sa.Text()),
        sa.ForeignKeyConstraint(["deployment"], ["deployments.id"], name="fk_questions_deployment"),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="fk_questions_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_questions"),
        sa.UniqueConstraint(
            *("run", "interrupt_id", "rewound_by"),
            name="uq_questions_run_interrupt_id_rewound_by",
        ),
    )
    op.create_index(
        "ix_questions_deployment_listed_created_at_due_interrupt_id",
        "questions",
        ["deployment", "listed", "created_at", "due", "interrupt_id"],
        **_IS_LISTED,
    )
    op.create_index(
        "ix_questions_deployment_listed_due_interrupt_id",
        "questions",
        ["deployment", "listed", "due", "interrupt_id"],
        **_IS_LISTED,
    )
    op.create_index(
        "ix_questions_deployment_listed_priority_due_interrupt_id",
        "questions",
        ["deployment", "listed", "priority", "due", "interrupt_id"],
        **_IS_LISTED,
    )
    op.create_index(
        "ix_questions_deployment_listed_risk_due_interrupt_id",
        "questions",
        ["deployment", "listed", "risk", "due", "interrupt_id"],
        **_IS_LISTED,
    )
    if op.get_context().dialect.name == "sqlite":
        op.create_index(
            "ix_runs_filters",
            "runs",
            [
                *("deployment", "status", "graph", "conversation_id"),
                *("started_by", "is_blocked", "is_newest", "search"),
            ],
            **_IS_NEWEST,
        )
        op.create_index(
            "ix_questions_filters",
            "questions",
            [
                *("deployment", "listed", "run", "capability"),
                *("priority", "risk", "due", "search"),
            ],
            **_IS_LISTED,
        )
        op.create_index(
            "ix_questions_settled_filters",
            "questions",
            [
                *("deployment", "settled_at", "id", "run"),
                *("outcome", "capability", "graph", "deciders"),
            ],
            **_IS_SETTLED,
        )
    else:
        op.create_index(
            "ix_questions_settled",
            "questions",
            ["deployment", "settled_at", "id"],
            postgresql_include=["run", "outcome"],
            **_IS_SETTLED,
        )
    op.create_table(
        "people",
        sa.Column("question", _LONG, nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger()),
        sa.Column("until", sa.BigInteger()),
        sa.ForeignKeyConstraint(
            ["question"], ["questions.id"], name="fk_people_question", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("question", "who", "why", name="pk_people"),
    )
    op.create_index("ix_people_who", "people", ["who"])
    op.create_table(
        "claims",
        sa.Column("id", _LONG, nullable=False),
        sa.Column("deployment", sa.Integer(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("session_type", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["deployment"], ["deployments.id"], name="fk_claims_deployment"),
        sa.PrimaryKeyConstraint("id", name="pk_claims"),
        sa.UniqueConstraint("token", name="uq_claims_token"),
    )
    op.create_index(
        "ix_claims_deployment_conversation_id", "claims", ["deployment", "conversation_id"]
    )
    op.create_table(
        "delegations",
        sa.Column("number", _LONG, nullable=False),
        sa.Column("deployment", sa.Integer(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("is_deleted", sa.Boolean(), nullable=False),
        sa.Column("deleted_by", sa.Text()),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["deployment"], ["deployments.id"], name="fk_delegations_deployment"
        ),
        sa.PrimaryKeyConstraint("number", name="pk_delegations"),
        sa.UniqueConstraint("deployment", "id", name="uq_delegations_deployment_id"),
    )
    op.create_table(
        "followers",
        sa.Column("deployment", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cursor", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("held_until", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["deployment"], ["deployments.id"], name="fk_followers_deployment"),
        sa.PrimaryKeyConstraint("deployment", "name", name="pk_followers"),
    )
    op.create_table(
        "slack_messages",
        sa.Column("run", _LONG, nullable=False),
        sa.Column("interrupt_id", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("ts", sa.Text()),
        sa.Column("shown", sa.Text(), nullable=False),
        sa.Column("begun_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run"], ["runs.id"], name="fk_slack_messages_run", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run", "interrupt_id", "channel", name="pk_slack_messages"),
    )
    op.create_table(
        "grants",
        sa.Column("number", _LONG, nullable=False),
        sa.Column("deployment", sa.Integer(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run", _LONG, nullable=False),
        sa.Column("event", sa.Integer(), nullable=False),
        sa.Column("is_of_run", sa.Boolean(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("graph", sa.Text(), nullable=False),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger()),
        sa.Column("revoked_by", sa.Text()),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["deployment"], ["deployments.id"], name="fk_grants_deployment"),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="fk_grants_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("number", name="pk_grants"),
        sa.UniqueConstraint("deployment", "id", name="uq_grants_deployment_id"),
    )
    op.create_index("ix_grants_deployment_tool", "grants", ["deployment", "tool"])
    op.create_index("ix_grants_deployment_made_by", "grants", ["deployment", "made_by"])
    op.create_index("ix_grants_run", "grants", ["run"])
    op.create_table(
        "grant_uses",
        sa.Column("deployment", sa.Integer(), nullable=False),
        sa.Column("grant_id", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("call", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["deployment"], ["deployments.id"], name="fk_grant_uses_deployment"
        ),
        sa.PrimaryKeyConstraint("deployment", "grant_id", "origin", "call", name="pk_grant_uses"),
    )
