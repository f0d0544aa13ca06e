"""The terms of a question as authors write them: the same options wherever something asks.

`Graph.interrupt`, `Interrupt`, `ctx.interrupt`, `@tool`, hooks, rules and YAML all take `TermsOptions`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Annotated, Any, Final, TypeAlias, TypedDict

from pydantic import BeforeValidator, ConfigDict, Field, Tag, ValidationError
from pydantic.dataclasses import dataclass

from abeyance.authoring.calendars import Calendar, calendar_of
from abeyance.authoring.declarations import DeclarationErrors
from abeyance.core import terms as core
from abeyance.core.json import Json, fill_by
from abeyance.core.spec import InterruptSpec
from abeyance.core.terms import BusinessTime, Decision, Priority, Terms
from abeyance.duration import Duration, OptionalSeconds, span
from abeyance.schemas.forms import Form, Text, by_sort, in_words, named_in
from abeyance.schemas.json_schema import resolved

_CONFIG: Final = ConfigDict(extra="forbid")
_OF_APPROVALS: Final = ("quorum", "hold")
_BESIDE: Final = ("prompt", "reason", "payload", "response", "answer_to", "timeout", "on_timeout")
"""Options of questions that are not terms."""
_SUBJECT: Final = re.compile(r"[^\s,*\x00-\x1f\x7f][^\s,\x00-\x1f\x7f]*")


def _span(value: Any) -> Any:
    length = span(value)
    return str(length) if isinstance(length, BusinessTime) else length


Span: TypeAlias = Annotated[Duration, BeforeValidator(_span, json_schema_input_type=float | str)]
"""A duration in seconds, or business time as text, such as `2bd`."""

People: TypeAlias = Annotated[
    Text | Annotated[Sequence[str], Tag("list")], by_sort("a name, or a list of names")
]


@dataclass(frozen=True, config=_CONFIG)
class Quorum:
    """`count` distinct people of `of` (empty: of all who may answer) have to approve.

    With `veto` the first rejection rejects; without it, `count` rejections do.
    """

    count: Annotated[int, Field(ge=1, strict=True)]
    of: Sequence[str] = Field(default=(), description="of whom: subjects, groups and {field}")
    veto: bool = Field(default=True, strict=True, description="the first rejection rejects")


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class Escalation:
    """From `after` on (a duration, or business time such as `2bd`), more people may answer: the subjects
    and groups of `to` (`group:directors`). With `requested_capability`, they must have that capability;
    without `to`, it is enough.
    """

    after: Span
    to: People = Field(default=(), description="subjects and groups")
    requested_capability: str | None = None


class TermsOptions(TypedDict, total=False):
    """Options for the people, the urgency and the approval of a question. All are optional.

    `assignees`: the subjects and groups (`group:finance`) that it is for; with `assignees_only=True`,
    nobody else may answer. `priority` and `risk` (0 to 100) sort and filter lists. `remind`: moments
    after opening (`"1d"`) or before the deadline (`"-2h"`). `escalate`: who else may answer, and from
    when on. `calendar` defines `2bd` and `3bh` (business days and hours) in all times of the question: a
    `Calendar`, or a country and its subdivision such as `"DE-BY"`. `quorum`: how many people have to
    approve. `hold`: how long a yes can be taken back before it takes effect. `not_by`: who may not
    answer: `"@starter"`, or the last answerer of another question, by that question's name.
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


class TermsForm(Form):
    """The options of `TermsOptions`, in every form that an author may write."""

    assignees: People | None = Field(
        None, description="for whom it is: subjects, groups as group:finance, and {field}"
    )
    assignees_only: bool | None = Field(None, description="nobody but the assignees may answer")
    priority: Priority | None = None
    risk: int | None = Field(None, ge=0, le=100)
    remind: (
        Annotated[
            Annotated[Span, Tag("text")]
            | Annotated[Span, Tag("number")]
            | Annotated[Sequence[Span], Tag("list")],
            by_sort("a duration, or a list of durations"),
        ]
        | None
    ) = Field(None, description="after opening, or with a minus before the deadline")
    escalate: (
        Annotated[
            Annotated[Escalation, Tag("mapping")] | Annotated[Sequence[Escalation], Tag("list")],
            by_sort("{after, to, requested_capability}, or a list of them"),
        ]
        | None
    ) = Field(None, description="who may answer too, from when")
    calendar: (
        Annotated[
            Text | Annotated[Calendar, Tag("mapping")],
            by_sort("a country and its subdivision such as DE-BY, or a mapping"),
        ]
        | None
    ) = Field(None, description="a country and its subdivision such as DE-BY, or a calendar")
    quorum: (
        Annotated[
            Annotated[int, Field(ge=1), Tag("number")] | Annotated[Quorum, Tag("mapping")],
            by_sort("a number, or {count, of, veto}"),
        ]
        | None
    ) = Field(None, description="how many people have to approve")
    hold: OptionalSeconds = Field(None, description="how long a yes can be taken back")
    not_by: People | None = Field(
        None, description="@starter, names of questions, and {field}: who may not answer"
    )


