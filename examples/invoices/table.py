"""A CSV file of typed lines, each of which carries the key of the visit that wrote it.

People open such a file in a spreadsheet, and a spreadsheet runs a cell that begins like a formula.
Names and numbers come from invoices that anybody may have written, so such a cell is written with
an apostrophe before it, which a spreadsheet takes as "this is text" and `read` takes off again.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from examples.invoices import files


class Line(BaseModel):
    """What every line has: which visit of which run wrote it."""

    model_config = ConfigDict(frozen=True)

    key: str
    """The visit's idempotency key: it writes once, however often it is tried."""
    run_id: str


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")

AnyLine = TypeVar("AnyLine", bound=Line)


class TableError(ValueError):
    """A CSV file is not what was once written; the text names the line and what to do."""


def read(path: Path, kind: type[AnyLine]) -> list[AnyLine]:
    """Read all lines; a file that is not there has none.

    Raises:
        TableError: a line or the header is damaged. Nothing is skipped: who reads less of a ledger
            than was written pays twice.
    """
    if not path.exists():
        return []
    lines = []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        try:
            if reader.fieldnames != list(kind.model_fields):
                raise TableError(f"{path} has the columns {reader.fieldnames}; restore the file")
            for row in reader:
                lines.append(kind.model_validate(_unquoted(row)))  # noqa: PERF401  (the error needs line_num)
        except (ValidationError, csv.Error, UnicodeDecodeError) as error:
            raise TableError(
                f"{path}, line {reader.line_num}, is damaged; restore the file: {error}"
            ) from error
    return lines


def write(path: Path, kind: type[AnyLine], lines: Sequence[AnyLine]) -> None:
    """Replace the whole file; the caller holds the folder's lock."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(kind.model_fields), lineterminator="\n")
    writer.writeheader()
    writer.writerows(_quoted(line.model_dump(mode="json")) for line in lines)
    files.replace(path, text.getvalue().encode("utf-8"))


def _quoted(row: Mapping[str, object]) -> dict[str, object]:
    return {
        name: f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
        for name, cell in row.items()
    }


def _unquoted(row: Mapping[str, str | None]) -> dict[str, str | None]:
    # A line that is too long or too short has cells that are no text; the model refuses them.
    return {
        name: cell.removeprefix("'") if isinstance(cell, str) else cell
        for name, cell in row.items()
    }
