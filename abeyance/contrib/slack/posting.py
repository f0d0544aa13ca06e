"""Posts questions, and keeps the posted messages equal to the records.

One process at a time does it. It reads the stream of all runs from a cursor that the records keep, and
moves the cursor behind an event once Slack shows the change: so nothing is missed, whichever process
ends. If a bug prevents one message, it is logged and skipped, so that it does not stop the others.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from abeyance import views
from abeyance.client import Client
from abeyance.contrib.slack import blocks, desk
from abeyance.contrib.slack.web import Away, Slack, SlackFault
from abeyance.core.json import sha256
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.notifications.config import Notifications
from abeyance.records import slack_messages
from abeyance.records.slack_messages import Asked, Message
from abeyance.util import inbox_url

_NAME: Final = "slack"
_HELD_FOR: Final = timedelta(seconds=15)
"""How long a killed process keeps others from its work."""
_RENEWED_EVERY: Final = 4.0
_AGAIN: Final = 1.0
_SKEW: Final = timedelta(minutes=5)
"""How far the clocks of Slack and of this machine may differ."""
_logger = logging.getLogger("abeyance.slack")


class _Lost(Exception):
    """Another process does the work now."""


class Posting:
    """The work of one process. `bot` is the id of the app's bot, `channels` are Slack's ids of channels
    by their names, and `base` is the address where people reach the API.

    The first process of a deployment posts only questions that are asked after its start.
    """

    def __init__(
        self,
        client: Client,
        slack: Slack,
        file: Notifications,
        *,
        bot: str,
        channels: Mapping[str, str],
        base: str,
    ) -> None:
        self._client = client
        self._records = client.records
        self._slack = slack
        self._file = file
        self._bot = bot
        self._channels = dict(channels)
        self._base = base
        self._mention = partial(desk.mention_of, file)
        self._holder = uuid.uuid4().hex
        self._skipped = 0
        self._since = datetime.now(UTC)

    async def work(self) -> None:
        """Post and update until this is cancelled, whenever no other process does."""
        while True:
            try:
                async with self._held() as cursor:
                    if cursor is not None:
                        await self._follow(cursor or None)
            except Unavailable as error:
                _logger.warning("nothing is posted meanwhile: %s", error)
            except _Lost:
                _logger.warning("another process posts now: this one waits")
            await asyncio.sleep(_AGAIN)

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[str | None]:
        """Hold the lease of the work, and yield the cursor; None if another process holds the lease."""
        cursor = await self._hold()
        if cursor is None:
            yield None
            return
        working = asyncio.current_task()
        assert working is not None  # noqa: S101  (only tasks await)
        is_lost = False

        async def renew() -> None:
            nonlocal is_lost
            until = datetime.now(UTC) + _HELD_FOR
            while True:
                await asyncio.sleep(_RENEWED_EVERY)
                try:
                    is_lost = await self._hold() is None
                    until = datetime.now(UTC) + _HELD_FOR
                except Unavailable:
                    is_lost = datetime.now(UTC) > until
                if is_lost:
                    working.cancel()
                    return

        renewing = asyncio.create_task(renew())
        try:
            yield cursor
        except asyncio.CancelledError:
            if is_lost and working.uncancel() == 0:
                raise _Lost from None
            raise
        finally:
            renewing.cancel()
            with suppress(Unavailable):
                await self._records.write(slack_messages.let_go, _NAME, self._holder)

    async def _hold(self) -> str | None:
        now = datetime.now(UTC)
        until = now + _HELD_FOR
        return await self._records.write(
            slack_messages.hold, _NAME, self._holder, now=now, until=until
        )

    async def _follow(self, after: str | None) -> None:
        try:
            following = await self._client.stream.opened(
                after, filters=desk.HEARD, since=self._since
            )
        except Refusal as refusal:
            if refusal.code is not Code.CURSOR_EXPIRED:
                raise
            _logger.warning("the records were made anew: what was asked before is not posted")
            self._since = datetime.now(UTC)
            following = await self._client.stream.opened(filters=desk.HEARD, since=self._since)
        # The next process continues from here, even if no question was asked until then.
        await self._move(following.cursor())
        async with aclosing(following.events) as events:
            async for event in events:
                with self._skipping(event):
                    await self._handle(event)
                await self._move(event.id)

    async def _move(self, cursor: str) -> None:
        if not await self._records.write(slack_messages.move, _NAME, self._holder, cursor=cursor):
            raise _Lost

    async def _handle(self, event: views.StreamEvent) -> None:
        id_ = desk.question_of(event)
        if id_ is None:
            for each in await self._records.followed(slack_messages.of_run, event.run_id):
                with self._skipping(event, interrupt=each):
                    await self._show(event, each)
        else:
            await self._show(event, id_)

    @contextmanager
    def _skipping(self, event: views.StreamEvent, **about: str) -> Iterator[None]:
        """Skip what fails about an event because of a bug: it would fail again after every start."""
        try:
            yield
        except (Unavailable, _Lost):
            # The next events would fail as well, until the records are back.
            raise
        except Exception as error:
            self._skipped += 1
            _logger.exception(
                "code=%s event=%s type=%s run_id=%s%s skipped=%d | this event is not shown in Slack, "
                "because of a bug",
                *(type(error).__name__, event.id, event.type, event.run_id),
                "".join(f" {name}={value}" for name, value in about.items()),
                self._skipped,
            )

    async def _show(self, event: views.StreamEvent, id_: str) -> None:
        asked = await self._records.followed(slack_messages.asked, id_)
        if asked is None:
            # The run was erased, or deleted after its retention.
            return
        content = self._content(id_, asked)
        for channel in await self._channels_of(desk.receivers(self._file, event, asked)):
            if channel not in {message.channel for message in asked.messages}:
                with self._skipping(event, interrupt=id_, channel=channel):
                    await self._post(id_, channel, content)
        said = desk.note(event, asked, self._mention)
        for message in asked.messages:
            with self._skipping(event, interrupt=id_, channel=message.channel):
                await self._update(id_, message, content, asked, said)

    async def _update(
        self,
        id_: str,
        message: Message,
        content: Mapping[str, Any],
        asked: Asked,
        said: str | None,
    ) -> None:
        ts = message.ts
        if ts is None:
            ts = await self._posted_before(id_, message, content, asked)
        elif message.shown != sha256(content):
            await self._change(id_, message.channel, ts, content)
        if ts is not None and said is not None:
            about = {"channel": message.channel, "thread_ts": ts, "text": said}
            await self._done("chat.postMessage", **about)

    def _content(self, id_: str, asked: Asked) -> dict[str, Any]:
        if asked.question is None:
            return blocks.gone(id_)
        link = inbox_url(self._base, id_)
        return blocks.message(asked.question, link=link, mention=self._mention)

    async def _posted_before(
        self, id_: str, message: Message, content: Mapping[str, Any], asked: Asked
    ) -> str | None:
        """Return the `ts` of a message whose posting was cut off, and post it if it is still wanted."""
        if blocks.is_waiting(asked.question):
            return await self._post(id_, message.channel, content, begun_at=message.begun_at)
        ts = await self._found(id_, message.channel, message.begun_at)
        if ts is not None:
            await self._change(id_, message.channel, ts, content)
        return ts

    async def _post(
        self,
        id_: str,
        channel: str,
        content: Mapping[str, Any],
        *,
        begun_at: datetime | None = None,
    ) -> str | None:
        """Post a question once, and return the `ts` of its message; None if Slack refuses it.

        With `begun_at`, an attempt since then may have posted it.
        """
        is_undecided, now = begun_at is not None, datetime.now(UTC)
        begun_at = begun_at or now
        if not is_undecided and not await self._records.write(
            slack_messages.begin, id_, channel, now=now
        ):
            # Its run was erased a moment ago.
            return None
        post = {**content, "channel": channel, "unfurl_links": False}
        while True:
            if is_undecided and (ts := await self._found(id_, channel, begun_at)) is not None:
                # The question may have changed since.
                await self._change(id_, channel, ts, content)
                return ts
            try:
                ts = str((await self._slack.call("chat.postMessage", **post))["ts"])
            except Away as away:
                is_undecided = is_undecided or away.is_undecided
                await _pause(away)
                continue
            except SlackFault as fault:
                _logger.warning("interrupt=%s channel=%s | %s", id_, channel, fault)
                await self._records.write(slack_messages.give_up, id_, channel)
                return None
            shown = sha256(content)
            await self._records.write(slack_messages.write, id_, channel, ts=ts, shown=shown)
            return ts

    async def _change(self, id_: str, channel: str, ts: str, content: Mapping[str, Any]) -> None:
        await self._done("chat.update", **content, channel=channel, ts=ts)
        shown = sha256(content)
        await self._records.write(slack_messages.write, id_, channel, ts=ts, shown=shown)

    async def _found(self, id_: str, channel: str, begun_at: datetime) -> str | None:
        """Return the `ts` of the message about a question; None if there is none, or Slack refuses."""
        oldest = f"{(begun_at - _SKEW).timestamp():.6f}"
        about = {"channel": channel, "oldest": oldest, "include_all_metadata": True}
        try:
            async for message in self._slack.pages("conversations.history", "messages", **about):
                metadata = message.get("metadata") or {}
                payload = metadata.get("event_payload") or {}
                kind = (message.get("bot_id"), metadata.get("event_type"))
                if kind == (self._bot, blocks.EVENT_TYPE) and payload.get("id") == id_:
                    return str(message["ts"])
        except SlackFault as fault:
            _logger.warning("interrupt=%s | it may be posted a second time: %s", id_, fault)
        return None

    async def _channels_of(self, receivers: list[str]) -> list[str]:
        """Return Slack's ids of the channels and of the conversations with people."""
        found = dict[str, None]()
        for receiver in receivers:
            if receiver not in self._channels and receiver.startswith("@"):
                with suppress(SlackFault):
                    self._channels[receiver] = await self._conversation(receiver[1:])
            found |= {self._channels[receiver]: None} if receiver in self._channels else {}
        return [*found]

    async def _conversation(self, name: str) -> str:
        member = self._file.people[name].slack or ""
        try:
            if "@" in member:
                found = await self._slack.read("users.lookupByEmail", email=member)
                member = str(found["user"]["id"])
            opened = await self._slack.read("conversations.open", users=member)
        except SlackFault as fault:
            _logger.warning("person=%s | nothing is posted to them: %s", name, fault)
            raise
        return str(opened["channel"]["id"])

    async def _done(self, method: str, **arguments: Any) -> None:
        """Call a method until Slack accepts it; log a call that Slack refuses."""
        while True:
            try:
                await self._slack.call(method, **arguments)
                return
            except Away as away:
                await _pause(away)
            except SlackFault as fault:
                _logger.warning("channel=%s | %s", arguments.get("channel"), fault)
                return


async def _pause(away: Away) -> None:
    _logger.warning("%s: it is asked again in %g s", away, away.pause)
    await asyncio.sleep(away.pause)
