"""Interrupts and their answers: the record of what people were asked and what they answered.

An interrupt is *open* until exactly one thing settles it: an answer, its deadline, the end of its run, or
the branch that left it. A yes that can be taken back makes it *held* before that. A settled one shrinks
to what a repeated or late answer needs to get the right reply: status, time, principal, and the hash of
the answer. `replies` decides what an answer gets as its reply.

*Votes* are the answers of several people to one question. One person has one vote. Who votes on behalf of
somebody else uses up the votes of both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from abeyance.core.address import AddressText, BarringName, QuestionKey
from abeyance.core.json import Json, Spans, canonical, sha256, short_hash, size
from abeyance.core.policy import TIMEOUT
from abeyance.core.spec import Default, InterruptSpec
from abeyance.core.tables import ALL, Index, Table
from abeyance.core.terms import KINDS, Kind, Quorum, Remember
from abeyance.core.text import truncate

SettledStatus: TypeAlias = Literal["answered", "expired", "cancelled", "superseded"]

ASKED_AGAIN: Final = "asked again"
"""The `settled_reason` of a question whose answer counts no more."""
_STORED_PROMPT_CHARS: Final = 200
_STORED_BYTES: Final = 512
_STORED_NOTE_CHARS: Final = 500
_SPEC: Final = tuple(entry.name for entry in fields(InterruptSpec))
_CONTENT: Final = tuple(
    name
    for name in _SPEC
    if name not in {"name", "timeout", "on_timeout", "terms", "response_type", "rewrites"}
)
"""Fields shown to a person, which the digest of an interrupt covers."""
_BOUND_TERMS: Final = ("quorum", "not_by")
"""The terms that it covers, where a question has them."""
_SETTLED: Final = (
    *("id", "name", "kind", "address", "prompt", "requested_capability"),
    *("created_at", "deadline", "terms", "escalations", "digest", "prompt_values"),
)
"""Fields kept of a settled interrupt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """What one person answered, and when. A settled question keeps only a short answer and note."""

    by: str
    on_behalf_of: str | None = None
    at: datetime
    answer: Json = None
    answer_sha256: str = ""
    note: str | None = None

    @property
    def people(self) -> frozenset[str]:
        """The people whose vote this is: the voter, and the person for whom they voted."""
        return frozenset({self.by, self.on_behalf_of or self.by})

    @property
    def is_yes(self) -> bool:
        return is_yes(self.answer)

    @property
    def stored(self) -> Vote:
        """The vote as a settled question keeps it."""
        answer = self.answer if size(self.answer) <= _STORED_BYTES else None
        note = self.note and truncate(self.note, _STORED_NOTE_CHARS)
        return replace(self, answer=answer, note=note)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim keeps a question until `until` for the person who made it, and for the person they stand in
    for.
    """

    by: str
    on_behalf_of: str | None = None
    at: datetime
    until: datetime

    @property
    def people(self) -> frozenset[str]:
        """The people for whom the question is kept."""
        return frozenset({self.by, self.on_behalf_of or self.by})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answerer:
    """Who answered a question, for whom, and when. `people` are all who had a part in it; `votes` are the
    votes that decided, if it took several.
    """

    by: str
    on_behalf_of: str | None = None
    at: datetime
    people: tuple[str, ...] = ()
    votes: tuple[Vote, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """A visit that waits because of an interrupt inside it: composite, or with a nested graph."""

    id: str
    address: AddressText
    reason: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt(InterruptSpec):
    """An interrupt that was opened: its spec, filled with values, and its status.

    `key` is the question's among those of its visit. `prompt_values` is where the prompt has values.
    `number` is that of the fact which opened it: it breaks ties of time. `parents` go from the nearest
    to the outermost. `fields` are hashes of what the question shows of the values, by their paths. It
    `repeats` one whose answer led to code that has begun, and that an answer lets begin again.

    `reminders` are the moments at which those who are asked are reminded, those of the past included, and
    `escalations` those of `terms.escalate`, in its order. `notice_at` is the next of both that is not
    published yet and comes before the deadline. `barred` are those who may not answer because of
    `terms.not_by`, each with the rule that bars them. `reassigned`: people have replaced the assignees
    that its author named; `revoted`: also those who vote.

    A settled interrupt keeps only what `settle` leaves. `by` is the principal who answered or withdrew
    it, or the timeout. `answer` is stored if it is short, `answer_sha256` always. `note` is what the
    principal wrote beside the answer, of which the beginning is stored. `on_behalf_of` is in whose place
    the principal answered.

    `votes` are those that count towards its quorum. `held` is the yes that can be taken back until
    `held_until`, and `accepted_at` is when it came, once it has settled the question. `revised`: a vote
    has changed what is asked about. `remember` is what may be remembered of an approval.
    """

    id: str
    kind: Kind
    address: AddressText
    created_at: datetime
    deadline: datetime | None = None
    digest: str = ""
    visit: AddressText = ""
    scope: AddressText = ""
    key: QuestionKey = ""
    prompt_values: Spans = ()
    number: int = 0
    parents: tuple[Parent, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    repeats: bool = False
    reminders: tuple[datetime, ...] = ()
    escalations: tuple[datetime, ...] = ()
    notice_at: datetime | None = None
    claim: Claim | None = None
    barred: Mapping[str, BarringName] = field(default_factory=dict)
    reassigned: bool = False
    revoted: bool = False
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
    remember: Remember | None = None

    @property
    def quorum(self) -> Quorum | None:
        """How many people have to approve, if it takes more than one answer."""
        return self.effective_terms.quorum

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
    """The receipt of an accepted answer. `replayed`: the answer was accepted before.

    `status` is what the answer did: it settled the question, is held until `held_until`, or is a vote,
    after which `missing` approvals are still needed. `asked_again`: it changes a call whose preview was
    shown, so nothing is done before somebody has approved the preview of the changed call.
    """

    interrupt_id: str
    status: Literal["answered", "voted", "held"] = "answered"
    answered_by: str
    on_behalf_of: str | None = None
    accepted_at: datetime
    replayed: bool = False
    missing: int | None = None
    held_until: datetime | None = None
    asked_again: bool | None = None


BY_VISIT: Final = Index[Interrupt](lambda each: (each.visit,))
BY_NAME: Final = Index[Interrupt](lambda each: (each.name,))
BARRING: Final = Index[Interrupt](lambda each: each.effective_terms.not_by)
"""Indexed by the questions whose answerers may not answer them."""
DUE: Final = Index[Interrupt](
    lambda each: () if each.due is None else (ALL,),
    # A number is compared in a fraction of the time.
    order=lambda each: each.due and each.due.timestamp(),
)
"""The questions at which something happens if nobody acts, the earliest first."""
NEAREST: Final = Index[Interrupt](
    lambda each: (ALL, "awaited") if each.deadline and each.held is None else (ALL,),
    order=lambda each: (
        (1, each.number) if each.deadline is None else (0, each.deadline.timestamp(), each.number)
    ),
)
"""The nearest deadline first, those without one last; `awaited` are those that their deadline settles."""


class InterruptTable(Table[str, Interrupt]):
    """Open interrupts by id, in the order of opening."""

    ROW = Interrupt
    INDICES = (BY_VISIT, BY_NAME, BARRING, DUE, NEAREST)
    __slots__ = ()


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Open interrupts in the order of opening, settled ones in the order of settling."""

    open: InterruptTable = field(default_factory=InterruptTable)
    settled: dict[str, Interrupt] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # One that was read has a plain dictionary.
        if not isinstance(self.open, InterruptTable):
            self.open = InterruptTable(self.open)

    @property
    def capabilities(self) -> set[str]:
        asked = (each.requested_capability for each in self.open.values())
        return {name for name in asked if name}


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

    The kind separates questions about a visit from those that its code asks under the same name. The salt
    separates it from the questions of an earlier run with this id, so that an old answer does not answer
    it.
    """
    own = [] if KINDS[kind].asked_by == "author" else [kind]
    salted = [{"salt": salt}] if salt else []
    return f"{run_id}.{short_hash([address, name, ordinal, *own, *salted])}"


def digest_of(address: str, question: InterruptSpec, era: str = "") -> str:
    """Return the hash of all that a person is shown, which callers may send with an answer.

    After a rewind it is another one, by the `era`.
    """
    content = {"address": address, "name": question.name, **bound_content(question)}
    return sha256({**content, "era": era} if era else content)


def content_digest(question: InterruptSpec) -> str:
    """Return the hash of a question's content, without its node and its capability."""
    return sha256({**bound_content(question), "requested_capability": None})


