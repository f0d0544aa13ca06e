"""The delegations of a deployment, which a workflow of its own holds.

Reading them takes a query, so what was read counts for some seconds. Who may answer in their own right
never waits for it: only a refused answer is sent again, with the delegations to its principal.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from abeyance import commands, names
from abeyance.client.rpc import WorkflowRpc
from abeyance.core.delegations import Delegation, Wanted
from abeyance.core.delegations import Delegations as Book
from abeyance.core.json import sha256
from abeyance.core.policy import TEMPORAL, Principal
from abeyance.errors import Code, Refusal
from abeyance.orders import AT_KEY, order_of
from abeyance.util import as_names, checked_key, checked_text, delegations_workflow_id
from abeyance.views import DelegationView

O = TypeVar("O", commands.Respond, commands.Claim)  # noqa: E741 an order
T = TypeVar("T")

_FRESH: Final = 3.0
"""Seconds for which what was read counts."""
_ID_CHARS: Final = 16
_ABOUT: Final = "the delegations"
_WITHOUT_RIGHT: Final = frozenset({Code.CAPABILITY_REQUIRED, Code.NOT_ASSIGNED})


class Delegations:
    """The delegations of one deployment: to make, to list, to delete."""

    def __init__(self, line: WorkflowRpc) -> None:
        self._line = line
        self._id = delegations_workflow_id(line.task_queue)
        self._read = (-_FRESH, Book())

    async def make(
        self,
        to: str,
        *,
        until: datetime,
        capabilities: Sequence[str] | None = None,
        since: datetime | None = None,
        reason: str | None = None,
        principal: Principal,
        key: str | None = None,
    ) -> DelegationView:
        """Let `to` answer in the place of the principal, from `since` (else now) until `until`.

        `capabilities` are those that are lent; without them all that the principal has and may lend. The
        same call again with the same `key` is the same delegation. Raises `invalid_body` for more than 90
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
            since=body.from_,
            until=body.until,
            reason=reason,
        )
        # The refusals of a first one need no workflow.
        Book().made(wanted, datetime.now(UTC))
        made: Delegation = await self._send("delegate", wanted, Delegation)
        self._read = (-_FRESH, Book())
        return DelegationView.of(made)

    async def list(self, principal: Principal) -> list[DelegationView]:
        """Return those that have not ended and that a principal made or may use; with `admin`, all."""
        self._read = (-_FRESH, Book())
        seen = (await self._book()).seen_by(principal, datetime.now(UTC))
        return [DelegationView.of(each) for each in seen]

    async def delete(
        self,
        id: str,  # noqa: A002
        *,
        principal: Principal,
        key: str | None = None,
    ) -> DelegationView:
        """Delete a delegation, and return it: by who made it, or with `admin`.

        The same call again with the same `key` returns the same. Raises `unknown_delegation`,
        `capability_required` and `idempotency_conflict`.
        """
        checked_key(key, AT_KEY)
        hashed = None if key is None else sha256([principal.subject, key])
        self._read = (-_FRESH, Book())
        # Without the workflow it would be started, to refuse this.
        found = (await self._book()).one(checked_text(id, "/id"), principal, hashed)
        order = commands.Undelegate(id=id, principal=principal, key=hashed)
        await self._send("undelegate", order, None)
        self._read = (-_FRESH, Book())
        return DelegationView.of(found)

    async def of(self, subject: str) -> tuple[Delegation, ...]:
        """Return what lets a subject answer in the place of others, as of some seconds ago at most."""
        return (await self._book()).of(subject, datetime.now(UTC))

    async def with_standing(self, order: O, send: Callable[[O], Awaitable[T]]) -> T:
        """Send a request to answer, with the delegations to its principal if it needs them."""
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
        return await send(order.model_copy(update={"delegations": lent}))

    async def _book(self) -> Book:
        since, book = self._read
        if time.monotonic() - since < _FRESH:
            return book
        try:
            book = await self._line.ask(self._id, "delegations", Book, about=_ABOUT)
        except Refusal as refusal:
            # Nobody has delegated anything.
            if refusal.code is not Code.UNKNOWN_RUN:
                raise
            book = Book()
        self._read = (time.monotonic(), book)
        return book

    async def _send(self, name: str, order: Any, result_type: Any) -> Any:
        return await self._line.update_with_start(
            name,
            order,
            names.DELEGATIONS_WORKFLOW,
            Book(),
            id=self._id,
            update_id=uuid.uuid4().hex,
            about=_ABOUT,
            result_type=result_type,
        )
