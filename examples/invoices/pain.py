"""The payment file for the bank: ISO 20022 pain.001.001.09, as a SEPA credit transfer.

It is made from the ledger's lines and the company's account alone, so that the same lines always
give the same bytes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, date
from decimal import Decimal
from xml.etree import ElementTree as ET

from examples.invoices.inbox import Company
from examples.invoices.ledger import Entry

NAMESPACE = "urn:iso:std:iso:20022:tech:xsd:pain.001.001.09"
_NOT_SEPA = re.compile(r"[^A-Za-z0-9/\-?:().,'+ ]+")
_SPELLED_OUT = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"}
    | {"æ": "ae", "ø": "oe", "å": "aa", "Æ": "Ae", "Ø": "Oe", "Å": "Aa", "ł": "l", "Ł": "L"}
    | {"&": "+", "_": "-"}
)
_MAX_NAME = 70
_MAX_REFERENCE = 140


def file_name(message_id: str) -> str:
    """Return the name of a payment file."""
    return f"pain.001-{message_id}.xml"


def render(company: Company, entries: Sequence[Entry]) -> bytes:
    """Return the payment file for the lines of one booking.

    Transfers of one day form one block (PmtInf), in order of the day.

    Parameters:
        company: who pays, from which account.
        entries: at least one line, all of one message.
    """
    first = entries[0]
    # Written without prefixes, as banks show the format, and as some of them insist.
    document = ET.Element("Document", xmlns=NAMESPACE)
    initiation = ET.SubElement(document, "CstmrCdtTrfInitn")
    header = ET.SubElement(initiation, "GrpHdr")
    _text(header, "MsgId", first.message_id)
    _text(header, "CreDtTm", first.booked_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    _control(header, entries)
    _text(header, "InitgPty/Nm", _usable(_MAX_NAME, company.name, company.vat_id))
    days = sorted({entry.execute_on for entry in entries})
    for number, day in enumerate(days, start=1):
        of_day = [entry for entry in entries if entry.execute_on == day]
        block = ET.SubElement(initiation, "PmtInf")
        _text(block, "PmtInfId", f"{first.message_id}-D{number}")
        _block(block, company, day, of_day)
    ET.indent(document)
    content: bytes = ET.tostring(document, encoding="UTF-8")
    # The declaration by hand: the library writes it in single quotes, which not every bank reads.
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + content + b"\n"


def sepa_text(text: str, limit: int) -> str:
    """Return a text in the characters that every SEPA bank takes, cut to `limit` characters.

    Umlauts are spelled out and accents dropped; whatever else is not allowed becomes a blank.
    """
    plain = unicodedata.normalize("NFKD", text.translate(_SPELLED_OUT))
    plain = "".join(character for character in plain if not unicodedata.combining(character))
    return " ".join(_NOT_SEPA.sub(" ", plain).split())[:limit].rstrip()


def _block(block: ET.Element, company: Company, day: date, entries: Sequence[Entry]) -> None:
    _text(block, "PmtMtd", "TRF")
    _control(block, entries)
    _text(block, "PmtTpInf/SvcLvl/Cd", "SEPA")
    _text(block, "ReqdExctnDt/Dt", day.isoformat())
    _text(block, "Dbtr/Nm", _usable(_MAX_NAME, company.name, company.vat_id))
    _text(block, "DbtrAcct/Id/IBAN", company.iban)
    if company.bic:
        _text(block, "DbtrAgt/FinInstnId/BICFI", company.bic)
    else:  # the rulebook's way to say that the IBAN alone names the bank
        _text(block, "DbtrAgt/FinInstnId/Othr/Id", "NOTPROVIDED")
    _text(block, "ChrgBr", "SLEV")
    for entry in entries:
        transfer = ET.SubElement(block, "CdtTrfTxInf")
        _text(transfer, "PmtId/EndToEndId", entry.end_to_end_id)
        amount = _text(transfer, "Amt/InstdAmt", f"{entry.amount:.2f}")
        amount.set("Ccy", entry.currency)
        payee = _usable(_MAX_NAME, entry.payee, entry.supplier, entry.end_to_end_id)
        _text(transfer, "Cdtr/Nm", payee)
        _text(transfer, "CdtrAcct/Id/IBAN", entry.iban)
        reference = _usable(_MAX_REFERENCE, entry.reference, entry.end_to_end_id)
        _text(transfer, "RmtInf/Ustrd", reference)


def _control(parent: ET.Element, entries: Sequence[Entry]) -> None:
    _text(parent, "NbOfTxs", str(len(entries)))
    _text(parent, "CtrlSum", f"{sum((entry.amount for entry in entries), Decimal(0)):.2f}")


def _usable(limit: int, *texts: str) -> str:
    """Return the first text of which something is left: in another alphabet nothing may be."""
    return next(text for candidate in texts if (text := sepa_text(candidate, limit)))


def _text(parent: ET.Element, path: str, text: str) -> ET.Element:
    element = parent
    for tag in path.split("/"):
        element = ET.SubElement(element, tag)
    element.text = text
    return element
