"""What in a folder of invoices needs a person, and why.

A check never decides that an invoice is wrong, only that nobody but a person may say that it is
right. Some findings no person can wave through in this run either, an invoice that is paid already
for example: these *block*, and the invoice is held back whatever the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import assert_never

from pydantic import BaseModel, ConfigDict

from examples.invoices import iban
from examples.invoices.inbox import Company, Supplier
from examples.invoices.payment import Payment, money
from examples.invoices.ubl import Invoice, identity

# UNTDID 4461: credit transfer, payment to bank account, SEPA credit transfer. Not among them is
# direct debit (49, 59): the supplier collects that money, and a transfer would pay it twice.
_TRANSFERS = frozenset({"30", "42", "58"})
_LARGEST_TRANSFER = Decimal("999999999.99")


class Reason(StrEnum):
    """Why an invoice needs a person."""

    OVER_LIMIT = "over the limit"
    UNKNOWN_SUPPLIER = "supplier not in the master file"
    ACCOUNT_DIFFERS = "account differs from the master file"
    TOTALS = "totals do not add up"
    COPIES_DIFFER = "another invoice has the same number"
    DUPLICATE = "duplicate invoice number"
    PAID_ALREADY = "already in the ledger"
    CURRENCY = "currency differs"
    OTHER_BUYER = "addressed to another company"
    NO_TRANSFER = "not to be paid by transfer"
    NO_ACCOUNT = "no account to pay to"
    NO_AMOUNT = "no amount to pay"

    @property
    def blocks(self) -> bool:
        """Whether the invoice cannot be paid in this run, whatever a person answers."""
        match self:
            case (
                Reason.OVER_LIMIT
                | Reason.UNKNOWN_SUPPLIER
                | Reason.ACCOUNT_DIFFERS
                | Reason.TOTALS
                | Reason.COPIES_DIFFER
            ):
                return False
            case (
                Reason.DUPLICATE
                | Reason.PAID_ALREADY
                | Reason.CURRENCY
                | Reason.OTHER_BUYER
                | Reason.NO_TRANSFER
                | Reason.NO_ACCOUNT
                | Reason.NO_AMOUNT
            ):
                return True
            case _:
                assert_never(self)


class Concern(BaseModel):
    """One reason why an invoice needs a person, in words that need no other document."""

    model_config = ConfigDict(frozen=True)

    reason: Reason
    text: str


class Verdict(BaseModel):
    """What the checks say of one invoice. Without a payment it is held back."""

    model_config = ConfigDict(frozen=True)

    file: str
    concerns: tuple[Concern, ...]
    payment: Payment | None


def check(
    invoices: Sequence[Invoice],
    *,
    company: Company,
    suppliers: Mapping[str, Supplier],
    paid: Mapping[tuple[str, str], str],
) -> list[Verdict]:
    """Check every invoice, in the order given; of several with one number the first counts.

    Parameters:
        company: who pays.
        suppliers: the supplier master file, by VAT id.
        paid: for the identity of each invoice in the ledger, which payment it is part of.

    Returns:
        one verdict for each invoice, in the same order.
    """
    copies: dict[tuple[str, str], list[Invoice]] = {}
    for invoice in invoices:
        key = identity(invoice.supplier_key, invoice.number)
        copies.setdefault(key, []).append(invoice)
    verdicts = {}
    for key, same in copies.items():
        for invoice in same:
            supplier = suppliers.get(invoice.supplier_vat_id or "")
            account = _account(invoice, supplier)
            concerns = (
                *_about_copies(invoice, same),
                *_about_ledger(paid.get(key)),
                *_about_amounts(invoice, company, supplier),
                *_about_parties(invoice, company, supplier, account),
            )
            blocked = any(concern.reason.blocks for concern in concerns)
            verdicts[invoice.file] = Verdict(
                file=invoice.file,
                concerns=concerns,
                payment=None if blocked else _payment(invoice, supplier, account),
            )
    return [verdicts[invoice.file] for invoice in invoices]


def _account(invoice: Invoice, supplier: Supplier | None) -> str:
    """Return the account to pay to: the known one where the invoice offers it or offers none."""
    if supplier is not None and (not invoice.accounts or supplier.iban in invoice.accounts):
        return supplier.iban
    return next(iter(invoice.accounts), "")


def _payment(invoice: Invoice, supplier: Supplier | None, account: str) -> Payment:
    terms = timedelta(days=supplier.terms_days if supplier else 0)
    return Payment(
        file=invoice.file,
        supplier=invoice.supplier_key,
        payee=supplier.name if supplier else invoice.supplier,
        invoice=invoice.number,
        amount=invoice.totals.payable,
        currency=invoice.currency,
        iban=account,
        due=invoice.due or invoice.issued + terms,
        reference=invoice.reference or f"Invoice {invoice.number} of {invoice.issued}",
    )


def _about_copies(invoice: Invoice, same: list[Invoice]) -> Iterator[Concern]:
    first, *others = same
    if invoice is not first:
        yield Concern(
            reason=Reason.DUPLICATE,
            text=f"invoice number {invoice.number} of this supplier is in {first.file} as well, "
            f"which counts",
        )
    for other in others:
        if invoice is first and (other.totals, other.accounts) != (first.totals, first.accounts):
            yield Concern(
                reason=Reason.COPIES_DIFFER,
                text=f"{other.file} has the same number but other amounts or another account "
                f"({_asks(other)}); this one asks for {_asks(first)}",
            )


def _asks(invoice: Invoice) -> str:
    amount = money(invoice.totals.payable, invoice.currency)
    return f"{amount} to {' or '.join(invoice.accounts) or 'no named account'}"


def _about_ledger(payment: str | None) -> Iterator[Concern]:
    if payment is not None:
        yield Concern(
            reason=Reason.PAID_ALREADY, text=f"it is in the ledger already, as part of {payment}"
        )


def _about_amounts(
    invoice: Invoice, company: Company, supplier: Supplier | None
) -> Iterator[Concern]:
    amount = invoice.totals.payable
    if invoice.currency != company.currency:
        yield Concern(
            reason=Reason.CURRENCY,
            text=f"it is in {invoice.currency}, our account in {company.currency}; "
            f"pay it by a foreign transfer",
        )
    elif supplier is not None and amount > supplier.approval_limit:
        yield Concern(
            reason=Reason.OVER_LIMIT,
            text=f"{money(amount, invoice.currency)} is over the limit of "
            f"{money(supplier.approval_limit, company.currency)} for this supplier",
        )
    if not 0 < amount <= _LARGEST_TRANSFER:
        yield Concern(
            reason=Reason.NO_AMOUNT,
            text=f"{money(amount, invoice.currency)} cannot be transferred",
        )
    if faults := list(invoice.totals.faults()):
        yield Concern(reason=Reason.TOTALS, text=f"its totals do not add up: {'; '.join(faults)}")


def _about_parties(
    invoice: Invoice, company: Company, supplier: Supplier | None, account: str
) -> Iterator[Concern]:
    if invoice.buyer_vat_id is not None and invoice.buyer_vat_id != company.vat_id:
        yield Concern(
            reason=Reason.OTHER_BUYER,
            text=f"it is addressed to VAT id {invoice.buyer_vat_id}, ours is {company.vat_id}",
        )
    if invoice.means and _TRANSFERS.isdisjoint(invoice.means):
        yield Concern(
            reason=Reason.NO_TRANSFER,
            text=f"it is not to be paid by transfer (means of payment {', '.join(invoice.means)})",
        )
    if not iban.is_valid(account):
        yield Concern(
            reason=Reason.NO_ACCOUNT,
            text=f"its account {account!r} is not a valid IBAN" if account else "it has no account",
        )
    if supplier is None:
        yield Concern(
            reason=Reason.UNKNOWN_SUPPLIER,
            text=f"{invoice.supplier} ({invoice.supplier_vat_id or 'no VAT id'}) is not in the "
            f"supplier master file",
        )
    elif account != supplier.iban:
        yield Concern(
            reason=Reason.ACCOUNT_DIFFERS,
            text=f"its account {account} is not the supplier's {supplier.iban} in the master file",
        )
