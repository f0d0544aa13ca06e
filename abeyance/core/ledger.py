"""Interrupts and their answers: the record of what people were asked and what they answered.

An interrupt is *open* until exactly one thing settles it: an answer, its deadline, the end of its
run, or the branch that left it. A yes that can be taken back makes it *held* before that. A settled one
shrinks to what a repeated or late answer needs to get the right reply: status, time, principal, and the
hash of the answer. `check_answers` is the whole rule about answers; the workflow applies it to a running
run and a client to an ended one, so both reply the same. Most rules are Eino's (targeted, keyed answers)
and Stargraph's (capability, deadline); that a repeat is safe and that null is an answer are ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, assert_never

from abeyance.core import standing, votes
from abeyance.core.copying import changeable
from abeyance.core.events import Responded
from abeyance.core.json import Json, canonical, rfc3339, sha256, size, why_not_json
from abeyance.core.policy import TIMEOUT, Principal
from abeyance.core.spec import Default, InterruptSpec, Kind
from abeyance.core.standing import Claim
from abeyance.core.terms import Quorum
from abeyance.core.text import truncate
from abeyance.core.votes import Vote
from abeyance.errors import Code, Refusal

SettledStatus: TypeAlias = Literal["answered", "expired", "cancelled", "superseded"]

_STORED_ANSWER_BYTES: Final = 512
_STORED_PROMPT_CHARS: Final = 200
_STORED_NOTE_CHARS: Final = 500
_SPEC: Final = tuple(entry.name for entry in fields(InterruptSpec))
_CONTENT: Final = tuple(
    name for name in _SPEC if name not in {"name", "timeout", "on_timeout", "terms"}
)
"""Fields shown to a person, which the digest of an interrupt covers."""
_BOUND_TERMS: Final = ("quorum", "not_by")
"""The terms that it covers, where a question has them."""
_SETTLED: Final = (
    *("id", "name", "kind", "address", "prompt", "requested_capability"),
    *("created_at", "deadline"),
)
"""Fields kept of a settled interrupt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """A visit that waits because of an interrupt inside it: composite, or with a nested graph."""

    id: str
    address: str
    reason: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt(InterruptSpec):
    """An interrupt that was opened: its spec, filled with values, and its status.

    `key` is the question's among those of its visit. `number` is that of the fact which opened it: it
    breaks ties of time. `parents` go from the nearest to the outermost. `fields` are hashes of what the
    question shows of the values, by their paths.

    `reminders` are the moments at which those who are asked are reminded, those of the past included, and
    `escalations` those of `terms.escalate`, in its order. `notice_at` is the next of both that is not
    published yet and comes before the deadline. `barred` are those who may not answer because of
    `terms.not_by`, each with the rule that bars them. `reassigned`: people have replaced the assignees
    that its author named.

    A settled interrupt keeps only what `settle` leaves. `by` is the principal who answered or withdrew
    it, or the timeout. `answer` is stored if it is short, `answer_sha256` always. `note` is what the
    principal wrote beside the answer, of which the beginning is stored. `on_behalf_of` is in whose place
    the principal answered.

    `votes` are those that count towards its quorum. `held` is the yes that can be taken back until
    `held_until`, and `accepted_at` is when it came, once it has settled the question. `revised`: a vote
    has changed the arguments that are asked about.
    """

    id: str
    kind: Kind
    address: str
    created_at: datetime
    deadline: datetime | None = None
    digest: str = ""
    visit: str = ""
    scope: str = ""
    key: str = ""
    number: int = 0
    parents: tuple[Parent, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    reminders: tuple[datetime, ...] = ()
    escalations: tuple[datetime, ...] = ()
    notice_at: datetime | None = None
    claim: Claim | None = None
    barred: Mapping[str, str] = field(default_factory=dict)
    reassigned: bool = False
    status: Literal["open", "held"] | SettledStatus = "open"
    settled_at: datetime | None = None
    settled_reason: str | None = None
    by: str | None = None
    on_behalf_of: str | None = None
    answer_sha256: str | None = None
    answer: Json = None
    note: str | None = None
    votes: tuple[Vote, ...] = ()
    held: Vote | None = None
    held_until: datetime | None = None
    accepted_at: datetime | None = None
    revised: bool = False

    @property
    def quorum(self) -> Quorum | None:
        """How many people have to approve, if it takes more than one answer."""
        return None if self.terms is None else self.terms.quorum

    @property
    def due(self) -> datetime | None:
        """When something happens if nobody acts: a notice is due, its deadline passes, or what was
        approved begins.
        """
        return self.held_until or self.notice_at or self.deadline

    @property
    def since(self) -> datetime:
        """The time at which the interrupt got its status."""
        held = self.created_at if self.held is None else self.held.at
        return self.settled_at or held


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The receipt of an accepted answer. `replayed`: it was accepted before.

    `status` says what the answer did: it settled the question, is held until `held_until`, or is a vote
    while so many approvals are `missing`.
    """

    interrupt_id: str
    status: Literal["answered", "voted", "held"] = "answered"
    answered_by: str
    on_behalf_of: str | None = None
    accepted_at: datetime
    replayed: bool = False
    missing: int | None = None
    held_until: datetime | None = None


@changeable(slots=True, kw_only=True)
class Ledger:
    """Open interrupts in the order of opening, settled ones in the order of settling."""

    open: Mapping[str, Interrupt] = field(default_factory=dict)
    settled: Mapping[str, Interrupt] = field(default_factory=dict)


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

    The kind separates what is asked about a visit from what its code asks under the same name. The salt
    separates it from what an earlier run of this id asked, so that an old answer is none to this.
    """
    own = [] if kind in {"question", "rule"} else [kind]
    salted = [{"salt": salt}] if salt else []
    place = canonical([address, name, ordinal, *own, *salted])
    return f"{run_id}.{hashlib.sha256(place.encode()).hexdigest()[:16]}"


def digest_of(address: str, question: InterruptSpec) -> str:
    """Return the hash of all that a person is shown, which callers may send with an answer."""
    return sha256({"address": address, "name": question.name, **bound_content(question)})


def content_digest(question: InterruptSpec) -> str:
    """Return the hash of a question's content, without its node and its capability."""
    return sha256({**bound_content(question), "requested_capability": None})


def content_of(question: InterruptSpec) -> dict[str, Json]:
    """Return the fields of a question that a person is shown."""
    return {name: getattr(question, name) for name in _CONTENT}


def bound_content(question: InterruptSpec) -> dict[str, Json]:
    """Return what the digest of a question covers: its content, and the terms that bind its answer."""
    terms = {} if question.terms is None else asdict(question.terms)
    content = content_of(question)
    if question.preview is None:
        del content["preview"]
    return content | {name: terms[name] for name in _BOUND_TERMS if terms.get(name)}


def shown_of(question: InterruptSpec, digest: str) -> dict[str, Json]:
    """Return what the audit says that a person was shown: the digest, and what it covers.

    `default` is the answer that the deadline gives, if it gives one.
    """
    content = content_of(question)
    shown = {"digest": digest, **{name: it for name, it in content.items() if it is not None}}
    if isinstance(question.on_timeout, Default):
        shown["default"] = question.on_timeout.answer
    return shown


def opened(question: InterruptSpec, **record: Any) -> Interrupt:
    """Return the open interrupt of a question. `record` is what the question does not say."""
    return Interrupt(**{name: getattr(question, name) for name in _SPEC}, **record)


def settle(
    interrupt: Interrupt,
    status: SettledStatus,
    now: datetime,
    *,
    by: str | None = None,
    reason: str | None = None,
) -> Interrupt:
    """Return what stays of an interrupt that got no answer."""
    stays = {name: getattr(interrupt, name) for name in _SETTLED}
    stays["prompt"] = interrupt.prompt[:_STORED_PROMPT_CHARS]
    stays["votes"] = tuple(vote.stored for vote in interrupt.votes)
    return Interrupt(**stays, status=status, settled_at=now, settled_reason=reason, by=by)


def settle_answered(
    interrupt: Interrupt,
    answer: Json,
    by: str,
    now: datetime,
    note: str | None = None,
    *,
    on_behalf_of: str | None = None,
) -> Interrupt:
    """Return what stays of an interrupt that was answered."""
    is_short = size(answer) <= _STORED_ANSWER_BYTES or by == TIMEOUT
    return replace(
        settle(interrupt, "answered", now, by=by),
        on_behalf_of=on_behalf_of,
        answer_sha256=sha256(answer),
        answer=answer if is_short else None,
        note=note and truncate(note, _STORED_NOTE_CHARS),
        accepted_at=None if interrupt.held is None else interrupt.held.at,
    )


def reopened(interrupt: Interrupt, now: datetime, kept: tuple[Vote, ...]) -> Interrupt:
    """Return an interrupt that is open with these votes only, and not held.

    Its deadline is as far away as it was when it was held.
    """
    deadline, held = interrupt.deadline, interrupt.held
    if deadline is not None and held is not None:
        deadline += now - held.at
    return replace(
        interrupt, status="open", deadline=deadline, votes=kept, held=None, held_until=None
    )


def addressee(ledger: Ledger, answer: Json, principal: Principal) -> str:
    """Return the id of the only open interrupt, which an answer without an id means; a held one is
    meant if there is no other.

    Raises the Refusals `ambiguous_interrupt` and `nothing_open`, the latter with the receipt of the last
    answer if the principal could have given it: else its answer could be guessed.
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
        f"The run has no open interrupt. The last one, {last.name!r}, was answered by {last.by!r} at "
        f"{when}, with {'the same' if is_same else 'another'} answer.",
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

    All or nothing: raises the Refusal of the first answer that cannot be accepted, with all of them in
    its member `refused`.
    """
    replays: dict[str, Receipt] = {}
    refusals: list[tuple[str, Refusal]] = []
    for id_, answer in event.answers.items():
        try:
            earlier = _check_answer(ledger, id_, answer, event)
        except Refusal as refusal:
            refusals.append((id_, refusal))
        else:
            if earlier is not None:
                replays[id_] = earlier
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

    The caller was shown something else than what would be answered. Checked only before a response is
    accepted, so that an accepted one is never checked again.
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


def _check_answer(ledger: Ledger, id_: str, answer: Json, event: Responded) -> Receipt | None:
    entry = ledger.open.get(id_) or ledger.settled.get(id_)
    if entry is None:
        _refuse_parent(ledger, id_)
        raise unknown(id_)
    name = event.on_behalf_of
    if entry.status == "open":
        name = standing.acting_for(entry, event.request)
    elif not standing.may_learn_of(entry, event.principal, event.request.active):
        raise standing.lacks_capability(entry, event.principal)
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


def _receipt(entry: Interrupt, answer: Json, event: Responded, name: str | None) -> Receipt | None:
    """Return the receipt of an answer that is a repeat, None for one that can be accepted."""
    when = rfc3339(entry.accepted_at or entry.since)
    cast = entry.votes if entry.held is None else (*entry.votes, entry.held)
    # Of an open question the right is known; later a repeat need not say again for whom it was.
    names = {name} if entry.status == "open" or name is not None else None
    vote = votes.repeated(cast, answer, by=event.principal.subject, on_behalf_of=names)
    match entry.status:
        case "open":
            if (quorum := entry.quorum) is not None and vote is not None:
                left = votes.missing(quorum, entry.votes)
                return _again(entry, vote, status="voted", missing=left)
            _check_open(entry, event)
            return None
        case "held" if vote is not None:
            return _again(entry, vote, status="held", held_until=entry.held_until)
        case "held":
            held, until = entry.held, entry.held_until
            assert held is not None and until is not None  # noqa: S101, PT018 it is held
            raise Refusal(
                Code.ALREADY_ANSWERED,
                f"{entry.name!r} was answered by {held.by!r} at {rfc3339(held.at)}. The answer can be "
                f"taken back until {rfc3339(until)}: take it back to answer anew.",
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
            return _again(entry, vote, status="answered")
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
                f"{entry.name!r} was answered by {entry.by!r} at {when}"
                + (", so no vote counts any more." if entry.votes else ", with another answer."),
                interrupt_id=entry.id,
                answered_by=entry.by,
                **({} if entry.on_behalf_of is None else {"on_behalf_of": entry.on_behalf_of}),
                answered_at=when,
            )
        case "expired":
            raise Refusal(
                Code.EXPIRED,
                f"{entry.name!r} could be answered until its deadline and expired at {when}.",
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
