"""Slack's Web API: calls that say whether they may be repeated, and faults in one line each."""

from __future__ import annotations

import asyncio
import http.client
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from slack_sdk.errors import SlackApiError, SlackRequestError
from slack_sdk.web import WebClient

_SECONDS: Final = 10
"""How long one call may take."""
_PAUSE: Final = 2.0
_LIMITED: Final = 429
_SERVER_ERROR: Final = 500
_PAGE: Final = 200
_CODE: Final = re.compile(r"[\w:-]+", re.ASCII)
_AWAY: Final = frozenset(
    {
        *("internal_error", "fatal_error", "service_unavailable", "request_timeout"),
        *("ratelimited", "rate_limited"),
    }
)
"""Slack's error codes after which the same call may succeed a little later."""
_BAD_BOT: Final = (
    "Slack rejects ABEYANCE_SLACK_BOT_TOKEN: copy the bot token (xoxb-...) from the page "
    "'OAuth & Permissions' of the app"
)
_BAD_APP: Final = (
    "Slack rejects ABEYANCE_SLACK_APP_TOKEN: copy an app-level token (xapp-...) with the "
    "scope connections:write from the page 'Basic Information' of the app"
)
_REMEDIES: Final[Mapping[str, str]] = {
    "channel_not_found": "there is no such channel, or the app is not in it: invite the app",
    "not_in_channel": "the app is not in the channel: invite it with /invite",
    "is_archived": "the channel is archived: name another one in the rule",
    "restricted_action": "the workspace does not let the app post there",
    "users_not_found": "Slack has no member with this mail: correct it in people",
    "user_not_found": "Slack has no member with this id: correct it in people",
}
BAD_TOKEN: Final = frozenset(
    {
        *("invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired"),
        "not_allowed_token_type",
    }
)


class Away(Exception):
    """Slack did not answer, or asks to wait. `is_undecided`: the call may have had its effect."""

    def __init__(self, reason: str, *, pause: float, is_undecided: bool) -> None:
        self.pause = pause
        self.is_undecided = is_undecided
        super().__init__(reason)


class SlackFault(Exception):
    """Slack refuses a call, and would refuse it again. The text is one line that says what to do."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        super().__init__(text)


class Slack:
    """The API of one workspace, called as the app. `base` is the address of the API."""

    def __init__(self, token: str, base: str) -> None:
        # The client must not retry by itself: a message could be posted twice.
        self.client = WebClient(token, base_url=base, timeout=_SECONDS, retry_handlers=[])
        self.scopes: frozenset[str] = frozenset()

    async def call(self, method: str, **arguments: Any) -> Mapping[str, Any]:
        """Call a method once. Raises Away and SlackFault.

        A cancelled caller waits until the call has ended: another process then looks for its message.
        """
        calling = asyncio.ensure_future(
            asyncio.to_thread(self._called, method, {"json": arguments})
        )
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            await asyncio.wait({calling}, timeout=_SECONDS)
            raise

    async def read(self, method: str, **arguments: Any) -> Mapping[str, Any]:
        """Call a method that changes nothing, until Slack answers. Raises SlackFault."""
        while True:
            try:
                return await asyncio.to_thread(self._called, method, {"params": arguments})
            except Away as away:
                await asyncio.sleep(away.pause)

    async def pages(
        self, method: str, key: str, **arguments: Any
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the entries of all pages of a list. Raises SlackFault."""
        cursor = ""
        while True:
            page = await self.read(method, **arguments, limit=_PAGE, cursor=cursor)
            for entry in page[key]:
                yield entry
            cursor = (page.get("response_metadata") or {}).get("next_cursor") or ""
            if not cursor:
                return

    async def sign_in(self) -> tuple[str, str]:
        """Return the ids of the app's bot and of its workspace, and note the app's scopes.

        Raises Away and SlackFault.
        """
        found = await self.call("auth.test")
        return str(found.get("bot_id") or ""), str(found.get("team_id") or "")

    def _called(self, method: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            response = self.client.api_call(method, **arguments)
        except SlackApiError as error:
            raise failure(method, error.response) from error
        except (OSError, http.client.HTTPException, SlackRequestError) as error:
            reason = f"Slack was not reached ({type(error).__name__}: {error})"
            raise Away(reason, pause=_PAUSE, is_undecided=True) from error
        if method == "auth.test":
            listed = _header(response.headers, "x-oauth-scopes") or ""
            self.scopes = frozenset(filter(None, map(str.strip, listed.split(","))))
        found: Mapping[str, Any] = response.data if isinstance(response.data, dict) else {}
        return found


def failure(method: str, response: Any) -> Away | SlackFault:
    """Return the error that a failed response of Slack means."""
    status = response.status_code
    code = str(response.get("error") or status)
    if status == _LIMITED or code in ("ratelimited", "rate_limited"):
        asked = _header(response.headers, "retry-after") or ""
        pause = float(asked) if asked.isdigit() else _PAUSE
        return Away(f"Slack asks to wait {pause:g} s", pause=pause, is_undecided=False)
    if status >= _SERVER_ERROR or code in _AWAY:
        return Away(f"Slack answered {code}", pause=_PAUSE, is_undecided=True)
    if not _CODE.fullmatch(code):
        # This is the page of a proxy, or of Slack under maintenance.
        return Away("something else than Slack answered", pause=_PAUSE, is_undecided=True)
    return SlackFault(code, _one_line(method, code, response))


def _one_line(method: str, code: str, response: Any) -> str:
    if code in BAD_TOKEN:
        remedy = _BAD_APP if method == "apps.connections.open" else _BAD_BOT
    elif code == "missing_scope":
        remedy = (
            f"the app lacks the scope {response.get('needed') or '?'}: add it under 'OAuth & "
            "Permissions', and install the app again"
        )
    else:
        remedy = _REMEDIES.get(code, "see the page of this method in Slack's documentation")
    return f"Slack refused {method} ({' '.join(code.split())[:200]}): {remedy}"


def _header(headers: Mapping[str, Any], name: str) -> str | None:
    found = next((value for key, value in headers.items() if key.lower() == name), None)
    return str(found[0] if isinstance(found, list) else found) if found else None
