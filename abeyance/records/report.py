"""The report of approvals: outcomes of questions, fields that a reader picks, sums, and CSV. Pure."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Context, Decimal
from typing import Any, Final

from pydantic import Field

from abeyance import views
from abeyance.core.json import Json
from abeyance.filters import Outcome
from abeyance.wire import BY_NAME_AND_ALIAS, Record

SHOWN: Final = ("prompt", "reason", "payload", "preview")
"""The shown content that a report has, as long as it is recorded."""
MISSING: Final = object()
"""The value at a path that a document does not have."""
_DECIMAL: Final = re.compile(r"[+-]?\d{1,100}(\.\d{1,100})?", re.ASCII)
"""A number in a text, as decimals are written: it has no exponent, and is not a word (`NaN`)."""
_EXACT: Final = Context(prec=6_000)
"""Enough digits for every number of JSON, and for the sum of as many as a report adds."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""The beginnings of a cell that a spreadsheet may take for a formula."""
_COLUMNS: Final = (
    *("at", "outcome", "by", "on_behalf_of", "voters", "requested_capability", "graph", "run_id"),
    *("id", "name", "prompt", "digest", "answer", "note", "settled_reason", "grant", "asked_at"),
    *("rewound_by", "redacted", "degraded"),
)


class Approval(Record):
    """A row of the report: a question that was settled, or a call under a grant.

    `id` is that of the question, and null for a call. `prompt_values` are the places of values in the
    prompt, which are text even if the prompt is Markdown. `by` answered it on behalf of `on_behalf_of`,
    and `voters` voted, if it took several people. `settled_reason` is the reason for which it was
    withdrawn, also if it was answered and `asked again`. `fields` are the picked fields, null if the
    question lacks one. `redacted`: the answer and its fields are left out, because the reader lacks the
    capability of the question. `degraded`: no key of this process opens the row.
    """

    at: datetime
    outcome: Outcome
    by: str | None = Field(default=None, examples=["ada"])
    on_behalf_of: str | None = None
    voters: list[str] = Field(default_factory=list)
    requested_capability: str | None = Field(default=None, examples=["refunds:approve"])
    graph: views.GraphName
    run_id: views.RunId
    id: str | None = Field(default=None, examples=["refund-4711.b276f6238dab3ba5"])
    name: str = Field(default="", examples=["approve"])
    prompt: str = Field(default="", examples=["Refund 250 for A-17?"])
    prompt_values: list[tuple[int, int]] = Field(default_factory=list)
    digest: str | None = None
    answer: Any = Field(default=None, examples=[True])
    note: str | None = None
    settled_reason: str | None = None
    grant: str | None = None
    asked_at: datetime | None = None
    rewound_by: int | None = None
    redacted: bool = False
    degraded: bool = False
    fields: dict[str, Any] = Field(default_factory=dict, examples=[{"reason.amount": 250}])


class Sum(Record):
    """The sum of a field: exact, as text. `rows` is how many rows had a number there."""

    sum: str
    rows: int


class Approvals(Record):
    """A page of the report on the time from `since` on and before `until`, and its number of rows in all.

    `partial`: labels hide rows from the reader, or a part of a row or a sum cannot be read. `sums` cover
    the whole report, and are only on its first page. `unknown_fields` are fields that no row of the page
    has, and for sums, fields that no added row has.
    """

    model_config = BY_NAME_AND_ALIAS

    items: list[Approval]
    next_cursor: str | None = Field(examples=[None])
    total: int = Field(examples=[1])
    since: datetime = Field(alias="from", examples=["2026-01-01T00:00:00Z"])
    until: datetime = Field(alias="to", examples=["2026-02-01T00:00:00Z"])
    partial: bool = False
    sums: dict[str, Sum] = Field(
        default_factory=dict, examples=[{"reason.amount": {"sum": "250", "rows": 1}}]
    )
    unknown_fields: list[str] = Field(default_factory=list)


def outcome_of(view: views.InterruptView) -> Outcome:
    """Return the outcome of a settled question."""
    answer = view.answer
    said = answer.get("approved") if isinstance(answer, Mapping) else answer
    match view.status:
        case "answered" if view.settled_reason is not None:
            # The question was asked again, so this answer no longer counts.
            return "withdrawn"
        case "answered" if said is True:
            return "approved"
        case "answered" if said is False:
            return "rejected"
        case "answered":
            return "answered"
        case "expired":
            return "expired"
        case _:
            return "withdrawn"


def deciders_of(view: views.InterruptView) -> list[str]:
    """Return the people who answered a question or voted on it, and those they did it for, each once."""
    named = [view.answered_by, view.on_behalf_of]
    for vote in view.votes:
        named += [vote.by, vote.on_behalf_of]
    return [*dict.fromkeys(name for name in named if name)]


def lines(names: Iterable[str]) -> str:
    """Return names as the text of a column, in which a search finds a name between two line breaks."""
    return "".join(f"\n{name}\n" for name in names)


def found_at(document: Json, path: str) -> Any:
    """Return the value of a document at a path (`reason.items.0.amount`), or MISSING."""
    for name in path.split("."):
        match document:
            case dict() if name in document:
                document = document[name]
            case list() if name.isascii() and name.isdecimal() and int(name) < len(document):
                document = document[int(name)]
            case _:
                return MISSING
    return document


class Total:
    """Adds numbers exactly, also those in texts, and passes over everything else."""

    def __init__(self) -> None:
        self._sum = Decimal(0)
        self._rows = 0

    def add(self, value: Any, times: int = 1) -> None:
        """Add a value of JSON, if it is a number, for as many rows as have it."""
        kind = type(value)
        if kind is str:
            if _DECIMAL.fullmatch(value) is None:
                return
        # The shortest text of a float is the text from which it was read.
        elif kind is float:
            value = repr(value)
        elif kind is not int:
            return
        number = Decimal(value)
        if number.is_finite():
            self._sum = _EXACT.add(self._sum, _EXACT.multiply(number, times))
            self._rows += times

    @property
    def shown(self) -> Sum:
        """The sum."""
        return Sum(sum=format(self._sum, "f"), rows=self._rows)


def csv_head(fields: Sequence[str]) -> str:
    """Return the first line of a report as CSV (RFC 4180)."""
    return _csv([[*_COLUMNS, *fields]])


def csv_lines(rows: Iterable[Mapping[str, Any]], fields: Sequence[str]) -> str:
    """Return the lines of rows of JSON. Only numbers may look like a formula to a spreadsheet."""
    return _csv(
        [
            *(_cell(row.get(name)) for name in _COLUMNS),
            *(_cell(row["fields"].get(name)) for name in fields),
        ]
        for row in rows
    )


def _csv(rows: Iterable[Sequence[str]]) -> str:
    written = io.StringIO()
    csv.writer(written).writerows(rows)
    return written.getvalue()


def _cell(value: Any) -> str:
    match value:
        case None | []:
            return ""
        case str():
            is_number = _DECIMAL.fullmatch(value) is not None
            return f"'{value}" if value.startswith(_FORMULA) and not is_number else value
        case list() if all(isinstance(each, str) for each in value):
            return _cell("; ".join(value))
        case _:
            return json.dumps(value, ensure_ascii=False)
