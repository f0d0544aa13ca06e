"""Opening and settling interrupts: what the ledger records, and what follows for the visit.

A visit that waits continues when all its own interrupts are settled, or, if it is composite, at every
answer; what other visits wait for does not matter.

*Breakpoints* (static interrupts) show a person the values before or after a node, and let them edit
them. The graph names these nodes, or the start of the run does. The question shows the current values
with their version. Null continues the run; `{values, version}` sets fields first, unless they have
changed since. Shown and editable is what the visit reads: within a fan-out its own item's values.

*Error questions* are asked where a node declares `on_error="interrupt"`: try the visit again, skip it
with a patch, or let it fail. The visit keeps its place and its journal, so trying again repeats no
finished step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Literal

from abeyance.core import (
    approvals,
    authority,
    decisions,
    duties,
    events,
    items,
    ledger,
    reminders,
    undo,
)
from abeyance.core.address import below
from abeyance.core.business_time import moment
from abeyance.core.json import Json, canonical, fill, fill_all, rfc3339
from abeyance.core.ledger import Interrupt, Parent, SettledStatus
from abeyance.core.outcome import Asked, key_of
from abeyance.core.policy import TIMEOUT
from abeyance.core.spec import END, Ask, GraphSpec, InterruptNode, InterruptSpec, Kind
from abeyance.core.state import RunState
from abeyance.core.terms import PLAIN
from abeyance.core.visit import Failure, FanOutBranch, Ready, Visit, Waiting, transition
from abeyance.core.votes import Vote
from abeyance.core.working_state import WorkingState
from abeyance.errors import Code, FailureCode, Refusal

ERROR: Final = "error"
"""Name of the question about a failed visit; its answer is `{action, patch?}`."""
FORKED: Final = "approve_fork"
"""Name of the question whether an approval of the run that this one was forked from counts here too."""
_LONGEST_PROMPT: Final = 10_000
"""In characters: a template may show a field that holds a whole document."""


def fault_of(draft: WorkingState, visit: Visit, question: InterruptSpec) -> Failure | None:
    """Return why a declared question cannot be opened: a field of its capability has no usable value."""
    try:
        authority.filled(question.requested_capability or "", items.values_of(draft.state, visit))
    except ValueError as error:
        message = f"the question {question.name!r} of {visit.node!r} cannot be asked: {error}"
        return Failure(code=FailureCode.UNDECLARED_CAPABILITY, message=message)
    return None


def open_question(
    draft: WorkingState,
    visit: Visit,
    question: InterruptSpec,
    kind: Kind = "question",
) -> None:
    """Ask a person on behalf of a visit, which waits from now on. What is shown is frozen here.

    `{field}` in the prompt, the reason and the capability is filled; `fault_of` says whether it can be.
    """
    values = items.values_of(draft.state, visit)
    capability = question.requested_capability
    if capability is not None:
        capability = authority.filled(capability, values)
    capability = authority.asked_for(draft.graph(visit.scope), visit.node, capability)
    question = replace(question, requested_capability=capability)
    fields = approvals.shown_by(question, values)
    transition(visit, "ask", Waiting(stage="rules" if kind == "rule" else "body"))
    ask(draft, visit, Asked(question=_filled(question, values), kind=kind), fields=fields)


def _filled(question: InterruptSpec, values: Mapping[str, Json]) -> InterruptSpec:
    return replace(
        question,
        prompt=fill(question.prompt, values)[:_LONGEST_PROMPT],
        reason=fill_all(question.reason, values),
    )


def ask(
    draft: WorkingState,
    visit: Visit,
    asked: Asked,
    *,
    parents: tuple[Parent, ...] = (),
    fields: Mapping[str, str] | None = None,
) -> None:
    """Open an interrupt of a visit, with a question that is shown as it is.

    A retried visit may ask a withdrawn question again: that is another question, with an id of its own.
    """
    state = draft.state
    question, kind = asked.question, asked.kind
    address = visit.address
    if asked.process is not None:
        address = below(address, "process", asked.process)
    bound = ledger.content_digest(question)
    question = replace(question, prompt=question.prompt[:_LONGEST_PROMPT])
    deadline = asked.deadline
    if deadline is None and question.timeout is not None:
        calendar = None if question.terms is None else question.terms.calendar
        deadline = moment(draft.now, question.timeout, calendar)
    visit.questions = visit.questions.asked(asked.key).showing(asked.key, bound)
    id_ = _new_id(state, visit, asked, address)
    while id_ in state.ledger.settled:
        # A node with the name of an earlier one, which the run's graph had before it was migrated.
        visit.questions = visit.questions.asked(asked.key)
        id_ = _new_id(state, visit, asked, address)
    opened = ledger.opened(
        question,
        id=id_,
        kind=kind,
        address=address,
        created_at=draft.now,
        deadline=deadline,
        digest=ledger.digest_of(address, question),
        visit=visit.address,
        scope=visit.scope,
        key=asked.key,
        parents=(*parents, *_units_around(draft, visit.scope)),
        fields=fields or {},
        barred=duties.barred(draft.state, visit, question.terms),
    )
    if question.terms is not None:
        opened = reminders.planned(opened, draft.now)
    draft.open[id_] = replace(opened, number=publish_opened(draft, opened))


def publish_opened(draft: WorkingState, interrupt: Interrupt) -> int:
    """Publish that an interrupt is open, and return the number of the event."""
    return draft.publish(
        "interrupt.opened",
        interrupt.address,
        id=interrupt.id,
        name=interrupt.name,
        kind=interrupt.kind,
        capability=interrupt.requested_capability,
        deadline=interrupt.deadline and rfc3339(interrupt.deadline),
        shown=ledger.shown_of(interrupt, interrupt.digest),
    )


def _new_id(state: RunState, visit: Visit, asked: Asked, address: str) -> str:
    ordinal = visit.questions.ask_counts[asked.key]
    name, kind = asked.question.name, asked.kind
    return ledger.interrupt_id(state.run_id, address, name, ordinal, kind, salt=state.salt)


def ask_anew(
    draft: WorkingState,
    interrupt: Interrupt,
    question: InterruptSpec,
    fields: Mapping[str, str] | None = None,
) -> None:
    """Update what an open interrupt shows. It keeps its id and deadline, and an answer to what was
    shown before is refused as `stale`: votes on it count no more, and a held yes does not either.
    """
    question = replace(question, prompt=question.prompt[:_LONGEST_PROMPT])
    digest = ledger.digest_of(interrupt.address, question)
    if digest == interrupt.digest:
        return
    if interrupt.status == "held":
        reopen(draft, interrupt, votes=(), reason="what was approved has changed")
        interrupt = draft.open[interrupt.id]
    terms = question.terms
    if interrupt.reassigned and interrupt.terms is not None:
        terms = replace(terms or PLAIN, assignees=interrupt.terms.assignees)
    changed = replace(
        interrupt,
        **ledger.content_of(question),
        terms=terms,
        digest=digest,
        fields=fields or {},
        votes=(),
        revised=False,
    )
    draft.open[interrupt.id] = reminders.asked_anew(interrupt, changed, draft.now)
    draft.publish(
        "interrupt.changed",
        interrupt.address,
        id=interrupt.id,
        name=interrupt.name,
        shown=ledger.shown_of(question, digest),
    )


def _update_questions(draft: WorkingState, scope: str) -> None:
    """Update the open questions of a scope after people have edited its values.

    Code that asks is run again up to its question, as after an answer.
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
        elif visit.call is None and isinstance(waiting := visit.state, Waiting):
            transition(draft.visit(visit.address), "resume", Ready(stage=waiting.stage))


