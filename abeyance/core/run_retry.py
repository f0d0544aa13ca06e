"""Retry and rewind: what sets a run apart from itself before it ended, or before it was rewound.

*Retry* puts an ended run together for a second try, by its graph or by another.

`retried` takes a whole run and returns a whole run, and has no effects. Start the result with the event
`Restored`: it publishes what has happened, and starts what can start (`RunState.resumption`).

A retry begins with `Ending.before`: the run as it was when it came to its end. So the whole state of a
run is recorded with its end, unless it completed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from abeyance.core import asking, deadlines, interrupts, items, ledger, migration, policy
from abeyance.core.effects import Publish
from abeyance.core.json import Json, rfc3339
from abeyance.core.outcome import (
    CALL_STARTED,
    Failed,
    Finished,
    Stopped,
    VisitOutcome,
    has_begun,
    key_of,
)
from abeyance.core.policy import Principal
from abeyance.core.spec import GraphSpec
from abeyance.core.state import Ending, Resumption, RunState, copied
from abeyance.core.step import Step
from abeyance.core.visit import Ready, Running, Visit
from abeyance.errors import Code, Refusal


def refuse_completed(outcome: str) -> None:
    """Raise the Refusal `run_finished` if a run with this outcome cannot be retried."""
    if outcome == "completed":
        raise Refusal(
            Code.RUN_FINISHED,
            "The run completed, so there is nothing to retry. Start a new run.",
            run_status=outcome,
        )


def retried(
    state: RunState,
    *,
    now: datetime,
    principal: Principal,
    spec: GraphSpec | None = None,
    versions: tuple[str, str],
    patch: Mapping[str, Json],
    renames: Mapping[str, str],
) -> RunState:
    """Return a run that failed, was halted or was cancelled, open again at the point where it ended.

    Finished visits, answers, messages, counters and keys are kept. The visits that were open run again,
    with their journals, and open questions are open under their ids, with deadlines moved by the time
    that the run was over; one whose deadline had passed gets its whole time again. What finally nodes
    have changed is not kept: they run at each end. `spec` None keeps the graph. `versions`, `patch` and
    `renames` are as in `events.Migrated`.

    Raises the Refusal `not_finished` if the run is open, `run_finished` if it completed,
    `capability_required` if the principal may not retry it, and `cannot_migrate` if anything has no place
    in `spec`. Its detail `obstacles` lists all of it, each as `{"what", "name", "why", "remedy"}`, with
    an `address` if there is one.
    """
    ending = _ending_of(state)
    refuse_completed(ending.outcome)
    before = _reopened(state, ending)
    outcomes = _outcomes(before, ending.outcomes)
    before.resumption = Resumption(outcomes=outcomes)
    spec = before.spec if spec is None else spec
    if patch or spec != before.spec:
        policy.demand(before, principal, "retry the run")
    else:
        why = "Nothing that was approved changes."
        policy.demand_only(principal, policy.CONTROL, doing="retry the run", why=why)
        for visit, may_have_happened in _done_again(before, outcomes):
            asking.demand_repeat(before, visit, principal, may_have_happened=may_have_happened)
    migration.refuse(before, spec, changes=patch, renames=renames)
    step = Step(before, now)
    step.run.last_activity_at = now
    step.publish(
        "run.retried",
        before.root.address,
        principal.subject,
        outcome=ending.outcome,
        reason=ending.reason,
        ended_at=rfc3339(ending.since),
        from_version=versions[0],
        to_version=versions[1],
        fields=sorted(patch),
    )
    items.forget_all_counts(step)
    for entry in list(before.ledger.open.values()):
        if entry.held is not None:
            # Its run was ended while the yes could be taken back, so that has to be given again.
            left = tuple(vote for vote in entry.votes if not vote.people & entry.held.people)
            again = deadlines.reopened(entry, now, left)
        else:
            again = deadlines.with_time_left(entry, ending.since, now)
        step.run.ledger.open[entry.id] = again
        interrupts.publish_opened(step, step.run.ledger.open[entry.id])
    migration.migrate(step, spec, changes=patch, renames=renames)
    facts = tuple(effect for effect in step.effects if isinstance(effect, Publish))
    assert step.run.resumption is not None  # noqa: S101 it has the outcomes
    step.run.resumption = replace(step.run.resumption, facts=facts)
    step.run.updated_at = now
    return step.run


# The end of a run, undone


def _ending_of(state: RunState) -> Ending:
    if state.ending is None or not state.finished:
        raise Refusal(
            Code.NOT_FINISHED,
            f"The run is {state.status}, and can be retried when it has ended.",
            run_status=str(state.status),
        )
    return state.ending


def _reopened(state: RunState, ending: Ending) -> RunState:
    """Return an ended run as it was before its end, with what has come since."""
    assert ending.before is not None  # noqa: S101 every ending that can be retried keeps it
    run = copied(ending.before)
    # Visits of finally nodes get addresses of their own at each end.
    ended = state.root.ordinals
    run.root.ordinals = {
        **run.root.ordinals,
        **{name: number for name, number in ended.items() if name in state.spec.finally_nodes},
    }
    for visit in run.visits.values():
        match ending.outcomes.get(visit.address):
            case Stopped(begun=False) if visit.activations == 1:
                # Its code never began, so the messages were reported.
                visit.inbox = replace(visit.inbox, delivered=())
            case _:
                pass
    # If it failed before any node was entered, that comes again.
    visits = state.counters.visits if run.counters.visits else 0
    run.counters = replace(state.counters, visits=visits)
    run.mailbox = state.mailbox
    run.transcripts = state.transcripts
    run.keys = state.keys
    run.events_published = state.events_published
    run.salt = state.salt
    run.pause = None
    return run


def _outcomes(state: RunState, known: Mapping[str, VisitOutcome]) -> dict[str, VisitOutcome]:
    """Return the outcome of each running visit; a visit without a report was stopped."""
    return {
        visit.address: _outcome(visit, known.get(visit.address))
        for visit in state.visits_in(Running)
    }


def _outcome(visit: Visit, known: VisitOutcome | None) -> VisitOutcome:
    match known:
        case Finished():
            # The messages that it had not read are in the mailbox already.
            return replace(known, messages_read=None)
        case None:
            return Stopped(journal=_as_started(visit, visit.checkpoint.journal))
        case Failed(journal=None):
            return Stopped(journal=_as_started(visit, visit.checkpoint.journal))
        case Failed(journal=journal):
            return Stopped(journal=journal)
        case _:
            return known


def _as_started(visit: Visit, journal: Json) -> Json:
    """Return the journal of a visit that ended without a report.

    A call that may run only once may have been made, so its code has to ask what became of it.
    """
    if visit.call is None or not visit.call.once:
        return journal
    steps = dict(journal or {})
    asked = sum(key.startswith(key_of("outcome", "")) for key in visit.questions.answers)
    steps[CALL_STARTED] = max(asked + 1, steps.get(CALL_STARTED, 0))
    return steps


def _done_again(
    state: RunState, outcomes: Mapping[str, VisitOutcome]
) -> Iterator[tuple[Visit, bool]]:
    """Yield the visits whose code a retry runs again, and whether what it does may have happened."""
    for kind in (Ready, Running):
        for visit in state.visits_in(kind):
            outcome = outcomes.get(visit.address)
            if not visit.activations or isinstance(outcome, Finished):
                continue
            began = outcome is None or visit.activations > 1 or has_begun(outcome)
            # People are asked what became of a call that may run only once.
            is_asked = visit.call is not None and visit.call.once
            is_over = visit.routing is not None
            yield visit, began and not (is_asked or is_over)


# A run that was rewound: what tells it from the time that was discarded


def begin_era(run: RunState, era: str, now: datetime) -> None:
    """Renew the digests of what is open, so that an answer to what people were shown before is stale.

    Open and held questions keep the time that they had left. Otherwise another one could expire now, and
    end the run or the branch of the question to which the run was rewound.
    """
    run.era = era
    for entry in list(run.ledger.open.values()):
        digest = ledger.digest_of(entry.address, entry, era)
        again = replace(entry, digest=digest)
        if (until := entry.held_until) is not None:
            again = replace(again, held_until=until + (now - run.updated_at))
        else:
            again = deadlines.with_time_left(again, run.updated_at, now)
        run.ledger.open[entry.id] = again


def take_salt(run: RunState, salt: str) -> None:
    """Give what the run asks from now on ids that none of its questions has had."""
    run.salt = salt