def content_of(question: InterruptSpec) -> dict[str, Json]:
    """Return the fields of a question that a person is shown."""
    return {name: getattr(question, name) for name in _CONTENT}


def bound_content(question: InterruptSpec) -> dict[str, Json]:
    """Return the part of a question that its digest covers: its content, and the terms that bind its
    answer.
    """
    terms = {} if question.terms is None else asdict(question.terms)
    content = content_of(question)
    if question.preview is None:
        del content["preview"]
    return content | {name: terms[name] for name in _BOUND_TERMS if terms.get(name)}


def shown_of(question: InterruptSpec, digest: str) -> dict[str, Json]:
    """Return what the audit records as shown to a person: the digest, and the content that it covers.

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


def settle(interrupt: Interrupt, status: SettledStatus, now: datetime, **record: Any) -> Interrupt:
    """Return an interrupt reduced to what stays once it is settled. `record` are the fields that settled
    it.
    """
    stays = {name: getattr(interrupt, name) for name in _SETTLED}
    stays["prompt"] = interrupt.prompt[:_STORED_PROMPT_CHARS]
    stays["votes"] = tuple(vote.stored for vote in interrupt.votes)
    return Interrupt(**stays, status=status, settled_at=now, **record)


def settle_answered(interrupt: Interrupt, vote: Vote, now: datetime) -> Interrupt:
    """Return an interrupt that the answer of a vote has settled, reduced to what stays."""
    stored = vote.stored
    return settle(
        interrupt,
        "answered",
        now,
        by=vote.by,
        on_behalf_of=vote.on_behalf_of,
        answer_sha256=vote.answer_sha256,
        answer=vote.answer if vote.by == TIMEOUT else stored.answer,
        note=stored.note,
        accepted_at=None if interrupt.held is None else interrupt.held.at,
    )


# Votes


def is_yes(answer: Json) -> bool:
    """Return whether an answer approves. Everything that does not is a rejection."""
    return answer is True or (isinstance(answer, Mapping) and answer.get("approved") is True)


def approved_content(answer: Json) -> str:
    """Return what approvers agree to: the answer without the approval itself and its note."""
    if not isinstance(answer, Mapping):
        return canonical({})
    return canonical({k: v for k, v in answer.items() if k not in {"approved", "note"}})


def repeated_vote(
    votes: Sequence[Vote], answer: Json, *, by: str, on_behalf_of: Collection[str | None] | None
) -> Vote | None:
    """Return the vote that the same person cast before with the same answer, if there is one.

    `on_behalf_of` are in whose place it may have been; None for whomever.
    """
    if not votes:
        return None
    same = (by, sha256(answer))
    return next(
        (
            vote
            for vote in votes
            if (vote.by, vote.answer_sha256) == same
            and (on_behalf_of is None or vote.on_behalf_of in on_behalf_of)
        ),
        None,
    )


def with_vote(votes: Sequence[Vote], vote: Vote) -> tuple[Vote, ...]:
    """Return the votes with a new one, in place of those of the same people."""
    return (*(each for each in votes if not each.people & vote.people), vote)


def missing_approvals(quorum: Quorum, votes: Sequence[Vote]) -> int:
    """Return the number of missing approvals."""
    return max(0, quorum.count - sum(vote.is_yes for vote in votes))


def are_decisive(quorum: Quorum, votes: Sequence[Vote]) -> bool:
    """Return whether the votes approve or reject, so that no more are needed."""
    rejections = sum(not vote.is_yes for vote in votes)
    return not missing_approvals(quorum, votes) or rejections >= (
        1 if quorum.veto else quorum.count
    )
