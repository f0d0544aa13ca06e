"""The command that reports what was settled in a time, by whom, and what it adds up to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from abeyance.cli.api_call import PANEL, AsJson, Graph, with_api
from abeyance.cli.errors import ErrorText, print_error
from abeyance.cli.formatting import Line, short_time, show, show_table
from abeyance.errors import SettingsError
from abeyance.util import without_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from abeyance.http import Connection

reporting = typer.Typer()

_PAGE: Final = 50


@reporting.command(cls=ErrorText, rich_help_panel=PANEL)
def approvals(
    *,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Only what was settled then or later. Default: 30 days before --to.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="Only what was settled before. Default: now."),
    ] = None,
    person: Annotated[
        str | None,
        typer.Option(help="Only what they answered or voted on, or what was answered for them."),
    ] = None,
    capability: Annotated[
        list[str] | None,
        typer.Option(
            help="Only questions that require this capability, or with 'refunds:*' one that begins so. "
            "Repeat it for several."
        ),
    ] = None,
    graph: Graph = None,
    outcome: Annotated[
        list[str] | None,
        typer.Option(
            help="approved, rejected, answered, expired, withdrawn or granted. Repeat it for several."
        ),
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            help="Also show this field, such as reason.amount or answer.amount. Repeat it for several."
        ),
    ] = None,
    sums: Annotated[
        list[str] | None,
        typer.Option(
            "--sum", help="Add up this field over the whole report. Repeat it for several."
        ),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all rows as CSV.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows.")] = _PAGE,
    cursor: Annotated[
        str | None, typer.Option(help="Continue a report from its next_cursor.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Show all rows.")] = False,
    as_json: AsJson = False,
) -> None:
    """Report what was settled in a time, newest first: who approved what, and when.

    --sum adds exactly, at most 150,000 rows. --csv has all rows of the time.
    """
    if as_csv and as_json:
        raise SettingsError("--csv and --json: give one of them")
    given = {"from": since, "to": until, "person": person, "capability": capability}
    given |= {"graph": graph, "outcome": outcome, "fields": fields, "sum": sums, "cursor": cursor}
    most = None if as_csv or all_ else limit
    report = with_api(lambda api: _read(api, without_none(**given), most))
    picked = _names(fields or ())
    if as_json:
        typer.echo(json.dumps(report))
        return
    if as_csv:
        _print_csv(report, picked)
    else:
        _print(report, picked)
    if report["partial"]:
        print_error(
            "the report is not whole: your labels hide rows, or you may not read something of it"
        )
    if report["unknown_fields"]:
        print_error(f"no row has {', '.join(report['unknown_fields'])}")


async def _read(api: Connection, query: dict[str, Any], most: int | None) -> dict[str, Any]:
    """Return the pages of the report up to the limit, as one."""
    picked = {*_names(query.get("fields", ()))}
    pages = [page async for page in api.pages("/approvals", most, **query)]
    first, last = pages[0], pages[-1]
    # Only the first page tells about fields that are only summed.
    unknown = {*first["unknown_fields"]} - picked
    unknown |= picked.intersection(*(page["unknown_fields"] for page in pages))
    return {
        **first,
        "items": [item for page in pages for item in page["items"]],
        "next_cursor": last["next_cursor"],
        "partial": any(page["partial"] for page in pages),
        "unknown_fields": sorted(unknown),
    }


def _names(fields: Iterable[str]) -> list[str]:
    """Return the fields as the report names them: they may be written in one text, after commas."""
    return [name.strip() for each in fields for name in each.split(",")]


def _print_csv(report: Mapping[str, Any], fields: list[str]) -> None:
    from abeyance.records.report import csv_head, csv_lines

    # Its line breaks are those of CSV.
    text = csv_head(fields) + csv_lines(report["items"], fields)
    typer.echo(text.encode(), nl=False)
    for line in _sums(report):
        print_error(f"{line.label} {line.text}")


def _print(report: Mapping[str, Any], fields: list[str]) -> None:
    heads = ("WHEN", "OUTCOME", "BY", "RUN", "QUESTION", *(name.upper() for name in fields))
    if rows := [row_cells(row, fields) for row in report["items"]]:
        show_table(heads, rows)
    show([Line("rows", str(report["total"])), *_sums(report)])
    if report["next_cursor"]:
        print_error(f"there are more rows: add --all, or --cursor {report['next_cursor']}")


def row_cells(row: Mapping[str, Any], fields: list[str]) -> tuple[str, ...]:
    """Return the texts of a row of the report."""
    others = [each for each in row["voters"] if each != row["by"]]
    by = row["by"] or "-"
    principal = "" if row["on_behalf_of"] is None else f" for {row['on_behalf_of']}"
    return (
        short_time(row["at"]),
        row["outcome"] if row["rewound_by"] is None else f"{row['outcome']}, rewound since",
        f"{by}{principal}{' with ' if others else ''}{', '.join(others)}",
        row["run_id"],
        row["name"],
        *(_shown(row["fields"][name]) for name in fields),
    )


def _sums(report: Mapping[str, Any]) -> Iterator[Line]:
    for name, added in report["sums"].items():
        rows = f"{added['rows']} row{'' if added['rows'] == 1 else 's'}"
        yield Line("sum", f"of {name}: {added['sum']} in {rows}")


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
