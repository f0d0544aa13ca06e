"""The commands about all active runs of a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abeyance.cli.api_call import AsJson, Now, Reason, exchange
from abeyance.cli.errors import ErrorText

if TYPE_CHECKING:
    from abeyance.cli.formatting import Line

conversing = typer.Typer(help="Control all active runs of a conversation.", no_args_is_help=True)

Conversation = Annotated[
    str,
    typer.Argument(metavar="CONVERSATION", help="The id of a conversation.", show_default=False),
]


@conversing.command(cls=ErrorText)
def interrupt(
    conversation: Conversation,
    *,
    now: Now = False,
    reason: Reason = None,
    as_json: AsJson = False,
) -> None:
    """Cancel every active run."""
    body = {"reason": reason, "mode": "now" if now else "graceful"}
    _reach(conversation, "interrupt", body, as_json=as_json)


@conversing.command(cls=ErrorText)
def steer(
    conversation: Conversation,
    text: Annotated[str, typer.Argument(help="What to tell the agent.", show_default=False)],
    *,
    message_id: Annotated[
        str | None,
        typer.Option(help="Its own id; to send the same again changes nothing."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell the one active run of an agent something, which it reads at its next turn."""
    _reach(conversation, "steer", {"text": text, "message_id": message_id}, as_json=as_json)


@conversing.command(cls=ErrorText)
def pause(
    conversation: Conversation,
    *,
    reason: Reason = None,
    timeout: Annotated[
        str | None, typer.Option(help="How long at most, as 30s, 5m, 2h, 2d or PT5M.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let the active runs start nothing new until they are resumed."""
    _reach(conversation, "pause", {"reason": reason, "timeout": timeout}, as_json=as_json)


@conversing.command(cls=ErrorText)
def resume(conversation: Conversation, *, reason: Reason = None, as_json: AsJson = False) -> None:
    """Let the active runs go on."""
    _reach(conversation, "resume", {"reason": reason}, as_json=as_json)


def _reach(conversation: str, operation: str, body: Mapping[str, Any], *, as_json: bool) -> None:
    from abeyance.http.client import conversation_path

    path = f"{conversation_path(conversation)}/{operation}"
    given = {name: value for name, value in body.items() if value is not None}

    def lines(told: Any) -> list[Line]:
        from abeyance.cli.formatting import Line

        reached = [Line(operation, run_id) for run_id in told["runs"]]
        return reached or [Line(operation, "no run of the conversation is active")]

    exchange(lambda api: api.post(path, given), lines, as_json=as_json)
