"""One attempt to reach a receiver, by a webhook or by apprise, and what the receiver reads: the body of a
webhook, or a title and a text for people.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any, Final, Literal, assert_never
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from abeyance.contrib.people.webhook import post
from abeyance.core.json import rfc3339, sha256
from abeyance.core.terms import GROUP
from abeyance.core.text import truncate, visible
from abeyance.notifications import links
from abeyance.notifications.config import (
    Apprise,
    Assignees,
    InSlack,
    Notifications,
    Person,
    Webhook,
)
from abeyance.notifications.matching import target_of
from abeyance.notifications.moments import Moment, Receiver
from abeyance.notifications.notifier import NotDelivered
from abeyance.util import inbox_url

_THREADS: Final = 8
"""How many notices apprise sends at once: it blocks the thread that it sends from."""
_MAIL_SCHEMES: Final = {"smtp": "mailto", "smtps": "mailtos"}
MOST_BYTES: Final = 65_536
"""The size of the largest body of a webhook."""

_CUT_CHARS: Final = 2_000
_PROMPT_CHARS: Final = 1_500
_TITLE_CHARS: Final = 200
_BULK: Final = ("payload", "response_schema", "reason", "parents", "preview")
"""The parts of a question that are left out of a body which is too large, in this order."""
_TITLES: Final = {
    "interrupt.opened": "{graph} asks: {name}",
    "interrupt.reminded": "Reminder: {graph} asks: {name}",
    "interrupt.escalated": "Escalated: {graph} asks: {name}",
    "interrupt.reassigned": "Reassigned: {graph} asks: {name}",
    "run.failed": "{graph} failed: {run_id}",
    "run.halted": "{graph} was halted: {run_id}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A notice for people."""

    title: str
    body: str


class Sender:
    """The notifier: see `abeyance.notifications.notifier.Notifier`."""

    def __init__(self, file: Notifications, *, base: str) -> None:
        self._file = file
        self._base = base
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="notice")

    @staticmethod
    def missing() -> str | None:
        names = [name for name in ("apprise", "standardwebhooks") if find_spec(name) is None]
        if not names:
            return None
        return f"{' and '.join(names)} is not installed: pip install 'abeyance[people]'"

    @staticmethod
    def understands(address: str) -> bool:
        if find_spec("apprise") is None:
            return True
        import apprise  # noqa: PLC0415  (optional, and slow to import)

        # It logs addresses, which may contain a password.
        log = logging.getLogger("apprise")
        was_off, log.disabled = log.disabled, True
        try:
            return apprise.Apprise.instantiate(address) is not None
        finally:
            log.disabled = was_off

    async def send(self, moment: Moment, receiver: Receiver, *, notification: str) -> None:
        target = target_of(self._file, receiver)
        match target:
            case None | InSlack():
                raise NotDelivered("the notifications file no longer has this receiver", final=True)
            case Webhook():
                id_ = message_id(notification)
                body = webhook_body(
                    moment, id_=id_, url=self._inbox_url(moment), format_=target.format
                )
                await post(target, body, id_=id_)
            case Apprise():
                text = text_of(moment, url=self._inbox_url(moment))
                await self._by_apprise(apprise_url(target), text)
            case Assignees():
                name = receiver.person or ""
                person = self._file.people.get(name)
                if person is None:
                    raise NotDelivered(f"people has no entry for {name!r} any more", final=True)
                text = text_of(moment, url=self._url_for(moment, target, name))
                is_mail = target.assignees == "mail"
                url = self._mail_url(person) if is_mail else apprise_url(person)
                await self._by_apprise(url, text)
            case _:
                assert_never(target)

    def _inbox_url(self, moment: Moment) -> str | None:
        id_ = (moment.interrupt or {}).get("id")
        return None if id_ is None else inbox_url(self._base, id_)

    def _url_for(self, moment: Moment, target: Assignees, name: str) -> str | None:
        """Return the link for a person; the inbox's for a group, or if the question is not open."""
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
    """Return the URL of an entry, from the entry itself or from its environment variable."""
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
    """Send by apprise, in a thread. Apprise only says whether it worked."""
    import apprise  # noqa: PLC0415  (optional, and slow to import)

    service = apprise.Apprise()
    if not service.add(url):
        raise NotDelivered("apprise does not understand the address: see its documentation")
    # As text, because a prompt is never markup.
    if not service.notify(title=text.title, body=text.body, body_format=apprise.NotifyFormat.TEXT):
        raise NotDelivered("apprise could not send it: the log of the worker has its reason")


