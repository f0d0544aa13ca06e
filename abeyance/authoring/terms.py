"""The terms of a question as authors write them: the same options wherever something asks.

`Graph.interrupt`, `Interrupt`, `ctx.interrupt`, `@tool`, hooks, rules and YAML all take `TermsOptions`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict, get_args

from abeyance.authoring.calendars import Calendar, calendar_of
from abeyance.authoring.declarations import DeclarationErrors
from abeyance.core import terms as core
from abeyance.core.json import Json
from abeyance.core.spec import InterruptSpec
from abeyance.core.terms import BusinessTime, Decision, Priority, Span, Terms
from abeyance.duration import Duration
from abeyance.schemas.json_schema import resolved

_MAX_RISK: Final = 100
_OF_APPROVALS: Final = ("quorum", "hold")
_SUBJECT: Final = re.compile(r"[^\s,*\x00-\x1f\x7f][^\s,\x00-\x1f\x7f]*")


@dataclass(frozen=True, slots=True)
class Quorum:
    """`count` distinct people of `of` (empty: of all who may answer) have to approve.

    With `veto` the first rejection rejects; without it, `count` rejections do.
    """

    count: int
    of: Sequence[str] = ()
    veto: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """From `after` on (a duration, or business time such as `2bd`), these may answer too: `to`, subjects
    and groups (`group:directors`), and whoever has `requested_capability`.
    """

    after: Duration
    to: Sequence[str] = ()
    requested_capability: str | None = None


class TermsOptions(TypedDict, total=False):
    """For whom a question is, how urgent it is, and what its answer takes. All are optional.

    `assignees`: subjects, and groups as `group:finance`, whom it is for; with `assignees_only=True`
    nobody else may answer. `priority` and `risk` (0 to 100) sort and filter lists. `remind`: moments
    after opening (`"1d"`) or before the deadline (`"-2h"`). `escalate`: who may answer too, from when
    on. `calendar` defines `2bd` and `3bh` (business days and hours) in all times of the question: a
    `Calendar`, or a country and its subdivision such as `"DE-BY"`. `quorum`: how many people have to
    approve. `hold`: how long a yes can be taken back before what it allows begins. `not_by`: who may
    not answer: `"@starter"`, and the names of questions whose last answerer may not answer this one.
    """

    assignees: str | Sequence[str]
    assignees_only: bool
    priority: Priority
    risk: int
    remind: Duration | Sequence[Duration]
    escalate: Escalation | Sequence[Escalation]
    calendar: str | Calendar
    quorum: Quorum | int
    hold: Duration
    not_by: str | Sequence[str]


TERMS: Final = frozenset(TermsOptions.__annotations__)
"""The names of the options."""


def terms_of(
    options: Mapping[str, Any],
    label: str,
    errors: DeclarationErrors,
    *,
    decisions: Sequence[Decision] | None = None,
    max_result: int = core.MAX_RESULT,
) -> Terms | None:
    """Return the terms that an author's options declare, None without any; faults are collected."""
    unknown = sorted(options.keys() - TERMS)
    for name in unknown:
        errors.note(f"{label} has no option {name!r}: it has {', '.join(sorted(TERMS))}")
    given = {name: value for name, value in options.items() if value is not None}
    chosen = core.DECISIONS if decisions is None else decisions_of(decisions, label, errors)
    if not given and chosen == core.DECISIONS and max_result == core.MAX_RESULT:
        return None
    quorum, escalate = given.get("quorum"), given.get("escalate", ())
    terms = Terms(
        assignees=people(given.get("assignees", ()), f"{label}, assignees=", errors),
        assignees_only=_flag(
            given.get("assignees_only", False), f"{label}, assignees_only", errors
        ),
        priority=_priority(given.get("priority", "normal"), label, errors),
        risk=_risk(given.get("risk"), label, errors),
        remind=tuple(
            span
            for each in _listed(given.get("remind", ()))
            if (span := errors.span(each, f"{label}, remind=")) is not None
        ),
        escalate=tuple(
            escalation
            for each in _listed(escalate)
            if (escalation := _escalation(each, f"{label}, escalate=", errors)) is not None
        ),
        calendar=_calendar(given.get("calendar"), label, errors),
        quorum=None if quorum is None else _quorum(quorum, label, errors),
        hold=_hold(given.get("hold"), label, errors),
        not_by=_not_by(given.get("not_by", ()), label, errors),
        decisions=chosen,
        max_result=max_result,
    )
    for fault in _nobody(terms):
        errors.note(f"{label}, {fault}")
    return terms