def _declared(graph: GraphSpec, visit: Visit, entry: Interrupt) -> InterruptSpec | None:
    """Return the question declared in the graph; None for one that code asked."""
    if entry.kind == "rule":
        asks = (action for rule in graph.rules_on(visit.node) for action in rule.actions)
        questions = [each.question for each in asks if isinstance(each, Ask)]
        return next((each for each in questions if each.name == entry.name), None)
    match graph.nodes[visit.node]:
        case InterruptNode(question=question):
            return question
        case _:
            return None


def unit(run_id: str, address: str, reason: Json = None) -> Parent:
    """Return a visit as the parent of what is asked inside it."""
    return Parent(id=ledger.interrupt_id(run_id, address, ""), address=address, reason=reason)


def _units_around(draft: WorkingState, scope_address: str) -> Iterator[Parent]:
    scope = draft.state.scopes[scope_address]
    while scope.visit is not None:
        yield unit(draft.state.run_id, scope.visit)
        scope = draft.state.scopes[draft.state.visits[scope.visit].scope]


def answer(
    draft: WorkingState,
    interrupt: Interrupt,
    value: Json,
    by: str,
    note: str | None = None,
    *,
    on_behalf_of: str | None = None,
) -> None:
    """Settle an interrupt by an answer; its visit continues if it waits for nothing else."""
    settled = ledger.settle_answered(
        interrupt, value, by, draft.now, note, on_behalf_of=on_behalf_of
    )
    said = decisions.without_equal_arguments(interrupt, value)
    _record(draft, settled)
    visit = draft.visit(interrupt.visit)
    draft.publish(
        "interrupt.answered",
        interrupt.address,
        by,
        id=interrupt.id,
        name=interrupt.name,
        answer_sha256=settled.answer_sha256,
        **({} if note is None else {"note": note}),
        **({} if on_behalf_of is None else {"on_behalf_of": on_behalf_of}),
    )
    if interrupt.kind not in {"static", "error"}:
        duties.remember(draft, visit, interrupt, by, on_behalf_of)
    # Answers to breakpoints and error questions are not answers of the graph, and an answer about one
    # call of an agent does not apply to its next call.
    is_agents = draft.state.scopes[visit.scope].is_agent
    if interrupt.kind not in {"static", "error", "outcome"} and not is_agents:
        items.put_answers(draft, visit.scope, visit.members, {interrupt.name: value})
    if by != TIMEOUT:
        # A loop that a person steers is not a runaway loop.
        items.forget_counts(draft, visit)
    visit.questions = visit.questions.answered(interrupt.key, said)
    approvals.grant(visit, interrupt)
    if by != TIMEOUT and interrupt.kind not in {"static", "error"}:
        approvals.hear(draft, visit, interrupt.requested_capability)
    waiting = visit.state
    if isinstance(waiting, Waiting) and (waiting.composite or not of_visit(draft, visit.address)):
        transition(visit, "resume", Ready(stage=waiting.stage))


