"""The terms of a question as authors write them: the same options wherever something asks.

`Graph.interrupt`, `Interrupt`, `ctx.interrupt`, `@tool`, hooks, rules and YAML all take `TermsOptions`.

A calendar is resolved to working days, hours and holidays when the graph is built. The holidays become
part of the graph: every replay computes the same moments, whatever a later version of the library
`holidays` says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final, TypedDict, get_args

from abeyance.authoring.declarations import DeclarationErrors
from abeyance.core import terms as core
from abeyance.core.deadlines import is_zone
from abeyance.core.json import Json, fill_by
from abeyance.core.spec import InterruptSpec
from abeyance.core.terms import BusinessTime, Decision, Priority, Span, Terms
from abeyance.duration import Duration
from abeyance.errors import SettingsError
from abeyance.schemas.json_schema import resolved

_MAX_RISK: Final = 100
_OF_APPROVALS: Final = ("quorum", "hold")
_SUBJECT: Final = re.compile(r"[^\s,*\x00-\x1f\x7f][^\s,\x00-\x1f\x7f]*")
YEARS: Final = range(2024, 2046)
"""The years whose holidays a calendar knows."""
_COUNTRY: Final = re.compile(r"([A-Za-z]{2,3})(?:-([\w ]{1,40}))?")
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS: Final = re.compile(r"([01]\d|2[0-4]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)")
_MINUTES_OF_A_DAY: Final = 24 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """The working time by which `2bd` and `3bh` are counted: the days, without the public holidays of the
    country and its subdivision. `timezone` None is `ABEYANCE_TIMEZONE`.
    """

    country: str | None = None
    subdivision: str | None = None
    timezone: str | None = None
    days: str = "mon-fri"
    hours: str = "09:00-17:00"


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
    """From `after` on (a duration, or business time such as `2bd`), more people may answer: the subjects
    and groups of `to` (`group:directors`). With `requested_capability`, they must have that capability;
    without `to`, it is enough.
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
    fills: bool = False,
) -> Terms | None:
    """Return the terms that an author's options declare, None without any; faults are collected.

    `fills`: the question is declared, so fields of the state may name its people, as `{requester}`.
    """
    unknown = sorted(options.keys() - TERMS)
    for name in unknown:
        errors.note(f"{label} has no option {name!r}: it has {', '.join(sorted(TERMS))}")
    given = {name: value for name, value in options.items() if value is not None}
    chosen = core.DECISIONS if decisions is None else decisions_of(decisions, label, errors)
    if not given and chosen == core.DECISIONS and max_result == core.MAX_RESULT:
        return None
    quorum, escalate = given.get("quorum"), given.get("escalate", ())
    terms = Terms(
        assignees=people(given.get("assignees", ()), f"{label}, assignees=", errors, fills=fills),
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
        quorum=None if quorum is None else _quorum(quorum, label, errors, fills=fills),
        hold=_hold(given.get("hold"), label, errors),
        not_by=_not_by(given.get("not_by", ()), label, errors, fills=fills),
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


def people(
    value: object, label: str, errors: DeclarationErrors, *, fills: bool = False
) -> tuple[str, ...]:
    """Return subjects and groups; a single string is one of them. `fills`: fields may name some."""
    names = errors.texts(value, label)
    for name in names:
        if core.is_template(name):
            _note_template(name, label, errors, fills=fills)
        elif not _SUBJECT.fullmatch(name) or name == core.GROUP:
            errors.note(
                f"{label}: {name!r} is neither a subject nor a group: write 'ada' or 'group:finance', "
                "without blanks and commas"
            )
    return tuple(dict.fromkeys(names))


def _note_template(name: str, label: str, errors: DeclarationErrors, *, fills: bool) -> None:
    """Collect the fault of a name with a brace. Whether there is such a field is checked later."""
    if not fills:
        errors.note(
            f"{label}: {name!r} has a brace, and fields of the state name people only in assignees=, "
            "not_by= and the quorum of a declared question: write a name"
        )
    elif not set(fill_by(name, lambda _: "")).isdisjoint("{}"):
        errors.note(f"{label}: {name!r} has a brace that is not part of a {{field}}: correct it")


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


def _not_by(
    value: object, label: str, errors: DeclarationErrors, *, fills: bool
) -> tuple[str, ...]:
    names = errors.texts(value, f"{label}, not_by=")
    # A rule that is misspelt would bar nobody.
    for name in names:
        if core.is_template(name):
            _note_template(name, f"{label}, not_by=", errors, fills=fills)
        elif name.startswith("@") and name != core.STARTER:
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


def calendar_of(value: object) -> core.Calendar:
    """Return the calendar that an author wrote: a `Calendar`, the mapping of one, or a country and its
    subdivision such as `DE-BY`. Raise ValueError if it is none of them.
    """
    match value:
        case Calendar():
            return _resolved(value)
        case Mapping() if value.keys() <= {*Calendar.__dataclass_fields__}:
            return _resolved(Calendar(**value))
        case str() if match := _COUNTRY.fullmatch(value):
            return _resolved(Calendar(country=match[1], subdivision=match[2]))
        case _:
            raise ValueError(f"{value!r} is invalid: write 'DE-BY', or Calendar(country='DE', ...)")


def _resolved(calendar: Calendar) -> core.Calendar:
    days, (opens, closes) = _days(calendar.days), _hours(calendar.hours)
    zone = _zone(calendar.timezone)
    country, subdivision = calendar.country, calendar.subdivision
    if country is None and subdivision is not None:
        raise ValueError(f"subdivision={subdivision!r} has no country: add country=")
    name = "-".join(part for part in (country, subdivision) if part is not None)
    holidays = () if country is None else _holidays(country, subdivision)
    return core.Calendar(
        name=name or f"{calendar.days} {calendar.hours}",
        timezone=zone,
        days=days,
        opens=opens,
        closes=closes,
        holidays=tuple(day.isoformat() for day in holidays if day.weekday() in days),
    )


@lru_cache(maxsize=64)
def _holidays(country: str, subdivision: str | None) -> tuple[date, ...]:
    try:
        import holidays  # noqa: PLC0415  (of the extra `people`)
    except ImportError as error:
        message = f"the holidays of {country!r} need the package holidays: install abeyance[people]"
        raise ValueError(message) from error
    known = holidays.list_supported_countries()
    if country not in known:
        nearest = get_close_matches(country.upper(), known, n=1)
        fix = f"did you mean {nearest[0]!r}?" if nearest else "use a code such as 'DE'"
        raise ValueError(f"the country {country!r} is unknown: {fix}")
    try:
        days = holidays.country_holidays(country, subdiv=subdivision, years=YEARS)
    except NotImplementedError as error:
        those = known[country]
        hint = f"{country} has {', '.join(those)}" if those else f"{country} has none"
        message = f"the subdivision {subdivision!r} of {country} is unknown: {hint}"
        raise ValueError(message) from error
    dates: list[date] = sorted(days)
    return tuple(dates)


def _zone(name: str | None) -> str:
    if name is None:
        from abeyance.settings import load_settings  # noqa: PLC0415  (slow to import)

        try:
            return load_settings().timezone
        except SettingsError as error:
            raise ValueError(str(error)) from error
    if not isinstance(name, str) or not is_zone(name):
        raise ValueError(
            f"timezone={name!r} is unknown: use a name such as 'Europe/Berlin'. Zones come with the "
            "system, or with abeyance[people]"
        )
    return name


def _days(text: object) -> tuple[int, ...]:
    days: set[int] = set()
    for part in str(text).lower().replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if first not in _DAYS or (last or first) not in _DAYS:
            raise ValueError(f"days={text!r} is invalid: write 'mon-fri', or 'mon,wed,sat'")
        begin, end = _DAYS.index(first), _DAYS.index(last or first)
        days.update(day % 7 for day in range(begin, end + (1 if end >= begin else 8)))
    return tuple(sorted(days))


def _hours(text: object) -> tuple[int, int]:
    if match := _HOURS.fullmatch(str(text)):
        opens = int(match[1]) * 60 + int(match[2])
        closes = int(match[3]) * 60 + int(match[4])
        if opens < closes <= _MINUTES_OF_A_DAY:
            return opens, closes
    raise ValueError(f"hours={text!r} is invalid: write '09:00-17:00', the start before the end")


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


def _quorum(
    value: object, label: str, errors: DeclarationErrors, *, fills: bool
) -> core.Quorum | None:
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
    of = people(value.of, f"{label}, quorum, of=", errors, fills=fills)
    return core.Quorum(count=count, of=of, veto=_flag(value.veto, f"{label}, quorum, veto", errors))
