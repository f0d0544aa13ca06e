"""Commands that control a run, show its result, and edit it and its open questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from abeyance.cli.api_call import (
    PANEL,
    AsJson,
    Now,
    Reason,
    RunId,
    exchange,
    interrupt_path,
    json_given,
    run_path,
)
from abeyance.cli.errors import ErrorText, code_of_run
from abeyance.errors import SettingsError

if TYPE_CHECKING:
    from abeyance.cli.formatting import Line
    from abeyance.http import Connection

controlling = typer.Typer()

_SHORTLY: Final = "PT2S"
"""How long a control command waits for its effect; with a running worker it takes less."""
_NEVER: Final = "none"


@controlling.command(cls=ErrorText, rich_help_panel=PANEL)
def pause(
    run_id: RunId,
    *,
    reason: Reason = None,
    mode: Annotated[
        str, typer.Option(help="after-node lets running nodes finish, now stops them.")
    ] = "after-node",
    timeout: Annotated[
        str | None,
        typer.Option(help="Maximum length of the pause, such as 30s, 5m, 2h, 2d or PT5M."),
    ] = None,
    on_timeout: Annotated[
        str | None, typer.Option(help="Action at the timeout: resume, halt or goto:<node>.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Pause a run: it starts no new work until resumed."""
    body = {"reason": reason, "mode": mode, "timeout": timeout, "on_timeout": on_timeout}
    _control(run_id, "pause", body, as_json=as_json)


@controlling.command(cls=ErrorText, rich_help_panel=PANEL)
def resume(run_id: RunId, *, reason: Reason = None, as_json: AsJson = False) -> None:
    """Resume a paused run."""
    _control(run_id, "resume", {"reason": reason}, as_json=as_json)


@controlling.command(cls=ErrorText, rich_help_panel=PANEL)
def cancel(
    run_id: RunId,
    *,
    now: Now = False,
    grace: Annotated[
        str | None, typer.Option(help="How long running nodes may take to stop, such as 30s or 5m.")
    ] = None,
    reason: Reason = None,
    as_json: AsJson = False,
) -> None:
    """Cancel a run. Its values and finished work are kept."""
    body = {"reason": reason, "mode": "now" if now else "graceful", "grace": grace}
    _control(run_id, "cancel", body, as_json=as_json)


@controlling.command(cls=ErrorText, rich_help_panel=PANEL)
def result(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show the outcome and the values of an ended run.

    The exit code is 1 if the outcome is not completed.
    """
    path = f"{run_path(run_id)}/result"

    def lines(record: Any) -> list[Line]:
        from abeyance.cli.formatting import result_lines

        return result_lines(record)

    record = exchange(lambda api: api.get(path), lines, as_json=as_json)
    raise typer.Exit(code_of_run(record["outcome"]))


@controlling.command(cls=ErrorText, rich_help_panel=PANEL)
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
            help="2026-03-05T09:00Z, 2d (from now), 2bd (of the question's calendar), or none.",
            show_default=False,
        ),
    ] = None,
    *,
    on_timeout: Annotated[
        str | None,
        typer.Option(help="Action at the deadline: halt or goto:<node>.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change the deadline of an interrupt, or the action at the deadline."""
    from abeyance.duration import span

    body: dict[str, Any] = {}
    if when == _NEVER:
        body["deadline"] = None
    elif when is not None:
        try:
            span(when)
        except ValueError:
            body["deadline"] = when
        else:
            body["timeout"] = when
    if on_timeout is not None:
        body["on_timeout"] = on_timeout
    if not body:
        raise SettingsError("nothing is to be changed: add a time, or --on-timeout")
    path = interrupt_path(interrupt_id)

    def lines(entry: Any) -> list[Line]:
        from abeyance.cli.formatting import interrupt_lines

        return interrupt_lines([entry])

    exchange(lambda api: api.patch(path, body), lines, as_json=as_json)


@controlling.command(cls=ErrorText, rich_help_panel=PANEL)
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
            help="Edit only if the values are still at this version. Default: the current one.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set values of a run that is paused or waits for an answer."""
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
        text = "\n".join(f"{name} = {value}" for name, value in values.items())
        return [Line("run", run_id), Line("set", text), Line("version", str(view["version"]))]

    exchange(change, lines, as_json=as_json)


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise SettingsError(f"{text!r} is not a field with its value: write name=JSON")
    return name, json_given(value, name)


@controlling.command("take-back", cls=ErrorText, rich_help_panel=PANEL)
def take_back(
    interrupt_id: Annotated[
        str,
        typer.Argument(metavar="INTERRUPT", help="The id of a held interrupt.", show_default=False),
    ],
    *,
    note: Annotated[
        str | None, typer.Option(help="Why, recorded with it.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take back a yes while it is held, so that its question is open again."""
    body = {} if note is None else {"note": note}
    path = f"{interrupt_path(interrupt_id)}/take-back"

    def lines(entry: Any) -> list[Line]:
        from abeyance.cli.formatting import interrupt_lines

        return interrupt_lines([entry])

    exchange(lambda api: api.post(path, body), lines, as_json=as_json)


def _control(run_id: str, operation: str, body: Mapping[str, Any], *, as_json: bool) -> None:
    path = f"{run_path(run_id)}/{operation}"
    members = {name: value for name, value in body.items() if value is not None}

    def lines(view: Any) -> list[Line]:
        from abeyance.cli.formatting import run_lines

        return run_lines(view)

    exchange(lambda api: api.post(path, members, wait=_SHORTLY), lines, as_json=as_json)
