"""Replies to calls about an ended run, by its record. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from abeyance import commands, views
from abeyance.core import edits, idempotency, ledger, replies
from abeyance.core.events import Responded
from abeyance.core.json import rfc3339
from abeyance.errors import Code, Refusal
from abeyance.projections import ledger_of


def not_running(run_id: str, status: str, ended_at: datetime | None) -> Refusal:
    """Return the refusal of a call that needs a running run."""
    ended = ended_at and rfc3339(ended_at)
    return Refusal(
        Code.NOT_RUNNING,
        f"The run {run_id!r} ended at {ended} ({status}), so nothing can be done to it.",
        run_status=status,
        ended_at=ended,
    )


def respond_after_the_end(
    record: views.ClosingRecord, keys: idempotency.Keys, order: commands.Respond
) -> list[ledger.Receipt]:
    """Check an answer to an ended run by the rules of a running one.

    Only the repeat of an accepted answer gets a receipt; any other is refused.
    """
    view = record.view
    if view.status in views.ENDED_OUTSIDE:
        # Nothing is left that tells a repeat from another answer.
        raise _finished(view)
    id_ = order.interrupt_id or idempotency.addressee(keys, order.key)
    if order.responses is None and id_ is None:
        raise _finished(view)
    answers = order.responses or {id_ or "": order.response}
    event = Responded(
        now=view.ended_at or view.updated_at,
        principal=order.principal,
        answers=answers,
        schema_faults={},
        digests=order.digests,
        note=order.note,
        on_behalf_of=order.on_behalf_of,
        delegations=order.delegations,
        key=order.key,
    )
    if (called := idempotency.earlier(keys, event)) is not None:
        return idempotency.receipts_again(called)
    try:
        replies.refuse_strays(event)
        asked = ledger_of(record.interrupts)
        return list(replies.check_answers(asked, event).values())
    except Refusal as refusal:
        raise _ended(refusal, view) from refusal


def edit_after_the_end(record: views.ClosingRecord, order: commands.EditDeadline) -> Refusal:
    """Return the refusal of a deadline's edit in an ended run, by the status of the interrupt."""
    view = record.view
    if view.status in views.ENDED_OUTSIDE:
        return not_running(view.run_id, view.status, view.ended_at)
    try:
        edits.open_interrupt(ledger_of(record.interrupts), order.interrupt_id)
    except Refusal as refusal:
        return _ended(refusal, view)
    raise AssertionError("an ended run has no open interrupt")


def _finished(view: views.RunView) -> Refusal:
    return Refusal(
        Code.RUN_FINISHED,
        f"The run {view.run_id!r} has ended ({view.status}) and waits for no answer.",
        run_status=view.status,
        ended_at=view.ended_at and rfc3339(view.ended_at),
    )


def _ended(refusal: Refusal, view: views.RunView) -> Refusal:
    ended: dict[str, Any] = {
        "run_status": view.status,
        "ended_at": view.ended_at and rfc3339(view.ended_at),
    }
    return Refusal(refusal.code, refusal.message, **{**ended, **refusal.details})
