"""JSON Schemas as forms of MCP, which are flat: texts, numbers, booleans, and choices. Pure.

A form says less than a schema. What it leaves out is checked when the answer arrives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from abeyance.core.json import Json

_ANSWER: Final = "answer"
"""The field of a form for an answer that is no object."""
_SHARED: Final = ("title", "description", "default")
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "string": ("minLength", "maxLength"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
    "boolean": (),
    "array": ("minItems", "maxItems"),
}
"""What a form can say of a field, by its type. Anything else is checked when the answer arrives."""
_FORMATS: Final = frozenset({"date", "date-time", "email", "uri"})
_BRANCHES: Final = ("anyOf", "oneOf", "allOf", "patternProperties")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form of the protocol. `is_wrapped`: its only field is the answer."""

    schema: dict[str, Any]
    is_wrapped: bool = False

    def answer_of(self, content: Mapping[str, Json]) -> Json:
        """Return the answer in what was filled in."""
        filled = {
            name: value
            for name, value in content.items()
            if value is not None or name in self.schema["required"]
        }
        return filled.get(_ANSWER) if self.is_wrapped else filled


def form_of(schema: Json) -> Form | None:
    """Return the form for the answers to a question; None if they are not flat."""
    if schema is None:
        return _wrapped({"type": "string"})
    if not isinstance(schema, Mapping):
        return None
    definitions = schema.get("$defs") or schema.get("definitions") or {}
    schema = _resolved(schema, definitions)
    if schema.get("type") != "object":
        field = _field(schema, definitions)
        return None if field is None else _wrapped(field)
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties or any(map(schema.get, _BRANCHES)):
        return None
    fields = {name: _field(each, definitions) for name, each in properties.items()}
    if any(field is None for field in fields.values()):
        return None
    required = [name for name in schema.get("required") or () if name in fields]
    return Form(schema={"type": "object", "properties": fields, "required": required})


def _wrapped(field: dict[str, Any]) -> Form:
    schema = {"type": "object", "properties": {_ANSWER: field}, "required": [_ANSWER]}
    return Form(schema=schema, is_wrapped=True)


def _resolved(schema: Mapping[str, Any], definitions: Any) -> Mapping[str, Any]:
    """Follow a reference to a definition of the same schema, once."""
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    target = definitions.get(name) if isinstance(definitions, Mapping) else None
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {**target, **beside} if isinstance(target, Mapping) else schema


def _field(schema: Any, definitions: Any) -> dict[str, Any] | None:
    """Return a field as a form has it; None if it is not flat."""
    if not isinstance(schema, Mapping):
        return None
    schema = _resolved(schema, definitions)
    if isinstance(either := schema.get("anyOf"), list):
        # A field that may be left out.
        given = [each for each in either if each != {"type": "null"}]
        if len(given) != 1 or not isinstance(given[0], Mapping):
            return None
        beside = {key: value for key, value in schema.items() if key != "anyOf"}
        schema = {**_resolved(given[0], definitions), **beside}
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    type_ = schema.get("type", "string" if choices else None)
    if not isinstance(type_, str) or type_ not in _FIELDS or any(map(schema.get, _BRANCHES)):
        return None
    keys = (*_SHARED, *_FIELDS[type_])
    field = {"type": type_, **{key: schema[key] for key in keys if schema.get(key) is not None}}
    if choices is not None:
        if type_ != "string" or not _are_texts(choices):
            return None
        field["enum"] = list(choices)
    if type_ == "string" and schema.get("format") in _FORMATS:
        field["format"] = schema["format"]
    if type_ == "array":
        items = schema.get("items")
        names = _resolved(items, definitions).get("enum") if isinstance(items, Mapping) else None
        if not _are_texts(names):
            return None
        field["items"] = {"type": "string", "enum": names}
    return field


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(each, str) for each in values)
