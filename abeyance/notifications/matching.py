"""The receivers of a moment: the rules that it fits, and whom they notify."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, assert_never
from urllib.parse import urlsplit

from abeyance import wire
from abeyance.core import policy
from abeyance.core.json import sha256
from abeyance.core.policy import EVERYTHING
from abeyance.core.terms import GROUP
from abeyance.notifications.config import (
    Apprise,
    Assignees,
    InSlack,
    Notifications,
    Person,
    Target,
    Webhook,
    When,
)
from abeyance.notifications.moments import Moment, Receiver, Receivers, matches, wants

MOST: int = 500
"""The most receivers of one moment; further ones are not notified."""


def fits(when: When, moment: Moment) -> bool:
    """Return whether a moment fits the condition of a rule."""
    return (
        wants(when.event, moment.event)
        and (when.graph is None or any(matches(each, moment.graph) for each in when.graph))
        and (when.capability is None or _fits_capability(when.capability, moment))
        and when.labels.items() <= moment.labels.items()
    )


def _fits_capability(patterns: list[str], moment: Moment) -> bool:
    asked = (moment.interrupt or {}).get("requested_capability")
    asked = moment.data.get("capability") if asked is None else asked
    return isinstance(asked, str) and any(
        each == EVERYTHING or policy.fits(asked, each) for each in patterns
    )


def receivers(file: Notifications, moment: Moment) -> Receivers:
    """Return the receivers of a moment, each once, in the order of the file."""
    found: dict[tuple[str, str | None], Receiver] = {}
    unreachable: dict[str, wire.Undelivered] = {}
    for rule in file.rules:
        if not fits(rule.when, moment):
            continue
        for target in rule.to:
            for each in _receivers(file, target, moment):
                match each:
                    case Receiver():
                        found.setdefault((each.target, each.person), each)
                    case wire.Undelivered():
                        unreachable.setdefault(each.receiver, each)
    return Receivers(found=[*found.values()][:MOST], unreachable=[*unreachable.values()][:MOST])


def target_of(file: Notifications, receiver: Receiver) -> Target | None:
    """Return the target in the file that reaches a receiver; None if the file no longer has it."""
    targets = (target for rule in file.rules for target in rule.to)
    return next((target for target in targets if _id_of(target) == receiver.target), None)


def asked_of(interrupt: Mapping[str, Any], now: datetime) -> list[str]:
    """Return everybody whom a question asks: its assignees, and those whom it has escalated to."""
    escalated_to = [
        name
        for each in interrupt.get("escalations") or ()
        if datetime.fromisoformat(each["at"]) <= now
        for name in each["to"]
    ]
    return [*(interrupt.get("assignees") or ()), *escalated_to]


def _receivers(
    file: Notifications, target: Target, moment: Moment
) -> Iterator[Receiver | wire.Undelivered]:
    id_ = _id_of(target)
    match target:
        case Webhook(webhook=url):
            parts = urlsplit(url)
            # The query may have a secret.
            yield Receiver(target=id_, shown=f"{parts.scheme}://{parts.netloc}{parts.path}")
        case Apprise(apprise=None):
            yield Receiver(target=id_, shown=f"apprise ${target.apprise_env}")
        case Apprise():
            scheme = str(target.apprise).partition("://")[0]
            yield Receiver(target=id_, shown=f"apprise {scheme}://...")
        case Assignees(assignees=by):
            for name in dict.fromkeys(asked_of(moment.interrupt or {}, moment.time)):
                yield from _people(file, name, by, id_, moment)
        case InSlack():
            # `abeyance slack` posts it.
            return
        case _:
            assert_never(target)


def _people(
    file: Notifications, name: str, by: str, target: str, moment: Moment
) -> Iterator[Receiver | wire.Undelivered]:
    """Yield the entries of an asked person or group: the group's own entry, else each of its members."""
    entry = file.people.get(name)
    if entry is not None and _has_address(entry, by):
        names = [name]
    elif name.startswith(GROUP):
        members = file.members(name)
        names = [each for each in members if _has_address(file.people[each], by)]
    else:
        names = []
    if not names:
        reason = f"the notifications file has no address for {by} of {name!r}: add it to people"
        yield wire.Undelivered(receiver=f"{by} to {name}", reason=reason, attempts=0)
    for each in names:
        if file.people[each].may_read(moment.labels):
            yield Receiver(target=target, shown=f"{by} to {each}", person=each)


def _has_address(person: Person, by: str) -> bool:
    if by == "mail":
        return person.mail is not None
    return person.apprise is not None or person.apprise_env is not None


def _id_of(target: Target) -> str:
    return sha256(target.model_dump())
