"""The question that a person is asked before a payment run, short enough to be answered."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from examples.invoices.checks import Verdict
from examples.invoices.inbox import Unreadable
from examples.invoices.payment import money


def headline(verdicts: Sequence[Verdict], *, currency: str) -> str:
    """Return what an approval does, in one line."""
    payments = [verdict.payment for verdict in verdicts if verdict.payment is not None]
    if not payments:
        return "Nothing here can be paid. Close this payment run?"
    total = sum((payment.amount for payment in payments), Decimal(0))
    return f"Pay {_count(len(payments), 'invoice')}, {money(total, currency)} in all?"


def concerns(verdicts: Sequence[Verdict], unreadable: Sequence[Unreadable]) -> str:
    """Return what needs a person, one line for each invoice, or "" when nothing does."""
    doubtful = [
        f"- {verdict.payment} ({verdict.file}): {_reasons(verdict)}"
        for verdict in verdicts
        if verdict.payment is not None and verdict.concerns
    ]
    held = [f"- {file}: {why}" for file, why in held_back(verdicts, unreadable)]
    return "\n".join(
        [
            *(["Paid only because you say so:", *doubtful] if doubtful else []),
            *(["Held back whatever you answer:", *held] if held else []),
        ]
    )


def held_back(
    verdicts: Sequence[Verdict], unreadable: Sequence[Unreadable]
) -> list[tuple[str, str]]:
    """Return each file that this run cannot pay, with the reason in words."""
    return [
        *((verdict.file, _reasons(verdict)) for verdict in verdicts if verdict.payment is None),
        *((file.file, f"cannot be read: {file.reason}") for file in unreadable),
    ]


def _reasons(verdict: Verdict) -> str:
    return "; ".join(concern.text for concern in verdict.concerns)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
