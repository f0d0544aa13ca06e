"""Delegations: who may answer in whose place, with which capabilities, and until when.

A delegation lends capabilities that questions ask for. It never lends what would reach beyond a question:
`*`, `admin` and `runs:...`. Who stands for somebody cannot pass that on: a delegate has the rights that
the maker of the delegation had, and none that was lent to the maker.

The book of a deployment's delegations is a value, like `RunState`: each change returns a new one, and a
refusal leaves the old one unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from abeyance.core.json import size
from abeyance.core.policy import (
    ALL_RUNS,
    EVERYTHING,
    Principal,
    ReadRights,
    capability_required,
    refuse_foreign,
)
from abeyance.core.terms import GROUP
from abeyance.errors import Code, Refusal

ADMIN: Final = "admin"
_RUNS: Final = "runs:"
LONGEST: Final = timedelta(days=90)
"""The longest time from when a delegation is made until it ends."""
MOST: Final = 50
MOST_BYTES: Final = 256_000
"""How many delegations that have not ended one maker may have, and how many bytes of them."""
MOST_BYTES_IN_ALL: Final = 1_000_000
"""How many bytes those of a deployment may take: an answer may carry all that somebody else has lent."""
_FRAME: Final = 300
"""In bytes: the JSON of a delegation without its texts."""
_MAX_DELETED: Final = 1_000
"""How many deleted delegations, the last ones, are known when a request about one is sent again."""


def may_be_lent(capability: str) -> bool:
    """Return whether a delegation may lend a capability."""
    return EVERYTHING not in capability and capability != ADMIN and not capability.startswith(_RUNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """From `since` until `until`, `to` may answer in the place of `by`, who made it.

    `capabilities` are those that it lends; None lends each that a question may ask for, because its maker
    has every capability. `groups` are those that its maker belonged to, and `reads` are the runs that its
    maker could see: it counts for no other.
    """

    id: str
    by: str
    to: str
    capabilities: tuple[str, ...] | None = ()
    groups: tuple[str, ...] = ()
    reads: ReadRights = ALL_RUNS
    since: datetime
    until: datetime
    reason: str | None = None
    created_at: datetime

    def is_active(self, now: datetime) -> bool:
        return self.since <= now < self.until

    def may(self, capability: str | None) -> bool:
        """Return whether it lends what a question asks for; None asks for nothing."""
        if capability is None:
            return True
        return may_be_lent(capability) and (
            self.capabilities is None or capability in self.capabilities
        )

    def is_among(self, people: Iterable[str]) -> bool:
        """Return whether these subjects and groups (`group:finance`) include its maker."""
        return not {self.by, *(f"{GROUP}{name}" for name in self.groups)}.isdisjoint(people)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A delegation that `maker` wants to make. `capabilities` None lends all that the maker has,
    and `reads` are the runs that the maker may see.

    The repeat of a call has the same `id`.
    """

    id: str
    maker: Principal
    to: str
    capabilities: tuple[str, ...] | None = None
    reads: ReadRights = ALL_RUNS
    since: datetime | None = None
    until: datetime
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegations:
    """The delegations of one deployment, oldest first.

    `deleted` are those that were deleted before their end, by their ids: a request to make one of them
    that is sent again is refused, and one to delete it changes nothing.
    """

    all: tuple[Delegation, ...] = ()
    deleted: Mapping[str, Delegation] = field(default_factory=dict)

    def of(self, subject: str, now: datetime) -> tuple[Delegation, ...]:
        """Return the delegations that let a subject answer in the place of others now."""
        return tuple(each for each in self.all if each.to == subject and each.is_active(now))

    def made(self, wanted: Wanted, now: datetime) -> Delegations:
        """Return the delegations with a new one, and without those that have ended.

        Raise `invalid_body` for what cannot be lent, for a time that is over or too long, for oneself,
        and if there are too many; and `capability_required` for what its maker does not have.
        """
        kept = tuple(each for each in self.all if now < each.until)
        gone = {id_: each for id_, each in self.deleted.items() if now < each.until}
        if (same := next((each for each in kept if each.id == wanted.id), None)) is not None:
            if not _is_repeat(wanted, same):
                raise Refusal(
                    Code.IDEMPOTENCY_CONFLICT,
                    "The key was used before, for another delegation: use another key.",
                )
            return self
        if faults := _faults(wanted, now, gone):
            message = "; ".join(fault["message"] for fault in faults)
            raise Refusal(Code.INVALID_BODY, f"This cannot be delegated: {message}.", errors=faults)
        if missing := wanted.maker.lacks(wanted.capabilities or ()):
            lent = ", ".join(map(repr, missing))
            message = f"You cannot lend {lent}: lend what you have yourself."
            raise capability_required(message, *missing)
        made = _made(wanted, now)
        if too_many := _too_many(kept, made):
            raise Refusal(
                Code.INVALID_BODY,
                f"This cannot be delegated: {too_many}.",
                errors=[{"pointer": "", "message": too_many}],
            )
        return replace(self, all=(*kept, made), deleted=_latest(gone))

    def withdrawn(self, id_: str, principal: Principal) -> Delegations:
        """Return the delegations without one. The same request again changes nothing. Raise as `one`."""
        found = self.one(id_, principal)
        left = tuple(each for each in self.all if each.id != id_)
        return replace(self, all=left, deleted=_latest({**self.deleted, id_: found}))

    def one(self, id_: str, principal: Principal) -> Delegation:
        """Return the delegation that a principal may delete, or that was deleted.

        Raise `not_found`, and `capability_required` if somebody else made it and the principal is not an
        administrator.
        """
        known = (*self.all, *self.deleted.values())
        found = next((each for each in known if each.id == id_), None)
        if found is None:
            raise unknown(id_)
        refuse_foreign(f"delegation {id_!r}", found.by, principal, ADMIN, doing="delete")
        return found

    def seen_by(self, principal: Principal, now: datetime) -> tuple[Delegation, ...]:
        """Return those that have not ended and that a principal made or may use; for `admin` all."""
        is_admin = principal.may(ADMIN)
        return tuple(
            each
            for each in self.all
            if now < each.until and (is_admin or principal.subject in (each.by, each.to))
        )