def webhook_body(
    moment: Moment, *, id_: str, url: str | None, format_: Literal["standard", "cloudevents"]
) -> bytes:
    """Return the body of a webhook. If the data does not fit, it is cut and marked as `truncated`."""
    data = _data(moment, url)
    if _is_cut(moment):
        data["truncated"] = True
    encoded = _encoded(moment, data, id_, format_)
    if len(encoded) <= MOST_BYTES:
        return encoded
    data["truncated"] = True
    question = data.get("interrupt") or {}
    for name in _BULK:
        if question.get(name):
            question[name] = None
            if len(encoded := _encoded(moment, data, id_, format_)) <= MOST_BYTES:
                return encoded
    data["event"]["data"] = {
        name: _short(value) for name, value in data["event"]["data"].items() if _is_plain(value)
    }
    if question:
        data["interrupt"] = {
            name: _short(value) for name, value in question.items() if _is_plain(value)
        }
    return _encoded(moment, data, id_, format_)


def text_of(moment: Moment, *, url: str | None) -> Text:
    """Return the title and the text for people. Invisible characters in them are shown as code points."""
    question = moment.interrupt or {}
    about = {
        "graph": moment.graph,
        "run_id": moment.run_id,
        "event": moment.event,
        "name": question.get("name", ""),
    }
    title = _TITLES.get(moment.event, "{graph}: {event}").format(**about)
    lines = [truncate(str(question["prompt"]), _PROMPT_CHARS)] if question.get("prompt") else []
    facts = {
        "Deadline": question.get("deadline"),
        "Priority": None if question.get("priority") == "normal" else question.get("priority"),
        "Reason": moment.data.get("reason") or moment.data.get("message"),
        "By": moment.actor,
        "Run": moment.run_id,
    }
    lines += [
        f"{name}: {truncate(str(value), _TITLE_CHARS)}" for name, value in facts.items() if value
    ]
    if url is not None:
        lines += ["", url]
    return Text(title=visible(truncate(title, _TITLE_CHARS)), body=visible("\n".join(lines)))


def _data(moment: Moment, url: str | None) -> dict[str, Any]:
    event = {
        "time": rfc3339(moment.time),
        "type": moment.event,
        "run_id": moment.run_id,
        "address": moment.address,
        "actor": moment.actor,
        "data": moment.data,
    }
    run = {"run_id": moment.run_id, "graph": moment.graph, "status": moment.status}
    data: dict[str, Any] = {"event": event, "run": run}
    if moment.interrupt is not None:
        data["interrupt"] = dict(moment.interrupt)
    if url is not None:
        data["url"] = url
    return data


def _is_cut(moment: Moment) -> bool:
    """Return whether the run has already left out data that was too large for a moment."""
    return "truncated" in moment.data or bool((moment.interrupt or {}).get("abridged"))


def _encoded(moment: Moment, data: Mapping[str, Any], id_: str, format_: str) -> bytes:
    when = rfc3339(moment.time)
    content: dict[str, Any] = {"type": moment.event, "timestamp": when, "data": data}
    if format_ == "cloudevents":
        content = {
            "specversion": "1.0",
            "id": id_,
            "source": f"/runs/{moment.run_id}",
            "type": moment.event,
            "subject": moment.data.get("id") or moment.run_id,
            "time": when,
            "datacontenttype": "application/json",
            "data": data,
        }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _short(value: Any) -> Any:
    return truncate(value, _CUT_CHARS) if isinstance(value, str) else value
