"""Opening and settling interrupts: what the ledger records, and what follows for the visit.

A visit that waits continues when all its own interrupts are settled, or, if it is composite, at every
answer; what other visits wait for does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from abeyance.core import (
    approvals,
    deadlines,
    four_eyes,
    gates,
    items,
    ledger,
    policy,
    who_may_answer,
)
from abeyance.core.address import below
from abeyance.core.deadlines import moment
from abeyance.core.json import Json, fill_all, fill_marked, rfc3339
from abeyance.core.ledger import BY_VISIT, Interrupt, Parent, SettledStatus, Vote
from abeyance.core.outcome import Asked
from abeyance.core.policy import TIMEOUT
from abeyance.core.spec import END, Ask, InterruptNode, InterruptSpec
from abeyance.core.state import RunState
from abeyance.core.step import Step
from abeyance.core.terms import KINDS, PLAIN, Kind, Terms
from abeyance.core.visit import Failure, Ready, Visit, Waiting
from abeyance.errors import FailureCode

_LONGEST_PROMPT: Final = 10_000
"""In characters: a template may show a field that holds a whole document."""


def fault_of(step: Step, visit: Visit, question: InterruptSpec) -> Failure | None:
    """Return why a declared question cannot be opened: a field of its capability has no usable value, one
    that is to name a person does not, or nobody is barred by what its terms name.
    """
    values = items.values_of(step.run, visit)
    code = FailureCode.UNDECLARED_CAPABILITY
    try:
        policy.filled(question.requested_capability or "", values)
        code = FailureCode.UNKNOWN_PERSON
        who_may_answer.filled(question.terms, values)
    except ValueError as error:
        message = f"the question {question.name!r} of {visit.node!r} cannot be asked: {error}"
        return Failure(code=code, message=message)
    return misnamed(step.run, visit, [question])


def misnamed(state: RunState, visit: Visit, questions: Sequence[InterruptSpec]) -> Failure | None:
    """Return why questions that are asked together cannot be opened: `not_by` bars nobody."""
    names = {each.name for each in questions}
    for each in questions:
        if (why := four_eyes.why_unknown(state, visit, each.terms, names)) is not None:
            message = f"the question {each.name!r} of {visit.node!r} cannot be asked: {why}"
            return Failure(code=FailureCode.UNKNOWN_QUESTION, message=message)
    return None


def open_question(
    step: Step,
    visit: Visit,
    question: InterruptSpec,
    kind: Kind = "question",
) -> None:
    """Ask a person on behalf of a visit, which waits from now on. What is shown is frozen here.

    `{field}` in the prompt, the reason, the payload, the capability and the names of people is filled;
    `fault_of` says whether the last two can be.
    """
    values = items.values_of(step.run, visit)
    capability = policy.asked_for(step.run.graph_of(visit.scope), visit.node, question)
    if capability is not None:
        capability = policy.filled(capability, values)
    terms = who_may_answer.filled(question.terms, values)
    question = replace(question, requested_capability=capability, terms=terms)
    fields = gates.shown_by(question, values)
    step.move(visit, "ask", Waiting(stage="rules" if kind == "rule" else "body"))
    asked = _filled(question, values, kind)
    asked = replace(asked, misfit=visit.misfits.get(asked.key))
    ask(step, visit, asked, fields=fields, repeats=asked.key in visit.repeats)


def _filled(question: InterruptSpec, values: Mapping[str, Json], kind: Kind) -> Asked:
    prompt, spans = fill_marked(question.prompt, values)
    reason, payload = (fill_all(each, values) for each in (question.reason, question.payload))
    question = replace(question, prompt=prompt[:_LONGEST_PROMPT], reason=reason, payload=payload)
    return Asked(question=question, kind=kind, prompt_values=spans)


def ask(
    step: Step,
    visit: Visit,
    asked: Asked,
    *,
    parents: tuple[Parent, ...] = (),
    fields: Mapping[str, str] | None = None,
    repeats: bool = False,
) -> None:
    """Open an interrupt of a visit, with a question that is shown as it is. It `repeats` one whose answer
    led to code that has begun.

    A retried visit may ask a withdrawn question again: that is another question, with an id of its own.
    """
    state = step.run
    question, kind = asked.question, asked.kind
    address = _address(visit, asked)
    bound = ledger.content_digest(question)
    prompt = question.prompt
    if asked.misfit is not None:
        prompt = f"{prompt} (Asked again, because the answer does not fit: {asked.misfit})"
        # The added words are text, like a value.
        asked = replace(
            asked, prompt_values=(*asked.prompt_values, (len(question.prompt), len(prompt)))
        )
    question = replace(question, prompt=prompt[:_LONGEST_PROMPT])
    deadline = asked.deadline
    if deadline is None and question.timeout is not None:
        calendar = question.effective_terms.calendar
        deadline = moment(step.now, question.timeout, calendar)
    visit.questions = visit.questions.asked(asked.key).showing(asked.key, bound)
    id_ = _latest_id(state, visit, asked)
    while id_ in state.ledger.settled:
        # A node with the name of an earlier one, which the run's graph had before it was migrated.
        visit.questions = visit.questions.asked(asked.key)
        id_ = _latest_id(state, visit, asked)
    _, *around = state.outward(visit)
    opened = ledger.opened(
        question,
        id=id_,
        kind=kind,
        address=address,
        created_at=step.now,
        deadline=deadline,
        digest=ledger.digest_of(address, question, state.era),
        visit=visit.address,
        scope=visit.scope,
        key=asked.key,
        prompt_values=asked.prompt_values,
        remember=asked.remember,
        parents=(*parents, *(parent_of(state.run_id, each.address) for each in around)),
        fields=fields or {},
        repeats=repeats,
        barred=four_eyes.barred(step.run, visit, question.terms),
    )
    if question.terms is not None:
        opened = deadlines.planned(opened, step.now)
    step.run.ledger.open[id_] = replace(opened, number=publish_opened(step, opened))


def publish_opened(step: Step, interrupt: Interrupt) -> int:
    """Publish that an interrupt is open, and return the number of the event."""
    return step.publish_about(
        interrupt,
        "interrupt.opened",
        kind=interrupt.kind,
        capability=interrupt.requested_capability,
        deadline=interrupt.deadline and rfc3339(interrupt.deadline),
        audit={"shown": ledger.shown_of(interrupt, interrupt.digest)},
    )


def _latest_id(state: RunState, visit: Visit, asked: Asked) -> str:
    ordinal = visit.questions.ask_counts[asked.key]
    name, kind, address = asked.question.name, asked.kind, _address(visit, asked)
    return ledger.interrupt_id(state.run_id, address, name, ordinal, kind, salt=state.salt)


def _address(visit: Visit, asked: Asked) -> str:
    return (
        visit.address if asked.process is None else below(visit.address, "process", asked.process)
    )


def void_before(step: Step, visit: Visit, asked: Asked) -> None:
    """Note that the latest answer to a question no longer counts, because its code asks it again."""
    mark_asked_again(step, _latest_id(step.run, visit, asked))
    tell_asked_again(
        step, _address(visit, asked), node=visit.node, before=visit.address, misfit=asked.misfit
    )


def tell_asked_again(
    step: Step, address: str, *, node: str, before: str, misfit: str | None
) -> str:
    """Publish that an answered question is asked again, and return why: what it showed has changed, or
    code cannot read the answer, which `misfit` explains.
    """
    why = "its values have changed since it was answered"
    if misfit is not None:
        why = f"the answer cannot be read any more: {misfit}"
    about: dict[str, Json] = {} if misfit is None else {"reason": why}
    step.publish("interrupt.reopened", address, node=node, before=before, **about)
    return why


def mark_asked_again(step: Step, id_: str) -> None:
    """Note that the answer to a question no longer counts, because it is asked again, unless the run has
    forgotten it.
    """
    book = step.run.ledger.settled
    if (settled := book.get(id_)) is not None:
        book[id_] = replace(settled, settled_reason=ledger.ASKED_AGAIN)


def update_open(
    step: Step,
    interrupt: Interrupt,
    asked: Asked,
    fields: Mapping[str, str] | None = None,
) -> None:
    """Update the content of an open interrupt, and the people whom its terms bar. It keeps its id and
    deadline. Answers to the earlier content are refused as `stale`; votes and a held yes no longer count,
    and bar nobody.
    """
    question = asked.question
    terms = _terms_now(interrupt, question.terms)
    question = replace(question, prompt=question.prompt[:_LONGEST_PROMPT], terms=terms)
    digest = ledger.digest_of(interrupt.address, question, step.run.era)
    if digest == interrupt.digest:
        return
    if interrupt.status == "held":
        four_eyes.reopen(step, interrupt, votes=(), reason="what was approved has changed")
        interrupt = step.run.ledger.open[interrupt.id]
    changed = replace(
        interrupt,
        **ledger.content_of(question),
        prompt_values=asked.prompt_values,
        remember=asked.remember,
        terms=terms,
        digest=digest,
        fields=fields or {},
        barred=four_eyes.barred(step.run, step.run.visits[interrupt.visit], terms, interrupt),
        votes=(),
        revised=False,
    )
    step.run.ledger.open[interrupt.id] = deadlines.asked_anew(interrupt, changed, step.now)
    four_eyes.bar(step, interrupt.name)
    shown = ledger.shown_of(question, digest)
    step.publish_about(interrupt, "interrupt.changed", audit={"shown": shown})


def _terms_now(interrupt: Interrupt, terms: Terms | None) -> Terms | None:
    """Return the author's terms of an open question, for the people whom it was reassigned to."""
    if not interrupt.reassigned or interrupt.terms is None:
        return terms
    terms, voters = replace(terms or PLAIN, assignees=interrupt.terms.assignees), interrupt.quorum
    if interrupt.revoted and voters is not None and terms.quorum is not None:
        terms = replace(terms, quorum=replace(terms.quorum, of=voters.of))
    return terms


