"""The view of a run's state for callers. Pure: the same state gives the same view.

`public` is the one projection of an interrupt: views, inbox rows and records are made of it. A field that
the core's `Interrupt` and `views.InterruptView` both have is shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from itertools import islice
from typing import Any, Final

from abeyance import views, wire
from abeyance.core import approvals, four_eyes, ledger, policy
from abeyance.core.address import Address
from abeyance.core.json import Json, size
from abeyance.core.ledger import Interrupt, Ledger
from abeyance.core.policy import EVERYTHING
from abeyance.core.spec import Default, GoTo, Halt, OnPauseTimeout, OnTimeout, ResumeRun
from abeyance.core.state import RunState
from abeyance.core.tables import ALL
from abeyance.core.terms import DECISIONS, Escalation, Terms
from abeyance.core.text import truncate
from abeyance.core.visit import BLOCKED, PAUSED, Failure, Ready, Running

_MAX_BLOCKED: Final = 20
_AMOUNT: Final = re.compile(r"(^|_)(amount|total|sum|price|cost)(_|$)", re.IGNORECASE)
_ABOUT_CHARS: Final = 80
_MAX_OPEN: Final = 50
_MAX_AGENTS: Final = 50
"""The most agents in a view, because most readers want other parts of it."""
LARGEST_IN_MEMO: Final = 1_500
"""The most bytes of one list or name: Temporal's lists carry the memo of each run."""
_REPEATED: Final = (
    "This is asked again because what it shows was changed. Code that the earlier answer led to has "
    "already begun; it may have had effects, and after a new answer it begins once more."
)
_OWN_SHAPE: Final = {"escalations", "calendar", "remember"}
_IN_VIEW: Final = views.InterruptView.model_fields.keys() - _OWN_SHAPE
_SHOWN: Final = [entry.name for entry in fields(Interrupt) if entry.name in _IN_VIEW]
_OF_HELD: Final = ("answer", "answer_sha256", "note")
"""The fields of an answer in a view, whether it settled the question or is held."""
_TERMS: Final = [entry.name for entry in fields(Terms) if entry.name in _IN_VIEW]


def run_view(state: RunState, start: wire.StartRun) -> views.RunView:
    """Return the whole view of a run."""
    shown = open_interrupts(state)
    return bare_view(state, start).model_copy(update={"interrupts": shown})


def short_view(state: RunState, start: wire.StartRun) -> views.RunView:
    """Return the view of a run for operators, with the first of its open interrupts in short form.

    The view has no large values, because Temporal takes only some megabytes.
    """
    shown = [
        short(question(state, each)).model_copy(update={"answer": None, "preview": None})
        for each in islice(state.ledger.open.values(), _MAX_OPEN)
    ]
    view = bare_view(state, start)
    values = view.values if state.root.size <= state.limits.visit_bytes // 2 else {}
    return view.model_copy(update={"interrupts": shown, "values": values})


def bare_view(state: RunState, start: wire.StartRun) -> views.RunView:
    """Return the view of a run with the number of its open interrupts, but without them."""
    ending = state.ending
    values = dict(state.root.values)
    is_over = state.finished
    return views.RunView(
        run_id=state.run_id,
        graph=state.spec.name,
        graph_version=start.graph_version,
        status=str(state.status),
        outcome=ending and ending.outcome,
        reason=ending and ending.reason,
        paused=state.pause is not None,
        pause=_pause_view(state),
        conversation_id=start.conversation_id,
        session_type=start.session_type,
        labels=start.labels,
        started_by=start.started_by,
        sent_by=start.sent_by,
        created_at=state.created_at,
        updated_at=state.updated_at,
        ended_at=state.updated_at if is_over else None,
        running=[visit.address for visit in state.visits_in(Running)],
        agents=agents(state)[:_MAX_AGENTS],
        open=len(state.ledger.open),
        queue_depth=len(state.mailbox.queue),
        max_queue_size=state.limits.max_queue_size,
        metrics=views.Metrics(**asdict(state.counters), last_activity_at=state.last_activity_at),
        blocked=blocked_visits(state),
        retrying=_retrying_visits(state),
        guarded_by=list(policy.guarded_by(state)),
        values=values,
        version=state.root.version,
        result=values if is_over else None,
        undelivered=list(state.mailbox.undelivered),
        rejected=list(state.mailbox.rejected),
        error=ending and ending.error and _error_view(ending.error),
        beside=[_error_view(failure) for failure in ending.secondary_errors] if ending else [],
        cancelled_by=ending.actor if ending and ending.outcome == "cancelled" else None,
    )


