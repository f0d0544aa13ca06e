"""Messages in Slack: which question was posted where, and how far the poster has read the stream.

A row is written before a question is posted, and has the message's `ts` afterwards. So if a row has no
`ts`, its message may or may not be in Slack.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import and_, delete, insert, select, update

from abeyance import views
from abeyance.records import questions
from abeyance.records.documents import Transaction
from abeyance.records.selecting import Condition, labels_of, lock_deployment, the_run
from abeyance.records.tables import followers, micros, moment, runs, slack_messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message about a question, in a channel by Slack's id. `shown` is the hash of what it says."""

    channel: str
    ts: str | None
    shown: str
    begun_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question, None if it is no longer asked, with the labels of its run and its messages."""

    question: views.InterruptView | None
    labels: Mapping[str, str]
    messages: tuple[Message, ...]


def asked(tx: Transaction, interrupt_id: str) -> Asked | None:
    """Return the state of a question; None if there is no such run."""
    run_id = run_of(interrupt_id)
    run = _run(tx, run_id)
    if run is None:
        return None
    rows = tx.connection.execute(select(slack_messages).where(*_of(tx, interrupt_id)))
    return Asked(
        question=questions.question(tx, run_id, interrupt_id),
        labels=labels_of(tx, run),
        messages=tuple(
            Message(channel=row.channel, ts=row.ts, shown=row.shown, begun_at=moment(row.begun_at))
            for row in rows
        ),
    )


def of_run(tx: Transaction, run_id: str) -> list[str]:
    """Return the ids of the questions of a run that were posted."""
    run = _run(tx, run_id)
    ids = select(slack_messages.c.interrupt_id).where(slack_messages.c.run == run).distinct()
    return [*tx.connection.scalars(ids)]


def begin(tx: Transaction, interrupt_id: str, channel: str, *, now: datetime) -> bool:
    """Write that a question is about to be posted. Return False if it was before, or the run is gone."""
    lock_deployment(tx)
    run = _run(tx, run_of(interrupt_id))
    known = select(slack_messages.c.run).where(*_of(tx, interrupt_id, channel))
    if run is None or tx.connection.scalar(known) is not None:
        return False
    row = {"run": run, "interrupt_id": interrupt_id, "channel": channel}
    row |= {"shown": "", "begun_at": micros(now)}
    tx.connection.execute(insert(slack_messages).values(row))
    return True


def write(tx: Transaction, interrupt_id: str, channel: str, *, ts: str, shown: str) -> None:
    """Write the `ts` of the message about a question in a channel, and the hash of what it shows."""
    own = update(slack_messages).where(*_of(tx, interrupt_id, channel))
    tx.connection.execute(own.values(ts=ts, shown=shown))


def give_up(tx: Transaction, interrupt_id: str, channel: str) -> None:
    """Delete the row that `begin` wrote for a message that Slack does not accept."""
    own = delete(slack_messages).where(*_of(tx, interrupt_id, channel))
    tx.connection.execute(own.where(slack_messages.c.ts.is_(None)))


def hold(tx: Transaction, name: str, holder: str, *, now: datetime, until: datetime) -> str | None:
    """Let one process at a time follow the stream under a name, until a moment.

    Return the cursor that it goes on from, empty at first; None if another process has the place.
    """
    lock_deployment(tx)
    own = _follower(tx.deployment, name)
    row = tx.connection.execute(select(followers).where(own)).one_or_none()
    if row is None:
        values: dict[str, Any] = {"deployment": tx.deployment, "name": name, "cursor": ""}
        tx.connection.execute(insert(followers).values(**values, holder="", held_until=0))
    elif row.holder != holder and row.held_until > micros(now):
        return None
    held = update(followers).where(own)
    tx.connection.execute(held.values(holder=holder, held_until=micros(until)))
    return "" if row is None else str(row.cursor)


def move(tx: Transaction, name: str, holder: str, *, cursor: str) -> bool:
    """Store the cursor of the holder of a name. Return False if another process holds the name now."""
    own = update(followers).where(_follower(tx.deployment, name), followers.c.holder == holder)
    return tx.connection.execute(own.values(cursor=cursor)).rowcount > 0


def let_go(tx: Transaction, name: str, holder: str) -> None:
    """Let another process follow under a name at once."""
    own = update(followers).where(_follower(tx.deployment, name), followers.c.holder == holder)
    tx.connection.execute(own.values(held_until=0))


def run_of(interrupt_id: str) -> str:
    """Return the id of the run that asks a question."""
    return interrupt_id.rpartition(".")[0]


def _run(tx: Transaction, run_id: str) -> int | None:
    return tx.connection.scalar(select(runs.c.id).where(*the_run(tx.deployment, run_id)))


def _of(tx: Transaction, interrupt_id: str, channel: str | None = None) -> list[Condition]:
    run = select(runs.c.id).where(*the_run(tx.deployment, run_of(interrupt_id))).scalar_subquery()
    found = [slack_messages.c.run == run, slack_messages.c.interrupt_id == interrupt_id]
    return found if channel is None else [*found, slack_messages.c.channel == channel]


def _follower(deployment: int, name: str) -> Condition:
    return and_(followers.c.deployment == deployment, followers.c.name == name)