def update_questions(step: Step, scope: str) -> None:
    """Update the open questions of a scope after people have edited its values.

    Code that asks is run again up to its question, as after an answer.
    """
    for entry in list(step.run.ledger.open.values()):
        visit = step.run.visits[entry.visit]
        if visit.scope != scope or KINDS[entry.kind].asked_by != "author":
            continue
        if (by := declaration(step.run, entry)) is not None:
            declared = by.question
            values = items.values_of(step.run, visit)
            capability = entry.requested_capability
            try:
                terms = who_may_answer.filled(declared.terms, values)
            except ValueError:
                # The run has moved to a graph with another field, and people stay who they were.
                terms = entry.terms
            declared = replace(declared, requested_capability=capability, terms=terms)
            fields = gates.shown_by(declared, values)
            update_open(step, entry, _filled(declared, values, entry.kind), fields)
        elif visit.call is None and isinstance(waiting := visit.state, Waiting):
            step.move(visit, "resume", Ready(stage=waiting.stage))


def declaration(state: RunState, entry: Interrupt) -> InterruptNode | Ask | None:
    """Return the declaration of a question in the run's graph; None for a question that code or the run
    asks.
    """
    graph, visit = state.graph_of(entry.scope), state.visits[entry.visit]
    if entry.kind == "rule":
        actions = (action for rule in graph.rules_on(visit.node) for action in rule.actions)
        asks = (each for each in actions if isinstance(each, Ask))
        return next(each for each in asks if each.question.name == entry.name)
    node = graph.nodes[visit.node]
    return node if isinstance(node, InterruptNode) and entry.kind == "question" else None


