"""Interrupts and their answers: the record of what people were asked and what they answered.

An interrupt is *open* until exactly one thing settles it: an answer, its deadline, the end of its run,
or the branch that left it. A settled one shrinks to what is needed to reply to a repeated or late
answer: status, when, by whom, and the hash of the answer. `check_answers` is the whole rule about
answers; the workflow uses it for a running run and the client for an ended one, so both reply the same.
Most rules are Eino's (targeted, keyed answers) and Stargraph's (capability, deadline); that a repeat is
safe and that null is an answer are ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, TypeAlias, assert_never

from abeyance.core.copying import changeable
from abeyance.core.events import Responded
from abeyance.core.json import Json, canonical, rfc3339, sha256, size, why_not_json
from abeyance.core.policy import TIMEOUT
from abeyance.core.spec import Kind, OnTimeout, Question
from abeyance.errors import Code, Refusal

SettledStatus: TypeAlias = Literal["answered", "expired", "cancelled", "superseded"]

_KEPT_ANSWER_BYTES = 512
_KEPT_PROMPT_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """A visit that waits because of an interrupt inside it: composite, or with a nested graph."""

    id: str
    address: str
    reason: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """An open question. `number` is that of the event that opened it, and breaks ties of time.

    `key` identifies the question within its visit. `parents` go from the nearest to the outermost.
    `fields` are hashes of the values that it shows, by path.
    """

    id: str
    visit: str
    scope: str
    name: str
    kind: Kind
    address: str
    prompt: str
    reason: Json
    payload: Json
    response_schema: Json
    requested_capability: str | None
    created_at: datetime
    deadline: datetime | None
    on_timeout: OnTimeout
    digest: str
    number: int
    key: str
    parents: tuple[Parent, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The record of a settled interrupt. `answer` is kept if it is short, `answer_sha256` always."""

    id: str
    name: str
    kind: Kind
    address: str
    prompt: str
    requested_capability: str | None
    created_at: datetime
    deadline: datetime | None
    status: SettledStatus
    settled_at: datetime
    by: str | None = None
    reason: str | None = None
    answer_sha256: str | None = None
    answer: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Receipt of an accepted answer. `replayed`: the same answer had been accepted before."""

    interrupt_id: str
    status: Literal["answered"] = "answered"
    answered_by: str
    accepted_at: datetime
    replayed: bool = False


@changeable(slots=True, kw_only=True)
class Ledger:
    """Open interrupts in the order of opening, settled ones in the order of settling."""

    open: Mapping[str, Interrupt] = field(default_factory=dict)
    settled: Mapping[str, Settled] = field(default_factory=dict)


def interrupt_id(
    run_id: str,
    address: str,
    name: str,
    ordinal: int = 1,
    kind: Kind = "question",
    *,
    salt: str = "",
) -> str:
    """Return `<run_id>.<16 hex>`: the same question in the same place has the same id in every replay.

    The kind keeps questions about a visit distinct from those of its code with the same name. The salt
    keeps them distinct from those of an earlier run with this id, so an answer to that one, sent again,
    is not an answer to this one.
    """
    own = [] if kind in {"question", "rule"} else [kind]
    salted = [{"salt": salt}] if salt else []
    place = canonical([address, name, ordinal, *own, *salted])
    return f"{run_id}.{hashlib.sha256(place.encode()).hexdigest()[:16]}"


def digest_of(address: str, question: Question) -> str:
    """Return the hash of everything that a person is shown, which they may send with their answer."""
    return sha256({"address": address, "name": question.name, **_content(question)})


def content_of(question: Question) -> str:
    """Return the hash of a question's content, without its address and capability."""
    return sha256({**_content(question), "requested_capability": None})


def _content(question: Question) -> dict[str, Json]:
    return {
        "prompt": question.prompt,
        "reason": question.reason,
        "payload": question.payload,
        "response_schema": question.response_schema,
        "requested_capability": question.requested_capability,
    }


