"""Commands about who answers: claim, release, reassign, and delegations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from abeyance.cli.api_call import PANEL, AsJson, exchange, interrupt_path, moment_given
from abeyance.cli.errors import ErrorText

if TYPE_CHECKING:
    from abeyance.cli.formatting import Line
    from abeyance.http import Connection

people = typer.Typer()

OpenInterrupt = Annotated[
    str, typer.Argument(metavar="INTERRUPT", help="The id of an open interrupt.")
]


@people.command(cls=ErrorText, rich_help_panel=PANEL)
def claim(
    interrupt_id: OpenInterrupt,
    *,
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="How long. [default: 30m; at most 1d]"),
    ] = None,
    on_behalf_of: Annotated[
        str | None, typer.Option(help="In whose place, by a delegation.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Keep a question for yourself, so that nobody else answers it meanwhile."""
    body = {"for": for_, "on_behalf_of": on_behalf_of}
    _change(interrupt_id, "claim", body, as_json=as_json)


@people.command(cls=ErrorText, rich_help_panel=PANEL)
def release(interrupt_id: OpenInterrupt, *, as_json: AsJson = False) -> None:
    """End a claim before its time."""
    _change(interrupt_id, "release", {}, as_json=as_json)


@people.command(cls=ErrorText, rich_help_panel=PANEL)
def reassign(
    interrupt_id: OpenInterrupt,
    to: Annotated[
        list[str], typer.Argument(metavar="TO", help="Subjects, and groups as group:finance.")
    ],
    *,
    note: Annotated[
        str | None, typer.Option(help="Why, recorded with it.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replace whom a question is for. A claim ends."""
    _change(interrupt_id, "reassign", {"to": to, "note": note}, as_json=as_json)


@people.command(cls=ErrorText, rich_help_panel=PANEL)
def delegate(
    to: Annotated[str, typer.Argument(metavar="TO", help="Who may answer in your place.")],
    until: Annotated[
        str,
        typer.Argument(metavar="TIME|DURATION", help="Until when: at most 90 days from now."),
    ],
    *,
    capability: Annotated[
        list[str] | None,
        typer.Option(
            help="A capability that is lent. Repeat it for several. Default: all that you have.",
            show_default=False,
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME|DURATION", help="From when.", show_default=False),
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Let somebody else answer in your place."""
    about = {"to": to, "until": moment_given(until), "capabilities": capability, "reason": reason}
    body = _given({**about, "from": from_ and moment_given(from_)})
    exchange(lambda api: api.post("/delegations", body), _made, as_json=as_json)


@people.command(cls=ErrorText, rich_help_panel=PANEL)
def delegations(
    *,
    delete: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Delete this one instead.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the delegations that you made or may use, or delete one."""

    async def call(api: Connection) -> Any:
        if delete is not None:
            await api.delete(f"/delegations/{quote(delete, safe='')}")
        return await api.get("/delegations")

    exchange(call, _listed, as_json=as_json)


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value}


def _change(interrupt_id: str, what: str, body: Mapping[str, Any], *, as_json: bool) -> None:
    def lines(entry: Any) -> list[Line]:
        from abeyance.cli.formatting import interrupt_lines

        return interrupt_lines([entry])

    path = f"{interrupt_path(interrupt_id)}/{what}"
    exchange(lambda api: api.post(path, _given(body)), lines, as_json=as_json)


def _made(entry: Mapping[str, Any]) -> list[Line]:
    from abeyance.cli.formatting import Line

    lent = entry["capabilities"]
    what = "all that questions ask for" if lent is None else ", ".join(lent) or "no capability"
    lines = [
        Line("delegation", f"{entry['id']}: {entry['to']} for {entry['by']}"),
        Line("", f"from {entry['from']} until {entry['until']}"),
        Line("", f"lends {what}"),
    ]
    return lines if not entry["reason"] else [*lines, Line("", str(entry["reason"]))]


def _listed(page: Mapping[str, Any]) -> list[Line]:
    from abeyance.cli.formatting import Line

    lines = [line for entry in page["items"] for line in _made(entry)]
    return lines or [Line("delegations", "none")]
