"""A value of Python as JSON: what nodes, tools, steps and callers hand over may be of any type."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from pydantic import ConfigDict, TypeAdapter

from abeyance.core.json import Json, why_not_json
from abeyance.core.patch import kind_of

# Otherwise pydantic writes NaN as null, and nobody would hear of it.
_ANY: Final[TypeAdapter[Any]] = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))


def to_json(value: Any) -> Json:
    """The JSON that pydantic makes of a value. Raises ValueError, which says why there is none."""
    found: Json = json.loads(_ANY.dump_json(value))
    if (fault := why_not_json(found)) is not None:
        raise ValueError(fault)
    return found


Kinds: TypeAlias = frozenset[str]

ALL: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
DEFINED: Final = "#/$defs/"
"""How a reference to a definition of the same schema begins."""
_DEEPEST: Final = 20


def kinds(schema: Json, definitions: Mapping[str, Json] | None = None) -> Kinds:
    """The kinds of JSON that a schema lets through, and perhaps some that it does not.

    `definitions` are those of the schema that it is a part of; without them its own count.
    """
    return _kinds(schema, definitions_of(schema) if definitions is None else definitions, 0)


def in_words(found: Iterable[str]) -> str:
    """Kinds, as an author is told them: where every number is let through, so is a whole one."""
    told = {*found} - {"integer"} if "number" in found else {*found}
    return " or ".join(sorted(told)) or "nothing"


def definitions_of(schema: Json) -> Mapping[str, Json]:
    """The definitions that a schema has."""
    found = schema.get("$defs", {}) if isinstance(schema, Mapping) else {}
    return found if isinstance(found, Mapping) else {}


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
