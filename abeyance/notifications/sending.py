"""One attempt to reach a receiver, by a webhook or by apprise."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Final, assert_never
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from abeyance.core.json import sha256
from abeyance.core.terms import GROUP
from abeyance.notifications import links, messages
from abeyance.notifications.config import Apprise, Assignees, Notifications, Person, Webhook
from abeyance.notifications.matching import target_of
from abeyance.notifications.messages import Text
from abeyance.notifications.moments import Moment, Receiver
from abeyance.notifications.webhook import NotDelivered, post
from abeyance.util import inbox_url

_THREADS: Final = 8
"""How many notices apprise sends at once: it blocks the thread that it sends from."""
_MAIL_SCHEMES: Final = {"smtp": "mailto", "smtps": "mailtos"}


class Sender:
    """Sends the notices of one worker. `base` is where people reach the API."""

    def __init__(self, file: Notifications, *, base: str) -> None:
        self._file = file
        self._base = base
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="notice")

    async def send(self, moment: Moment, receiver: Receiver, *, notification: str) -> None:
        """Make one attempt. `notification` is the id that all attempts share. Raises NotDelivered."""
        target = target_of(self._file, receiver)
        match target:
            case None:
                raise NotDelivered("the notifications file no longer has this receiver", final=True)
            case Webhook():
                id_ = message_id(notification)
                body = messages.body(
                    moment, id_=id_, url=self._inbox_url(moment), format_=target.format
                )
                await post(target, body, id_=id_)
            case Apprise():
                text = messages.text(moment, url=self._inbox_url(moment))
                await self._by_apprise(apprise_url(target), text)
            case Assignees():
                name = receiver.person or ""
                person = self._file.people.get(name)
                if person is None:
                    raise NotDelivered(f"people has no entry for {name!r} any more", final=True)
                text = messages.text(moment, url=self._url_for(moment, target, name))
                is_mail = target.assignees == "mail"
                url = self._mail_url(person) if is_mail else apprise_url(person)
                await self._by_apprise(url, text)
            case _:
                assert_never(target)

    def _inbox_url(self, moment: Moment) -> str | None:
        id_ = (moment.interrupt or {}).get("id")
        return None if id_ is None else inbox_url(self._base, id_)

    def _url_for(self, moment: Moment, target: Assignees, name: str) -> str | None:
        """Return the link for one person; that of the inbox for a group, and where nothing is open."""
        question = moment.interrupt or {}
        key = links.key_of(self._file)
        is_open = question.get("status") == "open"
        if target.link == "inbox" or key is None or not is_open or name.startswith(GROUP):
            return self._inbox_url(moment)
        grant = links.PersonalLink.of(question, name, now=datetime.now(UTC))
        return f"{self._base}{links.PATH}/{grant.token(key)}"

    def _mail_url(self, person: Person) -> str:
        if self._file.mail is None or person.mail is None:
            raise NotDelivered("the notifications file has no mail for this receiver", final=True)
        return mail_url(_variable(self._file.mail.url_env), self._file.mail.sender, person.mail)

    async def _by_apprise(self, url: str, text: Text) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads, _notify, url, text)


def message_id(notification: str) -> str:
    """Return the `webhook-id` of a notification, the same for all attempts."""
    return f"msg_{sha256(notification).rpartition(':')[2][:32]}"


def apprise_url(entry: Apprise | Person) -> str:
    """Return the URL of an entry, its own or that of its variable."""
    return entry.apprise or _variable(entry.apprise_env or "")


def mail_url(server: str, sender: str, to: str) -> str:
    """Return the URL by which apprise mails from `sender` to `to`. `smtp(s)://` is understood too."""
    parts = urlsplit(server)
    query = [pair for pair in parse_qsl(parts.query) if pair[0] not in ("to", "from")]
    if parts.scheme == "smtps" and "mode" not in dict(query):
        query.append(("mode", "ssl"))
    scheme = _MAIL_SCHEMES.get(parts.scheme, parts.scheme)
    query += [("from", sender), ("to", to)]
    return urlunsplit((scheme, parts.netloc, parts.path, urlencode(query), ""))


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise NotDelivered(f"the environment variable {name} is not set")
    return value


def _notify(url: str, text: Text) -> None:
    """Send by apprise, in a thread. It says no more than whether it worked."""
    import apprise  # noqa: PLC0415  (optional, and slow to import)

    service = apprise.Apprise()
    if not service.add(url):
        raise NotDelivered("apprise does not understand the address: see its documentation")
    # As text: a prompt is no markup, wherever it is shown.
    if not service.notify(title=text.title, body=text.body, body_format=apprise.NotifyFormat.TEXT):
        raise NotDelivered("apprise could not send it: the log of the worker has its reason")