def guards_for_memo(capabilities: tuple[str, ...]) -> list[str]:
    """Return the capabilities that guard a run, for its memo."""
    # If they are too many for the memo, only a caller with all capabilities is sure to have them.
    return list(capabilities) if size(list(capabilities)) <= LARGEST_IN_MEMO else [EVERYTHING]


def blocked_visits(state: RunState) -> list[views.BlockedView]:
    """Return the blocked visits, oldest first, as many as a view shows."""
    return [
        views.BlockedView(
            code=why.code,
            message=why.message,
            node=Address.parse(visit.address).label,
            address=visit.address,
            since=why.since,
        )
        for visit in state.visits.found(BLOCKED, ALL, _MAX_BLOCKED)
        if (why := visit.blocked) is not None
    ]


def _retrying_visits(state: RunState) -> list[views.RetryingView]:
    """Return the visits that run again after a failed attempt, the next one first."""
    return [
        views.RetryingView(
            node=Address.parse(visit.address).label,
            address=visit.address,
            message=error,
            attempts=visit.checkpoint.attempts.count,
            due=due,
        )
        for visit in state.visits.found(PAUSED, ALL, _MAX_BLOCKED)
        if isinstance(visit.state, Ready)
        and (error := visit.state.error) is not None
        and (due := visit.state.not_before) is not None
    ]


def agents(state: RunState) -> list[views.AgentView]:
    """Return the agents at work."""
    shown = []
    for scope in state.scopes.values():
        if not scope.is_agent:
            continue
        turns, usage = scope.values.get("turns"), scope.values.get("usage")
        shown.append(
            views.AgentView(
                address=scope.address,
                turns=turns if isinstance(turns, int) else 0,
                usage=usage if isinstance(usage, Mapping) else {},
            )
        )
    return shown


def open_interrupts(state: RunState) -> list[views.InterruptView]:
    """Return the open interrupts, in the order in which they were opened."""
    return [question(state, entry) for entry in state.ledger.open.values()]


def interrupt(state: RunState, id_: str) -> views.InterruptView:
    """Return one interrupt, open or settled. Raises KeyError if the run has no such interrupt."""
    return question(state, state.ledger.open.get(id_) or state.ledger.settled[id_])


def short(view: views.InterruptView) -> views.InterruptView:
    """Return a question as lists show it: without its large fields, and with `about` as their gist."""
    left_out = ("reason", "payload", "response_schema", "on_timeout", "answered_at")
    also = ("hold", "decisions", "calendar")
    empty: dict[str, Any] = {"votes": [], "reminders": [], "warnings": [], "abridged": True}
    about = {"about": _about(view.reason)}
    return view.model_copy(update={**dict.fromkeys((*left_out, *also)), **empty, **about})


def _about(reason: Any) -> dict[str, Any] | None:
    """Return the amount that a reason shows, else its first argument, None if it has neither."""
    match reason:
        case {"tool": str(), "arguments": Mapping() as arguments}:
            shown: Mapping[str, Any] = arguments
        case Mapping():
            shown = reason
        case _:
            return None
    said = {name: value for name, value in shown.items() if _is_short(value)}
    name = next(filter(_AMOUNT.search, said), next(iter(said), None))
    if name is None:
        return None
    value = said[name]
    return {name: truncate(value, _ABOUT_CHARS) if isinstance(value, str) else value}


def _is_short(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool) and value != ""


def settled_interrupts(state: RunState) -> list[views.InterruptView]:
    """Return the settled interrupts, in the order in which they were settled."""
    return [question(state, entry) for entry in state.ledger.settled.values()]


def question(state: RunState, entry: Interrupt) -> views.InterruptView:
    """Return the whole view of a question."""
    return views.InterruptView(
        run_id=state.run_id,
        graph=state.spec.name,
        warnings=_warnings(state, entry) if entry.status == "open" else [],
        **public(entry),
    )


def _warnings(state: RunState, entry: Interrupt) -> list[str]:
    repeated = [_REPEATED] if entry.repeats else []
    return [*repeated, *four_eyes.warnings(state, entry)]


