"""Conversion of Python values to JSON, the JSON types of a schema, and the compatibility of schemas."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from pydantic import ConfigDict, TypeAdapter

from abeyance.core.json import Json, why_not_json
from abeyance.core.patch import kind_of

# Otherwise pydantic silently writes NaN as null.
CONFIG: Final = ConfigDict(ser_json_inf_nan="constants")
ANY: Final[TypeAdapter[Any]] = TypeAdapter(Any, config=CONFIG)


def to_json(value: Any) -> Json:
    """Return a value as the JSON that pydantic makes of it, fields of models by their aliases.

    Raise ValueError if there is none.
    """
    converted: Json = json.loads(ANY.dump_json(value, by_alias=True))
    if (fault := why_not_json(converted)) is not None:
        raise ValueError(fault)
    return converted


Kinds: TypeAlias = frozenset[str]

ALL: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
DEFINED: Final = "#/$defs/"
"""The prefix of a reference to a definition."""
_DEEPEST: Final = 20


def kinds(schema: Json, definitions: Mapping[str, Json] | None = None) -> Kinds:
    """Return the JSON types that a schema accepts, and perhaps some that it does not.

    `definitions` default to the schema's own.
    """
    return _kinds(schema, definitions_of(schema) if definitions is None else definitions, 0)


def in_words(kinds: Iterable[str]) -> str:
    """Return JSON types for a message; "number" includes "integer"."""
    names = {*kinds} - {"integer"} if "number" in kinds else {*kinds}
    return " or ".join(sorted(names)) or "nothing"


def definitions_of(schema: Json) -> Mapping[str, Json]:
    """Return the definitions of a schema."""
    definitions = schema.get("$defs", {}) if isinstance(schema, Mapping) else {}
    return definitions if isinstance(definitions, Mapping) else {}


def _kinds(schema: Json, definitions: Mapping[str, Json], depth: int) -> Kinds:
    if schema is False:
        return frozenset()
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return ALL

    def among(parts: Iterable[Json]) -> list[Kinds]:
        return [_kinds(part, definitions, depth + 1) for part in parts]

    found = ALL
    if "type" in schema:
        named = schema["type"]
        found &= _of_types([named] if isinstance(named, str) else named)
    if "const" in schema:
        found &= _of_values([schema["const"]])
    if "enum" in schema:
        found &= _of_values(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            found &= frozenset().union(*among(schema[key]))
    for each in among(schema.get("allOf", [])):
        found &= each
    if str(schema.get("$ref", "")).startswith(DEFINED):
        name = schema["$ref"].removeprefix(DEFINED)
        found &= _kinds(definitions.get(name), definitions, depth + 1)
    return found


def _of_types(names: Iterable[str]) -> Kinds:
    return frozenset(
        kind for name in names for kind in (("number", "integer") if name == "number" else (name,))
    )


def _of_values(values: Iterable[Json]) -> Kinds:
    return frozenset(kind_of(value) for value in values)


_ANNOTATIONS: Final = frozenset({"title", "description", "default", "examples", "$defs"})
_NAMED: Final = frozenset({"properties", "$defs", "patternProperties"})
_PLAIN: Final[Mapping[str, tuple[Json, ...]]] = {
    "items": ({}, True),
    "additionalProperties": ({}, True),
}
"""Values that do not restrict a list or a mapping."""


def misfit(source: Json, target: Json) -> str | None:
    """Return why no value of `source` fits `target`; None if some may."""
    actual, accepted = kinds(source), kinds(target)
    if actual & accepted:
        return None
    return f"it is {in_words(actual)}, and has to be {in_words(accepted)}"


def narrowed(answers: Json, field: Json) -> Json:
    """Restrict the schema of answers to what the field accepts.

    A schema that is narrow enough is unchanged, because approvers see it.
    """
    if not isinstance(answers, Mapping) or not isinstance(field, Mapping):
        return answers
    if not _bare(answers):
        return dict(field)
    if _takes(field, answers, field, answers):
        return answers
    own, other = definitions_of(answers), definitions_of(field)
    renamed = {name: f"{name}__field" for name in other if name in own and own[name] != other[name]}

    def rename(reference: str) -> str:
        name = reference.removeprefix(DEFINED)
        return f"{DEFINED}{renamed.get(name, name)}"

    inner = _referring({key: part for key, part in field.items() if key != "$defs"}, rename)
    defined = {renamed.get(name, name): _referring(part, rename) for name, part in other.items()}
    both: dict[str, Json] = {**answers, "allOf": [*answers.get("allOf", []), inner]}
    return {**both, "$defs": {**own, **defined}} if own or defined else both


def _takes(field: Json, answers: Json, field_root: Json, answers_root: Json) -> bool:
    """Return True if the field surely accepts every answer."""
    field, answers = _resolved(field, field_root), _resolved(answers, answers_root)
    if not isinstance(field, Mapping) or not isinstance(answers, Mapping):
        return field is True
    bare = _bare(field)
    if not bare:
        return True
    if bare == _bare(answers):
        ours, theirs = definitions_of(field_root), definitions_of(answers_root)
        return all(ours.get(name) == part for name, part in theirs.items())
    if set(_bare(answers)) == {"anyOf"}:
        return all(_takes(field, each, field_root, answers_root) for each in answers["anyOf"])
    if set(bare) == {"anyOf"}:
        return any(_takes(each, answers, field_root, answers_root) for each in field["anyOf"])
    says_nothing_more = all(
        key == "type" or (key in _PLAIN and any(value == each for each in _PLAIN[key]))
        for key, value in bare.items()
    )
    return says_nothing_more and kinds(answers, definitions_of(answers_root)) <= kinds(field)


def _bare(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Return a schema without its annotations."""
    return {
        key: (
            {name: _bared(part) for name, part in value.items()}
            if key in _NAMED and isinstance(value, Mapping)
            else _bared(value)
        )
        for key, value in schema.items()
        if key not in _ANNOTATIONS
    }


def _bared(part: Json) -> Json:
    match part:
        case Mapping():
            return _bare(part)
        case list():
            return [_bared(each) for each in part]
        case _:
            return part


def _resolved(schema: Json, root: Json) -> Json:
    seen: set[str] = set()
    while isinstance(schema, Mapping) and set(_bare(schema)) == {"$ref"}:
        reference = schema["$ref"]
        if reference in seen or not str(reference).startswith(DEFINED):
            return schema
        seen.add(reference)
        schema = definitions_of(root).get(reference.removeprefix(DEFINED))
    return schema


def _referring(part: Json, rename: Callable[[str], str]) -> Json:
    match part:
        case Mapping():
            return {
                key: rename(value)
                if key == "$ref" and str(value).startswith(DEFINED)
                else _referring(value, rename)
                for key, value in part.items()
            }
        case list():
            return [_referring(each, rename) for each in part]
        case _:
            return part
