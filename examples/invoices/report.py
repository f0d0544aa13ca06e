"""The report at the end of a payment run, whatever the end was.

It says what the files on disk say, not what the run believes: a run that failed after it had
booked its payments must not be reported as one that paid nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from examples.invoices import files, held, ledger, pain
from examples.invoices.payment import money
from examples.invoices.run import PaymentRun

FILE = "report.txt"


def write(run: PaymentRun, *, run_id: str, outcome: str) -> None:
    """Write `report.txt` into the output folder, over that of an earlier run.

    Parameters:
        outcome: how the run ended, for example `completed`.

    Raises:
        TableError: the ledger or the file of what was held back is damaged.
    """
    out = Path(run.out)
    with files.locked(out):
        lines = [
            f"Payment run {run_id}: {outcome}",
            f"Folder: {run.folder}",
            f"Answer: {_answer(run)}",
            "",
            *_paid(out, run_id),
            "",
            *_held(out, run, run_id),
        ]
        files.replace(out / FILE, ("\n".join(lines) + "\n").encode("utf-8"))


def _answer(run: PaymentRun) -> str:
    if run.decision is not None:
        word = "approved" if run.decision.approved else "rejected"
        reason = " ".join(run.decision.reason.split())
        return f"{word}: {reason}" if reason else word
    return "nobody answered" if run.concerns else "nobody had to be asked"


def _paid(out: Path, run_id: str) -> Iterator[str]:
    entries = [entry for entry in ledger.read(out) if entry.run_id == run_id]
    if not entries:
        yield "Nothing was paid."
        return
    first = entries[0]
    total = sum((entry.amount for entry in entries), Decimal(0))
    payment_file = pain.file_name(first.message_id)
    yield f"Paid: {money(total, first.currency)} in all, for the bank in {payment_file}"
    if not (out / payment_file).exists():
        yield f"  but {payment_file} was not written: try the node again before paying by hand"
    for entry in entries:
        amount = money(entry.amount, entry.currency)
        yield f"  {entry.execute_on}  {entry.payee}, invoice {entry.invoice}, {amount}"
        yield f"              to {entry.iban}, {entry.end_to_end_id}"


def _held(out: Path, run: PaymentRun, run_id: str) -> Iterator[str]:
    lines = [line for line in held.read(out) if line.run_id == run_id]
    settled = {line.file for line in lines}
    settled |= {entry.file for entry in ledger.read(out) if entry.run_id == run_id}
    files_read = [invoice.file for invoice in run.invoices]
    files_read += [unreadable.file for unreadable in run.unreadable]
    left = [file for file in files_read if file not in settled]
    if lines:
        yield "Held back:"
        yield from (f"  {line.file}: {line.why}" for line in lines)
    if left:
        yield "Left as it was, since the run ended before it was decided:"
        yield from (f"  {file}" for file in left)
    if not lines and not left:
        yield "Nothing was held back." if files_read else "There was no invoice in the folder."
