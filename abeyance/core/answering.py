"""What becomes of an accepted answer: it settles its question, is a vote, or is held for a while.

*Quorum.* A question that several people decide takes one vote of each. The vote that decides settles it,
with the answer of that vote. Until then a person replaces their vote by another one.

An approval with other arguments than those asked about is a vote for something else, and so is one whose
answer says something else than the approvals before it: it *revises* the question. The votes so far were
for what was asked before, so they do not count any more.

*Hold.* A yes that can be taken back leaves its question held. Nothing that it allows begins before the
hold is over, because only then it settles the question. Taken back, the question is open again, and its
deadline is as far away as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Final, Literal

from abeyance.core import (
    approvals,
    asking,
    edits,
    four_eyes,
    interrupts,
    ledger,
    policy,
    replies,
    who_may_answer,
)
from abeyance.core.deadlines import moment
from abeyance.core.events import Responded, TakenBack
from abeyance.core.json import Json, canonical, rfc3339, sha256
from abeyance.core.ledger import Interrupt, Receipt, Vote
from abeyance.core.outcome import Asked
from abeyance.core.policy import Principal
from abeyance.core.spec import InterruptSpec
from abeyance.core.state import RunState
from abeyance.core.step import Step
from abeyance.core.text import truncate
from abeyance.errors import Code, Refusal

_PROMPT_CHARS: Final = 1_000
_ASKED_CHARS: Final = 8_000
_SPEC: Final = tuple(entry.name for entry in fields(InterruptSpec))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """The effect of an answer: the votes including it, how many are missing, what is asked from now on,
    and until when the answer is held.
    """

    status: Literal["answered", "voted", "held"]
    votes: tuple[Vote, ...] = ()
    missing: int | None = None
    revision: Asked | None = None
    held_until: datetime | None = None


def call_digest(tool: str, arguments: Mapping[str, Json]) -> str:
    """Return `sha256:<hex>` of the tool name and the arguments: it binds an approval to a call."""
    return sha256({"tool": tool, "arguments": dict(arguments)})


def receipt(entry: Interrupt, answer: Json, event: Responded) -> Receipt:
    """Return the receipt of an answer that is accepted and does not repeat an earlier one."""
    name = who_may_answer.acting_for(entry, event.request)
    outcome = _outcome(entry, _vote(entry, answer, event, name))
    return Receipt(
        interrupt_id=entry.id,
        status=outcome.status,
        answered_by=event.principal.subject,
        on_behalf_of=name,
        accepted_at=event.now,
        missing=outcome.missing,
        held_until=outcome.held_until,
        asked_again=_changes_preview(entry, answer) or None,
    )


def _changes_preview(entry: Interrupt, answer: Json) -> bool:
    match entry.reason, answer:
        case {"arguments": asked}, {"approved": True, "arguments": arguments}:
            return entry.preview is not None and canonical(arguments) != canonical(asked)
        case _:
            return False


def responded(step: Step, event: Responded) -> None:
    """Carry out a response that `check` has not refused."""
    # Before anything changes: an answer bars its principal from other questions.
    names = who_may_answer.names_of(step.run.ledger.open, event)
    for id_, answer in event.answers.items():
        entry, by = step.run.ledger.open.get(id_), event.principal.subject
        # A question that is not open was given the same answer before.
        if entry is None or id_ not in names:
            continue
        name = names[id_]
        if ledger.repeated_vote(entry.votes, answer, by=by, on_behalf_of={name}) is not None:
            continue
        asking.take_edits(step, entry, event.taken[id_], by)
        _accept(step, entry, answer, event, _vote(entry, answer, event, name))
        step.run.last_activity_at = event.now


def _accept(step: Step, entry: Interrupt, answer: Json, event: Responded, vote: Vote) -> None:
    outcome = _outcome(entry, vote)
    if outcome.revision is not None:
        entry = _revise(step, entry, outcome.revision, vote)
    if entry.quorum is not None:
        entry = step.run.ledger.open[entry.id] = replace(entry, votes=outcome.votes)
        interrupts.publish_vote(step, "interrupt.voted", entry, vote, missing=outcome.missing or 0)
    if outcome.status == "answered":
        _settle(step, entry, vote)
        approvals.remember(step, entry, answer, event)
        return
    if (until := outcome.held_until) is not None:
        entry = replace(entry, status="held", held=vote, held_until=until)
        step.run.ledger.open[entry.id] = entry
        interrupts.publish_vote(step, "interrupt.held", entry, vote, until=rfc3339(until))
    four_eyes.bar(step, entry.name)


def end_hold(step: Step, entry: Interrupt) -> None:
    """Settle a held interrupt, because its yes can no longer be taken back."""
    assert entry.held is not None  # noqa: S101 a held interrupt has the answer
    _settle(step, entry, entry.held)


def refuse_take_back(state: RunState, event: TakenBack) -> None:
    """Refuse to take back an answer that is not held, or that is not the caller's."""
    edits.refuse_ended(state, "no answer can be taken back")
    entry = state.ledger.open.get(event.interrupt_id)
    if entry is None and event.interrupt_id not in state.ledger.settled:
        raise replies.unknown(event.interrupt_id)
    if entry is None or entry.held is None:
        raise Refusal(
            Code.NOT_HELD,
            f"{event.interrupt_id!r} is not held: a yes can be taken back until `held_until` of its "
            "question.",
            interrupt_id=event.interrupt_id,
        )
    if not _own(entry, event.principal):
        policy.refuse_without_control(
            event.principal,
            entry,
            f"You have not approved {entry.name!r}, and taking back the answer of "
            f"somebody else requires {policy.CONTROL!r}.",
        )