def parent_of(run_id: str, address: str, reason: Json = None) -> Parent:
    """Return a visit as the parent of the questions inside it."""
    return Parent(id=ledger.interrupt_id(run_id, address, ""), address=address, reason=reason)


def answer(step: Step, interrupt: Interrupt, vote: Vote) -> None:
    """Settle an interrupt by the answer of a vote; its visit continues if it waits for nothing else."""
    said = approvals.without_equal_arguments(interrupt, vote.answer)
    _record(step, ledger.settle_answered(interrupt, vote, step.now))
    visit = step.run.visits[interrupt.visit]
    publish_vote(step, "interrupt.answered", interrupt, vote)
    if KINDS[interrupt.kind].asked_by != "run":
        four_eyes.remember(step, visit, interrupt, vote)
        # An answer about one call of an agent does not apply to its next call.
        if not step.run.scopes[visit.scope].is_agent:
            items.put_answers(step, visit.scope, visit.members, {interrupt.name: vote.answer})
    if vote.by != TIMEOUT:
        # A loop that a person steers is not a runaway loop.
        items.forget_counts(step, visit)
    visit.questions = visit.questions.answered(interrupt.key, said)
    declared = declaration(step.run, interrupt)
    gates.add(step, visit, interrupt, answer_to=None if declared is None else declared.answer_to)
    waiting = visit.state
    if isinstance(waiting, Waiting) and (waiting.composite or not of_visit(step, visit.address)):
        step.move(visit, "resume", Ready(stage=waiting.stage))


def publish_vote(step: Step, type_: str, entry: Interrupt, vote: Vote, **about: Json) -> None:
    """Publish what somebody has answered."""
    step.publish_about(
        entry,
        type_,
        vote.by,
        audit={"capability": entry.requested_capability, "answer": vote.answer},
        answer_sha256=vote.answer_sha256,
        **about,
        **({} if vote.note is None else {"note": vote.note}),
        **({} if vote.on_behalf_of is None else {"on_behalf_of": vote.on_behalf_of}),
    )


def expire(step: Step, interrupt: Interrupt) -> None:
    """Settle an interrupt whose deadline passed without an answer."""
    settled = ledger.settle(interrupt, "expired", step.now, by=TIMEOUT)
    _record(step, settled)
    step.publish_about(interrupt, "interrupt.expired", TIMEOUT)


def withdraw(
    step: Step,
    interrupts: Iterable[Interrupt],
    reason: str,
    *,
    by: str | None = None,
    status: SettledStatus = "cancelled",
) -> None:
    """Settle interrupts whose answers are no longer needed."""
    for interrupt in list(interrupts):
        settled = ledger.settle(interrupt, status, step.now, by=by, settled_reason=reason)
        _record(step, settled)
        step.publish_about(interrupt, "interrupt.cancelled", by, reason=reason)


def _record(step: Step, settled: Interrupt) -> None:
    del step.run.ledger.open[settled.id]
    book = step.run.ledger.settled
    book[settled.id] = settled
    while len(book) > step.run.limits.settled_kept:
        del book[next(iter(book))]


def ways_out(state: RunState, scope: str) -> tuple[str, ...]:
    """Return the nodes that a question's deadline may lead to. An agent has none: its model would take
    a turn during open calls, or a tool would run that the model did not call.
    """
    graph = state.graph_of(scope)
    nodes = () if state.scopes[scope].is_agent else graph.nodes
    return (*(name for name in nodes if name not in graph.finally_nodes), END)


def of_visit(step: Step, visit: str) -> list[Interrupt]:
    """Return the open interrupts of one visit."""
    return step.run.ledger.open.found(BY_VISIT, visit)
