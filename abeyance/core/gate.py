"""Opening and settling interrupts in a run: what the ledger records, and what follows for the unit.

A *unit* is the visit that waits. It goes on when all interrupts of its own are settled; what other
units wait for does not concern it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from abeyance.core import ledger, template
from abeyance.core.canonical import Json
from abeyance.core.draft import Draft
from abeyance.core.ledger import Interrupt, Kind, SettledStatus
from abeyance.core.model import Question
from abeyance.core.policy import TIMEOUT
from abeyance.core.state import Phase, Visit

_LONGEST_PROMPT = 10_000
"""In characters: a template may show a field that holds a whole document."""


def open_question(draft: Draft, visit: Visit, question: Question, kind: Kind = "question") -> None:
    """Ask a person on behalf of a visit, which waits from now on. What is shown is frozen here."""
    state = draft.state
    values = state.scopes[visit.scope].values
    prompt = template.fill(question.prompt, values)[:_LONGEST_PROMPT]
    reason = template.fill_all(question.reason, values)
    deadline = None if question.timeout is None else draft.after(question.timeout)
    id_ = ledger.interrupt_id(state.run_id, visit.address, question.name)
    number = draft.tell(
        "interrupt.opened",
        visit.address,
        id=id_,
        name=question.name,
        kind=kind,
        capability=question.requested_capability,
        deadline=deadline and deadline.isoformat(),
    )
    opened = Interrupt(
        id=id_,
        visit=visit.address,
        scope=visit.scope,
        name=question.name,
        kind=kind,
        address=visit.address,
        prompt=prompt,
        reason=reason,
        payload=question.payload,
        response_schema=question.response_schema,
        requested_capability=question.requested_capability,
        created_at=draft.now,
        deadline=deadline,
        on_timeout=question.on_timeout,
        digest=ledger.digest_of(
            question.name, visit.address, prompt, reason, question.response_schema
        ),
        number=number,
    )
    draft.change(ledger=state.ledger.with_opened(opened))
    draft.put_visit(replace(visit, phase=Phase.WAITING, started_at=draft.now))


def answer(
    draft: Draft, interrupt: Interrupt, value: Json, by: str, note: str | None = None
) -> None:
    """Settle an interrupt by an answer, and let its unit go on if it waits for nothing else."""
    settled = ledger.settle_answered(interrupt, value, by, draft.now)
    limits = draft.state.limits
    draft.change(ledger=draft.state.ledger.with_settled(settled, keep=limits.settled_kept))
    draft.tell(
        "interrupt.answered",
        interrupt.address,
        by,
        id=interrupt.id,
        name=interrupt.name,
        answer_sha256=settled.answer_sha256,
        **({} if note is None else {"note": note}),
    )
    scope = draft.state.scopes[interrupt.scope]
    # A loop that a person steers is no runaway loop, so their answer starts the count anew.
    counts = scope.visit_counts if by == TIMEOUT else {}
    draft.put_scope(
        replace(scope, answers={**scope.answers, interrupt.name: value}, visit_counts=counts)
    )
    visit = draft.state.visits[interrupt.visit]
    visit = replace(visit, answers={**visit.answers, interrupt.name: value})
    waits = any(entry.visit == visit.address for entry in draft.state.ledger.open.values())
    draft.put_visit(visit if waits else replace(visit, phase=Phase.READY))


def expire(draft: Draft, interrupt: Interrupt) -> None:
    """Settle an interrupt because its deadline passed, without an answer."""
    settled = ledger.settle(interrupt, "expired", draft.now, by=TIMEOUT)
    draft.change(
        ledger=draft.state.ledger.with_settled(settled, keep=draft.state.limits.settled_kept)
    )
    draft.tell(
        "interrupt.expired", interrupt.address, TIMEOUT, id=interrupt.id, name=interrupt.name
    )


def withdraw(
    draft: Draft,
    interrupts: Iterable[Interrupt],
    reason: str,
    *,
    by: str | None = None,
    status: SettledStatus = "cancelled",
) -> None:
    """Settle interrupts because nothing waits for their answers any more."""
    for interrupt in list(interrupts):
        settled = ledger.settle(interrupt, status, draft.now, by=by, reason=reason)
        draft.change(
            ledger=draft.state.ledger.with_settled(settled, keep=draft.state.limits.settled_kept)
        )
        draft.tell(
            "interrupt.cancelled",
            interrupt.address,
            by,
            id=interrupt.id,
            name=interrupt.name,
            reason=reason,
        )


def of_visit(draft: Draft, visit: str) -> list[Interrupt]:
    """The open interrupts of one visit."""
    return [entry for entry in draft.state.ledger.open.values() if entry.visit == visit]