def _is_repeat(wanted: Wanted, made: Delegation) -> bool:
    lent = wanted.capabilities
    return (
        (wanted.maker.subject, wanted.to, wanted.until, wanted.reason)
        == (made.by, made.to, made.until, made.reason)
        and (lent is None or lent == made.capabilities)
        and wanted.since in (None, made.since)
    )


def _faults(
    wanted: Wanted, now: datetime, deleted: Mapping[str, Delegation]
) -> list[dict[str, str]]:
    faults = [
        {"pointer": "/capabilities", "message": f"{name!r} is never lent"}
        for name in wanted.capabilities or ()
        if not may_be_lent(name)
    ]
    if wanted.id in deleted:
        message = "this delegation was made before, and deleted: make another one"
        faults.append({"pointer": "", "message": message})
    since = wanted.since or now
    if wanted.until <= max(since, now):
        faults.append(
            {"pointer": "/until", "message": "it has to end after it begins, and after now"}
        )
    elif wanted.until - now > LONGEST:
        message = f"it ends more than {LONGEST.days} days from now"
        faults.append({"pointer": "/until", "message": message})
    if wanted.to.startswith(GROUP):
        faults.append({"pointer": "/to", "message": f"{wanted.to!r} is a group: name a person"})
    if wanted.to == wanted.maker.subject:
        faults.append({"pointer": "/to", "message": "you cannot delegate to yourself"})
    return faults


def _made(wanted: Wanted, now: datetime) -> Delegation:
    maker, lent = wanted.maker, wanted.capabilities
    if lent is None and EVERYTHING not in maker.capabilities:
        lent = tuple(filter(may_be_lent, maker.capabilities))
    return Delegation(
        id=wanted.id,
        by=maker.subject,
        to=wanted.to,
        capabilities=lent,
        groups=maker.groups,
        reads=wanted.reads,
        since=wanted.since or now,
        until=wanted.until,
        reason=wanted.reason,
        created_at=now,
    )


def _too_many(kept: Iterable[Delegation], made: Delegation) -> str | None:
    """Return the reason why there is no room for one more, None if there is room."""
    own = [each for each in kept if each.by == made.by]
    if len(own) >= MOST:
        return f"you have made {len(own)} delegations, which is the limit: delete some of them"
    more = _size(made)
    if (taken := sum(map(_size, own))) + more > MOST_BYTES:
        return (
            f"the delegations that you have made take {taken} bytes and this one {more}, and "
            f"{MOST_BYTES} fit: shorten the reason, or delete some of them"
        )
    if (taken := sum(map(_size, kept))) + more > MOST_BYTES_IN_ALL:
        return (
            f"all delegations take {taken} bytes and this one {more}, and {MOST_BYTES_IN_ALL} fit: "
            "somebody with the capability 'admin' has to delete some of them"
        )
    return None


@lru_cache(maxsize=4_096)
def _size(delegation: Delegation) -> int:
    """Return a size in bytes that its JSON does not exceed."""
    texts = (
        delegation.id,
        delegation.by,
        delegation.to,
        delegation.reason,
        *(delegation.capabilities or ()),
        *delegation.groups,
    )
    reads = [[name, [*values]] for name, values in delegation.reads.labels]
    return _FRAME + size([*texts, reads])


def _latest(deleted: Mapping[str, Delegation]) -> dict[str, Delegation]:
    return dict([*deleted.items()][-_MAX_DELETED:])


def unknown(id_: str) -> Refusal:
    """Return the refusal of an id that no delegation has."""
    return Refusal(
        Code.NOT_FOUND,
        f"There is no delegation {id_!r}; list the delegations to see their ids.",
        delegation_id=id_,
    )
