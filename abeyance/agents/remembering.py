"""`Remember`: what an author lets approvers remember of their yes to the calls of a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
)
from pydantic.dataclasses import dataclass

from abeyance.authoring.declarations import DeclarationErrors
from abeyance.core import terms as core
from abeyance.core.json import Json, sha256
from abeyance.core.spec import InterruptSpec
from abeyance.core.terms import WHERE, Where, is_restricted
from abeyance.duration import Duration, positive_seconds, seconds
from abeyance.schemas.json_schema import resolved

_LONGEST_DAYS: Final = 90
_LONGEST: Final = _LONGEST_DAYS * 86_400.0


def _longest(most: Duration) -> Duration:
    if seconds(most) > _LONGEST:
        raise ValueError(f"{seconds(most):g} s is invalid: use at most {_LONGEST_DAYS}d")
    return most


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Remember:
    """What approvers may remember of their yes: for `most` (at most 90 days), and for the calls of the
    same run (`"run"`) or of all runs of the graph (`"graph"`).

    A later call needs the same values in the arguments `same`, and in those of `below` numbers less than
    these bounds.
    """

    most: Annotated[Duration, BeforeValidator(positive_seconds), AfterValidator(_longest)]
    where: Annotated[Sequence[Where], Field(min_length=1)] = ("run",)
    same: str | Sequence[str] = ()
    below: Mapping[str, StrictInt | StrictFloat] = Field(default_factory=dict)


def arguments_of(value: object) -> tuple[str, ...]:
    """Return the arguments that a declaration names; none of what is no declaration."""
    if not isinstance(value, Remember):
        return ()
    same = (value.same,) if isinstance(value.same, str) else value.same
    return (*same, *value.below)


def declared(value: object, schema: Json, errors: DeclarationErrors) -> core.Remember | None:
    """Return what may be remembered of the approvals of a tool whose arguments have this schema; None if
    nothing, or with faults, which are collected.
    """
    if value is None:
        return None
    label, before = "remember=", len(errors.faults)
    if not isinstance(value, Remember):
        errors.note(f"{label}{value!r} is invalid: use Remember(most='7d', where=['run', 'graph'])")
        return None
    same = errors.texts(value.same, f"{label}, same=")
    given = schema.get("properties")
    fields: Mapping[str, Json] = given if isinstance(given, Mapping) else {}
    for name in (*same, *value.below):
        if name not in fields:
            listed = ", ".join(map(repr, fields)) or "none"
            errors.note(
                f"{label} names {name!r}, which is no argument of the tool; there are {listed}"
            )
    for name in value.below:
        if name in fields and not _is_number(fields[name], schema):
            errors.note(f"{label}, below=: the argument {name!r} is no number, and has no bound")
    if len(errors.faults) > before:
        return None
    return core.Remember(
        most=seconds(value.most),
        where=tuple(each for each in WHERE if each in value.where),
        same=tuple(dict.fromkeys(same)),
        below=dict(value.below),
    )


def _is_number(field_: Json, schema: Json) -> bool:
    found = resolved(field_, schema)
    return isinstance(found, Mapping) and found.get("type") in ("number", "integer")


def of_tool(
    allowed: core.Remember | None,
    question: InterruptSpec,
    errors: DeclarationErrors,
    **about: Any,
) -> core.Remember | None:
    """Return what may be remembered, with the hash of the declaration: of the approval `question`, and of
    what is to be known `about` the tool.
    """
    if allowed is None:
        return None
    terms = question.terms
    if is_restricted(terms) or (terms is not None and terms.hold is not None):
        errors.note(
            "remember= has no effect with quorum=, not_by=, assignees_only= or hold=: remove one of them"
        )
    hashed = {"remember": asdict(allowed), "question": asdict(question), **about}
    return replace(allowed, declaration=sha256(hashed))