def settle(
    interrupt: Interrupt,
    status: SettledStatus,
    now: datetime,
    *,
    by: str | None = None,
    reason: str | None = None,
) -> Settled:
    """Return the record of an interrupt that got no answer."""
    return Settled(
        id=interrupt.id,
        name=interrupt.name,
        kind=interrupt.kind,
        address=interrupt.address,
        prompt=interrupt.prompt[:_KEPT_PROMPT_CHARS],
        requested_capability=interrupt.requested_capability,
        created_at=interrupt.created_at,
        deadline=interrupt.deadline,
        status=status,
        settled_at=now,
        by=by,
        reason=reason,
    )


def settle_answered(interrupt: Interrupt, answer: Json, by: str, now: datetime) -> Settled:
    """Return the record of an answered interrupt."""
    is_short = size(answer) <= _KEPT_ANSWER_BYTES or by == TIMEOUT
    return replace(
        settle(interrupt, "answered", now, by=by),
        answer_sha256=sha256(answer),
        answer=answer if is_short else None,
    )


def receipt_of(settled: Settled, *, replayed: bool) -> Receipt:
    """Return the receipt of an answered interrupt."""
    return Receipt(
        interrupt_id=settled.id,
        answered_by=settled.by or "",
        accepted_at=settled.settled_at,
        replayed=replayed,
    )


def addressee(ledger: Ledger) -> str:
    """Return the id that an answer without one means: the only open interrupt, else a refusal."""
    if len(ledger.open) == 1:
        return next(iter(ledger.open))
    listed = [{"id": entry.id, "name": entry.name} for entry in ledger.open.values()]
    ids = ", ".join(entry["id"] for entry in listed[:10])
    hint = (
        f"so an answer must name the id of one: {ids}" if ids else "so there is nothing to answer"
    )
    raise Refusal(
        Code.AMBIGUOUS_INTERRUPT,
        f"{len(listed)} interrupts are open, {hint}.",
        open_interrupts=listed,
    )


def check_answers(ledger: Ledger, event: Responded) -> Mapping[str, Receipt]:
    """Check a response: return the receipts of the answers that are repeats.

    All or nothing: raises the Refusal of the first answer that cannot be accepted, with all of them in
    its member `refused`.
    """
    replays: dict[str, Receipt] = {}
    refusals: list[tuple[str, Refusal]] = []
    for id_, answer in event.answers.items():
        try:
            replay = _check_one(ledger, id_, answer, event)
        except Refusal as refusal:
            refusals.append((id_, refusal))
        else:
            if replay is not None:
                replays[id_] = replay
    if not refusals:
        return replays
    first = refusals[0][1]
    if len(event.answers) == 1:
        raise first
    if first.code is Code.CAPABILITY_REQUIRED:
        lacking = [refusal.details.get("capabilities", ()) for _, refusal in refusals]
        first.details = {
            **first.details,
            "capabilities": sorted({name for names in lacking for name in names}),
        }
    refused = [
        {"interrupt_id": id_, "code": str(refusal.code), "detail": refusal.message}
        for id_, refusal in refusals
    ]
    raise Refusal(
        first.code,
        f"{first.message} Of {len(event.answers)} answers {len(refused)} cannot be accepted, "
        "so none was applied.",
        **{**first.details, "refused": refused},
    )


def refuse_strays(event: Responded) -> None:
    """Raise `stale` if a digest is of an interrupt that the response does not answer.

    The caller was shown something else than what it would answer. Checked only before a response is
    accepted, so that an accepted one is never refused later.
    """
    strays = sorted(event.digests.keys() - event.answers.keys())
    if strays:
        raise Refusal(
            Code.STALE,
            f"A digest of {strays[0]!r} was sent, and the answer is to {', '.join(event.answers)}. Read "
            "what the run asks now, and send the digests of what is answered.",
            interrupt_id=strays[0],
            answered=[*event.answers],
        )


