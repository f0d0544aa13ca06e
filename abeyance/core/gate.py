"""Opening and settling interrupts in a run: what the ledger records, and what follows for the unit.

A *unit* is the visit that waits. It goes on when all interrupts of its own are settled, or, if it is
composite, at every answer; what other units wait for does not concern it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from abeyance.core import items, ledger, recall, template
from abeyance.core.address import Address
from abeyance.core.canonical import Json, rfc3339
from abeyance.core.draft import Draft
from abeyance.core.events import Asked, key_of
from abeyance.core.ledger import Interrupt, Parent, Settled, SettledStatus
from abeyance.core.model import END, GraphSpec, Kind, Question
from abeyance.core.policy import TIMEOUT
from abeyance.core.state import Phase, Visit

_LONGEST_PROMPT = 10_000
"""In characters: a template may show a field that holds a whole document."""


def open_question(
    draft: Draft,
    visit: Visit,
    question: Question,
    kind: Kind = "question",
) -> None:
    """Ask a person on behalf of a visit, which waits from now on. What is shown is frozen here.

    `{field}` in the prompt and the reason is filled.
    """
    values = items.values_of(draft.state, visit)
    shown = replace(
        question,
        prompt=template.fill(question.prompt, values),
        reason=template.fill_all(question.reason, values),
    )
    ask(draft, visit, Asked(question=shown, kind=kind))
    draft.put_visit(
        replace(draft.state.visits[visit.address], phase=Phase.WAITING, started_at=draft.now)
    )


def ask(
    draft: Draft,
    visit: Visit,
    asked: Asked,
    *,
    parents: tuple[Parent, ...] = (),
) -> None:
    """Open an interrupt of a visit, with a question that is shown as it is.

    A visit that is tried again may ask what it has asked before, and that was withdrawn: it is then
    another question, with an id of its own.
    """
    state = draft.state
    question, kind = asked.question, asked.kind
    address = visit.address
    if asked.process is not None:
        address = str(Address.parse(address).child("process", asked.process))
    prompt = question.prompt[:_LONGEST_PROMPT]
    deadline = asked.deadline
    if deadline is None and question.timeout is not None:
        deadline = draft.after(question.timeout)
    ordinal = visit.asked.get(asked.key, 0) + 1
    id_ = ledger.interrupt_id(state.run_id, address, question.name, ordinal, kind)
    draft.put_visit(replace(visit, asked={**visit.asked, asked.key: ordinal}))
    number = draft.tell(
        "interrupt.opened",
        address,
        id=id_,
        name=question.name,
        kind=kind,
        capability=question.requested_capability,
        deadline=deadline and rfc3339(deadline),
    )
    opened = Interrupt(
        id=id_,
        visit=visit.address,
        scope=visit.scope,
        name=question.name,
        kind=kind,
        address=address,
        prompt=prompt,
        reason=question.reason,
        payload=question.payload,
        response_schema=question.response_schema,
        requested_capability=question.requested_capability,
        created_at=draft.now,
        deadline=deadline,
        on_timeout=question.on_timeout,
        digest=ledger.digest_of(
            question.name, address, prompt, question.reason, question.response_schema
        ),
        number=number,
        key=asked.key,
        parents=(*parents, *_units_around(draft, visit.scope)),
    )
    draft.change(ledger=draft.state.ledger.with_opened(opened))


def unit(run_id: str, address: str, reason: Json = None) -> Parent:
    """A unit as a parent of what is asked inside it."""
    return Parent(id=ledger.interrupt_id(run_id, address, ""), address=address, reason=reason)


def _units_around(draft: Draft, scope_address: str) -> Iterator[Parent]:
    scope = draft.state.scopes[scope_address]
    while scope.visit is not None:
        yield unit(draft.state.run_id, scope.visit)
        scope = draft.state.scopes[draft.state.visits[scope.visit].scope]


def answer(
    draft: Draft, interrupt: Interrupt, value: Json, by: str, note: str | None = None
) -> None:
    """Settle an interrupt by an answer, and let its unit go on if it waits for nothing else."""
    settled = ledger.settle_answered(interrupt, value, by, draft.now)
    _record(draft, settled)
    draft.tell(
        "interrupt.answered",
        interrupt.address,
        by,
        id=interrupt.id,
        name=interrupt.name,
        answer_sha256=settled.answer_sha256,
        **({} if note is None else {"note": note}),
    )
    visit = draft.state.visits[interrupt.visit]
    # What a person says about a visit that failed, or before it runs, is no answer of the graph's; and
    # what they say about one call of an agent is none to the next.
    if interrupt.kind not in {"static", "error", "outcome"} and not recall.is_agent(visit.scope):
        items.put_answer(draft, visit, interrupt.name, value)
    if by != TIMEOUT:
        # A loop that a person steers is no runaway loop.
        items.forget_counts(draft, visit)
    # A snapshot that was written before questions had keys has none.
    key = interrupt.key or key_of(interrupt.kind, interrupt.name)
    visit = replace(visit, answers={**visit.answers, key: value})
    waits = any(entry.visit == visit.address for entry in draft.state.ledger.open.values())
    if visit.phase is Phase.WAITING and (visit.composite or not waits):
        visit = replace(visit, phase=Phase.READY)
    draft.put_visit(visit)


def expire(draft: Draft, interrupt: Interrupt) -> None:
    """Settle an interrupt because its deadline passed, without an answer."""
    settled = ledger.settle(interrupt, "expired", draft.now, by=TIMEOUT)
    _record(draft, settled)
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
        _record(draft, settled)
        draft.tell(
            "interrupt.cancelled",
            interrupt.address,
            by,
            id=interrupt.id,
            name=interrupt.name,
            reason=reason,
        )


def _record(draft: Draft, settled: Settled) -> None:
    kept = draft.state.limits.settled_kept
    draft.change(ledger=draft.state.ledger.with_settled(settled, keep=kept))


def ways_out(graph: GraphSpec, scope: str) -> tuple[str, ...]:
    """Where a question's deadline may lead. An agent has no such node: its model would take a turn beside
    the calls that are under way, or a tool be run that nobody called.
    """
    nodes = () if recall.is_agent(scope) else graph.nodes
    return (*(name for name in nodes if name not in graph.finally_nodes), END)


def of_visit(draft: Draft, visit: str) -> list[Interrupt]:
    """The open interrupts of one visit."""
    return [entry for entry in draft.state.ledger.open.values() if entry.visit == visit]
