"""The process of `abeyance slack`: it checks what it needs, then posts and answers until it ends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from abeyance.client import Client
from abeyance.contrib.slack.hearing import PATH, Hear, by_requests, over_a_socket
from abeyance.contrib.slack.posting import Posting
from abeyance.contrib.slack.presses import Presses
from abeyance.contrib.slack.web import Away, Slack, SlackFault
from abeyance.errors import SettingsError, Unavailable
from abeyance.notifications.config import (
    InSlack,
    Notifications,
    links_base,
    load_notifications,
    unreachable_links,
)
from abeyance.settings import Settings

_CHECKED_WITHIN: Final = 20.0
_HISTORIES: Final = frozenset({"channels:history", "groups:history", "im:history"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The facts read from Slack: the app's bot and team, and the ids of the channels in the rules."""

    slack: Slack
    file: Notifications
    bot: str
    team: str
    channels: Mapping[str, str]
    warnings: tuple[str, ...]


async def run(settings: Settings, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Post and answer until this is cancelled, or until SIGTERM. Raises SettingsError and Unavailable."""
    found = await examine(settings)
    file = found.file
    for warning in filter(None, [*found.warnings, unreachable_links(file, settings)]):
        announce(f"warning: {warning}")
    client = await Client.connect(settings=settings)
    presses = Presses(client, found.slack, file, team=found.team)
    posting = Posting(
        client,
        found.slack,
        file,
        bot=found.bot,
        channels=found.channels,
        base=links_base(file, settings),
    )
    try:
        async with _heard(settings, found.slack, presses.heard, host, port) as how:
            announce(f"abeyance slack is up: {len(found.channels)} channels, hears {how}")
            working = asyncio.create_task(posting.work())
            with _stopped_by(signal.SIGTERM, working):
                await asyncio.wait({working})
            if not working.cancelled():
                working.result()
            await presses.close()
    except Away as away:
        raise Unavailable(str(away)) from away
    except SlackFault as fault:
        raise SettingsError(str(fault)) from fault


@contextlib.asynccontextmanager
async def _heard(
    settings: Settings, slack: Slack, hear: Hear, host: str, port: int
) -> AsyncIterator[str]:
    if settings.slack_app_token is not None:
        async with over_a_socket(slack, settings.slack_app_token, hear):
            yield "over Socket Mode"
        return
    async with by_requests(settings.slack_signing_secret or "", hear, host, port) as place:
        yield f"at http://{place[0]}:{place[1]}{PATH}"


@contextlib.contextmanager
def _stopped_by(number: signal.Signals, working: asyncio.Task[None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(number, working.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(number)
        working.cancel()


def configured(settings: Settings) -> tuple[Notifications, str]:
    """Return the rules and the bot's token. Raises SettingsError if something is missing."""
    file = load_notifications(settings, delivers=False)
    if file is None:
        raise SettingsError("ABEYANCE_NOTIFICATIONS is not set: name a file with rules for Slack")
    if not any(_targets(file)):
        raise SettingsError(
            f"no rule of {settings.notifications} is for Slack: add a target {{slack: '#channel'}}"
        )
    if settings.slack_bot_token is None:
        raise SettingsError("ABEYANCE_SLACK_BOT_TOKEN is not set: it is the token of the app's bot")
    if settings.slack_app_token is None and settings.slack_signing_secret is None:
        raise SettingsError(
            "this process cannot hear what people press: set ABEYANCE_SLACK_APP_TOKEN for Socket Mode, "
            "or ABEYANCE_SLACK_SIGNING_SECRET for requests"
        )
    return file, settings.slack_bot_token


async def examine(settings: Settings) -> Workspace:
    """Read from Slack the facts for the rules. Raises SettingsError with all faults, and Unavailable."""
    file, token = configured(settings)
    slack = Slack(token, settings.slack_api)
    try:
        async with asyncio.timeout(_CHECKED_WITHIN):
            bot, team = await slack.sign_in()
            faults = list(_lacking(slack, file))
            channels = {} if faults else await _channels(slack, file, faults)
    except TimeoutError as error:
        reason = f"Slack has not answered, or asked to wait, for {_CHECKED_WITHIN:g} s"
        raise Unavailable(reason) from error
    except Away as away:
        raise Unavailable(str(away), retry_after=away.pause) from away
    except SlackFault as fault:
        raise SettingsError(str(fault)) from fault
    if faults:
        raise SettingsError("\n".join(faults))
    warnings = []
    if not slack.scopes & _HISTORIES:
        warnings.append(
            "the app has no scope channels:history (groups:history, im:history), so a crash may post a "
            "question a second time"
        )
    return Workspace(
        slack=slack,
        file=file,
        bot=bot,
        team=team,
        channels=channels,
        warnings=tuple(warnings),
    )


def _targets(file: Notifications) -> Iterator[InSlack]:
    return (each for rule in file.rules for each in rule.to if isinstance(each, InSlack))


def _lacking(slack: Slack, file: Notifications) -> Iterator[str]:
    targets, mails = [*_targets(file)], [each.slack or "" for each in file.people.values()]
    wanted = {"chat:write": True, "channels:read": any(not t.is_for_assignees for t in targets)}
    wanted |= {"im:write": any(target.is_for_assignees for target in targets)}
    wanted |= dict.fromkeys(("users:read", "users:read.email"), any("@" in each for each in mails))
    for scope, is_wanted in wanted.items():
        if is_wanted and scope not in slack.scopes:
            yield (
                f"the app lacks the scope {scope}: add it under 'OAuth & Permissions', and install the "
                "app again"
            )


async def _channels(slack: Slack, file: Notifications, faults: list[str]) -> dict[str, str]:
    """Return the ids of the channels that rules name. Add those that the app cannot use to `faults`."""
    wanted = {target.slack for target in _targets(file) if not target.is_for_assignees}
    kinds = "public_channel,private_channel" if "groups:read" in slack.scopes else "public_channel"
    found = dict[str, str]()
    if wanted:
        options = {"types": kinds, "exclude_archived": "true"}
        async for each in slack.pages("conversations.list", "channels", **options):
            for name in wanted & {f"#{each['name']}", each["id"]}:
                found[name] = str(each["id"])
                if not each.get("is_member", True) and "chat:write.public" not in slack.scopes:
                    faults.append(f"the app is not in {name}: invite it there with /invite")
    faults += [
        f"there is no channel {name}, or the app does not see it: invite it there with /invite, and for "
        "a private channel add the scope groups:read"
        for name in sorted(wanted - found.keys())
    ]
    return found
