"""The delegations of a deployment, which its records hold.

A principal that may answer in its own right does not need them: only a refused answer is sent again, with
the delegations to its principal.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

from abeyance import commands
from abeyance.client.records import Records
from abeyance.core.delegations import Delegation, Wanted
from abeyance.core.delegations import Delegations as Book
from abeyance.core.json import sha256
from abeyance.core.policy import ALL_RUNS, TEMPORAL, Principal, ReadRights
from abeyance.errors import Code, Refusal
from abeyance.orders import AT_KEY, order_of
from abeyance.records import delegations
from abeyance.util import as_names, checked_key, checked_text
from abeyance.views import DelegationView

O = TypeVar("O", commands.Respond, commands.Claim)  # noqa: E741 an order
T = TypeVar("T")

_ID_CHARS: Final = 16
_WITHOUT_RIGHT: Final = frozenset({Code.CAPABILITY_REQUIRED, Code.NOT_ASSIGNED})


class Delegations:
    """The delegations of one deployment: to make, to list, to delete."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def make(
        self,
        to: str,
        *,
        until: datetime,
        capabilities: Sequence[str] | None = None,
        since: datetime | None = None,
        reason: str | None = None,
        principal: Principal,
        reads: ReadRights = ALL_RUNS,
        key: str | None = None,
    ) -> DelegationView:
        """Let `to` answer in the place of the principal, from `since` (else now) until `until`.

        `capabilities` are those to lend; without them, all that the principal has and may lend.
        `reads` are the runs that the principal may see, and for which the delegation counts. The same
        call again with the same `key` is the same delegation. Raises `invalid_body` for more than 90
        days and for `*`, `admin` and `runs:...`, `capability_required` for what the principal does not
        have, and `idempotency_conflict`.
        """
        lent = None if capabilities is None else as_names(capabilities)
        about = {"capabilities": lent, "from_": since, "until": until, "reason": reason}
        body = order_of(commands.DelegateBody, {"to": to, **about})
        checked_key(key, AT_KEY)
        seed = uuid.uuid4().hex if key is None else [principal.subject, key]
        wanted = Wanted(
            id=sha256(seed).removeprefix("sha256:")[:_ID_CHARS],
            maker=principal,
            to=body.to,
            capabilities=None if lent is None else tuple(dict.fromkeys(lent)),
            reads=reads,
            since=body.from_,
            until=body.until,
            reason=reason,
        )
        book = await self._records.write(
            delegations.change, lambda book: book.made(wanted, datetime.now(UTC))
        )
        return DelegationView.of(next(each for each in book.all if each.id == wanted.id))

    async def list(self, principal: Principal) -> list[DelegationView]:
        """Return the unexpired delegations that a principal made or may use; with `admin`, all."""
        seen = (await self._book()).seen_by(principal, datetime.now(UTC))
        return [DelegationView.of(each) for each in seen]

    async def delete(self, id: str, *, principal: Principal) -> DelegationView:  # noqa: A002
        """Delete a delegation, and return it. The principal must have made it, or have `admin`.

        The same call again changes nothing, and returns the same. Raises `not_found` and
        `capability_required`.
        """
        found = (await self._book()).one(checked_text(id, "/id"), principal)
        await self._records.write(delegations.change, lambda book: book.withdrawn(id, principal))
        return DelegationView.of(found)

    async def of(self, subject: str) -> tuple[Delegation, ...]:
        """Return the delegations that let a subject answer in the place of others now."""
        return (await self._book()).of(subject, datetime.now(UTC))

    async def with_standing(
        self,
        order: O,
        send: Callable[[O], Awaitable[T]],
        labels: Callable[[], Awaitable[Mapping[str, str]]],
    ) -> T:
        """Send a request to answer, with the delegations to its principal if it needs them: those that
        count for a run with these labels.
        """
        subject = order.principal.subject
        if order.principal == TEMPORAL:
            return await send(order)
        if order.on_behalf_of in (None, subject):
            try:
                return await send(order)
            except Refusal as refusal:
                if refusal.code not in _WITHOUT_RIGHT or not (lent := await self.of(subject)):
                    raise
        else:
            lent = await self.of(subject)
        if any(each.reads.is_bound for each in lent):
            found = await labels()
            lent = tuple(each for each in lent if each.reads.may_read(found))
        return await send(order.model_copy(update={"delegations": lent}))

    async def _book(self) -> Book:
        return await self._records.read(delegations.book)
