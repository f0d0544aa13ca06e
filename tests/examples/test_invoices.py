"""The payment run reads real files and finds the invoices that need a person."""

import shutil
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from examples.invoices import checks, inbox, question, ubl
from examples.invoices.checks import Reason, Verdict
from examples.invoices.graph import after_approve, after_check
from examples.invoices.run import Decision, PaymentRun
from examples.invoices.ubl import UnreadableInvoice

SAMPLE = Path(inbox.__file__).parent / "sample"
PLAIN = "01-nordwind.xml"

Edit = Callable[[str, str, str], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLE, tmp_path / "in"))


@pytest.fixture
def edit(folder: Path) -> Edit:
    def replace(file: str, old: str, new: str) -> None:
        text = (folder / file).read_text("utf-8")
        assert old in text
        (folder / file).write_text(text.replace(old, new), "utf-8")

    return replace


def verdicts_on(folder: Path, *, paid: dict[tuple[str, str], str] | None = None) -> list[Verdict]:
    return checks.check(
        inbox.read_invoices(folder)[0],
        company=inbox.read_company(folder),
        suppliers=inbox.read_suppliers(folder),
        paid=paid or {},
    )


def verdict_on(folder: Path, file: str) -> Verdict:
    return next(verdict for verdict in verdicts_on(folder) if verdict.file == file)


def refusal_of(data: bytes) -> str:
    with pytest.raises(UnreadableInvoice) as caught:
        ubl.parse(data, file="some.xml")
    return str(caught.value)


def test_an_invoice_is_read_exactly() -> None:
    invoice = ubl.parse((SAMPLE / "03-alpenrot.xml").read_bytes(), file="03-alpenrot.xml")

    assert invoice.number == "AH-10442"
    assert invoice.issued == date(2026, 11, 2)
    assert invoice.due == date(2026, 12, 2)
    assert invoice.currency == "EUR"
    assert invoice.supplier == "Alpenrot Hosting GmbH"
    assert invoice.supplier_vat_id == "ATU12345675"
    assert invoice.buyer_vat_id == "DE136695976"
    assert invoice.accounts == ("AT611904300234573201",)
    assert invoice.totals.gross == Decimal("3100.00")
    assert invoice.totals.prepaid == Decimal("500.00")
    assert invoice.totals.payable == Decimal("2600.00")


def test_every_file_of_the_folder_is_an_invoice_or_unreadable_with_a_reason(folder: Path) -> None:
    (folder / "scan.pdf").write_bytes(b"%PDF-1.7")
    (folder / ".DS_Store").write_bytes(b"left by a file manager")
    invoices, unreadable = inbox.read_invoices(folder)

    assert [invoice.file[:2] for invoice in invoices] == ["01", "02", "03", "04", "05"]
    assert [file.file for file in unreadable] == ["06-atelier.xml", "scan.pdf"]
    assert all("not well-formed XML" in file.reason for file in unreadable)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"<cbc:ID>NW-2026-0417</cbc:ID>", b"", "cbc:ID is missing"),
        (b">1535.55</cbc:PayableAmount>", b">NaN</cbc:PayableAmount>", "PayableAmount is 'NaN'"),
        (b">1535.55</cbc:PayableAmount>", b">1e9</cbc:PayableAmount>", "PayableAmount is '1e9'"),
        (b">1535.55</cbc:PayableAmount>", b">1.005</cbc:PayableAmount>", "at most two decimals"),
        (b'"EUR">1535.55</cbc:Pay', b'"USD">1535.55</cbc:Pay', "in 'USD', the invoice in 'EUR'"),
        (b">2026-12-04<", b">4.12.2026<", "'4.12.2026' is not a date"),
        (b'encoding="UTF-8"', b'encoding="no-such"', "unknown encoding"),
    ],
)
def test_half_an_invoice_is_refused_with_the_value_that_is_wrong(
    old: bytes, new: bytes, said: str
) -> None:
    data = (SAMPLE / PLAIN).read_bytes()
    assert old in data

    assert said in refusal_of(data.replace(old, new, 1))


def test_a_document_type_is_refused_before_any_entity_grows() -> None:
    entities = "".join(
        f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "x" * 100}">' for n in range(12)
    )
    data = f"<!DOCTYPE Invoice [{entities}]><Invoice>&e11;</Invoice>"

    assert "document type" in refusal_of(data.encode())


def test_the_sample_has_four_payable_invoices_and_one_decision(folder: Path) -> None:
    verdicts = {verdict.file[:2]: verdict for verdict in verdicts_on(folder)}

    assert [file for file, verdict in verdicts.items() if verdict.payment] == [
        "01",
        "02",
        "03",
        "04",
    ]
    assert [file for file, verdict in verdicts.items() if verdict.concerns] == ["04", "05"]
    assert {concern.reason for concern in verdicts["04"].concerns} == {
        Reason.OVER_LIMIT,
        Reason.ACCOUNT_DIFFERS,
    }