def take_back(step: Step, event: TakenBack) -> None:
    """Open a held interrupt again. Drop the caller's votes, or all votes if the caller has none."""
    entry = step.run.ledger.open[event.interrupt_id]
    own = _own(entry, event.principal)
    left = tuple(vote for vote in entry.votes if vote not in own) if own else ()
    four_eyes.reopen(
        step, entry, votes=left, by=event.principal.subject, reason=event.note or "taken back"
    )
    four_eyes.bar(step, entry.name)
    step.run.last_activity_at = step.now


def _own(entry: Interrupt, principal: Principal) -> tuple[Vote, ...]:
    """Return the approvals of a held interrupt that are the caller's, or were given for the caller."""
    approvals = entry.votes or filter(None, [entry.held])
    return tuple(v for v in approvals if v.is_yes and principal.subject in v.people)


def _vote(entry: Interrupt, answer: Json, event: Responded, name: str | None) -> Vote:
    return Vote(
        by=event.principal.subject,
        on_behalf_of=name,
        at=event.now,
        answer=event.written.get(entry.id, answer),
        answer_sha256=sha256(answer),
        note=event.note,
    )


def _outcome(entry: Interrupt, vote: Vote) -> _Outcome:
    cast: tuple[Vote, ...] = ()
    revision = None
    if (quorum := entry.quorum) is not None:
        revision = _revision(entry, vote)
        cast = ledger.with_vote(entry.votes if revision is None else (), vote)
        if not ledger.are_decisive(quorum, cast):
            left = ledger.missing_approvals(quorum, cast)
            return _Outcome(status="voted", votes=cast, missing=left, revision=revision)
    hold = entry.effective_terms.hold
    if hold is None or not vote.is_yes:
        return _Outcome(status="answered", votes=cast, revision=revision)
    until = moment(vote.at, hold)
    return _Outcome(status="held", votes=cast, revision=revision, held_until=until)


def _revision(entry: Interrupt, vote: Vote) -> Asked | None:
    """Return the revised question, if an approval approves something else than the votes so far."""
    question = InterruptSpec(**{name: getattr(entry, name) for name in _SPEC})
    if entry.kind != "approval":
        return _other_answer(entry, question, vote)
    match entry.reason, vote.answer:
        case (
            {"tool": str(tool), "arguments": Mapping() as asked},
            {"approved": True, "arguments": Mapping() as arguments},
        ) if canonical(arguments) != canonical(asked):
            shown = truncate(canonical(arguments), _PROMPT_CHARS)
            prompt = f"Run {tool!r} with {shown}? {vote.by!r} has changed the arguments."
            question = replace(
                question,
                prompt=prompt,
                reason={**entry.reason, "arguments": dict(arguments)},
                payload={**(entry.payload or {}), "digest": call_digest(tool, arguments)},
                # The preview shows the old arguments.
                preview=None,
            )
            return Asked(question=question, prompt_values=((0, len(prompt)),))
        case _:
            return None


def _other_answer(entry: Interrupt, question: InterruptSpec, vote: Vote) -> Asked | None:
    """Return the question with the answer of an approval, if somebody approved with another one."""
    others = [each for each in entry.votes if each.is_yes and not each.people & vote.people]
    said = ledger.approved_content(vote.answer)
    if not vote.is_yes or all(ledger.approved_content(each.answer) == said for each in others):
        return None
    prompt, spans = entry.prompt, entry.prompt_values
    if entry.revised:
        # Its end is about the vote before.
        prompt, spans = prompt[: spans[-1][0]], spans[:-1]
    prompt = prompt[:_ASKED_CHARS]
    shown = truncate(said, _PROMPT_CHARS)
    end = f" {vote.by!r} approves with another answer: {shown}."
    spans = (*spans, (len(prompt), len(prompt) + len(end)))
    payload = question.payload
    if isinstance(vote.answer, Mapping) and (payload is None or isinstance(payload, Mapping)):
        answer = {name: value for name, value in vote.answer.items() if name != "approved"}
        payload = {**(payload or {}), **answer}
    return Asked(
        question=replace(question, prompt=prompt + end, payload=payload), prompt_values=spans
    )


def _revise(step: Step, entry: Interrupt, asked: Asked, vote: Vote) -> Interrupt:
    question = asked.question
    digest = ledger.digest_of(entry.address, question, step.run.era)
    step.publish_about(
        entry,
        "interrupt.revised",
        vote.by,
        was=entry.digest,
        digest=digest,
        audit={"shown": ledger.shown_of(question, digest)},
    )
    content = ledger.content_of(question)
    values = asked.prompt_values
    return replace(entry, **content, prompt_values=values, digest=digest, revised=True)


def _settle(step: Step, entry: Interrupt, vote: Vote) -> None:
    if entry.revised and entry.kind == "approval" and vote.is_yes:
        # The call has the arguments that its model wrote, and these are what was approved.
        answer = {**vote.answer, "arguments": entry.reason["arguments"]}
        vote = replace(vote, answer=answer, answer_sha256=sha256(answer))
    interrupts.answer(step, entry, vote)