def _nobody(terms: Terms) -> Iterator[str]:
    """Yield the rules that nobody can fulfil."""
    people = core.named(terms)
    if people is None:
        return
    if not people and not terms.assignees:
        yield "assignees_only=True: the question is for nobody: name its assignees="
    elif not people:
        yield (
            "quorum, of=: nobody of them is in assignees=, so with assignees_only=True nobody may answer"
        )
    elif terms.quorum is not None and terms.quorum.count > len(people):
        yield (
            f"quorum={terms.quorum.count} cannot be reached by {', '.join(sorted(people))}: nobody else "
            "may answer, so name more people, or a group"
        )


def time_faults(label: str, question: InterruptSpec, *, has_deadline: bool) -> Iterator[str]:
    """Yield what is wrong with the times of a question, which has a deadline or not."""
    terms = question.terms or core.PLAIN
    if (fault := _span_fault(question.timeout)) is not None:
        yield f"{label} has a timeout of {fault}: it must be positive and finite"
    for span in terms.remind:
        if _is_nothing(span):
            yield f"{label}, remind=: {_shown(span)} is no length of time: write '1d' or '-2h'"
        elif core.is_negative(span) and not has_deadline:
            yield (
                f"{label}, remind=: {_shown(span)} is before the deadline, and the question has none: "
                "add a timeout, or remove the minus"
            )
    for each in terms.escalate:
        if (fault := _span_fault(each.after)) is not None:
            yield f"{label}, escalate=, after={fault}: it must be positive and finite"
    spans = (question.timeout, *terms.remind, *(each.after for each in terms.escalate))
    business = [span for span in spans if isinstance(span, BusinessTime)]
    if business and terms.calendar is None:
        yield f"{label}: {business[0]} needs calendar=: write calendar='DE-BY', or a Calendar"


def _span_fault(span: Span | None) -> str | None:
    is_long = span is None or not (_is_nothing(span) or core.is_negative(span))
    return None if is_long or span is None else _shown(span)


def _is_nothing(span: Span) -> bool:
    return span.amount == 0 if isinstance(span, BusinessTime) else not 0 < abs(span) < math.inf


def _shown(span: Span) -> str:
    return str(span) if isinstance(span, BusinessTime) else f"{span:g} s"


def approval_fault(question: InterruptSpec) -> str | None:
    """Return why nobody can approve a question that takes votes or holds a yes, None if they can."""
    terms = question.terms
    options = [] if terms is None else [name for name in _OF_APPROVALS if getattr(terms, name)]
    if not options or _can_be_approved(question.response_schema):
        return None
    return (
        f"has {' and '.join(options)}, and its answer is no yes or no: use response=bool, or a model "
        "with a field `approved: bool` that is not True by default"
    )


def _can_be_approved(schema: Json) -> bool:
    match resolved(schema, schema):
        case {"type": "boolean"}:
            return True
        case {"properties": {"approved": approved}}:
            approved = resolved(approved, schema)
            # Without the field an answer is no yes, whatever its model would make of it.
            return (
                isinstance(approved, Mapping)
                and approved.get("type") == "boolean"
                and approved.get("default") is not True
            )
        case _:
            return False


def decisions_of(
    value: Sequence[Decision], label: str, errors: DeclarationErrors
) -> tuple[Decision, ...]:
    """Return the decisions that an approval allows, in the usual order; faults are collected."""
    names = errors.texts(value, f"{label}, decisions=")
    if not names or (unknown := set(names) - {*core.DECISIONS}):
        shown = "none" if not names else ", ".join(map(repr, sorted(unknown)))
        errors.note(f"{label}, decisions=: {shown} given: use some of {', '.join(core.DECISIONS)}")
    return tuple(decision for decision in core.DECISIONS if decision in names)


