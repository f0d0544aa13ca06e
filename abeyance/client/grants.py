"""The grants of a deployment, which its records hold: for their makers, and for workers.

If a worker cannot read the grants or the file of tokens, it finds no grant, and a person is asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from abeyance import commands
from abeyance.client.records import Records
from abeyance.core import approvals as core
from abeyance.core.approvals import Grant, Wanted
from abeyance.core.delegations import ADMIN
from abeyance.core.policy import CONTROL, Principal
from abeyance.errors import RecordsUnavailable, SettingsError, Unavailable
from abeyance.records import grants
from abeyance.records.grant_views import GrantView
from abeyance.token_file import read_grants
from abeyance.util import checked_text

_Holds: TypeAlias = Callable[[Grant], bool]
_logger: Final = logging.getLogger("abeyance.approvals")


class Grants:
    """The remembered approvals of one deployment: to list, and to revoke. `tokens` is the file of tokens,
    if there is one.
    """

    def __init__(self, records: Records, tokens: Path | None) -> None:
        self._records = records
        self._tokens = tokens

    async def list(
        self, principal: Principal, *, status: Literal["standing", "all"] = "standing"
    ) -> list[GrantView]:
        """Return the grants that a principal made, oldest first; with `runs:control` or `admin`, all.

        With the `status` all, also those that let no call run any more: the newest 500.
        """
        by = None if _may_see_all(principal) else principal.subject
        now = datetime.now(UTC)
        may: _Holds | None = None
        if self._tokens is not None:
            # While the file cannot be read, nobody knows who has lost a capability.
            with suppress(SettingsError):
                may = await asyncio.to_thread(_holding, self._tokens, now)
        return await self._records.read(grants.listed, now, by, status=status, may=may)

    async def revoke(self, id: str, *, principal: Principal) -> GrantView:  # noqa: A002
        """Revoke a grant, and return it. The principal must have made it, or have `runs:control`.

        The same call again returns the same. Raises `not_found` and `capability_required`.
        """
        check = partial(core.refuse_foreign, principal=principal, capability=CONTROL)
        now = datetime.now(UTC)
        return await self._records.write(
            *(grants.revoke, checked_text(id, "/id")),
            by=principal.subject,
            now=now,
            check=check,
        )

    async def counted(self, order: commands.Respond) -> commands.Respond:
        """Return an answer with the number of its principal's grants, if the answer may make one."""
        answers: Iterable[Any] = (order.responses or {"": order.response}).values()
        if not any(isinstance(answer, Mapping) and "remember" in answer for answer in answers):
            return order
        now = datetime.now(UTC)
        try:
            count, taken = await self._records.read(grants.counting, order.principal.subject, now)
        except RecordsUnavailable:
            # The answer goes on without the number: one grant more does no harm.
            return order
        return order.model_copy(update={"granted": count, "granted_bytes": taken})


def _may_see_all(principal: Principal) -> bool:
    return principal.may(CONTROL) or principal.may(ADMIN)


class GrantedCalls:
    """Finds the grants that let calls of a worker run unasked. `tokens` is the file of tokens, if there
    is one: it says what a maker may do now.
    """

    def __init__(self, records: Records, tokens: Path | None) -> None:
        self._records = records
        self._tokens = tokens

    async def find(self, call: Wanted, *, takes: bool) -> Grant | None:
        """Return the grant that covers a call, None if there is none. `takes` counts a use of it, once
        for each call.
        """
        now = datetime.now(UTC)
        try:
            may = _holding(self._tokens, now)
            if takes:
                return await self._records.write(grants.take, call, now=now, may=may)
            return await self._records.read(grants.covering, call, now=now, may=may)
        except (SettingsError, Unavailable) as error:
            text = "run=%s tool=%s | no grant can be looked up, so a person is asked: %s"
            _logger.warning(text, call.run_id, call.tool, error)
            return None


def _holding(tokens: Path | None, now: datetime) -> _Holds:
    """Return a test whether a grant holds, by the file of tokens as it is now. Raises SettingsError.

    A grant for every run of a graph does not hold if its maker has become bound to labels.
    """
    known: dict[str, Principal] = {}
    unbound: set[str] = set()
    for entry in () if tokens is None else read_grants(tokens):
        if not entry.reads:
            unbound.add(entry.subject)
        before = known.get(entry.subject, Principal(subject=entry.subject))
        capabilities = (*before.capabilities, *entry.capabilities)
        known[entry.subject] = Principal(subject=entry.subject, capabilities=capabilities)

    def holds(grant: Grant) -> bool:
        is_too_wide = grant.run_id is None and grant.by in known.keys() - unbound
        maker, is_known = known.get(grant.by), tokens is not None
        return not is_too_wide and grant.holds(now, maker, is_known=is_known)

    return holds
