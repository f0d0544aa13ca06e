"""Approvals of tool calls: what an approver may decide, and what may be remembered of a yes.

*Decisions.* The answer to an approval is `{approved: true, arguments?}`, `{approved: false, reason?}`, or
`{approved: false, result}`, which the model reads in place of the call.

*Grants.* The author of a tool says what may be remembered of its approvals. A yes with `remember` makes a
grant. A later call that it covers is not asked about: one of its uses is taken right before the call
runs. Whatever is not known for sure is not covered, and a person is asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from abeyance.core import four_eyes, items, policy
from abeyance.core.events import Responded
from abeyance.core.json import Json, canonical, rfc3339, short_hash, size
from abeyance.core.ledger import Answerer, Interrupt, Vote
from abeyance.core.outcome import key_of
from abeyance.core.policy import EVERYTHING, TEMPORAL, TIMEOUT, Principal
from abeyance.core.state import RunState
from abeyance.core.step import Step
from abeyance.core.terms import Decision, Remember, is_restricted
from abeyance.core.visit import Visit
from abeyance.errors import Code, Refusal

_APPROVALS: Final = key_of("approval", "")
MARKS: Final = ("decision", "edited", "by", "on_behalf_of")
"""The fields of a call's result that tell how a person decided about the call."""
_MEANING: Final[Mapping[Decision, str]] = {
    "approve": "approve the call as it is",
    "edit": "change the arguments of the call",
    "reject": "reject the call",
    "respond": "give a result in place of the call",
}
MOST: Final = 50
MOST_BYTES: Final = 256_000
"""How many grants that count one maker may have, and how many bytes of them."""
_FRAME: Final = 1_500
"""In bytes: the JSON of a grant without the arguments that calls have to share."""
UNVOUCHED: Final = timedelta(hours=24)
"""How long a grant counts at most where nobody can say whether its maker still has the capability."""


# Decisions


def without_equal_arguments(interrupt: Interrupt, answer: Json) -> Json:
    """Return the answer to a question as its code reads it: without `remember`, and without arguments
    equal to those asked about, which are not an edit unless votes have revised the question.
    """
    if interrupt.kind != "approval":
        return answer
    answer = {name: value for name, value in answer.items() if name != "remember"}
    if interrupt.revised or "arguments" not in answer or _is_edit(interrupt, answer):
        return answer
    return {name: value for name, value in answer.items() if name != "arguments"}


def refuse(state: RunState, event: Responded) -> None:
    """Refuse a decision that an approval does not allow, and a result that is too large for the model."""
    for id_, answer in event.taken.items():
        entry = state.ledger.open.get(id_)
        if entry is None or entry.kind != "approval":
            continue
        terms = entry.effective_terms
        allowed, decision = terms.decisions, _decision(entry, answer)
        if decision not in allowed:
            raise Refusal(
                Code.DECISION_NOT_ALLOWED,
                f"The answer to {entry.name!r} would {_MEANING[decision]}, which this approval does not "
                f"allow. It allows: {', '.join(allowed)}. The interrupt stays open.",
                interrupt_id=id_,
                decision=decision,
                decisions=list(allowed),
            )
        if decision == "respond" and (actual := size(answer["result"])) > terms.max_result:
            raise Refusal(
                Code.PAYLOAD_TOO_LARGE,
                f"The result in place of the call takes {actual} bytes, and the tool's max_result allows "
                f"{terms.max_result}: shorten it. {entry.name!r} stays open.",
                interrupt_id=id_,
                limit=terms.max_result,
                actual=actual,
            )


def result_in_place(state: RunState, visit: Visit) -> Json:
    """Return the result of a call that was rejected, answered in its place, or not answered in time;
    None if it was approved.
    """
    for key, answer in visit.questions.answers.items():
        if key.startswith(_APPROVALS) and answer.get("approved") is not True:
            who = approver(state, visit)
            if "result" in answer:
                return {"content": answer["result"], "decision": "respond", **who}
            is_late = who.get("by") == TIMEOUT
            return {"rejected": answer.get("reason"), **({"by": TIMEOUT} if is_late else {})}
    return None


def edit(state: RunState, visit: Visit) -> dict[str, Json]:
    """Return the fields of a call's result that tell of an approver's edit of its arguments; empty
    without an edit.
    """
    for key, answer in visit.questions.answers.items():
        if key.startswith(_APPROVALS) and "arguments" in answer:
            return {"decision": "edit", "edited": answer["arguments"], **approver(state, visit)}
    # If the call runs an agent, another visit may have asked.
    before = items.item_of(state, visit.scope, visit.members[-1]).result or {}
    return {name: before[name] for name in MARKS if name in before}


def approver(state: RunState, visit: Visit) -> dict[str, Json]:
    """Return who answered the approval of a call, and for whom, as fields of its result; empty if nobody
    did. If votes changed the arguments, it is the voter who did.
    """
    for key, answer in visit.questions.answers.items():
        name = key.removeprefix(_APPROVALS)
        if name != key and (found := four_eyes.answered_by(state, visit, name)) is not None:
            who = next(_revisers(found, answer), found)
            people = {"by": who.by, "on_behalf_of": who.on_behalf_of}
            return {role: person for role, person in people.items() if person is not None}
    return {}


