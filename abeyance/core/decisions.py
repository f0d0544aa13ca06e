"""Decisions of an approver about a tool call: approve, edit, reject, or respond in its place.

The answer to an approval is `{approved: true, arguments?}`, `{approved: false, reason?}`, or
`{approved: false, result}`, which the model reads in place of the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from abeyance.core import four_eyes, grants, items
from abeyance.core.events import Responded
from abeyance.core.json import Json, canonical, size
from abeyance.core.ledger import Interrupt
from abeyance.core.outcome import key_of
from abeyance.core.policy import TIMEOUT
from abeyance.core.state import RunState
from abeyance.core.terms import Decision
from abeyance.core.visit import Visit
from abeyance.core.votes import Vote
from abeyance.core.who_may_answer import Answerer
from abeyance.errors import Code, Refusal

_APPROVALS: Final = key_of("approval", "")
_MARKS: Final = ("decision", "edited", "by", "on_behalf_of")
_MEANING: Final[Mapping[Decision, str]] = {
    "approve": "approve the call as it is",
    "edit": "change the arguments of the call",
    "reject": "reject the call",
    "respond": "give a result in place of the call",
}


def without_equal_arguments(interrupt: Interrupt, answer: Json) -> Json:
    """Return the answer to a question as its code reads it. Arguments that are those asked about are no
    edit: left out, unless votes have revised what was asked about. So is what is to be remembered.
    """
    if interrupt.kind != "approval":
        return answer
    answer = grants.without_remember(answer)
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
    """Return what a call's result says of an approver's edit of its arguments; empty without one."""
    for key, answer in visit.questions.answers.items():
        if key.startswith(_APPROVALS) and "arguments" in answer:
            return {"decision": "edit", "edited": answer["arguments"], **approver(state, visit)}
    # Of an agent that is called, another visit may have asked.
    before = items.item_of(state, visit.scope, visit.members[-1]).result or {}
    return {name: before[name] for name in _MARKS if name in before}


def approver(state: RunState, visit: Visit) -> dict[str, Json]:
    """Return who answered the approval of a call, and for whom, as its result says it; empty if nobody
    did. Of votes for other arguments that is who has put these in.
    """
    for key, answer in visit.questions.answers.items():
        name = key.removeprefix(_APPROVALS)
        if name != key and (found := four_eyes.answered_by(state, visit, name)) is not None:
            who = next(_revisers(found, answer), found)
            named = {"by": who.by, "on_behalf_of": who.on_behalf_of}
            return {name: who for name, who in named.items() if who is not None}
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
