"""What a payment run held back, and why."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from examples.invoices import table
from examples.invoices.run import PaymentRun

FILE = "held.csv"


class HeldLine(table.Line):
    """One file that was not paid. What an unreadable file would have said is empty."""

    held_at: datetime
    file: str
    supplier: str = ""
    invoice: str = ""
    amount: str = ""
    currency: str = ""
    why: str


def read(out: Path) -> list[HeldLine]:
    """Read what was held back so far, the oldest line first.

    Raises:
        TableError: the file is damaged.
    """
    return table.read(out / FILE, HeldLine)


def record(
    out: Path,
    run: PaymentRun,
    why: Mapping[str, str],
    *,
    key: str,
    run_id: str,
    now: datetime,
) -> None:
    """Write down what was held back, unless the same visit did so before.

    The caller holds the output folder's lock.

    Parameters:
        why: for each file that is held back, the reason in words.
        key: the visit's idempotency key.
        now: aware time.
    """
    lines = read(out)
    if not why or any(line.key == key for line in lines):
        return
    known = {invoice.file: invoice for invoice in run.invoices}
    for file, reason in why.items():
        line = HeldLine(
            key=key, run_id=run_id, held_at=now.replace(microsecond=0), file=file, why=reason
        )
        if invoice := known.get(file):
            line = line.model_copy(
                update={
                    "supplier": invoice.supplier,
                    "invoice": invoice.number,
                    "amount": str(invoice.totals.payable),
                    "currency": invoice.currency,
                }
            )
        lines.append(line)
    table.write(out / FILE, HeldLine, lines)
