"""The payment run pays once, in a file that a bank reads, and lists the invoices that it holds back."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from examples.invoices import checks, files, held, inbox, ledger, pain, question, settlement
from examples.invoices.ledger import LedgerError
from examples.invoices.run import Decision, PaymentRun
from examples.invoices.table import TableError

SAMPLE = Path(inbox.__file__).parent / "sample"
NOW = datetime(2026, 12, 5, 9, 30, tzinfo=UTC)
NS = {"p": pain.NAMESPACE}


@pytest.fixture
def run(tmp_path: Path) -> PaymentRun:
    """Return the sample, read and checked, with an output folder that does not exist yet."""
    company = inbox.read_company(SAMPLE)
    invoices, unreadable = inbox.read_invoices(SAMPLE)
    suppliers = inbox.read_suppliers(SAMPLE)
    verdicts = checks.check(invoices, company=company, suppliers=suppliers, paid={})
    return PaymentRun(
        folder=str(SAMPLE),
        out=str(tmp_path / "books" / "out"),
        company=company,
        invoices=invoices,
        unreadable=unreadable,
        verdicts=verdicts,
        concerns=question.concerns(verdicts, unreadable),
        decision=Decision(approved=True, reason="called them"),
    )


def pay(run: PaymentRun, key: str = "k1", now: datetime = NOW) -> settlement.Settlement:
    return settlement.pay(run, key=key, run_id=f"run-{key}", now=now)


def on_disk(run: PaymentRun) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(run.out).iterdir()}


def document_of(run: PaymentRun, made: settlement.Settlement) -> ET.Element:
    return ET.fromstring((Path(run.out) / made.payment_file).read_bytes())  # noqa: S314  (ours)


def texts(element: ET.Element, path: str) -> list[str | None]:
    return [found.text for found in element.findall(path, NS)]


def test_the_payment_file_is_a_pain_001_whose_counts_and_sums_hold(run: PaymentRun) -> None:
    document = document_of(run, pay(run))
    header = document.find("p:CstmrCdtTrfInitn/p:GrpHdr", NS)
    blocks = document.findall("p:CstmrCdtTrfInitn/p:PmtInf", NS)

    assert document.tag == "{urn:iso:std:iso:20022:tech:xsd:pain.001.001.09}Document"
    assert all(element.tag.startswith(f"{{{pain.NAMESPACE}}}") for element in document.iter())
    assert header is not None
    assert texts(header, "p:NbOfTxs") == ["4"]
    assert texts(header, "p:CtrlSum") == ["53881.06"]
    for block in blocks:
        amounts = block.findall("p:CdtTrfTxInf/p:Amt/p:InstdAmt", NS)
        assert texts(block, "p:NbOfTxs") == [str(len(amounts))]
        total = sum(Decimal(amount.text or "") for amount in amounts)
        assert texts(block, "p:CtrlSum") == [str(total)]
        assert {amount.get("Ccy") for amount in amounts} == {"EUR"}
    assert sum(len(block.findall("p:CdtTrfTxInf", NS)) for block in blocks) == 4


def test_each_transfer_has_its_creditor_debtor_and_reference(run: PaymentRun) -> None:
    document = document_of(run, pay(run))
    transfer = "p:CstmrCdtTrfInitn/p:PmtInf/p:CdtTrfTxInf"
    debtors = texts(document, "p:CstmrCdtTrfInitn/p:PmtInf/p:DbtrAcct/p:Id/p:IBAN")

    assert set(debtors) == {"DE89370400440532013000"}
    assert dict(
        zip(
            texts(document, f"{transfer}/p:CdtrAcct/p:Id/p:IBAN"),
            texts(document, f"{transfer}/p:RmtInf/p:Ustrd"),
            strict=True,
        )
    ) == {
        "DE91100000000123456789": "NW-2026-0417 customer 20881",
        "NL91ABNA0417164300": "Invoice 2026/11/0093 of 2026-11-10",
        "AT611904300234573201": "AH-10442",
        "LT121000011101001000": "GB-26-1188",
    }


def test_paying_twice_with_one_key_changes_nothing(run: PaymentRun) -> None:
    first = pay(run)
    before = on_disk(run)
    second = pay(run, now=NOW + timedelta(days=1))

    assert first == second
    assert before == on_disk(run)


def test_a_crash_after_the_ledger_is_made_good_with_the_same_bytes(run: PaymentRun) -> None:
    made = pay(run)
    complete = on_disk(run)
    (Path(run.out) / made.payment_file).unlink()
    (Path(run.out) / held.FILE).unlink()
    ledger_only = on_disk(run)
    pay(run, now=NOW + timedelta(hours=1))

    assert complete.keys() - ledger_only.keys() == {made.payment_file, held.FILE}
    assert on_disk(run)[made.payment_file] == complete[made.payment_file]
    assert on_disk(run)[ledger.FILE] == complete[ledger.FILE]
    assert len(held.read(Path(run.out))) == 2


def test_one_of_eight_concurrent_runs_pays_each_invoice(run: PaymentRun) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: pay(run, f"k{number}"), range(8)))
    entries = ledger.read(Path(run.out))
    late = [line for line in held.read(Path(run.out)) if "paid in the meantime" in line.why]

    assert sorted(each.paid for each in made) == [0] * 7 + [4]
    assert len({entry.identity for entry in entries}) == len(entries) == 4
    assert len(late) == 7 * 4
    assert len(list(Path(run.out).glob("pain.001-*.xml"))) == 1


def test_a_key_that_has_paid_refuses_other_payments(run: PaymentRun) -> None:
    rest = run.model_copy(update={"verdicts": run.verdicts[1:]})
    pay(rest)
    before = on_disk(run)

    with pytest.raises(LedgerError, match="NW-2026-0417 was not among them"):
        pay(run)
    assert before == on_disk(run)


def test_a_payment_file_that_somebody_changed_is_not_written_over(run: PaymentRun) -> None:
    path = Path(run.out) / pay(run).payment_file
    path.write_bytes(path.read_bytes().replace(b"1535.55", b"9535.55"))

    with pytest.raises(FileExistsError, match="changed after it was written"):
        pay(run)
    assert b"9535.55" in path.read_bytes()


def test_a_damaged_ledger_stops_the_payment(run: PaymentRun) -> None:
    pay(run)
    path = Path(run.out) / ledger.FILE
    path.write_text(path.read_text("utf-8").replace("2600.00", "?"), "utf-8")

    with pytest.raises(TableError, match=r"ledger\.csv, line 4, is damaged"):
        pay(run, "k2")


def test_a_name_that_looks_like_a_formula_is_text_in_the_spreadsheet(run: PaymentRun) -> None:
    names = ['=HYPERLINK("x")', "'quoted", "+49", "-", "plain"]
    payments = [verdict.payment for verdict in run.verdicts if verdict.payment]
    payments = [
        payments[0].model_copy(update={"payee": name, "invoice": str(number)})
        for number, name in enumerate(names)
    ]
    with files.locked(Path(run.out)):
        ledger.book(Path(run.out), key="k", run_id="r", payments=payments, now=NOW)

    cells = [line.split(",") for line in on_disk(run)[ledger.FILE].decode().splitlines()[1:]]
    assert not [cell for line in cells for cell in line if cell.strip('"')[:1] in tuple("=+-@")]
    assert [entry.payee for entry in ledger.read(Path(run.out))] == names


def test_a_rejected_run_pays_nothing_and_says_why_for_each_file(run: PaymentRun) -> None:
    for _ in range(2):
        settlement.hold_back(run, "rejected:\nwrong month", key="k1", run_id="r", now=NOW)
    lines = {line.file[:2]: line for line in held.read(Path(run.out))}

    assert len(held.read(Path(run.out))) == len(lines) == 6
    assert lines["01"].why == "rejected: wrong month"
    assert lines["04"].amount == "48600.00"
    assert "as well" in lines["05"].why
    assert "cannot be read" in lines["06"].why
    assert set(on_disk(run)) == {".lock", held.FILE}
