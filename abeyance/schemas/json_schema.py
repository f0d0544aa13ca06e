"""JSON Schemas of types, and the validation of answers at a bounded cost."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import jsonschema_rs
from pydantic import TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from abeyance.core.events import SchemaFault
from abeyance.core.json import Json, canonical, size
from abeyance.core.text import truncate
from abeyance.schemas.places import MAX_WORK, PATTERN_OPTIONS, Places, places_of, work_of

_LONGEST_CHAIN: Final = 8


def resolved(schema: Any, root: Any) -> Any:
    """Return a schema with its references into `root` resolved, or None if one is broken."""
    for _ in range(_LONGEST_CHAIN):
        match schema:
            case {"$ref": str(name)}:
                schema = _target(name, root)
            case _:
                break
    return schema


def without_null(declared: Json, root: Json) -> tuple[Mapping[str, Any], bool]:
    """Return a schema without references and without null, and whether null fits it too."""
    schema: Mapping[str, Any] = declared if isinstance(declared, Mapping) else {}
    is_nullable = False
    for _ in range(_LONGEST_CHAIN):
        options = schema.get("anyOf") or schema.get("oneOf") or ()
        others = [each for each in options if each != {"type": "null"}]
        kinds = schema.get("type")
        if isinstance(reference := schema.get("$ref"), str):
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            target = _target(reference, root)
            schema = {**(target if isinstance(target, Mapping) else {}), **rest}
        elif len(options) > len(others) == 1 and isinstance(others[0], Mapping):
            rest = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}
            schema, is_nullable = {**others[0], **rest}, True
        elif isinstance(kinds, list) and len(kinds) > 1 and "null" in kinds:
            left = [each for each in kinds if each != "null"]
            schema, is_nullable = {**schema, "type": left[0] if len(left) == 1 else left}, True
        else:
            break
    return schema, is_nullable


def _target(reference: str, root: Any) -> Any:
    found = root
    for part in filter(None, reference.removeprefix("#").split("/")):
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


_VALUES: Final = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are not schemas."""
_DECIMAL: Final = r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_NAIVE: Final = r"^[^Zz+]{0,11}[^Zz+-]*$"
"""A date and a time without a zone: only the date has hyphens."""
_NAIVE_EXAMPLE: Final = "2026-01-31T10:00:00"
_MOST_FAULTS: Final = 20
_MOST_CHARS: Final = 500
_SEARCHED_BYTES: Final = 20_000
_SEARCHED_WORK: Final = 50_000
"""The largest answer in bytes, and the most work (`Places.work`), for which errors are located.
The validator finds all errors or none.
"""
_AROUND: Final = 20
"""Places that an interrupt of the core adds around the schema of a state."""
_SEARCHING: Final = 40
"""How many times longer locating the errors takes than validating."""


def schema_of(response: Any) -> Json:
    """Return the JSON Schema of a `response`: a type or a schema; None accepts any JSON.

    Raise ValueError if it is neither, or if the schema has too many places.
    """
    if response is None:
        return None
    if isinstance(response, Mapping):
        # A copy, because the author's mapping may change after the declaration.
        schema = copy.deepcopy(dict(response))
    else:
        try:
            schema = TypeAdapter(response).json_schema(schema_generator=AnswerSchema)
        except (PydanticUserError, PydanticUndefinedAnnotation, ImportError) as error:
            # A type may need a package of its own, as EmailStr does.
            why = getattr(error, "message", str(error))
            message = f"{response!r} cannot be written as a JSON Schema: {why}"
            raise ValueError(message) from error
    try:
        _usable(canonical(schema))
    except (ValueError, TypeError) as error:
        text = getattr(error, "message", str(error))
        message = (
            f"{truncate(repr(schema), _MOST_CHARS)} is not a JSON Schema that can be used: {text}"
        )
        raise ValueError(message) from error
    return schema


def _copied(schema: Json) -> Any:
    # People see the fields in the order of their author, so it stays.
    return json.loads(json.dumps(schema, allow_nan=False))


def without_lookaround(schema: Json) -> Json:
    """Return a copy of another owner's schema without the patterns that cannot be used, such as those
    with lookaround: the owner checks them.
    """
    match schema:
        case Mapping():
            return {
                key: value if key in _VALUES else without_lookaround(value)
                for key, value in schema.items()
                if not (key == "pattern" and isinstance(value, str) and work_of(value) is None)
            }
        case list():
            return [*map(without_lookaround, schema)]
        case _:
            return schema


def loop_in(schema: Json) -> str | None:
    """Return a reference of a schema that leads back to the part it stands in, or None."""
    return min((place["$ref"] for place in places_of(schema).loops), default=None)


def without_loops(schema: Json) -> Json:
    """Return a copy of a schema without the references that lead back to the part they stand in.

    There it accepts any value.
    """
    made = _copied(schema)
    for place in places_of(made).loops:
        del place["$ref"]
    return made