def reopen(
    draft: WorkingState,
    interrupt: Interrupt,
    *,
    votes: tuple[Vote, ...],
    reason: str,
    by: str | None = None,
) -> None:
    """Open a held interrupt again, with the votes that still count."""
    draft.open[interrupt.id] = reminders.reopened(interrupt, draft.now, votes)
    draft.publish(
        "interrupt.reopened",
        interrupt.address,
        by,
        id=interrupt.id,
        name=interrupt.name,
        reason=reason,
    )


def expire(draft: WorkingState, interrupt: Interrupt) -> None:
    """Settle an interrupt whose deadline passed without an answer."""
    settled = ledger.settle(interrupt, "expired", draft.now, by=TIMEOUT)
    _record(draft, settled)
    draft.publish(
        "interrupt.expired", interrupt.address, TIMEOUT, id=interrupt.id, name=interrupt.name
    )


def withdraw(
    draft: WorkingState,
    interrupts: Iterable[Interrupt],
    reason: str,
    *,
    by: str | None = None,
    status: SettledStatus = "cancelled",
) -> None:
    """Settle interrupts whose answers are no longer needed."""
    for interrupt in list(interrupts):
        settled = ledger.settle(interrupt, status, draft.now, by=by, reason=reason)
        _record(draft, settled)
        draft.publish(
            "interrupt.cancelled",
            interrupt.address,
            by,
            id=interrupt.id,
            name=interrupt.name,
            reason=reason,
        )