def question_of(view: views.InterruptView) -> Interrupt:
    """Return the open question of a view, with the fields that decide who may answer it."""
    escalations = [
        Escalation(after=0.0, to=tuple(each.to), requested_capability=each.requested_capability)
        for each in view.escalations
    ]
    return Interrupt(
        id=view.id,
        name=view.name,
        prompt="",
        kind="question",
        address=view.address,
        requested_capability=view.requested_capability,
        created_at=view.created_at,
        terms=Terms(
            assignees=tuple(view.assignees),
            assignees_only=view.assignees_only,
            quorum=view.quorum,
            not_by=tuple(view.not_by),
            escalate=tuple(escalations),
        ),
        escalations=tuple(each.at for each in view.escalations),
        claim=view.claim,
        barred=view.barred,
    )


def public(entry: Interrupt) -> dict[str, Any]:
    """Return the fields of an interrupt for callers, by the field names of `views.InterruptView`."""
    is_open, is_answered = entry.status == "open", entry.status == "answered"
    held, quorum = entry.held, entry.quorum if is_open else None
    answered_at = (entry.accepted_at or entry.settled_at) if is_answered else None
    return {
        **{name: getattr(entry, name) for name in _SHOWN},
        **({} if held is None else {name: getattr(held, name) for name in _OF_HELD}),
        **_terms_of(entry),
        "remember": _remember(entry) if is_open else None,
        "deadline": entry.deadline if held is None else None,
        "digest": entry.digest or None,
        "on_timeout": on_timeout_text(entry.on_timeout) if is_open and entry.deadline else None,
        "parent": entry.parents[0].id if entry.parents else None,
        "missing": None if quorum is None else ledger.missing_approvals(quorum, entry.votes),
        "on_behalf_of": held.on_behalf_of if held else entry.on_behalf_of,
        "answered_by": held.by if held else entry.by if is_answered else None,
        "answered_at": held.at if held else answered_at,
    }


def _remember(entry: Interrupt) -> views.RememberView | None:
    allowed = approvals.offered(entry)
    if allowed is None:
        return None
    return views.RememberView(
        most=allowed.most,
        where=list(allowed.where),
        same=list(allowed.same),
        below=dict(allowed.below),
    )


def _terms_of(entry: Interrupt) -> dict[str, Any]:
    terms = entry.terms
    shown: dict[str, Any] = {}
    if terms is not None:
        shown = {name: getattr(terms, name) for name in _TERMS}
        shown["calendar"] = terms.calendar and terms.calendar.name
        shown["escalations"] = [
            views.EscalationView(
                at=at, to=list(each.to), requested_capability=each.requested_capability
            )
            for each, at in zip(terms.escalate, entry.escalations, strict=True)
        ]
    if entry.kind == "approval":
        return {**shown, "decisions": DECISIONS if terms is None else terms.decisions}
    return {name: value for name, value in shown.items() if name != "decisions"}


def ledger_of(settled: list[views.InterruptView]) -> Ledger:
    """Return the ledger of an ended run, made from its recorded interrupts."""
    own_shape = {"on_timeout", "digest", "parents", "prompt_values", "votes", "reminders"}
    own_shape |= {"claim", "barred"}
    names = [name for name in _SHOWN if name not in own_shape]
    entries = [
        Interrupt(
            **{name: getattr(view, name) for name in names},
            by=view.answered_by,
            digest=view.digest or "",
            prompt_values=tuple(view.prompt_values),
            votes=tuple(view.votes),
            accepted_at=None if view.answered_at == view.settled_at else view.answered_at,
        )
        for view in settled
    ]
    return Ledger(settled={entry.id: entry for entry in entries})


def on_timeout_text(policy: OnTimeout | OnPauseTimeout) -> Json:
    """Return the policy of a deadline, as authors write it."""
    match policy:
        case Halt():
            return "halt"
        case ResumeRun():
            return "resume"
        case GoTo(node=node):
            return f"goto:{node}"
        case Default(answer=answer):
            return {"default": answer}


def _pause_view(state: RunState) -> views.PauseView | None:
    pause = state.pause
    if pause is None:
        return None
    on_timeout = str(on_timeout_text(pause.on_timeout))
    return views.PauseView(**{**asdict(pause), "on_timeout": on_timeout})


def _error_view(failure: Failure) -> views.ErrorView:
    return views.ErrorView(**asdict(failure))
