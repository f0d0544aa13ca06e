"""The kinds of questions, and their terms: for whom one is, how urgent it is, and what its answer takes.

A new kind is one row of `KINDS`. The terms are data on the question, as its author declared them. Who may
answer, votes, reminders and holds are rules about them; the open interrupt has their results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from abeyance.core.address import BarringName

Kind: TypeAlias = Literal[
    "question", "approval", "static", "error", "outcome", "rule", "elicitation", "budget"
]
"""Origin of a question: code, a gated tool call, a breakpoint, a failed visit, a call with an unknown
outcome, a rule, an MCP server, a budget that is used up.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionKind:
    """What the rules need to know about a kind of question.

    `asked_by` is the author, in the graph or in code; a call of a tool, about itself; or the run, whose
    answers no code reads. An author's answers hold only for the values that were shown.

    `edits` is the member of an answer that changes what was shown: fields of the values, or arguments of
    the call. None: no answer edits, and its type judges it as a whole.
    """

    asked_by: Literal["author", "call", "run"]
    edits: Literal["values", "patch", "arguments"] | None = None


KINDS: Final[Mapping[Kind, QuestionKind]] = {
    "question": QuestionKind(asked_by="author"),
    "rule": QuestionKind(asked_by="author"),
    "approval": QuestionKind(asked_by="call", edits="arguments"),
    "outcome": QuestionKind(asked_by="call"),
    "elicitation": QuestionKind(asked_by="call"),
    "static": QuestionKind(asked_by="run", edits="values"),
    "error": QuestionKind(asked_by="run", edits="patch"),
    "budget": QuestionKind(asked_by="run"),
}


Priority: TypeAlias = Literal["high", "normal", "low"]
Decision: TypeAlias = Literal["approve", "edit", "reject", "respond"]
DECISIONS: Final[tuple[Decision, ...]] = ("approve", "edit", "reject", "respond")

MAX_RESULT: Final = 100_000
"""The bytes that the result of a tool call may take, unless its tool says otherwise."""

STARTER: Final = "@starter"
"""In `Terms.not_by`: who started the run."""
GROUP: Final = "group:"
"""The prefix of a group among assignees; a subject has none."""


@dataclass(frozen=True, slots=True)
class BusinessTime:
    """A length of time in business days (`bd`) or business hours (`bh`) of the question's calendar."""

    amount: int
    unit: Literal["bd", "bh"]

    def __str__(self) -> str:
        return f"{self.amount}{self.unit}"


Span: TypeAlias = float | BusinessTime
"""A length of time: seconds, or business time."""


def is_negative(span: Span) -> bool:
    """Return whether a length of time counts backwards, as `-2h` before the deadline."""
    return (span.amount if isinstance(span, BusinessTime) else span) < 0


def is_zone(name: str) -> bool:
    """Return whether this machine knows a time zone. It always knows UTC."""
    try:
        return name == "UTC" or ZoneInfo(name).key == name
    except (OSError, ValueError, ZoneInfoNotFoundError):
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """When people work: `days` of the week (Monday is 0), from `opens` to `closes` (minutes of the day in
    `timezone`), less `holidays`, as ISO dates.

    The dates are part of the graph, so that every replay computes the same moments. `name` is what the
    author wrote.
    """

    name: str
    timezone: str = "UTC"
    days: tuple[int, ...] = (0, 1, 2, 3, 4)
    opens: int = 9 * 60
    closes: int = 17 * 60
    holidays: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """From `after` on, `to` and whoever has `requested_capability` may answer too."""

    after: Span
    to: tuple[str, ...] = ()
    requested_capability: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """The number of distinct people among `of` (empty: among all who may answer) who have to approve.

    `veto`: the first rejection rejects; without it, as many rejections as approvals are needed.
    """

    count: int
    of: tuple[str, ...] = ()
    veto: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of a question.

    `assignees` are subjects and groups (`group:finance`); with `assignees_only` nobody else may answer.
    `remind` are moments after opening, or, if negative, before the deadline. `hold` is in seconds.
    `not_by` are `@starter`, names of questions whose last answerer may not answer this one, and
    `{field}`, whose person may not. Only a declared question has a `{field}`, there, among `assignees`
    and in `quorum`: it names a field that only the start of the run sets.
    `decisions` are those that the answer to an approval may take, and `max_result` are the bytes that a
    result in place of the call may take.
    """

    assignees: tuple[str, ...] = ()
    assignees_only: bool = False
    priority: Priority = "normal"
    risk: int | None = None
    remind: tuple[Span, ...] = ()
    escalate: tuple[Escalation, ...] = ()
    calendar: Calendar | None = None
    quorum: Quorum | None = None
    hold: float | None = None
    not_by: tuple[BarringName, ...] = ()
    decisions: tuple[Decision, ...] = DECISIONS
    max_result: int = MAX_RESULT


Where: TypeAlias = Literal["run", "graph"]
WHERE: Final[tuple[Where, ...]] = ("run", "graph")
"""The scope of a grant: the run in which it was made, or every run of its graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remember:
    """What approvers may remember of their yes to a call: for `most` seconds, where, and for which calls.

    A later call needs the `same` value in these arguments, and less than a bound in those of `below`.
    `declaration` is a hash of all that the tool's author has declared.
    """

    most: float
    where: tuple[Where, ...]
    same: tuple[str, ...] = ()
    below: Mapping[str, float] = field(default_factory=dict)
    declaration: str = ""


PLAIN: Final = Terms()
"""The terms of a question that names none."""


def is_restricted(terms: Terms | None) -> bool:
    """Return whether not everybody with a question's capability could have answered it, or not alone."""
    return terms is not None and bool(terms.assignees_only or terms.quorum or terms.not_by)


def is_template(name: str) -> bool:
    """Return whether a name is taken from a field of the values."""
    return "{" in name


def named(terms: Terms) -> frozenset[str] | None:
    """Return the only people who may ever answer a question; None if the list is not fixed, because it
    depends on capabilities, groups, or the run's values.
    """
    limits = [terms.assignees] if terms.assignees_only else []
    if terms.quorum is not None and terms.quorum.of:
        limits.append(terms.quorum.of)
    known = [frozenset(people) for people in limits if not _is_undecided(people)]
    later = [each.to for each in terms.escalate]
    if not known or any(not people or _is_undecided(people) for people in later):
        return None
    return frozenset.intersection(*known).union(*later)


def _is_undecided(people: tuple[str, ...]) -> bool:
    return any(name.startswith(GROUP) or is_template(name) for name in people)
