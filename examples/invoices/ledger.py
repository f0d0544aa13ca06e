"""The ledger: which invoice was paid, when, to whom, in which payment file.

It is written before the payment file, and the payment file is made from its lines alone. So an
invoice that is in the ledger is never paid again, and a visit that crashed between the two writes
the same payment file, byte for byte, when it is tried again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

from pydantic import Field

from examples.invoices import table
from examples.invoices.payment import Payment
from examples.invoices.ubl import identity

FILE = "ledger.csv"


class LedgerError(ValueError):
    """A booking contradicts the ledger; nothing was booked."""


class Entry(table.Line):
    """One paid invoice."""

    booked_at: datetime
    message_id: str
    """Names the payment file, here and at the bank (MsgId)."""
    end_to_end_id: str
    """Names the transfer on both bank statements (EndToEndId)."""
    supplier: str
    payee: str
    invoice: str
    amount: Decimal = Field(gt=0)
    currency: str
    iban: str
    execute_on: date
    reference: str
    file: str

    @property
    def identity(self) -> tuple[str, str]:
        """What makes another document the same invoice."""
        return identity(self.supplier, self.invoice)


@dataclass(frozen=True, kw_only=True, slots=True)
class Booking:
    """What became of the payments of one visit."""

    entries: tuple[Entry, ...]
    """The visit's lines, whether written now or at an earlier attempt."""
    paid_elsewhere: tuple[tuple[Payment, Entry], ...]
    """Payments left out, since another run has paid these invoices in the meantime."""


def read(out: Path) -> list[Entry]:
    """Read the ledger in the output folder, the oldest line first.

    Raises:
        TableError: the ledger is damaged.
    """
    return table.read(out / FILE, Entry)


def paid(out: Path) -> dict[tuple[str, str], str]:
    """Return, for the identity of each invoice in the ledger, the payment it is part of."""
    return {entry.identity: f"{entry.message_id} (run {entry.run_id})" for entry in read(out)}


def message_id(key: str) -> str:
    """Return the name of the payment file of a visit: always the same for the same key.

    A bank refuses a name that it has seen, so that even a file sent twice is paid once. It is 26
    characters long; with the endings that `pain` and `book` add it keeps below the 35 allowed.
    """
    return f"INV-{hashlib.sha256(key.encode()).hexdigest()[:22].upper()}"


def book(
    out: Path, *, key: str, run_id: str, payments: Sequence[Payment], now: datetime
) -> Booking:
    """Write the payments into the ledger, unless that was done before.

    A visit books once: with lines of the same key in the ledger nothing is changed. What was
    checked before the approval is checked again, because days may lie between. The caller holds
    the output folder's lock.

    Parameters:
        key: the visit's idempotency key.
        now: aware time; an invoice that was due before is paid on this day.

    Raises:
        LedgerError: this key has booked before, and a payment was not among what it booked.
        TableError: the ledger is damaged.
    """
    lines = read(out)
    wanted = {identity(payment.supplier, payment.invoice): payment for payment in payments}
    mine = {entry.identity: entry for entry in lines if entry.key == key}
    others = {entry.identity: entry for entry in lines if entry.key != key}
    if mine and (left := wanted.keys() - mine.keys() - others.keys()):
        raise LedgerError(
            f"the key {key!r} has booked its payments in {out / FILE} before, and invoice "
            f"{wanted[min(left)].invoice} was not among them; pay it in a run with a new id"
        )
    if not mine:
        new = [payment for which, payment in wanted.items() if which not in others]
        entries = [
            _entry(payment, number, key=key, run_id=run_id, now=now)
            for number, payment in enumerate(new, start=1)
        ]
        if entries:
            table.write(out / FILE, Entry, [*lines, *entries])
        mine = {entry.identity: entry for entry in entries}
    return Booking(
        entries=tuple(mine.values()),
        paid_elsewhere=tuple(
            (payment, others[which]) for which, payment in wanted.items() if which in others
        ),
    )


def _entry(payment: Payment, number: int, *, key: str, run_id: str, now: datetime) -> Entry:
    message = message_id(key)
    return Entry(
        key=key,
        run_id=run_id,
        booked_at=now.replace(microsecond=0),
        message_id=message,
        end_to_end_id=f"{message}-{number}",
        supplier=payment.supplier,
        payee=payment.payee,
        invoice=payment.invoice,
        amount=payment.amount,
        currency=payment.currency,
        iban=payment.iban,
        execute_on=max(payment.due, now.date()),
        reference=payment.reference,
        file=payment.file,
    )
