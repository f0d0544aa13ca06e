"""The amounts of one invoice, and whether they add up."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from pydantic import BaseModel, ConfigDict


class Totals(BaseModel):
    """The amounts of an invoice that must add up, all in the currency of the invoice.

    The letters BT and a number name the business term of EN 16931.
    """

    model_config = ConfigDict(frozen=True)

    lines: Decimal
    """Sum over the invoice lines (BT-131)."""
    line_total: Decimal
    """What the invoice says this sum is (BT-106)."""
    allowances: Decimal
    """BT-107."""
    charges: Decimal
    """BT-108."""
    net: Decimal
    """Total without VAT (BT-109)."""
    vat_parts: Decimal
    """Sum over the VAT breakdown (BT-117)."""
    vat: Decimal
    """What the invoice says this sum is (BT-110)."""
    gross: Decimal
    """Total with VAT (BT-112)."""
    prepaid: Decimal
    """BT-113."""
    rounding: Decimal
    """BT-114."""
    payable: Decimal
    """Amount due for payment (BT-115)."""

    def faults(self) -> Iterator[str]:
        """Yield, in words, what contradicts the rules BR-CO-10 and BR-CO-13 to 16 of EN 16931."""
        rules = (
            ("the lines come to", self.lines, "their total", self.line_total),
            (
                "lines less allowances plus charges come to",
                self.line_total - self.allowances + self.charges,
                "the total without VAT",
                self.net,
            ),
            ("the parts of the VAT come to", self.vat_parts, "the VAT", self.vat),
            ("net plus VAT comes to", self.net + self.vat, "the total with VAT", self.gross),
            (
                "the total with VAT, less what was prepaid, rounded, comes to",
                self.gross - self.prepaid + self.rounding,
                "the amount due",
                self.payable,
            ),
        )
        for computed_as, computed, name, stated in rules:
            if computed != stated:
                yield f"{computed_as} {computed:,.2f}, but {name} is {stated:,.2f}"