def _check_one(ledger: Ledger, id_: str, answer: Json, event: Responded) -> Receipt | None:
    entry = ledger.open.get(id_) or ledger.settled.get(id_)
    if entry is None:
        _refuse_parent(ledger, id_)
        raise Refusal(
            Code.UNKNOWN_INTERRUPT,
            f"There is no interrupt {id_!r} in this run; list its interrupts to see their ids.",
            interrupt_id=id_,
        )
    if not event.principal.may(entry.requested_capability):
        raise Refusal(
            Code.CAPABILITY_REQUIRED,
            f"{event.principal.subject!r} may not answer {entry.name!r}: it asks for the capability "
            f"{entry.requested_capability!r}. The interrupt stays as it is.",
            interrupt_id=id_,
            capability=entry.requested_capability,
            capabilities=[entry.requested_capability],
        )
    if (fault := why_not_json(answer)) is not None:
        raise Refusal(
            Code.INVALID_ANSWER,
            f"The answer to {entry.name!r} is not JSON: {fault}. The interrupt stays as it is.",
            interrupt_id=id_,
            errors=[{"pointer": "", "message": fault}],
        )
    if isinstance(entry, Settled):
        return _check_settled(entry, answer)
    _check_open(entry, event)
    return None


def _refuse_parent(ledger: Ledger, id_: str) -> None:
    causes = [
        entry.id
        for entry in ledger.open.values()
        if any(parent.id == id_ for parent in entry.parents)
    ]
    if causes:
        raise Refusal(
            Code.NOT_ROOT_CAUSE,
            f"{id_!r} waits because of what is asked inside it; answer that: {', '.join(causes[:10])}",
            interrupt_id=id_,
            root_causes=causes,
        )


def _check_open(interrupt: Interrupt, event: Responded) -> None:
    shown = event.digests.get(interrupt.id)
    if shown is not None and shown != interrupt.digest:
        raise Refusal(
            Code.STALE,
            f"The answer to {interrupt.name!r} is to another question than the open one: "
            f"its digest is {shown!r}, that of the open question is {interrupt.digest!r}. "
            "Read the interrupt again.",
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
            f"The answer to {interrupt.name!r} does not fit its schema: "
            + "; ".join(f"{fault.pointer or '(the answer)'}: {fault.message}" for fault in faults)
            + ". The interrupt stays open.",
            interrupt_id=interrupt.id,
            errors=[{"pointer": fault.pointer, "message": fault.message} for fault in faults],
        )


def _check_settled(settled: Settled, answer: Json) -> Receipt:
    when = rfc3339(settled.settled_at)
    match settled.status:
        case "answered" if settled.by == TIMEOUT:
            raise Refusal(
                Code.ALREADY_ANSWERED,
                f"{settled.name!r} was answered by its default at {when}, "
                "because nobody had answered in time.",
                interrupt_id=settled.id,
                answered_by=TIMEOUT,
                answered_at=when,
                answer=settled.answer,
            )
        case "answered" if settled.answer_sha256 == sha256(answer):
            return receipt_of(settled, replayed=True)
        case "answered":
            raise Refusal(
                Code.ALREADY_ANSWERED,
                f"{settled.name!r} was answered by {settled.by!r} at {when}, with another answer.",
                interrupt_id=settled.id,
                answered_by=settled.by,
                answered_at=when,
            )
        case "expired":
            raise Refusal(
                Code.EXPIRED,
                f"{settled.name!r} could be answered until its deadline and expired at {when}.",
                interrupt_id=settled.id,
                deadline=settled.deadline and rfc3339(settled.deadline),
            )
        case "cancelled" | "superseded":
            raise Refusal(
                Code.WITHDRAWN,
                f"{settled.name!r} was withdrawn at {when} ({settled.reason or settled.status}).",
                interrupt_id=settled.id,
                status=settled.status,
            )
        case _:
            assert_never(settled.status)
