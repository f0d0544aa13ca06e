"""How a run begins to end.

The first reason decides the outcome; later ones are recorded beside it, so that nothing is hidden.
From then on no visit starts, nobody can answer any more, unread messages are reported, and what runs
is stopped: a graceful end waits for it up to `grace`, an immediate one does not. `closing` then
takes the run from here to its close.
"""

from __future__ import annotations

from dataclasses import replace

from abeyance.core import gate
from abeyance.core.draft import Draft
from abeyance.core.effects import StopNode
from abeyance.core.events import CancelMode
from abeyance.core.mailbox import UndeliveredReason
from abeyance.core.state import Ending, Failure, Outcome, Phase


def begin(
    draft: Draft,
    outcome: Outcome,
    reason: str | None,
    *,
    error: Failure | None = None,
    actor: str | None = None,
    mode: CancelMode = "graceful",
    grace: float | None = None,
    native: bool = False,
) -> None:
    """End the run, or record beside the ending under way that there was another reason."""
    under_way = draft.state.ending
    if under_way is not None:
        later = error or Failure(code=outcome, message=reason or outcome)
        draft.change(ending=replace(under_way, beside=(*under_way.beside, later)))
        return
    seconds = draft.state.limits.grace if grace is None else grace
    draft.change(
        pause=None,
        ending=Ending(
            outcome=outcome,
            reason=reason,
            since=draft.now,
            actor=actor,
            error=error,
            mode=mode,
            grace_until=draft.after(seconds),
            native=native,
            finally_left=draft.state.spec.finally_nodes,
        ),
    )
    gate.withdraw(draft, draft.state.ledger.open.values(), f"the run ended: {outcome}", by=actor)
    _report_unread(draft, outcome)
    for visit in list(draft.state.visits.values()):
        if visit.phase is not Phase.RUNNING:
            draft.drop_visit(visit.address)
    stop_running(draft, abandon=mode == "now")


def stop_running(draft: Draft, *, abandon: bool) -> None:
    """Stop every visit that runs; with `abandon` the run does not wait for them."""
    for visit in list(draft.state.in_phase(Phase.RUNNING)):
        if visit.stopping and not abandon:
            continue
        draft.want(StopNode(visit=visit.address, reason="ending", abandon=abandon))
        if abandon:
            draft.drop_visit(visit.address)
        else:
            draft.put_visit(replace(visit, stopping=True))


def escalate(draft: Draft, ending: Ending) -> None:
    """Somebody insists: what still runs, be it a finally node, is not waited for."""
    left = ending.finally_left
    if any(visit.is_finally for visit in draft.state.visits.values()):
        left = ()
    draft.change(ending=replace(ending, mode="now", finally_left=left))
    stop_running(draft, abandon=True)


def _report_unread(draft: Draft, reason: UndeliveredReason) -> None:
    for message in draft.state.mailbox.queue:
        draft.tell("message.undelivered", message_id=message.message_id, reason=reason)
    draft.change(mailbox=draft.state.mailbox.emptied(reason))

