"""Reading one invoice: UBL 2.1 as EN 16931 and Peppol BIS Billing 3 use it.

Only what a payment needs is read. The letters BT and a number name the business term of EN 16931.
Amounts are exact decimals, and strings in JSON. A document that cannot be understood in full is
refused with the reason: half an invoice must never be paid.
"""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import NoReturn
from xml.etree import ElementTree as ET

from pydantic import BaseModel, ConfigDict

from examples.invoices import iban
from examples.invoices.totals import Totals

_UBL = "urn:oasis:names:specification:ubl:schema:xsd:"
_NAMESPACES = {
    "cac": f"{_UBL}CommonAggregateComponents-2",
    "cbc": f"{_UBL}CommonBasicComponents-2",
}
_ROOT = f"{{{_UBL}Invoice-2}}Invoice"
_AMOUNT = re.compile(r"[+-]?(?=\.?[0-9])[0-9]{0,16}(\.[0-9]{0,2}0*)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ZERO = Decimal("0.00")
_CENT = Decimal("0.01")


class UnreadableInvoice(ValueError):
    """A file is not an invoice that this module understands; the text says why."""


class Invoice(BaseModel):
    """What a payment run needs to know of one invoice."""

    model_config = ConfigDict(frozen=True)

    file: str
    number: str
    issued: date
    due: date | None
    currency: str
    supplier: str
    supplier_vat_id: str | None
    buyer_vat_id: str | None
    means: tuple[str, ...]
    """Codes of the means of payment that the supplier offers (BT-81, UNTDID 4461)."""
    accounts: tuple[str, ...]
    """The accounts that it asks to be paid to (BT-84), normalised."""
    reference: str | None
    """What it wants to read on its bank statement (BT-83)."""
    totals: Totals

    @property
    def supplier_key(self) -> str:
        """The supplier's VAT id or, where it has none, its name: who an invoice number is of."""
        return self.supplier_vat_id or self.supplier.casefold()


def identity(supplier_key: str, number: str) -> tuple[str, str]:
    """Return what makes two documents the same invoice, blind to blanks and case in its number."""
    return supplier_key, "".join(number.split()).casefold()


def parse(data: bytes, *, file: str) -> Invoice:
    """Read one invoice.

    Parameters:
        data: the XML document, in any encoding that it declares.
        file: the name under which the invoice is spoken of.

    Raises:
        UnreadableInvoice: it is not XML, not a UBL invoice, or lacks something a payment needs.
    """
    root = _root(data)
    currency = _required(root, "cbc:DocumentCurrencyCode")
    supplier = _child(root, "cac:AccountingSupplierParty/cac:Party")
    buyer = root.find("cac:AccountingCustomerParty/cac:Party", _NAMESPACES)
    accounts = _texts(root, "cac:PaymentMeans/cac:PayeeFinancialAccount/cbc:ID")
    return Invoice(
        file=file,
        number=_required(root, "cbc:ID"),
        issued=_date(_required(root, "cbc:IssueDate")),
        due=_date(due) if (due := _text(root, "cbc:DueDate")) else None,
        currency=currency,
        supplier=_required(supplier, "cac:PartyLegalEntity/cbc:RegistrationName"),
        supplier_vat_id=_vat_id(supplier),
        buyer_vat_id=None if buyer is None else _vat_id(buyer),
        means=tuple(_texts(root, "cac:PaymentMeans/cbc:PaymentMeansCode")),
        accounts=tuple(iban.normalise(account) for account in accounts),
        reference=_text(root, "cac:PaymentMeans/cbc:PaymentID"),
        totals=_totals(root, currency),
    )


class _TreeWithoutDoctype(ET.TreeBuilder):
    """Refuses a document type declaration.

    Every attack with entities (endless expansion, reading of files and addresses) needs one, and
    UBL has none. The refusal comes before the first entity could be declared.
    """

    def doctype(self, name: str, pubid: str | None, system: str | None) -> NoReturn:
        raise UnreadableInvoice(
            f"it declares a document type ({name}), which no UBL invoice does; ask for a clean one"
        )


def _root(data: bytes) -> ET.Element:
    parser = ET.XMLParser(target=_TreeWithoutDoctype())  # noqa: S314  (see the class)
    try:
        root = ET.fromstring(data, parser)  # noqa: S314
    except UnreadableInvoice:
        raise
    except ET.ParseError as error:
        raise UnreadableInvoice(f"it is not well-formed XML: {error}") from error
    except (LookupError, ValueError) as error:  # an encoding that Python or expat does not know
        raise UnreadableInvoice(f"its encoding cannot be read: {error}") from error
    if root.tag != _ROOT:
        raise UnreadableInvoice(f"its root element is {root.tag}, not {_ROOT}")
    return root


def _totals(root: ET.Element, currency: str) -> Totals:
    total = _child(root, "cac:LegalMonetaryTotal")
    # A second TaxTotal may repeat the VAT in the supplier's own tax currency; it is not a part.
    taxes = [
        tax
        for tax in root.findall("cac:TaxTotal", _NAMESPACES)
        if (amount := tax.find("cbc:TaxAmount", _NAMESPACES)) is not None
        and amount.get("currencyID") == currency
    ]
    return Totals(
        lines=_sum([root], "cac:InvoiceLine/cbc:LineExtensionAmount", currency),
        line_total=_amount(_child(total, "cbc:LineExtensionAmount"), currency),
        allowances=_sum([total], "cbc:AllowanceTotalAmount", currency),
        charges=_sum([total], "cbc:ChargeTotalAmount", currency),
        net=_amount(_child(total, "cbc:TaxExclusiveAmount"), currency),
        vat_parts=_sum(taxes, "cac:TaxSubtotal/cbc:TaxAmount", currency),
        vat=_sum(taxes, "cbc:TaxAmount", currency),
        gross=_amount(_child(total, "cbc:TaxInclusiveAmount"), currency),
        prepaid=_sum([total], "cbc:PrepaidAmount", currency),
        rounding=_sum([total], "cbc:PayableRoundingAmount", currency),
        payable=_amount(_child(total, "cbc:PayableAmount"), currency),
    )


def _sum(parents: list[ET.Element], path: str, currency: str) -> Decimal:
    found = (element for parent in parents for element in parent.findall(path, _NAMESPACES))
    return sum((_amount(element, currency) for element in found), _ZERO)


def _amount(element: ET.Element, currency: str) -> Decimal:
    name = element.tag.rpartition("}")[2]
    text = (element.text or "").strip()
    # Decimal() alone would let NaN, infinity and exponents through.
    if not _AMOUNT.fullmatch(text):
        raise UnreadableInvoice(f"{name} is {text!r}, not an amount with at most two decimals")
    if element.get("currencyID") != currency:
        raise UnreadableInvoice(
            f"{name} is in {element.get('currencyID')!r}, the invoice in {currency!r}"
        )
    return Decimal(text).quantize(_CENT)


def _vat_id(party: ET.Element) -> str | None:
    for scheme in party.findall("cac:PartyTaxScheme", _NAMESPACES):
        if _text(scheme, "cac:TaxScheme/cbc:ID") == "VAT" and (
            found := _text(scheme, "cbc:CompanyID")
        ):
            return iban.normalise(found)
    return None


def _date(text: str) -> date:
    try:
        # fromisoformat alone also takes weeks and dates without hyphens.
        return date.fromisoformat(text if _DATE.fullmatch(text) else "")
    except ValueError as error:
        raise UnreadableInvoice(f"{text!r} is not a date of the form 2026-12-31") from error


def _child(parent: ET.Element, path: str) -> ET.Element:
    found = parent.find(path, _NAMESPACES)
    if found is None:
        raise UnreadableInvoice(f"{path} is missing")
    return found


def _texts(parent: ET.Element, path: str) -> list[str]:
    elements = parent.findall(path, _NAMESPACES)
    return [text for element in elements if (text := " ".join((element.text or "").split()))]


def _text(parent: ET.Element, path: str) -> str | None:
    return next(iter(_texts(parent, path)), None)


def _required(parent: ET.Element, path: str) -> str:
    text = _text(parent, path)
    if text is None:
        raise UnreadableInvoice(f"{path} is missing or empty")
    return text
