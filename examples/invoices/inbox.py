"""What a payment run is given: a folder with the company's account, its suppliers and invoices."""

from __future__ import annotations

import csv
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from examples.invoices import iban, ubl

COMPANY = "company.toml"
SUPPLIERS = "suppliers.csv"
_MAX_BYTES = 5_000_000  # a real invoice has some ten thousand; more is a mistake or an attack

_VatId = Annotated[str, BeforeValidator(iban.normalise), Field(min_length=4, max_length=20)]


class InputError(ValueError):
    """The folder, the company or the suppliers cannot be used; the text says what to put right."""


class Company(BaseModel):
    """Who pays, and from which account. The payment file is a SEPA transfer, hence euro only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    vat_id: _VatId
    iban: iban.Iban
    bic: str | None = Field(default=None, pattern=r"^[A-Z0-9]{4}[A-Z]{2}[A-Z0-9]{2}([A-Z0-9]{3})?$")
    currency: Literal["EUR"] = "EUR"


class Supplier(BaseModel):
    """One line of the supplier master file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    vat_id: _VatId
    name: str = Field(min_length=1)
    iban: iban.Iban
    terms_days: int = Field(ge=0, le=365)
    """Days until payment, for an invoice that names no due date."""
    approval_limit: Decimal = Field(ge=0)
    """An invoice above this amount, in the company's currency, needs a person."""


class Unreadable(BaseModel):
    """A file that is not a readable invoice, and why."""

    model_config = ConfigDict(frozen=True)

    file: str
    reason: str


def read_company(folder: Path) -> Company:
    """Read the company's account from `company.toml`.

    Raises:
        InputError: the folder or the file is not there, or a value in it is wrong.
    """
    path = _existing(folder, COMPANY)
    try:
        return Company.model_validate(tomllib.loads(path.read_text("utf-8")))
    except ValidationError as error:
        raise InputError(f"{path}: {_in_words(error)}") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise InputError(f"{path} is not a TOML file in UTF-8: {error}") from error


def read_suppliers(folder: Path) -> dict[str, Supplier]:
    """Read the supplier master file, `suppliers.csv`, by VAT id.

    Raises:
        InputError: the folder or the file is not there, or a line of it is wrong.
    """
    path = _existing(folder, SUPPLIERS)
    columns = list(Supplier.model_fields)
    suppliers: dict[str, Supplier] = {}
    # utf-8-sig, because spreadsheets like to begin a file with a byte order mark.
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        try:
            if reader.fieldnames != columns:
                raise InputError(
                    f"{path}: its first line is {','.join(reader.fieldnames or [])!r} "
                    f"and must be {','.join(columns)!r}"
                )
            for row in reader:
                supplier = Supplier.model_validate(row)
                if supplier.vat_id in suppliers:
                    raise InputError(
                        f"{path}, line {reader.line_num}: {supplier.vat_id} is in the file twice; "
                        f"keep the line with the right account"
                    )
                suppliers[supplier.vat_id] = supplier
        except ValidationError as error:
            raise InputError(f"{path}, line {reader.line_num}: {_in_words(error)}") from error
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{path} is not a CSV file in UTF-8: {error}") from error
    return suppliers


def read_invoices(folder: Path) -> tuple[list[ubl.Invoice], list[Unreadable]]:
    """Read every file of the folder, in order of its name, as an invoice.

    The company's and the suppliers' file, hidden files and folders are no invoices. Any other file
    is either in the first list or, with the reason, in the second.

    Raises:
        InputError: the folder is not there.
    """
    _require_folder(folder)
    invoices: list[ubl.Invoice] = []
    unreadable: list[Unreadable] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir() or path.name.startswith(".") or path.name in {COMPANY, SUPPLIERS}:
            continue
        # A name that is not UTF-8 could not be written into JSON.
        name = path.name.encode("utf-8", "backslashreplace").decode("utf-8")
        try:
            invoices.append(ubl.parse(_content(path), file=name))
        except ubl.UnreadableInvoice as error:
            unreadable.append(Unreadable(file=name, reason=str(error)))
    return invoices, unreadable


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ubl.UnreadableInvoice(f"it cannot be opened: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise ubl.UnreadableInvoice(f"it is larger than {_MAX_BYTES:,} bytes")
    return data


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise InputError(f"{str(folder)!r} is not a folder; name one that holds the invoices")


def _existing(folder: Path, name: str) -> Path:
    _require_folder(folder)
    path = folder / name
    if not path.is_file():
        raise InputError(f"{name} is missing in the folder {str(folder)!r}; put it there")
    return path


def _in_words(error: ValidationError) -> str:
    faults = error.errors(include_url=False)
    return "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults)