@pytest.mark.parametrize(
    ("change", "reason", "said"),
    [
        (("suppliers.csv", "5000.00", "1535.54"), Reason.OVER_LIMIT, "the limit of 1,535.54 EUR"),
        ((PLAIN, "DE111111125", "DE999999999"), Reason.UNKNOWN_SUPPLIER, "(DE999999999) is not"),
        (
            (PLAIN, "DE91100000000123456789", "LU280019400644750000"),
            Reason.ACCOUNT_DIFFERS,
            "LU280019400644750000 is not the supplier's DE91100000000123456789",
        ),
        (
            (PLAIN, ">1535.55</cbc:Payable", ">1635.55</cbc:Payable"),
            Reason.TOTALS,
            "comes to 1,535.55, but the amount due is 1,635.55",
        ),
        ((PLAIN, "EUR", "CHF"), Reason.CURRENCY, "it is in CHF, our account in EUR"),
        ((PLAIN, "DE136695976", "DE222222222"), Reason.OTHER_BUYER, "ours is DE136695976"),
        ((PLAIN, "Code>58<", "Code>59<"), Reason.NO_TRANSFER, "means of payment 59"),
        ((PLAIN, "DE9110000", "DE9210000"), Reason.NO_ACCOUNT, "is not a valid IBAN"),
        ((PLAIN, ">1535.55<", ">-0.01<"), Reason.NO_AMOUNT, "-0.01 EUR cannot be transferred"),
    ],
)
def test_each_concern_is_found_and_worded(
    folder: Path, edit: Edit, change: tuple[str, str, str], reason: Reason, said: str
) -> None:
    assert verdict_on(folder, PLAIN).concerns == ()

    edit(*change)
    verdict = verdict_on(folder, PLAIN)
    text = next(concern.text for concern in verdict.concerns if concern.reason is reason)
    assert said in text
    assert (verdict.payment is None) == any(each.reason.blocks for each in verdict.concerns)


def test_a_duplicate_is_never_paid_and_names_the_first(folder: Path, edit: Edit) -> None:
    edit("05-nordwind-reminder.xml", "NW-2026-0417</cbc:ID>", "nw-2026 -0417</cbc:ID>")
    first, copy = verdict_on(folder, PLAIN), verdict_on(folder, "05-nordwind-reminder.xml")

    assert first.payment is not None
    assert copy.payment is None
    assert copy.concerns[0].reason is Reason.DUPLICATE
    assert PLAIN in copy.concerns[0].text


def test_a_copy_with_another_account_makes_the_first_doubtful_too(folder: Path, edit: Edit) -> None:
    edit("05-nordwind-reminder.xml", "DE91100000000123456789", "LU280019400644750000")
    first = verdict_on(folder, PLAIN)

    assert [concern.reason for concern in first.concerns] == [Reason.COPIES_DIFFER]
    assert "LU280019400644750000" in first.concerns[0].text


def test_an_invoice_in_the_ledger_is_not_paid_again(folder: Path) -> None:
    paid = {("DE111111125", "nw-2026-0417"): "INV-1 (run monday)"}
    verdict = verdicts_on(folder, paid=paid)[0]

    assert verdict.payment is None
    assert verdict.concerns[0].reason is Reason.PAID_ALREADY
    assert "INV-1 (run monday)" in verdict.concerns[0].text


def test_the_question_names_the_sum_the_odd_ones_and_what_is_held_back(folder: Path) -> None:
    verdicts, (_, unreadable) = verdicts_on(folder), inbox.read_invoices(folder)
    doubtful, held = question.concerns(verdicts, unreadable).split("Held back")

    assert question.headline(verdicts, currency="EUR") == "Pay 4 invoices, 53,881.06 EUR in all?"
    assert "04-granit.xml" in doubtful
    assert "to LT121000011101001000" in doubtful
    assert "05-nordwind-reminder.xml" in held
    assert "06-atelier.xml" in held


# The graph sends each run the right way.

RUN = PaymentRun(folder="in", out="out")


def test_a_person_is_asked_only_when_something_needs_one() -> None:
    assert after_check(RUN) == "pay"
    assert after_check(RUN.model_copy(update={"concerns": "- 04: over the limit"})) == "approve"


def test_only_an_approval_leads_to_a_payment() -> None:
    def after(decision: Decision | None) -> str:
        return after_approve(RUN.model_copy(update={"decision": decision}))

    assert after(Decision(approved=True)) == "pay"
    assert after(Decision(approved=False, reason="no")) == "reject"
    assert after(None) == "reject"
