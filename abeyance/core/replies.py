"""The reply to an answer: a receipt, or a refusal.

`check_answers` is the whole rule about answers; the workflow applies it to a running run and a client to
an ended one, so both reply the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from abeyance.core import approvals, ledger, who_may_answer
from abeyance.core.events import Responded
from abeyance.core.json import Json, rfc3339, sha256, why_not_json
from abeyance.core.ledger import Interrupt, Ledger, Receipt, Vote
from abeyance.core.policy import TIMEOUT, Principal, named
from abeyance.errors import Code, Refusal


def addressee(ledger: Ledger, answer: Json, principal: Principal) -> str:
    """Return the id of the interrupt that an answer without an id means: the only open one, or else the
    only held one.

    Raises the Refusals `ambiguous_interrupt` and `nothing_open`. The latter tells of the last answer only
    to a principal who could have given it: others could guess the answer by trying.
    """
    unsettled = [*ledger.open.values()]
    candidates = [entry for entry in unsettled if entry.status == "open"] or unsettled
    if len(candidates) == 1:
        return candidates[0].id
    if not candidates:
        raise _nothing_open(ledger, answer, principal)
    listed = [{"id": entry.id, "name": entry.name} for entry in candidates]
    ids = ", ".join(entry["id"] for entry in listed[:10])
    raise Refusal(
        Code.AMBIGUOUS_INTERRUPT,
        f"{len(listed)} interrupts are open, so an answer must name the id of one: {ids}.",
        open_interrupts=listed,
    )


def _nothing_open(ledger: Ledger, answer: Json, principal: Principal) -> Refusal:
    answered = [entry for entry in ledger.settled.values() if entry.status == "answered"]
    if not answered or not principal.may(answered[-1].requested_capability):
        return Refusal(
            Code.NOTHING_OPEN, "The run has no open interrupt, so there is nothing to answer."
        )
    last = answered[-1]
    when = rfc3339(last.since)
    # A value that is not JSON has no hash.
    is_same = why_not_json(answer) is None and sha256(answer) == last.answer_sha256
    return Refusal(
        Code.NOTHING_OPEN,
        f"The run has no open interrupt. The last one, {last.name!r}, was answered by "
        f"{named(last.by, principal)} at {when}, with {'the same' if is_same else 'another'} answer.",
        last={
            "interrupt_id": last.id,
            "name": last.name,
            "answered_by": last.by,
            "accepted_at": when,
            "same_answer": is_same,
        },
    )


def check_answers(ledger: Ledger, event: Responded) -> Mapping[str, Receipt]:
    """Check that a response may be applied, and return the receipts of the answers that are repeats.

    All or nothing: raises the Refusal of the first answer that cannot be accepted.
    """
    found = {id_: _check_answer(ledger, id_, it, event) for id_, it in event.answers.items()}
    return {id_: receipt for id_, receipt in found.items() if receipt is not None}


def refuse_strays(event: Responded) -> None:
    """Raise `stale` if a digest belongs to an interrupt that the response does not answer.

    The caller saw another question than the one that would be answered. Checked only before a response is
    accepted, so that an accepted one is never checked again.
    """
    strays = sorted(event.digests.keys() - event.answers.keys())
    if strays:
        raise Refusal(
            Code.STALE,
            f"The request answers {', '.join(event.answers)}, but has a digest of {strays[0]!r}. Read "
            "what the run asks now, and send the digests of the questions that you answer.",
            interrupt_id=strays[0],
            answered=[*event.answers],
        )


def _check_answer(ledger: Ledger, id_: str, answer: Json, event: Responded) -> Receipt | None:
    entry = ledger.open.get(id_) or ledger.settled.get(id_)
    if entry is None:
        _refuse_parent(ledger, id_)
        raise unknown(id_)
    name = event.on_behalf_of
    if entry.status == "open":
        name = who_may_answer.acting_for(entry, event.request)
    elif not who_may_answer.may_learn_of(entry, event.principal, event.request.active):
        raise who_may_answer.lacks_capability(entry, event.principal, entry.requested_capability)
    if (fault := why_not_json(answer)) is not None:
        raise Refusal(
            Code.INVALID_ANSWER,
            f"The answer to {entry.name!r} is not JSON: {fault}. The interrupt stays as it is.",
            interrupt_id=id_,
            errors=[{"pointer": "", "message": fault}],
        )
    return _receipt(entry, answer, event, name)


def unknown(id_: str) -> Refusal:
    """Return the refusal of an id that the run has no interrupt of."""
    return Refusal(
        Code.UNKNOWN_INTERRUPT,
        f"There is no interrupt {id_!r} in this run; list its interrupts to see their ids.",
        interrupt_id=id_,
    )


def _refuse_parent(ledger: Ledger, id_: str) -> None:
    causes = [
        entry.id
        for entry in ledger.open.values()
        if any(parent.id == id_ for parent in entry.parents)
    ]
    if causes:
        raise Refusal(
            Code.NOT_ROOT_CAUSE,
            f"{id_!r} waits for questions inside it; answer those: {', '.join(causes[:10])}",
            interrupt_id=id_,
            root_causes=causes,
        )


def _check_open(interrupt: Interrupt, event: Responded) -> None:
    shown = event.digests.get(interrupt.id)
    if shown is not None and shown != interrupt.digest:
        raise Refusal(
            Code.STALE,
            f"{interrupt.name!r} is not as it was when you read it: you sent the digest {shown!r}, "
            f"and it has {interrupt.digest!r}. Read the interrupt again.",
            interrupt_id=interrupt.id,
            digest=interrupt.digest,
        )
    if interrupt.response_schema is None:
        return
    faults = event.schema_faults.get(interrupt.id)
    if faults is None:
        raise Refusal(
            Code.INVALID_ANSWER,
            f"The answer to {interrupt.name!r} was not validated against its schema, so it is refused.",
            interrupt_id=interrupt.id,
            errors=[],
        )
    if faults:
        raise Refusal(
            Code.INVALID_ANSWER,
            f"The answer to {interrupt.name!r} does not fit: "
            + "; ".join(f"{fault.pointer or '(the answer)'}: {fault.message}" for fault in faults)
            + ". The interrupt stays open.",
            interrupt_id=interrupt.id,
            errors=[{"pointer": fault.pointer, "message": fault.message} for fault in faults],
        )


def _receipt(entry: Interrupt, answer: Json, event: Responded, name: str | None) -> Receipt | None:
    """Return the receipt of an answer that is a repeat, None for one that can be accepted."""
    cast = entry.votes if entry.held is None else (*entry.votes, entry.held)
    # For an open question it is known for whom; a repeat to a settled one may leave that out.
    names = {name} if entry.status == "open" or name is not None else None
    vote = ledger.repeated_vote(cast, answer, by=event.principal.subject, on_behalf_of=names)
    if entry.status == "open":
        if (quorum := entry.quorum) is not None and vote is not None:
            left = ledger.missing_approvals(quorum, entry.votes)
            return _again(entry, vote, status="voted", missing=left)
        approvals.refuse_unless_rememberable(entry, answer, event)
        _check_open(entry, event)
        approvals.refuse_too_wide(entry, answer, event)
        return None
    when = rfc3339(entry.accepted_at or entry.since)
    match entry.status:
        case "held" if vote is not None:
            return _again(entry, vote, status="held", held_until=entry.held_until)
        case "held":
            held, until = entry.held, entry.held_until
            assert held is not None  # noqa: S101 it is held
            assert until is not None  # noqa: S101 it is held
            raise Refusal(
                Code.ALREADY_ANSWERED,
                f"{entry.name!r} was answered by {named(held.by, event.principal)} at "
                f"{rfc3339(held.at)}. The answer can be taken back until {rfc3339(until)}: take it back "
                "to answer anew.",
                interrupt_id=entry.id,
                answered_by=held.by,
                answered_at=rfc3339(held.at),
                held_until=rfc3339(until),
            )
        case "answered" if entry.by == TIMEOUT:
            raise Refusal(
                Code.ALREADY_ANSWERED,
                f"{entry.name!r} was answered by its default at {when}, "
                "because no answer came in time.",
                interrupt_id=entry.id,
                answered_by=TIMEOUT,
                answered_at=when,
                answer=entry.answer,
            )
        case "answered" if vote is not None:
            return _again(entry, vote)
        case "answered" if not entry.votes and entry.answer_sha256 == sha256(answer):
            return Receipt(
                interrupt_id=entry.id,
                answered_by=entry.by or "",
                on_behalf_of=entry.on_behalf_of,
                accepted_at=entry.accepted_at or entry.since,
                replayed=True,
            )
        case "answered":
            raise Refusal(
                Code.ALREADY_ANSWERED,
                f"{entry.name!r} was answered by {named(entry.by, event.principal)} at {when}"
                + (", so no more votes count." if entry.votes else ", with another answer."),
                interrupt_id=entry.id,
                answered_by=entry.by,
                **({} if entry.on_behalf_of is None else {"on_behalf_of": entry.on_behalf_of}),
                answered_at=when,
            )
        case "expired":
            raise Refusal(
                Code.EXPIRED,
                f"{entry.name!r} expired at {when}, so it can no longer be answered.",
                interrupt_id=entry.id,
                deadline=entry.deadline and rfc3339(entry.deadline),
            )
        case "cancelled" | "superseded":
            raise Refusal(
                Code.WITHDRAWN,
                f"{entry.name!r} was withdrawn at {when} ({entry.settled_reason or entry.status}).",
                interrupt_id=entry.id,
                status=entry.status,
            )
        case _:
            assert_never(entry.status)


def _again(entry: Interrupt, vote: Vote, **about: Any) -> Receipt:
    return Receipt(
        interrupt_id=entry.id,
        answered_by=vote.by,
        on_behalf_of=vote.on_behalf_of,
        accepted_at=vote.at,
        replayed=True,
        **about,
    )
