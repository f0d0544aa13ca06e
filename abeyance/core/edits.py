"""What people edit: the values of a stopped run, and the deadline, claim and assignees of a question.

Values decide what is asked and where the run goes, and a deadline moved to the next second yields the
default. Both could bypass a gate, so both are changes of course (`policy`), and an answer by default
can only be declared in the graph.

A claim keeps a question for one person for a while, and ends by itself: an answer compares its time. A
question that several people decide cannot be claimed. Reassigning replaces whom a question is for, and
ends a claim. It changes who votes only on request, and only for a caller who could answer the question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from abeyance.core import (
    asking,
    branches,
    deadlines,
    events,
    four_eyes,
    interrupts,
    items,
    policy,
    who_may_answer,
)
from abeyance.core.deadlines import moment
from abeyance.core.json import Json, rfc3339
from abeyance.core.ledger import Claim, Interrupt, Ledger, digest_of
from abeyance.core.policy import (
    CONTROL,
    Principal,
    lacking_refusal,
    may_not,
    refuse_without_control,
)
from abeyance.core.replies import unknown
from abeyance.core.spec import Default, GoTo, GraphSpec
from abeyance.core.state import RunState, Status
from abeyance.core.step import Step
from abeyance.core.terms import BusinessTime
from abeyance.core.visit import Running
from abeyance.errors import Code, Refusal


def refuse_values(state: RunState, event: events.ValuesEdited) -> None:
    """Refuse an edit of values that may not be made."""
    refuse_ended(state, "its values cannot be edited")
    policy.demand(state, event.principal, "edit the values of the run")
    is_stopped = state.status in (Status.PAUSED, Status.AWAITING_INPUT)
    if not is_stopped or any(state.visits_in(Running)):
        # A pause of a paused run changes nothing.
        remedy = (
            "and some of its code still runs: wait until that has stopped, or resume the run and pause "
            "it with the mode 'now'"
            if is_stopped
            else "and its values can be edited while it waits for people, or is paused and no code "
            "runs: pause it first, which lets running code finish (with the mode 'now' it is stopped, as "
            "blocked code is in any mode)"
        )
        raise Refusal(
            Code.NOT_STOPPED,
            f"The run is {state.status}, {remedy}.",
            run_status=str(state.status),
        )
    if event.version != state.root.version:
        raise Refusal(
            Code.STALE,
            f"The edit is of version {event.version} of the values, and they are at version "
            f"{state.root.version} now. Read the run again.",
            version=state.root.version,
        )
    refuse_patch(state.spec, state.root.values, event.taken)


def refuse_patch(spec: GraphSpec, values: Mapping[str, Json], patch: Mapping[str, Json]) -> None:
    """Raise `invalid_input` or `read_only_field` for fields that a person cannot set so."""
    if faults := items.misfits(spec, patch):
        told = "; ".join(f"the field {name!r} {why}" for name, why in faults.items())
        raise Refusal(
            Code.INVALID_INPUT,
            f"The edit does not fit the graph that the run began with: {told}.",
            errors=[{"pointer": f"/{name}", "message": why} for name, why in faults.items()],
        )
    items.refuse_fixed(spec, values, patch)


def refuse_ended(state: RunState, then: str) -> None:
    """Raise `not_running` for a run that is ending or has ended: `then` says what is impossible."""
    if state.ending is not None:
        raise Refusal(
            Code.NOT_RUNNING,
            f"The run is {state.status}, so {then}.",
            run_status=str(state.status),
        )


def edit_values(step: Step, event: events.ValuesEdited) -> None:
    """Set fields of the values exactly, ignoring their reducers."""
    root = step.run.root
    asking.set_values(step, event.taken)
    branches.ask_changed_gates_again(step)
    step.run.last_activity_at = step.now
    step.publish(
        "run.values_edited",
        root.address,
        event.principal.subject,
        audit={"patch": event.taken},
        fields=sorted(event.taken),
        version=step.run.root.version,
    )


def refuse_deadline(state: RunState, event: events.DeadlineEdited) -> None:
    """Refuse an edit of a deadline that may not be made."""
    # An unknown or settled interrupt takes precedence over missing capabilities.
    interrupt = open_interrupt(state.ledger, event.interrupt_id)
    policy.demand(state, event.principal, "edit a deadline of the run")
    graph = state.graph_of(interrupt.scope)
    if isinstance(event.timeout, BusinessTime) and interrupt.effective_terms.calendar is None:
        raise _invalid(
            f"{interrupt.name!r} has no calendar, so {event.timeout} means nothing for it: write hours "
            "or days, such as 2d.",
            field="timeout",
        )
    deadline = _deadline(interrupt, event)
    if event.moves and deadline is not None and deadline <= event.now:
        raise _invalid(f"The deadline {rfc3339(deadline)} has passed; it must be in the future.")
    match event.on_timeout:
        case Default():
            raise _invalid("An answer by default can only be declared in the graph.")
        case GoTo(node=node) if node not in (ways := interrupts.ways_out(state, interrupt.scope)):
            raise Refusal(
                Code.UNKNOWN_NODE,
                f"The interrupt cannot go to {node!r} in {graph.name!r}: use one of "
                f"{', '.join(map(repr, ways))}.",
            )
        case _:
            pass
    if event.on_timeout is not None and deadline is None:
        raise _invalid("on_timeout requires a deadline, and the interrupt would have none.")


def edit_deadline(step: Step, event: events.DeadlineEdited) -> None:
    """Move the deadline of an open interrupt, or change what happens then."""
    interrupt = step.run.ledger.open[event.interrupt_id]
    edited = replace(
        interrupt,
        deadline=_deadline(interrupt, event),
        on_timeout=event.on_timeout or interrupt.on_timeout,
    )
    step.run.ledger.open[interrupt.id] = deadlines.deadline_moved(interrupt, edited, step.now)
    _publish_edit(
        step,
        "interrupt.deadline_edited",
        interrupt,
        event.principal,
        deadline=edited.deadline and rfc3339(edited.deadline),
        was=interrupt.deadline and rfc3339(interrupt.deadline),
        on_timeout=edited.on_timeout.kind,
    )


def refuse_claims(
    state: RunState, event: events.Claimed | events.Released | events.Reassigned
) -> None:
    """Refuse what cannot be done to a question, or not by this principal."""
    match event:
        case events.Claimed():
            _refuse_claim(_open(state, event.interrupt_id, "claimed"), event)
        case events.Released():
            entry = _open(state, event.interrupt_id, "released")
            claim = who_may_answer.claimed(entry, event.now)
            if claim is not None and event.principal.subject not in claim.people:
                _refuse_others(entry, event.principal, "release what somebody else has claimed")
        case events.Reassigned():
            entry = _open(state, event.interrupt_id, "reassigned")
            claim = who_may_answer.claimed(entry, event.now)
            has_claimed = claim is not None and event.principal.subject in claim.people
            if not has_claimed and not event.principal.is_among(entry.effective_terms.assignees):
                doing = "reassign what is not assigned to them"
                _refuse_others(entry, event.principal, doing, ", its assignees")
            if event.votes:
                _refuse_votes(entry, event)
        case _:
            assert_never(event)


def claim(step: Step, event: events.Claimed) -> None:
    """Keep a question for the caller, from now on for as long as they want."""
    entry = step.run.ledger.open[event.interrupt_id]
    until = event.now + timedelta(seconds=event.seconds)
    name = who_may_answer.acting_for(entry, event.request)
    taken = Claim(by=event.principal.subject, on_behalf_of=name, at=event.now, until=until)
    step.run.ledger.open[entry.id] = replace(entry, claim=taken)
    _publish_edit(
        step,
        "interrupt.claimed",
        entry,
        event.principal,
        until=rfc3339(until),
        **({} if name is None else {"on_behalf_of": name}),
    )


def release(step: Step, event: events.Released) -> None:
    """End the claim of a question, if it has one."""
    entry = step.run.ledger.open[event.interrupt_id]
    if entry.claim is None:
        return
    step.run.ledger.open[entry.id] = replace(entry, claim=None)
    if who_may_answer.claimed(entry, event.now) is not None:
        _publish_edit(step, "interrupt.released", entry, event.principal)


def reassign(step: Step, event: events.Reassigned) -> None:
    """Replace the assignees of a question, and on request its voters. Its claim ends.

    New voters drop the votes of people who are not named any more.
    """
    entry = step.run.ledger.open[event.interrupt_id]
    terms = replace(entry.effective_terms, assignees=event.to)
    changed = replace(entry, terms=terms, claim=None, reassigned=True)
    if event.votes and terms.quorum is not None:
        terms = replace(terms, quorum=replace(terms.quorum, of=event.to))
        changed = replace(changed, terms=terms, revoted=True)
        changed = replace(changed, digest=digest_of(entry.address, changed, step.run.era))
    step.run.ledger.open[entry.id] = changed
    _publish_edit(
        step,
        "interrupt.reassigned",
        entry,
        event.principal,
        to=list(event.to),
        capability=entry.requested_capability,
        deadline=entry.deadline and rfc3339(entry.deadline),
        **({"votes": True} if event.votes else {}),
        **({} if event.note is None else {"note": event.note}),
    )
    left = tuple(vote for vote in entry.votes if vote.people & {*event.to})
    if event.votes and left != entry.votes:
        four_eyes.reopen(step, changed, votes=left, reason="others vote on it since")
        four_eyes.bar(step, entry.name)


def _deadline(interrupt: Interrupt, event: events.DeadlineEdited) -> datetime | None:
    if isinstance(event.timeout, BusinessTime):
        return moment(event.now, event.timeout, interrupt.effective_terms.calendar)
    return event.deadline if event.moves else interrupt.deadline


def _publish_edit(
    step: Step, type_: str, interrupt: Interrupt, by: Principal, **about: Json
) -> None:
    step.run.last_activity_at = step.now
    step.publish_about(interrupt, type_, by.subject, **about)


def open_interrupt(
    ledger: Ledger, id_: str, consequence: str = "its deadline cannot be edited"
) -> Interrupt:
    """Return the open interrupt; raise the Refusal that says what became of it otherwise."""
    interrupt = ledger.open.get(id_)
    if interrupt is not None and interrupt.status == "open":
        return interrupt
    settled = interrupt or ledger.settled.get(id_)
    if settled is None:
        raise unknown(id_)
    is_answered = settled.status in ("answered", "held")
    raise Refusal(
        Code.ALREADY_ANSWERED if is_answered else Code.WITHDRAWN,
        f"{settled.name!r} is {settled.status} since {rfc3339(settled.since)}, so {consequence}.",
        interrupt_id=id_,
        status=settled.status,
    )


def _invalid(message: str, *, field: str = "deadline") -> Refusal:
    return Refusal(
        Code.INVALID_BODY, message, errors=[{"pointer": f"/{field}", "message": message}]
    )


def _open(state: RunState, id_: str, what: str) -> Interrupt:
    refuse_ended(state, f"no question of it can be {what}")
    return open_interrupt(state.ledger, id_, f"it cannot be {what}")


def _refuse_claim(entry: Interrupt, event: events.Claimed) -> None:
    if entry.quorum is not None:
        raise Refusal(
            Code.NOT_CLAIMABLE,
            f"{entry.name!r} takes the votes of several people, so nobody can have it alone: vote.",
            interrupt_id=entry.id,
        )
    who_may_answer.acting_for(entry, event.request)


def _refuse_votes(entry: Interrupt, event: events.Reassigned) -> None:
    if entry.quorum is None:
        raise _invalid(f"{entry.name!r} takes no votes: leave out `votes`.", field="votes")
    lacking = event.principal.lacks((CONTROL, entry.requested_capability))
    if lacking:
        raise lacking_refusal(event.principal, f"change who votes on {entry.name!r}", lacking)


def _refuse_others(entry: Interrupt, principal: Principal, doing: str, more: str = "") -> None:
    refuse_without_control(
        principal,
        entry,
        f"{may_not(principal, doing)}: only the person who claimed {entry.name!r}{more}, or somebody "
        f"with {CONTROL!r}, may do that.",
    )