def _revisers(answerer: Answerer, answer: Json) -> Iterator[Vote]:
    votes = answerer.votes if "arguments" in answer else ()
    return (vote for vote in votes if "arguments" in vote.answer)


def _decision(entry: Interrupt, answer: Json) -> Decision:
    if answer["approved"] is True:
        return "edit" if _is_edit(entry, answer) else "approve"
    return "respond" if "result" in answer else "reject"


def _is_edit(entry: Interrupt, answer: Json) -> bool:
    asked = entry.reason.get("arguments") if isinstance(entry.reason, Mapping) else None
    return canonical(answer.get("arguments", asked)) != canonical(asked)


# Grants


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A remembered yes of `by`, who had the capability when it was made.

    `run_id` is None if it is for every run of the graph; `uses` is None without a bound. `is_issued`: an
    issuer of tokens, or Slack, has vouched for the capability until its end, and cannot be asked later.
    """

    id: str
    tool: str
    declaration: str
    graph: str
    run_id: str | None = None
    same: Mapping[str, Json] = field(default_factory=dict)
    below: Mapping[str, float] = field(default_factory=dict)
    by: str
    capability: str | None = None
    made_at: datetime
    until: datetime
    uses: int | None = None
    is_issued: bool = False

    def covers(self, call: Wanted) -> bool:
        """Return whether a call is one of those that are remembered, if the grant still counts."""
        return (
            (self.tool, self.declaration, self.graph) == (call.tool, call.declaration, call.graph)
            and self.run_id in (None, call.run_id)
            and all(_is_same(call.arguments, name, value) for name, value in self.same.items())
            and all(_is_below(call.arguments, name, bound) for name, bound in self.below.items())
        )

    def holds(self, now: datetime, maker: Principal | None, *, is_known: bool) -> bool:
        """Return whether the grant has not expired and its maker may still approve such a call.

        `maker` is the person with the maker's name in the file of tokens, None if there is none. Then the
        grant holds if an issuer has vouched for the maker (`is_issued`), or, if there is no such file
        (`is_known` is False), for 24 hours after it was made.
        """
        if now >= self.until:
            return False
        if maker is not None:
            return maker.may(self.capability)
        return self.is_issued or (not is_known and now < self.made_at + UNVOUCHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A call that a grant may cover. `origin` is the first execution of its run, `call` its address."""

    tool: str
    declaration: str
    graph: str
    run_id: str
    origin: str
    call: str
    arguments: Mapping[str, Json]


def _is_same(arguments: Mapping[str, Json], name: str, value: Json) -> bool:
    return name in arguments and canonical(arguments[name]) == canonical(value)


def _is_below(arguments: Mapping[str, Json], name: str, bound: float) -> bool:
    match arguments.get(name):
        case bool():
            return False
        case int() | float() as value:
            return math.isfinite(value) and value < bound
        case _:
            return False


def asks_to_remember(entry: Interrupt, answer: Json) -> bool:
    """Return whether an answer to an approval says that it is to be remembered."""
    return entry.kind == "approval" and isinstance(answer, Mapping) and "remember" in answer


def _asks_in_vain(entry: Interrupt, answer: Json) -> bool:
    """Return whether an answer to a question of another kind asks to be remembered. The author's schema
    may have a field of that name.
    """
    match answer:
        case {"approved": True, "remember": {"for": _, "where": _}} if entry.kind != "approval":
            schema = entry.response_schema
            fields = schema.get("properties") if isinstance(schema, Mapping) else None
            return not (isinstance(fields, Mapping) and "remember" in fields)
        case _:
            return False


def offered(entry: Interrupt) -> Remember | None:
    """Return what an approver may remember of a question, None if nothing may be remembered."""
    return None if _why_never(entry) else entry.remember


def _why_never(entry: Interrupt) -> str | None:
    if entry.kind != "approval":
        return "it is not an approval of a tool call"
    if entry.remember is None:
        return "its author lets nobody remember an approval of this tool"
    if is_restricted(entry.terms):
        return "it takes several people or particular ones (quorum, not_by, assignees_only)"
    if entry.effective_terms.hold is not None:
        return "a yes to it can be taken back for a while (hold)"
    match entry.reason:
        case {"arguments": Mapping() as asked}:
            lacking = [name for name in entry.remember.same if name not in asked]
            return f"the call has no {lacking[0]!r} that others could share" if lacking else None
        case _:
            return "it does not show the arguments of a call"