def _record(draft: WorkingState, settled: Interrupt) -> None:
    draft.open.pop(settled.id, None)
    book = draft.settled
    book[settled.id] = settled
    while len(book) > draft.state.limits.settled_kept:
        del book[next(iter(book))]


def ways_out(state: RunState, scope: str) -> tuple[str, ...]:
    """Return the nodes that a question's deadline may lead to. An agent has none: its model would take
    a turn during open calls, or a tool would run that the model did not call.
    """
    graph = state.graph_of(scope)
    nodes = () if state.scopes[scope].is_agent else graph.nodes
    return (*(name for name in nodes if name not in graph.finally_nodes), END)


def of_visit(draft: WorkingState, visit: str) -> list[Interrupt]:
    """Return the open interrupts of one visit."""
    return [entry for entry in draft.state.ledger.open.values() if entry.visit == visit]


def open_breakpoint(draft: WorkingState, visit: Visit, stage: Literal["before", "after"]) -> None:
    """Stop at the breakpoint before or after a visit's node."""
    transition(visit, "ask", Waiting(stage=stage))
    question = _breakpoint(draft, visit, f"interrupt_{stage}")
    ask(draft, visit, Asked(question=question, kind="static"))


def open_fork_question(draft: WorkingState, visit: Visit) -> None:
    """Ask whether an approval of the run that this one was forked from counts here too."""
    transition(visit, "ask", Waiting(stage="before"))
    ask(draft, visit, Asked(question=_breakpoint(draft, visit, FORKED), kind="static"))


def _breakpoint(draft: WorkingState, visit: Visit, name: str) -> InterruptSpec:
    values = items.values_of(draft.state, visit)
    version = items.version_of(draft.state, visit)
    inherited = approvals.first_inherited(draft.state, visit) if name == FORKED else None
    begins = f"{name.removeprefix('interrupt_').capitalize()} {visit.node!r}"
    if inherited is not None:
        begins = (
            f"{inherited.node!r} was approved in the run that this one was forked from. Approve "
            f"{visit.node!r} in this run too"
        )
    return InterruptSpec(
        name=name,
        prompt=f"{begins}: let the run go on (null), or edit its values first?",
        requested_capability=None if inherited is None else inherited.capability,
        payload={"values": dict(values), "version": version, "node": visit.node},
        response_schema=_breakpoint_schema(draft.graph(visit.scope)),
    )


def take_edits(draft: WorkingState, interrupt: ledger.Interrupt, answer: Json, by: str) -> None:
    """Apply the edits in an answer to a breakpoint, at once, so that later events are checked against
    them.
    """
    if interrupt.kind != "static" or answer is None:
        return
    visit = draft.visit(interrupt.visit)
    before = items.values_of(draft.state, visit)
    fields = {
        name: value
        for name, value in answer["values"].items()
        if name not in before or canonical(before[name]) != canonical(value)
    }
    if not fields:
        return
    items.set_fields(draft, visit, fields)
    # Any edit after a gate reopens the gate.
    approvals.invalidate(visit)
    draft.publish("run.values_edited", visit.address, by, fields=sorted(fields))
    undo.changing(visit, before, fields)
    if visit.routing is not None:
        visit.routing = replace(visit.routing, is_stale=True)
    values_edited(draft, visit.scope, besides=interrupt.id)


