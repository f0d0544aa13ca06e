"""`abeyance slack`: questions in Slack."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from abeyance.cli.errors import ErrorText, print_error
from abeyance.errors import SettingsError

if TYPE_CHECKING:
    from abeyance.settings import Settings

slack_commands = typer.Typer()


@slack_commands.command(cls=ErrorText, rich_help_panel="Processes")
def slack(
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen on for signed requests.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port for them; 0 picks a free one.")
    ] = 8010,
) -> None:
    """Post questions in Slack by the rules for notifications, and take the answers pressed there.

    Hears over Socket Mode with ABEYANCE_SLACK_APP_TOKEN, else by requests that Slack signs with
    ABEYANCE_SLACK_SIGNING_SECRET. Needs no graphs. Several may run; one of them posts.
    """
    from abeyance.settings import load_settings
    from abeyance.tracing import log_to_stderr

    settings = load_settings()
    _need_library()
    from abeyance.contrib.slack.process import run

    log_to_stderr()
    asyncio.run(run(settings, host, port, _announce))


async def found_of_slack(settings: Settings) -> tuple[str, str | None]:
    """Return the facts that `abeyance slack` would find, and a warning. Raises SettingsError and
    Unavailable.
    """
    _need_library()
    from abeyance.contrib.slack.process import examine

    found = await examine(settings)
    channels = ", ".join(sorted(found.channels)) or "only those who are asked"
    return f"the app may post ({channels})", "; ".join(found.warnings) or None


def _announce(text: str) -> None:
    if text.startswith("warning"):
        print_error(text)
    else:
        typer.echo(text)


def _need_library() -> None:
    if find_spec("slack_sdk") is None:
        raise SettingsError("slack-sdk is not installed: pip install 'abeyance[slack]'")