TERMS: Final = frozenset(TermsForm.model_fields)
"""The names of the options."""


def terms_of(
    options: Mapping[str, Any],
    label: str,
    errors: DeclarationErrors,
    *,
    decisions: Sequence[Decision] | None = None,
    max_result: int = core.MAX_RESULT,
    fills: bool = False,
) -> Terms | None:
    """Return the terms that an author's options declare, None without any; faults are collected.

    `fills` is for a declared question: fields of the state may name its people, such as `{requester}`.
    """
    for name in sorted(options.keys() - TERMS):
        near = get_close_matches(name, _BESIDE, n=1)
        fix = f"write {near[0]}=" if near else f"it has {', '.join(sorted(TERMS))}"
        errors.note(f"{label} has no option {name!r}: {fix}")
    given = {name: value for name, value in options.items() if name in TERMS and value is not None}
    chosen = core.DECISIONS if decisions is None else decisions_of(decisions, label, errors)
    if not given and chosen == core.DECISIONS and max_result == core.MAX_RESULT:
        return None
    form, wrong = _read(given, label, errors)
    terms = _lowered(form, label, errors, fills=fills)
    if "calendar" in wrong:
        # Without a placeholder, each time that needs a calendar would be another fault.
        terms = replace(terms, calendar=core.Calendar(name=""))
    for fault in () if wrong else _nobody(terms):
        errors.note(f"{label}, {fault}")
    return replace(terms, decisions=chosen, max_result=max_result)


def _read(
    given: Mapping[str, Any], label: str, errors: DeclarationErrors
) -> tuple[TermsForm, frozenset[str]]:
    """Return the options that can be read, and the names of those that cannot; faults are collected."""
    try:
        return TermsForm.model_validate(given), frozenset()
    except ValidationError as error:
        entries = error.errors(include_url=False, include_context=False)
    wrong = set[str]()
    for entry in entries:
        field, *below = named_in(entry)
        errors.note(f"{label}, {in_words(entry, ', '.join([f'{field}=', *below]))}")
        wrong.add(field)
    readable = {name: value for name, value in given.items() if name not in wrong}
    return TermsForm.model_validate(readable), frozenset(wrong)


def _lowered(form: TermsForm, label: str, errors: DeclarationErrors, *, fills: bool) -> Terms:
    quorum = None
    if form.quorum is not None:
        wanted = Quorum(form.quorum) if isinstance(form.quorum, int) else form.quorum
        of = people(wanted.of, f"{label}, quorum, of=", errors, fills=fills)
        quorum = core.Quorum(count=wanted.count, of=of, veto=wanted.veto)
    if form.hold is not None and not 0 < form.hold < math.inf:
        errors.note(f"{label}, hold=: {form.hold:g} s is not a length of time: write '10m'")
    return Terms(
        assignees=people(_listed(form.assignees), f"{label}, assignees=", errors, fills=fills),
        assignees_only=form.assignees_only is True,
        priority=form.priority or "normal",
        risk=form.risk,
        remind=tuple(map(span, _listed(form.remind))),
        escalate=tuple(
            _escalation(each, f"{label}, escalate=", errors) for each in _listed(form.escalate)
        ),
        calendar=_calendar(form.calendar, label, errors),
        quorum=quorum,
        hold=form.hold,
        not_by=_not_by(_listed(form.not_by), label, errors, fills=fills),
    )


def _nobody(terms: Terms) -> Iterator[str]:
    """Yield the rules that nobody can fulfil."""
    people = core.named(terms)
    if people is None:
        return
    if not people and not terms.assignees:
        yield "assignees_only=True: the question is for nobody: name its assignees="
    elif not people:
        yield (
            "quorum, of=: none of them is in assignees=, so with assignees_only=True nobody may answer"
        )
    elif terms.quorum is not None and terms.quorum.count > len(people):
        yield (
            f"quorum={terms.quorum.count} cannot be reached by {', '.join(sorted(people))}: nobody else "
            "may answer, so name more people, or a group"
        )