def values_edited(draft: WorkingState, scope: str, *, besides: str | None = None) -> None:
    """Update questions and approvals of a scope after people have edited its values."""
    approvals.edited(draft, scope)
    _update_questions(draft, scope)
    for entry in list(draft.state.ledger.open.values()):
        if entry.kind == "static" and entry.scope == scope and entry.id != besides:
            visit = draft.state.visits[entry.visit]
            ask_anew(draft, entry, _breakpoint(draft, visit, entry.name))


def drop_breakpoint_answer(visit: Visit, stage: Literal["before", "after"]) -> None:
    """Drop the answer to a breakpoint, which is not an answer of the graph."""
    key = key_of("static", f"interrupt_{stage}")
    visit.questions = visit.questions.without({key})


def refuse_edits(state: RunState, event: events.Responded) -> None:
    """Refuse an edit that cannot be made, or of values that have changed since."""
    edited: set[tuple[str, tuple[FanOutBranch, ...]]] = set()
    for id_, answer in event.answers.items():
        entry = state.ledger.open.get(id_)
        if entry is None or entry.kind != "static" or answer is None:
            continue
        visit = state.visits[entry.visit]
        version = items.version_of(state, visit)
        place = (entry.scope, visit.members)
        if answer["version"] != version or place in edited:
            raise Refusal(
                Code.STALE,
                f"The edit is of version {answer['version']} of the values, which are at version "
                f"{version + (place in edited)}: read the values again, and edit those.",
                interrupt_id=id_,
                version=version,
                values=dict(items.values_of(state, visit)),
            )
        if beyond := items.unreachable(state, visit, answer["values"]):
            message = "within a fan-out, a field that is merged by adding can only be added to"
            raise Refusal(
                Code.INVALID_ANSWER,
                f"The edit sets {', '.join(map(repr, beyond))}, and {message}.",
                interrupt_id=id_,
                errors=[{"pointer": f"/values/{name}", "message": message} for name in beyond],
            )
        edited.add(place)


def _breakpoint_schema(graph: GraphSpec) -> Json:
    fields, definitions = _fields_schema(graph)
    edited = {
        "type": "object",
        "properties": {"values": fields, "version": {"type": "integer"}},
        "required": ["values", "version"],
        "additionalProperties": False,
    }
    # Not `anyOf`, so that a fault in an edit is reported with its pointer.
    schema: dict[str, Json] = {
        "if": {"type": "object"},
        "then": edited,
        "else": {"type": "null"},
    }
    return {**schema, "$defs": definitions} if definitions else schema


def ask_operator(draft: WorkingState, visit: Visit, failure: Failure) -> None:
    """Ask what to do about a failed visit, which was dropped and is put back to wait."""
    draft.put_back(visit)
    transition(visit, "fail", Waiting(stage="error"))
    visit.failure = failure
    question = InterruptSpec(
        name=ERROR,
        prompt=(
            f"{visit.node!r} failed: {failure.message} ({failure.code}). "
            "Try it again, skip it, or let it fail?"
        ),
        reason={"code": failure.code, "message": failure.message, "address": failure.address},
        response_schema=_error_schema(draft.graph(visit.scope)),
    )
    ask(draft, visit, Asked(question=question, kind="error"))


def _fields_schema(graph: GraphSpec) -> tuple[Json, Json]:
    """Return the JSON Schema of a mapping of fields of a graph's values, and its definitions."""
    state = graph.input_schema if isinstance(graph.input_schema, dict) else {}
    properties: dict[str, Json] = dict.fromkeys(graph.fields, True) | state.get("properties", {})
    schema = {"type": "object", "properties": properties, "additionalProperties": graph.open_values}
    return schema, state.get("$defs", {})


def _error_schema(graph: GraphSpec) -> Json:
    patch, definitions = _fields_schema(graph)
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {"action": {"enum": ["retry", "skip", "fail"]}, "patch": patch},
        "required": ["action"],
        "additionalProperties": False,
        "if": {"properties": {"action": {"enum": ["retry", "fail"]}}},
        "then": {"properties": {"patch": False}},
    }
    return {**schema, "$defs": definitions} if definitions else schema
