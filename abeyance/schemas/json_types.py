"""Conversion of Python values to JSON, and the JSON types that a schema accepts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, RootModel, TypeAdapter

from abeyance.core.items import kind_of
from abeyance.core.json import Json, canonical, why_not_json

# Otherwise pydantic silently writes NaN as null.
CONFIG: Final = ConfigDict(ser_json_inf_nan="constants")
ANY: Final[TypeAdapter[Any]] = TypeAdapter(Any, config=CONFIG)


def to_json(value: Any) -> Json:
    """Return a value as the JSON that pydantic makes of it, fields of models by their aliases.

    Raise ValueError if there is none.
    """
    converted = in_one_order(json.loads(ANY.dump_json(value, by_alias=True)), value)
    if (fault := why_not_json(converted)) is not None:
        raise ValueError(fault)
    return converted


def in_one_order(made: Json, value: Any) -> Json:
    """Return the JSON made of a value, with the items of each set sorted: their order differs between
    processes, and JSON is compared.
    """
    match made, value:
        case _, RootModel():
            return in_one_order(made, value.root)
        case list(), set() | frozenset() if len(made) == len(value):
            return sorted(map(in_one_order, made, value), key=canonical)
        case list(), list() | tuple() if len(made) == len(value):
            return [*map(in_one_order, made, value)]
        case dict(), Mapping() if len(made) == len(value):
            parts = zip(made.items(), value.values(), strict=True)
            return {name: in_one_order(part, of) for (name, part), of in parts}
        case dict(), _ if isinstance(value, BaseModel) or is_dataclass(value):
            fields = getattr(value, "__pydantic_fields__", {})
            own = {each.serialization_alias or name: name for name, each in fields.items()}
            return {
                name: in_one_order(part, getattr(value, str(own.get(name, name)), None))
                for name, part in made.items()
            }
        case _:
            return made


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


def misfit(source: Json, target: Json) -> str | None:
    """Return why no value of `source` fits `target`; None if some may."""
    actual, accepted = kinds(source), kinds(target)
    if actual & accepted:
        return None
    return f"it is {in_words(actual)}, and has to be {in_words(accepted)}"
