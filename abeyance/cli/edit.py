"""The commands that change a run that has stopped: its values, and the deadlines of what it asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from abeyance.cli.api_call import (
    PANEL,
    AsJson,
    RunId,
    exchange,
    interrupt_path,
    json_given,
    run_path,
)
from abeyance.cli.errors import ErrorText
from abeyance.errors import SettingsError

if TYPE_CHECKING:
    from abeyance.cli.formatting import Line
    from abeyance.http import Connection

revision = typer.Typer()

_NEVER = "none"


@revision.command(cls=ErrorText, rich_help_panel=PANEL)
def deadline(
    interrupt_id: Annotated[
        str,
        typer.Argument(
            metavar="INTERRUPT", help="The id of an open interrupt.", show_default=False
        ),
    ],
    when: Annotated[
        str | None,
        typer.Argument(
            metavar="[TIME|DURATION|none]",
            help="2026-03-05T09:00Z, or 2d from now, or none at all.",
            show_default=False,
        ),
    ] = None,
    *,
    on_timeout: Annotated[
        str | None, typer.Option(help="What then: halt or goto:<node>.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Move the deadline of an interrupt, or change what happens then."""
    from abeyance.duration import seconds

    body: dict[str, Any] = {}
    if when == _NEVER:
        body["deadline"] = None
    elif when is not None:
        try:
            seconds(when)
        except ValueError:
            body["deadline"] = when
        else:
            body["timeout"] = when
    if on_timeout is not None:
        body["on_timeout"] = on_timeout
    if not body:
        raise SettingsError("there is nothing to change: give a time, or --on-timeout")
    path = interrupt_path(interrupt_id)

    def lines(entry: Any) -> list[Line]:
        from abeyance.cli.formatting import interrupt_lines

        return interrupt_lines([entry])

    exchange(lambda api: api.patch(path, body), lines, as_json=as_json)


@revision.command(cls=ErrorText, rich_help_panel=PANEL)
def edit(
    run_id: RunId,
    fields: Annotated[
        list[str],
        typer.Argument(
            metavar="FIELD=JSON...", help="Fields and their new values.", show_default=False
        ),
    ],
    *,
    version: Annotated[
        int | None,
        typer.Option(
            help="Only if the values are still as they were then; without it, as they are now.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set values of a run that is paused, or waits."""
    patch = dict(_field(text) for text in fields)
    path = run_path(run_id)

    async def change(api: Connection) -> Any:
        read = version if version is not None else (await api.get(path))["version"]
        return await api.patch(f"{path}/values", {"patch": patch, "version": read})

    def lines(view: Any) -> list[Line]:
        import json

        from abeyance.cli.formatting import Line, run_lines

        if "values" not in view:
            return run_lines(view)
        values = {name: json.dumps(view["values"].get(name), ensure_ascii=False) for name in patch}
        told = "\n".join(f"{name} = {value}" for name, value in values.items())
        return [Line("run", run_id), Line("set", told), Line("version", str(view["version"]))]

    exchange(change, lines, as_json=as_json)


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise SettingsError(f"{text!r} is no field and its value: write name=JSON")
    return name, json_given(value, name)
