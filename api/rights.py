"""The runs that a caller may see, and the questions that a caller may answer.

Routes of one run check it where they read its id from the path (`RunId`, `InterruptId`). Lists narrow
their query (`RunFilter.reads`, `InboxFilter.reads`). A caller who is bound to no label may see every run.
`seen_by` marks the questions that a caller may answer among those that they read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends
from fastapi.params import Depends as Dependency

from abeyance import commands, projections, views
from abeyance.api.auth import RESPONDS, Credentials, CredentialsDep
from abeyance.client import Client
from abeyance.client.rpc import unknown_run
from abeyance.core import approvals, who_may_answer
from abeyance.core.delegations import Delegation
from abeyance.core.policy import Principal, ReadRights
from abeyance.core.who_may_answer import Request
from abeyance.errors import Code, Refusal, Unavailable

V = TypeVar("V", bound=views.InterruptView)

_PATIENCE: Final = 2.0
"""Seconds for which a list waits for the delegations to its reader."""


async def _reads(credentials: CredentialsDep) -> ReadRights:
    return credentials.reads


Reads = Annotated[ReadRights, Depends(_reads)]
"""The runs that the caller may see."""


async def may_read(client: Client, reads: ReadRights, run_id: str) -> bool:
    """Return whether a run exists and the caller may see it. An unbound caller may see any id."""
    if not reads.is_bound:
        return True
    try:
        # Not cached: the id may belong to another run by now.
        return reads.may_read(await client.run(run_id).labels())
    except Refusal:
        # The tombstone of an erased run does not tell whose run it was.
        return False


async def require_readable(client: Client, reads: ReadRights, run_id: str) -> None:
    """Raise `unknown_run` for a run that the caller may not see, as for one that does not exist."""
    if not await may_read(client, reads, run_id):
        raise unknown_run(run_id)


async def require_free(client: Client, reads: ReadRights, run_id: str | None) -> None:
    """Raise `run_exists`, without facts about the run, if one that the caller may not see has the id."""
    if run_id is None or not reads.is_bound:
        return
    try:
        labels = await client.run(run_id).labels()
    except Refusal:
        return
    if not reads.may_read(labels):
        raise _taken(run_id)


def vouched(order: commands.Respond, credentials: Credentials) -> commands.Respond:
    """Return an answer with bounds for the grant that it may make: an issuer cannot be asked later for a
    caller's rights, and a caller who sees only some runs must not decide about others.
    """
    changes: dict[str, Any] = {}
    if credentials.reads.is_bound:
        changes["remember_only"] = "run"
    if credentials.issuer is not None:
        least = datetime.now(UTC) + approvals.UNVOUCHED
        ends = datetime.fromtimestamp(credentials.expires_at or 0.0, UTC)
        changes["vouched_until"] = max(least, ends)
    return order.model_copy(update=changes)


def _taken(run_id: str) -> Refusal:
    return Refusal(
        Code.RUN_EXISTS, f"The id {run_id!r} is taken. Choose another id.", run_id=run_id
    )


def labels_of_start(reads: ReadRights, labels: dict[str, str]) -> dict[str, str]:
    """Return the labels of a run that the caller starts. Raises `outside_reads` for other labels.

    A label to which the caller is bound with one value is filled in.
    """
    filled = reads.filled(labels)
    if reads.may_read(filled):
        return filled
    wanted = "; ".join(f"{name}: {' or '.join(values)}" for name, values in reads.labels)
    raise Refusal(
        Code.OUTSIDE_READS,
        f"You could not see this run: its labels need {wanted}.",
        reads={name: [*values] for name, values in reads.labels},
    )


async def without_others(client: Client, reads: ReadRights, refusal: Refusal) -> Refusal:
    """Return the refusal of a start, without facts about runs that the caller may not see."""
    if refusal.code is Code.ERASED and reads.is_bound:
        # The tombstone does not tell whose run it was.
        return _taken(refusal.details["run_id"])
    runs = refusal.details.get("runs", [])
    if refusal.code is not Code.CONVERSATION_BUSY or not reads.is_bound:
        return refusal
    if all([await may_read(client, reads, run_id) for run_id in runs]):
        return refusal
    conversation_id = refusal.details["conversation_id"]
    return Refusal(
        Code.CONVERSATION_BUSY,
        f"The conversation {conversation_id!r} has an active run that you may not see. Use another "
        "conversation, or start with allow_concurrent: true.",
        conversation_id=conversation_id,
    )


async def _all_runs(reads: Reads) -> None:
    if reads.is_bound:
        bound = ", ".join(name for name, _ in reads.labels)
        raise Refusal(
            Code.OUTSIDE_READS,
            f"This call is about all runs, and you may see only those with some labels ({bound}): ask "
            "somebody without `reads`.",
            reads={name: [*values] for name, values in reads.labels},
        )


ALL_RUNS_ONLY: Final = Dependency(_all_runs)
"""Refuse a caller who is bound to labels."""


async def seen_by(caller: Principal, entries: Sequence[V], client: Client) -> list[V]:
    """Return the interrupts, the open ones with a mark whether the caller may answer them. Claims that
    have ended are left out.
    """
    now = datetime.now(UTC)
    lent: tuple[Delegation, ...] | None = None
    shown = []
    for listed in entries:
        entry = listed
        if entry.claim is not None and entry.claim.until <= now:
            entry = entry.model_copy(update={"claim": None})
        if entry.status != "open" or entry.kind == views.UNREADABLE:
            shown.append(entry)
            continue
        request = Request(principal=caller, now=now)
        found = _standing(entry, request)
        if not found["may_answer"] and caller.may(RESPONDS):
            lent = await _lent(caller, client) if lent is None else lent
            counting = [each for each in lent if await may_read(client, each.reads, entry.run_id)]
            found = _standing(entry, replace(request, delegations=tuple(counting)))
        shown.append(entry.model_copy(update=found))
    return shown


def _standing(entry: views.InterruptView, request: Request) -> dict[str, Any]:
    question = projections.question_of(entry)
    if not request.principal.may(RESPONDS):
        detail = f"You lack the capability {RESPONDS!r}."
        why = views.WhyNot(code=str(Code.CAPABILITY_REQUIRED), detail=detail)
        return {"may_answer": False, "why_not": why}
    names = who_may_answer.names(question, request)
    try:
        who_may_answer.acting_for(question, request)
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
