"""A payment: the transfer that pays one invoice."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from pydantic import BaseModel, ConfigDict


class Payment(BaseModel):
    """A transfer that pays one invoice, fixed in full before anybody is asked to approve it."""

    model_config = ConfigDict(frozen=True)

    file: str
    supplier: str
    """Who the invoice number is of: the supplier's VAT id or, where it has none, its name."""
    payee: str
    invoice: str
    amount: Decimal
    currency: str
    iban: str
    due: date
    reference: str
    """What the supplier reads on its bank statement."""

    def __str__(self) -> str:
        """Return it as people read it in a question or a report."""
        amount = money(self.amount, self.currency)
        return f"{self.payee}, invoice {self.invoice}, {amount} to {self.iban}"


def money(amount: Decimal, currency: str) -> str:
    """Return an amount as people read it: `1,547.00 EUR`."""
    return f"{amount:,.2f} {currency}"