def time_faults(label: str, question: InterruptSpec, *, has_deadline: bool) -> Iterator[str]:
    """Yield the faults in the times of a question. `has_deadline` tells whether it has a deadline."""
    terms = question.terms or core.PLAIN
    if (fault := _span_fault(question.timeout)) is not None:
        yield f"{label} has a timeout of {fault}: it must be positive and finite"
    for each in terms.remind:
        if _is_nothing(each):
            yield f"{label}, remind=: {_shown(each)} is not a length of time: write '1d' or '-2h'"
        elif core.is_negative(each) and not has_deadline:
            yield (
                f"{label}, remind=: {_shown(each)} is before the deadline, and the question has none: "
                "add a timeout, or remove the minus"
            )
    for escalation in terms.escalate:
        if (fault := _span_fault(escalation.after)) is not None:
            yield f"{label}, escalate=, after={fault}: it must be positive and finite"
    spans = (question.timeout, *terms.remind, *(each.after for each in terms.escalate))
    business = [each for each in spans if isinstance(each, BusinessTime)]
    if business and terms.calendar is None:
        yield f"{label}: {business[0]} needs calendar=: write calendar='DE-BY', or a Calendar"


def _span_fault(length: core.Span | None) -> str | None:
    is_long = length is None or not (_is_nothing(length) or core.is_negative(length))
    return None if is_long or length is None else _shown(length)


def _is_nothing(length: core.Span) -> bool:
    amount = length.amount if isinstance(length, BusinessTime) else length
    return not 0 < abs(amount) < math.inf


def _shown(length: core.Span) -> str:
    return str(length) if isinstance(length, BusinessTime) else f"{length:g} s"


def approval_fault(question: InterruptSpec) -> str | None:
    """Return the reason why a question with a quorum or a hold cannot be approved; None if it can."""
    terms = question.terms
    options = [] if terms is None else [name for name in _OF_APPROVALS if getattr(terms, name)]
    if not options or _can_be_approved(question.response_schema):
        return None
    return (
        f"has {' and '.join(options)}, and its answer is not a yes or no: use response=bool, or a model "
        "with a field `approved: bool` that is not True by default"
    )


def _can_be_approved(schema: Json) -> bool:
    match resolved(schema, schema):
        case {"type": "boolean"}:
            return True
        case {"properties": {"approved": approved}}:
            approved = resolved(approved, schema)
            # An answer without the field is not a yes, whatever default its model has.
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


def people(
    value: object, label: str, errors: DeclarationErrors, *, fills: bool = False
) -> tuple[str, ...]:
    """Return subjects and groups; a single string is one of them. With `fills`, fields may name some."""
    names = errors.texts(value, label)
    for name in names:
        if core.is_template(name):
            _note_template(name, label, errors, fills=fills)
        elif not _SUBJECT.fullmatch(name) or name in (core.GROUP, core.STARTER):
            errors.note(
                f"{label}: {name!r} is neither a subject nor a group: write 'ada' or 'group:finance', "
                "without blanks and commas"
            )
    return tuple(dict.fromkeys(names))


def _note_template(name: str, label: str, errors: DeclarationErrors, *, fills: bool) -> None:
    """Collect the fault of a name with a brace. Validation checks later that there is such a field."""
    if not fills:
        errors.note(
            f"{label}: {name!r} has a brace, and fields of the state name people only in assignees=, "
            "not_by= and the quorum of a declared question: write a name"
        )
    elif not set(fill_by(name, lambda _: "")).isdisjoint("{}"):
        errors.note(f"{label}: {name!r} has a brace that is not part of a {{field}}: correct it")


def _listed(value: Any) -> Sequence[Any]:
    is_many = isinstance(value, Sequence) and not isinstance(value, str)
    return value if is_many else () if value is None else (value,)


def _not_by(
    names: Sequence[str], label: str, errors: DeclarationErrors, *, fills: bool
) -> tuple[str, ...]:
    names = errors.texts(names, f"{label}, not_by=")
    # A misspelt rule would bar nobody, so it is a fault.
    for name in names:
        if core.is_template(name):
            _note_template(name, f"{label}, not_by=", errors, fills=fills)
        elif name.startswith("@") and name != core.STARTER:
            errors.note(
                f"{label}, not_by=: {name!r} is not a rule: write {core.STARTER!r}, or the name of a "
                "question"
            )
    return names


def _calendar(
    value: str | Calendar | None, label: str, errors: DeclarationErrors
) -> core.Calendar | None:
    try:
        return None if value is None else calendar_of(value)
    except ValueError as error:
        errors.note(f"{label}, calendar=: {error}")
        # Without a placeholder, each time that needs a calendar would be another fault.
        return core.Calendar(name="")


def _escalation(value: Escalation, label: str, errors: DeclarationErrors) -> core.Escalation:
    capability = errors.plain_capability(value.requested_capability, label)
    to = people(_listed(value.to), f"{label}, to=", errors)
    if not to and capability is None:
        errors.note(f"{label} names nobody: set to= or requested_capability=")
    return core.Escalation(after=span(value.after), to=to, requested_capability=capability)