def refuse_unless_rememberable(entry: Interrupt, answer: Json, event: Responded) -> None:
    """Raise `not_rememberable` for an answer that is to be remembered and cannot be."""
    if not (asks_to_remember(entry, answer) or _asks_in_vain(entry, answer)):
        return
    principal, capability = event.principal, entry.requested_capability
    why = _why_never(entry)
    if why is None and principal == TEMPORAL:
        why = "it is not known who answers"
    if why is None and event.remember_only == "nothing":
        why = "a personal link answers one question: sign in to remember more"
    if why is None:
        why = _no_room(entry, event)
    if why is None and _is_edit(entry, answer):
        why = "the answer changes the arguments: approve them as they are to remember it"
    is_literal = capability is not None and capability in principal.capabilities
    if why is None and EVERYTHING in principal.capabilities and not is_literal:
        whose = "whose capabilities are listed" if capability is None else f"who has {capability!r}"
        why = (
            f"you have every capability ({EVERYTHING!r}), and what that allows is not "
            f"remembered: answer as somebody {whose}"
        )
    if why is not None:
        raise Refusal(
            Code.NOT_REMEMBERABLE,
            f"The answer to {entry.name!r} cannot be remembered: {why}. The interrupt stays open.",
            interrupt_id=entry.id,
        )


def _no_room(entry: Interrupt, event: Responded) -> str | None:
    """Return why its maker can have no further grant; None if there is room for it."""
    taken, more = event.granted_bytes or 0, bytes_of(_shared(entry))
    if (event.granted or 0) >= MOST:
        return f"you have {event.granted} grants, and {MOST} is the most: revoke some of them first"
    if taken + more > MOST_BYTES:
        return (
            f"your grants take {taken} bytes and this one {more}, and {MOST_BYTES} is the "
            "most: revoke some of them first"
        )
    return None


def bytes_of(same: Mapping[str, Json]) -> int:
    """Return the most bytes that a grant for calls with these shared arguments takes."""
    return _FRAME + size(same)


def _shared(entry: Interrupt) -> dict[str, Json]:
    return {name: entry.reason["arguments"][name] for name in _allowed(entry).same}


def _allowed(entry: Interrupt) -> Remember:
    assert entry.remember is not None  # noqa: S101 only approvals with it are remembered
    return entry.remember


def refuse_too_wide(entry: Interrupt, answer: Json, event: Responded) -> None:
    """Raise `grant_too_wide` if more is to be remembered than the author allows, or than the answerer
    may approve. The answer fits its schema.
    """
    if not asks_to_remember(entry, answer):
        return
    allowed, wanted = _allowed(entry), answer["remember"]
    capability = entry.requested_capability
    why = None
    if event.lasts[entry.id] > allowed.most:
        most = timedelta(seconds=allowed.most)
        why = f"for {wanted['for']!r}, and the author allows at most {most}"
    elif wanted["where"] not in allowed.where:
        why = f"in every {wanted['where']}, and the author allows {' and '.join(allowed.where)}"
    elif event.remember_only == "run" and wanted["where"] != "run":
        why = f"in every {wanted['where']}, and you see only some runs"
    elif capability is not None and capability not in event.principal.capabilities:
        why = f"without the capability {capability!r}, which you lack"
    if why is not None:
        raise Refusal(
            Code.GRANT_TOO_WIDE,
            f"The answer to {entry.name!r} would be remembered {why}. The interrupt stays open.",
            interrupt_id=entry.id,
            most=allowed.most,
            where=list(allowed.where),
        )


def remember(step: Step, entry: Interrupt, answer: Json, event: Responded) -> None:
    """Publish the grant that an accepted yes makes, with all of it for the records."""
    if not asks_to_remember(entry, answer):
        return
    made = _made(step, entry, answer["remember"], event)
    step.publish_about(
        entry,
        "approval.remembered",
        made.by,
        audit={"grant": as_json(made)},
        grant=made.id,
        tool=made.tool,
        where="graph" if made.run_id is None else "run",
        until=rfc3339(made.until),
        uses=made.uses,
    )


def _made(step: Step, entry: Interrupt, wanted: Mapping[str, Json], event: Responded) -> Grant:
    allowed = _allowed(entry)
    until = step.after(event.lasts[entry.id])
    if event.vouched_until is not None:
        until = min(until, event.vouched_until)
    return Grant(
        # A workflow task that is done again makes the same id, and a rewind makes another.
        id=short_hash([entry.id, step.run.era]),
        tool=entry.reason["tool"],
        declaration=allowed.declaration,
        graph=step.run.spec.name,
        run_id=step.run.run_id if wanted["where"] == "run" else None,
        same=_shared(entry),
        below=allowed.below,
        by=event.principal.subject,
        capability=entry.requested_capability,
        made_at=event.now,
        until=until,
        uses=wanted.get("uses"),
        is_issued=event.vouched_until is not None,
    )


def as_json(grant: Grant) -> dict[str, Any]:
    """Return a grant as JSON."""
    times = {"made_at": rfc3339(grant.made_at), "until": rfc3339(grant.until)}
    return {**asdict(grant), **times}


def unknown(id_: str) -> Refusal:
    """Return the refusal of an id that no grant has."""
    return Refusal(
        Code.NOT_FOUND,
        f"There is no grant {id_!r}; list the grants to see their ids.",
        grant_id=id_,
    )


def refuse_foreign(grant: Grant, principal: Principal, capability: str) -> None:
    """Raise `capability_required` for a principal who may not revoke a grant of somebody else."""
    policy.refuse_foreign(f"grant {grant.id!r}", grant.by, principal, capability, doing="revoke")
