"""Claim, release and reassign: who takes care of an open question.

A claim keeps a question for one person for a while, and ends by itself: an answer compares its time. A
question that several people decide cannot be claimed. Reassigning replaces whom a question is for, and
ends a claim.
"""

from __future__ import annotations

from datetime import timedelta
from typing import assert_never

from abeyance.core import authority, edits, events, standing
from abeyance.core.copying import replace
from abeyance.core.json import rfc3339
from abeyance.core.ledger import Interrupt
from abeyance.core.policy import Principal
from abeyance.core.standing import Claim
from abeyance.core.state import RunState
from abeyance.core.terms import PLAIN
from abeyance.core.working_state import WorkingState
from abeyance.errors import Code, Refusal


def refuse(state: RunState, event: events.Claimed | events.Released | events.Reassigned) -> None:
    """Refuse what cannot be done to a question, or not by this principal."""
    match event:
        case events.Claimed():
            _refuse_claim(_open(state, event.interrupt_id, "claimed"), event)
        case events.Released():
            entry = _open(state, event.interrupt_id, "released")
            claim = standing.claimed(entry, event.now)
            if claim is not None and event.principal.subject not in claim.people:
                _refuse_others(entry, event.principal, "release what somebody else has claimed")
        case events.Reassigned():
            entry = _open(state, event.interrupt_id, "reassigned")
            claim = standing.claimed(entry, event.now)
            has_claimed = claim is not None and event.principal.subject in claim.people
            if not has_claimed and not event.principal.is_among((entry.terms or PLAIN).assignees):
                _refuse_others(
                    entry,
                    event.principal,
                    "reassign what is not assigned to them",
                    ", its assignees",
                )
        case _:
            assert_never(event)


def claim(draft: WorkingState, event: events.Claimed) -> None:
    """Keep a question for the caller, from now on for as long as they want."""
    entry = draft.state.ledger.open[event.interrupt_id]
    until = event.now + timedelta(seconds=event.seconds)
    name = standing.acting_for(entry, event.request)
    taken = Claim(by=event.principal.subject, on_behalf_of=name, at=event.now, until=until)
    draft.open[entry.id] = replace(entry, claim=taken)
    edits.publish_edit(
        draft,
        "interrupt.claimed",
        entry,
        event.principal,
        until=rfc3339(until),
        **({} if name is None else {"on_behalf_of": name}),
    )


def release(draft: WorkingState, event: events.Released) -> None:
    """End the claim of a question, if it has one."""
    entry = draft.state.ledger.open[event.interrupt_id]
    if entry.claim is None:
        return
    draft.open[entry.id] = replace(entry, claim=None)
    if standing.claimed(entry, event.now) is not None:
        edits.publish_edit(draft, "interrupt.released", entry, event.principal)


def reassign(draft: WorkingState, event: events.Reassigned) -> None:
    """Replace whom a question is for, and end its claim."""
    entry = draft.state.ledger.open[event.interrupt_id]
    terms = replace(entry.terms or PLAIN, assignees=event.to)
    draft.open[entry.id] = replace(entry, terms=terms, claim=None, reassigned=True)
    edits.publish_edit(
        draft,
        "interrupt.reassigned",
        entry,
        event.principal,
        to=list(event.to),
        capability=entry.requested_capability,
        deadline=entry.deadline and rfc3339(entry.deadline),
        **({} if event.note is None else {"note": event.note}),
    )


def _open(state: RunState, id_: str, what: str) -> Interrupt:
    edits.refuse_ended(state, f"no question of it can be {what}")
    return edits.open_interrupt(state.ledger, id_, f"it cannot be {what}")


def _refuse_claim(entry: Interrupt, event: events.Claimed) -> None:
    if entry.terms is not None and entry.terms.quorum is not None:
        raise Refusal(
            Code.NOT_CLAIMABLE,
            f"{entry.name!r} takes the votes of several people, so nobody can have it alone: vote.",
            interrupt_id=entry.id,
        )
    standing.acting_for(entry, event.request)


def _refuse_others(entry: Interrupt, principal: Principal, doing: str, more: str = "") -> None:
    authority.refuse_without_control(
        principal,
        entry,
        f"{principal.subject!r} may not {doing}: only who has claimed {entry.name!r}{more}, and who has "
        f"{authority.CONTROL!r}, may do that.",
    )