def faults_of(schema: Json, answer: Json) -> tuple[SchemaFault, ...]:
    """Return the errors of an answer against a schema, at most twenty; empty if it is valid.

    There is a single error without a pointer if the answer is very large or too expensive to validate.
    Where the schema refers to itself, any value is valid: the type of a state or of a tool decides.
    """
    return faults_of_all({"": (schema, answer)})[""]


def faults_of_all(asked: Mapping[str, tuple[Json, Json]]) -> dict[str, tuple[SchemaFault, ...]]:
    """Return the errors of several answers of one request, each with its schema.

    All of them share the limit of work of a single answer.
    """
    found: dict[str, tuple[SchemaFault, ...]] = {}
    left = MAX_WORK
    for name, (schema, answer) in asked.items():
        try:
            usable = _usable(canonical(schema))
            work = usable.places.work(answer, left)
        except ValueError as error:
            together = "" if left == MAX_WORK else "; send it in a request of its own"
            found[name] = (SchemaFault(pointer="", message=f"{error}{together}"),)
            continue
        left -= work
        found[name] = ()
        if not usable.validator.is_valid(answer):
            is_searched = work <= min(_SEARCHED_WORK, left // _SEARCHING)
            left -= _SEARCHING * work if is_searched else 0
            found[name] = _misses(usable, answer, is_searched=is_searched)
    return found


def _misses(usable: _Usable, answer: Json, *, is_searched: bool) -> tuple[SchemaFault, ...]:
    if size(answer) > _SEARCHED_BYTES or not is_searched:
        message = "it does not match the schema, and is too large for the error to be located"
        return (SchemaFault(pointer="", message=message),)
    found: list[SchemaFault] = []
    for miss in chain.from_iterable(map(_likely, usable.validator.iter_errors(answer))):
        pointer = "".join(f"/{escaped(str(part))}" for part in miss.instance_path)
        found.append(SchemaFault(pointer=pointer, message=_in_words(miss)))
        if len(found) == _MOST_FAULTS:
            break
    return tuple(found)


def _in_words(miss: jsonschema_rs.ValidationError) -> str:
    """Return the fault in words, in our own where the library's do not help."""
    message = miss.message
    # The schema of this part is `false`.
    if message.startswith("False schema does not allow"):
        return "it is not allowed here"
    if getattr(miss.kind, "pattern", None) == _NAIVE:
        message = f"a time without a zone is needed, such as {_NAIVE_EXAMPLE}: {miss.instance}"
    return message[:_MOST_CHARS]


def _likely(error: jsonschema_rs.ValidationError) -> Iterator[jsonschema_rs.ValidationError]:
    """Yield the errors of the union member that the answer most likely means."""
    place = len(error.instance_path)
    seeming = [
        branch
        for branch in getattr(error.kind, "context", ())
        if not any(_is_of_another(each, place) for each in branch)
    ]
    if len(seeming) == 1:
        for each in seeming[0]:
            yield from _likely(each)
    else:
        yield error


def _is_of_another(error: jsonschema_rs.ValidationError, place: int) -> bool:
    """Return True if the type, or the field that names it, belongs to another member of the union."""
    depth = len(error.instance_path) - place
    return (depth == 0 and error.kind.name in {"type", "const", "enum"}) or (
        depth == 1 and error.kind.name == "const"
    )


def escaped(part: str) -> str:
    """Escape a part of a JSON pointer."""
    return part.replace("~", "~0").replace("/", "~1")


class AnswerSchema(GenerateJsonSchema):
    """Generates a schema that accepts what the type accepts, and what it writes.

    A Decimal is a number or a text, whatever its bounds: only its type can check the bounds of a text,
    and a pattern that looks around. A pattern tells the pickers of forms that a time has no zone.
    """

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        return dict(without_lookaround(super().str_schema(schema)))

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        number, text = super().decimal_schema(schema)["anyOf"]
        return {"anyOf": [number, {**text, "pattern": _DECIMAL}]}

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        found = super().datetime_schema(schema)
        is_naive = schema.get("tz_constraint") == "naive"
        return {**found, "pattern": _NAIVE, "examples": [_NAIVE_EXAMPLE]} if is_naive else found


def places_fault(schema: Json) -> str | None:
    """Return why a schema has too many places for an interrupt, or None."""
    try:
        places_of(schema, around=_AROUND)
    except ValueError as error:
        return str(error)
    return None


@dataclass(frozen=True, slots=True)
class _Usable:
    places: Places
    validator: jsonschema_rs.Draft202012Validator


@lru_cache(maxsize=200)
def _usable(schema_text: str) -> _Usable:
    schema = without_loops(json.loads(schema_text))
    places = places_of(schema)
    validator = jsonschema_rs.Draft202012Validator(
        schema,
        # `format` says what a text means: the type decides which texts it accepts.
        validate_formats=False,
        pattern_options=PATTERN_OPTIONS,
        offline=True,
    )
    return _Usable(places, validator)
