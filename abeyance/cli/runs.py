"""Commands that start a run and show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from abeyance.cli.api_call import PANEL, AsJson, RunId, exchange, json_given, run_path
from abeyance.cli.errors import ErrorText, ExitCode, code_of_run
from abeyance.errors import SettingsError, Unavailable

if TYPE_CHECKING:
    from abeyance.cli.formatting import Line
    from abeyance.http import Connection


calls = typer.Typer()

_POLL: Final = "PT30S"


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def run(
    graph: Annotated[str, typer.Argument(metavar="GRAPH", help="The name of a graph.")],
    *,
    input_: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="JSON|@FILE|-",
            help="Input of the run: JSON, a file, or - for stdin.",
        ),
    ] = "{}",
    run_id: Annotated[
        str | None, typer.Option(help="Id of the run; starting the same run again changes nothing.")
    ] = None,
    conversation: Annotated[
        str | None, typer.Option(help="Conversation of the run.", show_default=False)
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Label of the run. Repeat it for several."),
    ] = None,
    interrupt_before: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="Ask before this node. Repeat it for several."),
    ] = None,
    interrupt_after: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="Ask after this node. Repeat it for several."),
    ] = None,
    on_error: Annotated[
        str | None,
        typer.Option(help="What a failing node does: fail or interrupt.", show_default=False),
    ] = None,
    allow_concurrent: Annotated[
        bool,
        typer.Option(
            "--allow-concurrent", help="Start even if the conversation has an active run."
        ),
    ] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until the run ends, needs an answer, or is blocked."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start a run of GRAPH.

    With --wait the exit code is 1 if the run ends with another status than completed, and 5 if it is
    blocked: it continues by itself once that is fixed.
    """
    body: dict[str, Any] = {"graph": graph, "input": json_given(input_, "--input")}
    if run_id is not None:
        body["run_id"] = run_id
    if conversation is not None:
        body["conversation_id"] = conversation
    if label:
        body["labels"] = dict(_label(text) for text in label)

    given = {
        "interrupt_before": interrupt_before,
        "interrupt_after": interrupt_after,
        "on_error": on_error,
        "allow_concurrent": allow_concurrent,
    }
    body |= {name: value for name, value in given.items() if value}

    async def start(api: Connection) -> Any:
        view = await api.post("/runs", body)
        started = view["run_id"]
        try:
            while wait and _is_busy(view):
                path = f"/runs/{started}"
                view = await api.get(path, wait=_POLL, until="awaiting-input,blocked")
        except Unavailable as error:
            # Repeating the command without an id would start another run.
            raise Unavailable(
                f"{error}; the run {started} was started and continues: `abeyance watch {started}`"
            ) from error
        return view

    view = exchange(start, _run_lines, as_json=as_json)
    if wait and view.get("ended_at") is None and view.get("blocked"):
        raise typer.Exit(ExitCode.BLOCKED)
    if wait and view["status"] != "awaiting-input":
        raise typer.Exit(code_of_run(view["status"]))


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def show(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show the status of a run, its open questions, and how to answer them."""
    path = run_path(run_id)
    exchange(lambda api: api.get(path), _run_lines, as_json=as_json)


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def interrupts(
    run_id: RunId,
    *,
    status: Annotated[
        str, typer.Option(help="open, held, answered, expired, cancelled, superseded or all.")
    ] = "open",
    as_json: AsJson = False,
) -> None:
    """List the interrupts of a run."""
    path = f"{run_path(run_id)}/interrupts"

    def lines(listed: Any) -> list[Line]:
        from abeyance.cli.formatting import Line, interrupt_lines

        return interrupt_lines(listed["items"]) or [Line("interrupts", f"no {status} interrupts")]

    exchange(lambda api: api.get(path, status=status), lines, as_json=as_json)


def _run_lines(view: Any) -> list[Line]:
    from abeyance.cli.formatting import run_lines

    return run_lines(view)


def _is_busy(view: Mapping[str, Any]) -> bool:
    return (
        view.get("ended_at") is None
        and view["status"] != "awaiting-input"
        and not view.get("blocked")
    )


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise SettingsError(f"--label: {text!r} is not a label: write name=value")
    return name, value
