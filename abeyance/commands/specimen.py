"""A value of about the form that a JSON Schema wants, for a person to edit and send as an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from abeyance.values.references import resolved

_DEEPEST: Final = 8


def specimen(schema: Any) -> Any:
    """A value that fits the schema, or nearly: ranges, formats and patterns are left to the person."""
    return _specimen(schema, schema, 0)


def _specimen(schema: Any, root: Any, depth: int) -> Any:
    schema = resolved(schema, root)
    if not isinstance(schema, Mapping) or depth == _DEEPEST:
        return None
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return _specimen(schema[key][0], root, depth + 1)
    match schema.get("type"):
        case "object":
            return _object(schema, root, depth)
        case "boolean":
            return True
        case "integer" | "number":
            return 0
        case "array":
            return []
        case "null":
            return None
        case _:
            return "..."


def _object(schema: Mapping[str, Any], root: Any, depth: int) -> dict[str, Any]:
    fields = schema.get("properties") or {}
    needed = [*(schema.get("required") or ())]
    found = {name: _specimen(fields.get(name), root, depth + 1) for name in needed}
    # As of who accepts what an MCP server asks, who then has to fill something in.
    match schema:
        case {"if": {"properties": Mapping() as cases}, "then": {"required": [*more]}} if all(
            isinstance(case, Mapping) and name in found and found[name] == case.get("const")
            for name, case in cases.items()
        ):
            found |= {name: _specimen(fields.get(name), root, depth + 1) for name in more}
        case _:
            pass
    return found
