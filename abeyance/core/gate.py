"""Opening and settling interrupts in a run: what the ledger records, and what follows for the unit.

A *unit* is the visit that waits. It goes on when all interrupts of its own are settled, or, if it is
composite, at every answer; what other units wait for does not concern it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from abeyance.core import approvals, authority, items, ledger, template
from abeyance.core.address import below
from abeyance.core.canonical import Json, rfc3339
from abeyance.core.draft import Draft
from abeyance.core.ledger import Interrupt, Parent, Settled, SettledStatus
from abeyance.core.model import (
    END,
    Ask,
    GraphSpec,
    InterruptNode,
    Kind,
    Question,
)
from abeyance.core.outcome import Asked
from abeyance.core.policy import TIMEOUT
from abeyance.core.state import Phase, RunState, Visit

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
    capability = authority.asked_for(
        draft.graph(visit.scope), visit.node, question.requested_capability
    )
    question = replace(question, requested_capability=capability)
    fields = approvals.shown_by(question, values)
    ask(draft, visit, Asked(question=_filled(question, values), kind=kind), fields=fields)
    visit.phase, visit.started_at = Phase.WAITING, draft.now


def _filled(question: Question, values: Mapping[str, Json]) -> Question:
    return replace(
        question,
        prompt=template.fill(question.prompt, values)[:_LONGEST_PROMPT],
        reason=template.fill_all(question.reason, values),
    )


def ask(
    draft: Draft,
    visit: Visit,
    asked: Asked,
    *,
    parents: tuple[Parent, ...] = (),
    fields: Mapping[str, str] | None = None,
) -> None:
    """Open an interrupt of a visit, with a question that is shown as it is.

    A visit that is tried again may ask what it has asked before, and that was withdrawn: it is then
    another question, with an id of its own.
    """
    state = draft.state
    question, kind = asked.question, asked.kind
    address = visit.address
    if asked.process is not None:
        address = below(address, "process", asked.process)
    bound = ledger.content_of(question)
    question = replace(question, prompt=question.prompt[:_LONGEST_PROMPT])
    deadline = asked.deadline
    if deadline is None and question.timeout is not None:
        deadline = draft.after(question.timeout)
    ordinal = visit.asked.get(asked.key, 0) + 1
    id_ = ledger.interrupt_id(state.run_id, address, question.name, ordinal, kind, salt=state.salt)
    visit.asked = {**visit.asked, asked.key: ordinal}
    _bind(visit, asked.key, bound)
    number = draft.tell(
        "interrupt.opened",
        address,
        id=id_,
        name=question.name,
        kind=kind,
        capability=question.requested_capability,
        deadline=deadline and rfc3339(deadline),
    )
    draft.open[id_] = Interrupt(
        id=id_,
        visit=visit.address,
        scope=visit.scope,
        name=question.name,
        kind=kind,
        address=address,
        prompt=question.prompt,
        reason=question.reason,
        payload=question.payload,
        response_schema=question.response_schema,
        requested_capability=question.requested_capability,
        created_at=draft.now,
        deadline=deadline,
        on_timeout=question.on_timeout,
        digest=ledger.digest_of(address, question),
        number=number,
        key=asked.key,
        parents=(*parents, *_units_around(draft, visit.scope)),
        fields=fields or {},
    )


def _bind(visit: Visit, key: str, content: str) -> None:
    """Remember what a question of a visit shows, and when."""
    visit.bound = {**visit.bound, key: content}
    visit.bound_at = {**visit.bound_at, key: visit.moment}


def ask_anew(
    draft: Draft, interrupt: Interrupt, question: Question, fields: Mapping[str, str] | None = None
) -> None:
    """Show what an open interrupt asks as it is now. It keeps its id and deadline, and who answers what
    was shown before gets `stale`.
    """
    question = replace(question, prompt=question.prompt[:_LONGEST_PROMPT])
    digest = ledger.digest_of(interrupt.address, question)
    if digest == interrupt.digest:
        return
    draft.open[interrupt.id] = replace(
        interrupt,
        prompt=question.prompt,
        reason=question.reason,
        payload=question.payload,
        response_schema=question.response_schema,
        requested_capability=question.requested_capability,
        digest=digest,
        fields=fields or {},
    )
    draft.tell("interrupt.changed", interrupt.address, id=interrupt.id, name=interrupt.name)


def rebind(visit: Visit, asked: Asked) -> None:
    """Remember what a question of code shows that was open already when it was asked again."""
    _bind(visit, asked.key, ledger.content_of(asked.question))


def show_edited(draft: Draft, scope: str) -> None:
    """People have edited the values of a scope: what is asked there about them is asked as they are now.

    Code that asks is run again up to its question, as it is after an answer.
    """
    graph = draft.graph(scope)
    for entry in list(draft.state.ledger.open.values()):
        visit = draft.state.visits[entry.visit]
        if visit.scope != scope or entry.kind not in {"question", "rule"}:
            continue
        if (declared := _declared(graph, visit, entry)) is not None:
            values = items.values_of(draft.state, visit)
            capability = entry.requested_capability
            declared = replace(declared, requested_capability=capability)
            fields = approvals.shown_by(declared, values)
            ask_anew(draft, entry, _filled(declared, values), fields)
        elif visit.call is None and visit.phase is Phase.WAITING:
            draft.visit(visit.address).phase = Phase.READY


def _declared(graph: GraphSpec, visit: Visit, entry: Interrupt) -> Question | None:
    """The question of a graph that was opened; None for one that code asked."""
    if entry.kind == "rule":
        asks = (action for rule in graph.rules_on(visit.node) for action in rule.actions)
        found = [each.question for each in asks if isinstance(each, Ask)]
        return next((each for each in found if each.name == entry.name), None)
    match graph.nodes[visit.node]:
        case InterruptNode(question=question):
            return question
        case _:
            return None


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
    visit = draft.visit(interrupt.visit)
    draft.tell(
        "interrupt.answered",
        interrupt.address,
        by,
        id=interrupt.id,
        name=interrupt.name,
        answer_sha256=settled.answer_sha256,
        **({} if note is None else {"note": note}),
    )
    # What a person says about a visit that failed, or before it runs, is no answer of the graph's; and
    # what they say about one call of an agent is none to the next.
    is_agents = draft.state.scopes[visit.scope].is_agent
    if interrupt.kind not in {"static", "error", "outcome"} and not is_agents:
        items.put_answers(draft, visit.scope, visit.members, {interrupt.name: value})
    if by != TIMEOUT:
        # A loop that a person steers is no runaway loop.
        items.forget_counts(draft, visit)
    visit.answers = {**visit.answers, interrupt.key: value}
    approvals.grant(visit, interrupt)
    if by != TIMEOUT and interrupt.kind not in {"static", "error"}:
        approvals.hear(draft, visit, interrupt.requested_capability)
    if visit.phase is Phase.WAITING and (visit.composite or not of_visit(draft, visit.address)):
        visit.phase = Phase.READY


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
    draft.open.pop(settled.id, None)
    book = draft.settled
    book[settled.id] = settled
    while len(book) > draft.state.limits.settled_kept:
        del book[next(iter(book))]


def ways_out(state: RunState, scope: str) -> tuple[str, ...]:
    """Where a question's deadline may lead. An agent has no such node: its model would take a turn beside
    the calls that are under way, or a tool be run that nobody called.
    """
    graph = state.graph_of(scope)
    nodes = () if state.scopes[scope].is_agent else graph.nodes
    return (*(name for name in nodes if name not in graph.finally_nodes), END)


def of_visit(draft: Draft, visit: str) -> list[Interrupt]:
    """The open interrupts of one visit."""
    return [entry for entry in draft.state.ledger.open.values() if entry.visit == visit]
