"""Merging what a visit changed into the values of its scope.

Each field has a reducer: `last` replaces, `append` extends a list by a list, `merge` updates a mapping,
`add` sums numbers (a Decimal is a text), `union` keeps the distinct items of lists, and `start` keeps
what the start of the run has set. Reducers are data, not functions, because the merge happens here, in
the same way in every replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation, localcontext

from abeyance.core.json import Json, canonical, why_not_json
from abeyance.core.spec import FieldSpec, GraphSpec, Reducer
from abeyance.errors import Code, Refusal

_LAST = FieldSpec()
_DIGITS = 1_000
"""The most that a sum of Decimals may have."""


class PatchError(Exception):
    """A patch cannot be merged; the text names the field."""


def merged(
    spec: GraphSpec, values: Mapping[str, Json], patch: Mapping[str, Json]
) -> Mapping[str, Json]:
    """Return the values after a patch. Raises PatchError; then nothing of the patch is merged."""
    unknown = sorted(name for name in patch if name not in spec.fields and not spec.open_values)
    if unknown:
        raise PatchError(
            f"the patch sets {', '.join(map(repr, unknown))}, but the state of graph {spec.name!r} "
            f"has only the fields {', '.join(map(repr, spec.fields)) or '(none)'}"
        )
    for name, value in patch.items():
        if (fault := why_not_json(value)) is not None:
            raise PatchError(f"the field {name!r} is not JSON: {fault}")
    if fixed := _fixed(spec, values, patch):
        raise PatchError(
            f"the patch changes {', '.join(map(repr, fixed))}, which only the start of the run sets "
            "(FromStart): leave it out"
        )
    return applied(spec, values, patch)


def applied(
    spec: GraphSpec, values: Mapping[str, Json], patch: Mapping[str, Json]
) -> Mapping[str, Json]:
    """Return the values after a patch that was validated by `merged` before. Raises PatchError."""
    changed = {
        name: _reduced(spec.fields.get(name, _LAST).reducer, name, values.get(name), value)
        for name, value in patch.items()
    }
    return {**values, **changed}


def refuse_misfits(spec: GraphSpec, changes: Mapping[str, Json]) -> None:
    """Raise PatchError if a field is set to a kind of JSON that it does not take."""
    for name, value in changes.items():
        kinds = spec.fields.get(name, _LAST).kinds
        if kinds and kind_of(value) not in kinds:
            message = f"the field {name!r} takes {' or '.join(kinds)}, and not {kind_of(value)}"
            raise PatchError(message)


def refuse_fixed(
    spec: GraphSpec, values: Mapping[str, Json], changes: Mapping[str, Json], at: str = ""
) -> None:
    """Refuse what a person changes if only the start of the run sets it. `at` points to the changes."""
    if fixed := _fixed(spec, values, changes):
        message = "only the start of the run sets this field (FromStart): leave it out"
        raise Refusal(
            Code.READ_ONLY_FIELD,
            f"The change sets {', '.join(map(repr, fixed))}: {message}.",
            errors=[{"pointer": f"{at}/{name}", "message": message} for name in fixed],
        )


def _fixed(spec: GraphSpec, values: Mapping[str, Json], changes: Mapping[str, Json]) -> list[str]:
    """Return the fields among the changes that only the start sets, and that are not as they were."""
    return [
        name
        for name, value in changes.items()
        if spec.fields.get(name, _LAST).reducer == "start"
        and (name not in values or canonical(values[name]) != canonical(value))
    ]


def kind_of(value: Json) -> str:
    """Return the JSON Schema type of a value; a number without a fraction is an integer."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case _:
            return "object"


def contribution(spec: FieldSpec | None, before: Json, after: Json) -> Json:
    """Return the patch that turns `before` into `after`, as far as the reducer can express it."""
    match (spec or _LAST).reducer:
        case "append" if _are(list, before, after) and after[: len(before or [])] == (before or []):
            return after[len(before or []) :]
        case "add" if _is_number(after) and _is_number(before):
            try:
                return after - before
            except OverflowError:
                # `applied` raises PatchError for a number this large.
                return after
        case "add" if isinstance(after, str) and isinstance(before, str):
            return _decimal_sum(after, before, sign=-1) or after
        case _:
            return after


def _reduced(reducer: Reducer, name: str, old: Json, new: Json) -> Json:
    match reducer:
        case "last" | "start":
            return new
        case "append" if _are(list, old, new):
            return [*(old or []), *new]
        case "union" if _are(list, old, new):
            distinct = {canonical(item): item for item in [*(old or []), *new]}
            return list(distinct.values())
        case "merge" if _are(dict, old, new):
            return {**(old or {}), **new}
        case "add" if _is_number(new) and (old is None or _is_number(old)):
            return _sum(name, old or 0, new)
        case "add" if (
            isinstance(new, str)
            and isinstance(old, str | None)
            and (total := _decimal_sum(old or "0", new)) is not None
        ):
            return total
        case _:
            raise PatchError(
                f"the field {name!r} merges by {reducer!r}, which cannot put "
                f"a {type(new).__name__} to a {type(old).__name__}"
            )


def _sum(name: str, old: Json, new: Json) -> Json:
    try:
        total = old + new
    except OverflowError:
        total = None
    if total is None or why_not_json(total) is not None:
        raise PatchError(f"the field {name!r} adds up to more than a number can hold")
    return total


def _are(kind: type, old: Json, new: Json) -> bool:
    return isinstance(new, kind) and (old is None or isinstance(old, kind))


def _decimal_sum(one: str, other: str, *, sign: int = 1) -> str | None:
    """Return the exact sum of two Decimals; None if they are none, or the sum has too many digits."""
    with localcontext(Context(prec=_DIGITS, traps=[Inexact, InvalidOperation])):
        try:
            total = Decimal(one) + sign * Decimal(other)
        except (Inexact, InvalidOperation):
            return None
    return str(total) if total.is_finite() else None


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