def people(value: object, label: str, errors: DeclarationErrors) -> tuple[str, ...]:
    """Return subjects and groups; a single string is one of them."""
    names = errors.texts(value, label)
    for name in names:
        if not _SUBJECT.fullmatch(name) or name == core.GROUP:
            errors.note(
                f"{label}: {name!r} is neither a subject nor a group: write 'ada' or 'group:finance', "
                "without blanks and commas"
            )
    return tuple(dict.fromkeys(names))


def _listed(value: Any) -> Sequence[Any]:
    is_many = isinstance(value, Sequence) and not isinstance(value, str)
    return value if is_many else (value,)


def _flag(value: object, label: str, errors: DeclarationErrors) -> bool:
    if not isinstance(value, bool):
        errors.note(f"{label}={value!r} is invalid: use True or False")
    return value is True


def _priority(value: object, label: str, errors: DeclarationErrors) -> Priority:
    for known in get_args(Priority):
        if value == known:
            priority: Priority = known
            return priority
    errors.note(f"{label}: priority={value!r} is invalid: use 'high', 'normal' or 'low'")
    return "normal"


def _risk(value: object, label: str, errors: DeclarationErrors) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_RISK:
        return value
    errors.note(f"{label}: risk={value!r} is invalid: use a whole number from 0 to {_MAX_RISK}")
    return None


def _hold(value: Duration | None, label: str, errors: DeclarationErrors) -> float | None:
    seconds = errors.seconds(value, f"{label}, hold=")
    if seconds is not None and not 0 < seconds < math.inf:
        errors.note(f"{label}, hold=: {seconds:g} s is no length of time: write '10m'")
    return seconds


def _not_by(value: object, label: str, errors: DeclarationErrors) -> tuple[str, ...]:
    names = errors.texts(value, f"{label}, not_by=")
    # A rule that is misspelt would bar nobody.
    for name in names:
        if name.startswith("@") and name != core.STARTER:
            errors.note(
                f"{label}, not_by=: {name!r} is no rule: write {core.STARTER!r}, or the name of a "
                "question"
            )
    return names


def _calendar(value: object, label: str, errors: DeclarationErrors) -> core.Calendar | None:
    try:
        return None if value is None else calendar_of(value)
    except ValueError as error:
        errors.note(f"{label}, calendar=: {error}")
        # Times that need a calendar are no faults of their own then.
        return core.Calendar(name="")


def _escalation(value: object, label: str, errors: DeclarationErrors) -> core.Escalation | None:
    match value:
        case Escalation():
            pass
        case Mapping() if {"after"} <= value.keys() <= {"after", "to", "requested_capability"}:
            value = Escalation(**value)
        case _:
            errors.note(f"{label}: {value!r} is invalid: use Escalation(after=..., to=[...])")
            return None
    after = errors.span(value.after, f"{label}, after=")
    capability = errors.plain_capability(value.requested_capability, label)
    to = people(value.to, f"{label}, to=", errors)
    if not to and capability is None:
        errors.note(f"{label} names nobody: set to= or requested_capability=")
    return core.Escalation(after=after or 0.0, to=to, requested_capability=capability)


def _quorum(value: object, label: str, errors: DeclarationErrors) -> core.Quorum | None:
    match value:
        case Quorum():
            pass
        case int() if not isinstance(value, bool):
            value = Quorum(value)
        case Mapping() if {"count"} <= value.keys() <= {"count", "of", "veto"}:
            value = Quorum(**value)
        case _:
            errors.note(
                f"{label}: quorum={value!r} is invalid: use Quorum(2, of=['group:finance'])"
            )
            return None
    count = value.count
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        errors.note(f"{label}: quorum={count!r} is invalid: use a whole number above zero")
        return None
    of = people(value.of, f"{label}, quorum, of=", errors)
    return core.Quorum(count=count, of=of, veto=_flag(value.veto, f"{label}, quorum, veto", errors))
