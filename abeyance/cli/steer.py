"""Commands on the mailbox of a run: send a message or a directive, list the unread ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abeyance.cli.api_call import PANEL, AsJson, RunId, exchange, json_given, run_path
from abeyance.cli.errors import ErrorText
from abeyance.errors import SettingsError

if TYPE_CHECKING:
    from abeyance.cli.formatting import Line
    from abeyance.http import Connection

steering = typer.Typer()


@steering.command(cls=ErrorText, rich_help_panel=PANEL)
def steer(
    run_id: RunId,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="Text of the message.", show_default=False)
    ] = None,
    *,
    action: Annotated[
        str | None,
        typer.Option(
            help="continue, rerun, go_back, skip, pause, defer, update_state, or an action of the graph.",
            show_default=False,
        ),
    ] = None,
    params: Annotated[
        str | None,
        typer.Option(metavar="JSON|@FILE|-", help="Parameters of the action.", show_default=False),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Node or address that receives it.", show_default=False),
    ] = None,
    priority: Annotated[
        str | None, typer.Option(help="high, normal or low.", show_default=False)
    ] = None,
    ttl: Annotated[
        str | None,
        typer.Option(help="Discard it if it is unread after this time, such as 30s or 5m."),
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option(metavar="JSON|@FILE|-", help="Metadata of the message.", show_default=False),
    ] = None,
    id_: Annotated[
        str | None,
        typer.Option("--id", help="Id of the message; sending the same id again changes nothing."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send a message to a run, or a directive that the run carries out at its next step.

    A message that cannot be delivered is listed under `undelivered` of the run, and one that the run
    refuses under `rejected`.
    """
    if text is None and action is None:
        raise SettingsError(
            'a message has no text: add one, or an --action: abeyance steer RUN "look at page 2"'
        )
    body: dict[str, Any] = {
        "text": text,
        "action": action,
        "target": target,
        "priority": priority,
        "ttl": ttl,
        "message_id": id_,
        "params": None if params is None else json_given(params, "--params"),
        "metadata": None if metadata is None else json_given(metadata, "--metadata"),
    }
    members = {name: value for name, value in body.items() if value is not None}
    path = f"{run_path(run_id)}/steer"
    exchange(
        lambda api: api.post(path, members), lambda sent: _sent_lines(sent, action), as_json=as_json
    )


@steering.command(cls=ErrorText, rich_help_panel=PANEL)
def messages(
    run_id: RunId,
    *,
    clear: Annotated[
        bool, typer.Option("--clear", help="Discard them; the run lists them as undelivered.")
    ] = False,
    page: Annotated[int, typer.Option(min=1, help="Page number; a page has 50 messages.")] = 1,
    as_json: AsJson = False,
) -> None:
    """List the unread messages of a run, in reading order."""
    path = f"{run_path(run_id)}/messages"

    async def call(api: Connection) -> Any:
        return await (api.delete(path) if clear else api.get(path, page=str(page)))

    exchange(call, _cleared_lines if clear else _page_lines, as_json=as_json)


def _sent_lines(sent: Mapping[str, Any], action: str | None) -> Iterator[Line]:
    from abeyance.cli.formatting import Line
    from abeyance.core.messages import DIRECTIVES

    yield Line("sent", sent["message_id"])
    if action is not None and action not in DIRECTIVES:
        yield Line("note", f"{action!r} is not a directive: only code that reads messages sees it")


def _cleared_lines(cleared: Mapping[str, Any]) -> Iterator[Line]:
    from abeyance.cli.formatting import Line

    yield Line("cleared", str(cleared["cleared"]))


def _page_lines(page: Mapping[str, Any]) -> Iterator[Line]:
    from abeyance.cli.formatting import Line

    for entry in page["items"]:
        about = [f"from {entry['sender']}"]
        for name in ("action", "target"):
            about += [f"{name} {entry[name]}"] if entry[name] else []
        about += [entry["priority"]] if entry["priority"] != "normal" else []
        about += [f"until {entry['expires_at']}"] if entry["expires_at"] else []
        yield Line("message", entry["text"] or "(no text)")
        yield Line("", f"{entry['message_id']}  {', '.join(about)}")
    pages = -(-page["total"] // page["page_size"])
    of_pages = f", page {page['page']} of {pages}" if pages > 1 else ""
    yield Line("unread", f"{page['total']}{of_pages}")
