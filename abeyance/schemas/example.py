"""Examples of JSON schemas: of answers, which a person edits, and of the responses of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from abeyance.schemas.json_schema import resolved

_DEEPEST: Final = 8
_TEXTS: Final = {
    "date": "2026-01-31",
    "time": "10:00:00",
    "date-time": "2026-01-31T10:00:00Z",
    "duration": "PT1H",
    "uuid": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
}
"""Texts by their formats."""


def answer_example(schema: Any) -> Any:
    """Return the smallest example of an answer's schema, a word without one."""
    return Examples(root=schema).of(schema) if schema else "yes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Makes examples of the schemas in the document `root`. They ignore maxima, formats and patterns.

    An example has the fields that are required, and lists are empty. If it `shows_more`, it also has the
    fields with examples of their own, and lists have an item.
    """

    root: Any
    shows_more: bool = False

    def of(self, schema: Any, depth: int = 0) -> Any:
        """Return an example of a schema."""
        schema = resolved(schema, self.root)
        if not isinstance(schema, Mapping) or depth == _DEEPEST:
            return None
        if schema.get("examples"):
            return schema["examples"][0]
        for key in ("default", "const"):
            if key in schema:
                return schema[key]
        if schema.get("enum"):
            return schema["enum"][0]
        for key in ("anyOf", "oneOf"):
            if schema.get(key):
                return self._member(schema, schema[key][0], depth)
        if "else" in schema and "type" not in schema:
            # The schema of a breakpoint: edited values, or null, which changes nothing.
            return self.of(schema["else"], depth + 1)
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "boolean":
                return True
            case "integer" | "number":
                return schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
            case "array":
                return [self.of(schema.get("items"), depth + 1)] if self.shows_more else []
            case "null":
                return None
            case _:
                return _TEXTS.get(str(schema.get("format")), "...")

    def _member(self, union: Mapping[str, Any], member: Any, depth: int) -> Any:
        """Return an example of a member of a union, with the tag that tells it from the others."""
        example = self.of(member, depth + 1)
        match union, resolved(member, self.root):
            case {"discriminator": {"propertyName": tag}}, {"properties": {**fields}} if (
                tag in fields
            ):
                # A tag with a default is not required, and yet the type reads no answer without it.
                return {tag: self.of(fields[tag], depth + 1), **example}
            case _:
                return example

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        fields = schema.get("properties") or {}
        # The schema of a budget's question requires one of its fields, and does not say which.
        needed = schema.get("required") or [*fields][: schema.get("minProperties", 0)]
        if self.shows_more:
            needed = [name for name in fields if name in needed or "examples" in fields[name]]
        example = {name: self.of(fields.get(name), depth + 1) for name in needed}
        # The schema of an MCP elicitation requires fields only if the answer is `accept`.
        match schema:
            case {"if": {"properties": Mapping() as cases}, "then": {"required": [*more]}} if all(
                isinstance(case, Mapping) and name in example and example[name] == case.get("const")
                for name, case in cases.items()
            ):
                example |= {name: self.of(fields.get(name), depth + 1) for name in more}
            case _:
                pass
        return example
