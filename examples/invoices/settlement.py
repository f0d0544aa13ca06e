"""How a payment run ends: the approved payments are made, or everything is held back.

Both may be tried any number of times with the same key, and do their work once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from examples.invoices import files, held, ledger, pain, question
from examples.invoices.run import PaymentRun


@dataclass(frozen=True, kw_only=True, slots=True)
class Settlement:
    """What was paid."""

    paid: int
    """How many invoices."""
    payment_file: str
    """Name of the file for the bank, or "" when there was nothing to pay."""


def pay(run: PaymentRun, *, key: str, run_id: str, now: datetime) -> Settlement:
    """Pay what can be paid: ledger, payment file, and a record of what was held back.

    Parameters:
        key: the visit's idempotency key; with the same key it changes nothing the second time.
        now: aware time of the payment, which counts at the first attempt only.

    Raises:
        LedgerError: this key has booked before, and a payment was not among what it booked.
        TableError: the ledger or the file of what was held back is damaged.
        FileExistsError: the payment file was changed by somebody else.
    """
    out = Path(run.out)
    payments = [verdict.payment for verdict in run.verdicts if verdict.payment is not None]
    payment_file = ""
    with files.locked(out):
        booking = ledger.book(out, key=key, run_id=run_id, payments=payments, now=now)
        if booking.entries:
            payment_file = pain.file_name(booking.entries[0].message_id)
            files.write_once(out / payment_file, pain.render(run.payer(), booking.entries))
        why = dict(question.held_back(run.verdicts, run.unreadable))
        for payment, entry in booking.paid_elsewhere:
            why[payment.file] = f"paid in the meantime by run {entry.run_id} ({entry.message_id})"
        held.record(out, run, why, key=key, run_id=run_id, now=now)
    return Settlement(paid=len(booking.entries), payment_file=payment_file)


def hold_back(run: PaymentRun, why: str, *, key: str, run_id: str, now: datetime) -> None:
    """Pay nothing, and write down for every file why not.

    Parameters:
        why: the reason for what could have been paid; the rest keeps the reason of its own.
        key: the visit's idempotency key; with the same key it changes nothing the second time.
        now: aware time.

    Raises:
        TableError: the file of what was held back is damaged.
    """
    out = Path(run.out)
    why = " ".join(why.split())  # what a person typed, on one line
    reasons = {verdict.file: why for verdict in run.verdicts if verdict.payment is not None}
    reasons |= dict(question.held_back(run.verdicts, run.unreadable))
    with files.locked(out):
        held.record(out, run, reasons, key=key, run_id=run_id, now=now)
