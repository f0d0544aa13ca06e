"""Whether a caller may answer the questions that they read, and why not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from abeyance import projections, views
from abeyance.api.auth import RESPONDS
from abeyance.client import Client
from abeyance.core import standing
from abeyance.core.delegations import Delegation
from abeyance.core.policy import Principal
from abeyance.core.standing import Request
from abeyance.errors import Code, Refusal, Unavailable

V = TypeVar("V", bound=views.InterruptView)

_PATIENCE: Final = 2.0
"""Seconds for which a list waits for the delegations to its reader."""


async def seen_by(caller: Principal, entries: Sequence[V], client: Client) -> list[V]:
    """Return interrupts, the open ones with whether the caller may answer them. Claims that have ended
    are left out.
    """
    now = datetime.now(UTC)
    lent: tuple[Delegation, ...] | None = None
    shown = []
    for listed in entries:
        entry = listed
        if entry.claim is not None and entry.claim.until <= now:
            entry = entry.model_copy(update={"claim": None})
        if entry.status != "open" or entry.degraded:
            shown.append(entry)
            continue
        request = Request(principal=caller, now=now)
        found = _standing(entry, request)
        if not found["may_answer"] and caller.may(RESPONDS):
            lent = await _lent(caller, client) if lent is None else lent
            found = _standing(entry, replace(request, delegations=lent))
        shown.append(entry.model_copy(update=found))
    return shown


def _standing(entry: views.InterruptView, request: Request) -> dict[str, Any]:
    question = projections.question_of(entry)
    if not request.principal.may(RESPONDS):
        detail = f"{request.principal.subject!r} lacks the capability {RESPONDS!r}."
        why = views.WhyNot(code=str(Code.CAPABILITY_REQUIRED), detail=detail)
        return {"may_answer": False, "why_not": why}
    names = standing.names(question, request)
    try:
        standing.acting_for(question, request)
    except Refusal as refusal:
        if refusal.code is not Code.AMBIGUOUS_DELEGATION:
            why = views.WhyNot(code=str(refusal.code), detail=refusal.message)
            return {"may_answer": False, "why_not": why}
    return {"may_answer": True, "may_answer_for": names}


async def _lent(caller: Principal, client: Client) -> tuple[Delegation, ...]:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await client.delegations.of(caller.subject)
    except (TimeoutError, Unavailable):
        # A list does not wait for a worker.
        return ()
