"""How an answer has to look, in one line: a JSON Schema as people read it.

The line is no JSON: words such as `boolean` stand without quotes where a value has to be put in, so
that nobody can send a form as if it were an answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from abeyance.values.references import resolved

_ANY: Final = "any JSON"
_DEEPEST: Final = 4
_MOST: Final = 8
"""Properties of one object, and alternatives of one value; a form that needs more is no line."""


def form(schema: Any) -> str:
    """The form of an answer, such as `{"approved": boolean, "note"?: string}`.

    `?` marks what may be left out. What a line cannot tell (formats, ranges, depth) is left out: the
    run judges an answer by the whole schema.
    """
    root = schema if isinstance(schema, Mapping) else {}
    return _form(schema, root, 0)


def _form(schema: Any, root: Mapping[str, Any], depth: int) -> str:
    schema = resolved(schema, root)
    is_deep = depth == _DEEPEST
    match schema:
        case {"const": value}:
            return _value(value)
        case {"enum": [_, *_] as values}:
            return _either([_value(value) for value in values])
        case {"anyOf": [_, *_] as options} | {"oneOf": [_, *_] as options} if not is_deep:
            return _either([_form(option, root, depth + 1) for option in options[: _MOST + 1]])
        case {"type": "object", "properties": Mapping() as properties} if (
            properties and not is_deep
        ):
            needed = schema.get("required", ())
            return _object(properties, needed, root, depth)
        case {"type": "array", "items": items} if not is_deep:
            return f"[{_form(items, root, depth + 1)}, ...]"
        case {"type": str(name)}:
            return name
        case {"type": [_, *_] as names}:
            return _either([str(name) for name in names])
        case _:
            return _ANY


def _object(properties: Mapping[str, Any], needed: Any, root: Mapping[str, Any], depth: int) -> str:
    parts = [
        f"{_value(name)}{'' if name in needed else '?'}: {_form(of, root, depth + 1)}"
        for name, of in list(properties.items())[:_MOST]
    ]
    return "{" + ", ".join([*parts, "..."] if len(properties) > _MOST else parts) + "}"


def _either(options: list[str]) -> str:
    return " or ".join([*options[:_MOST], "..."] if len(options) > _MOST else options)


def _value(value: Any) -> str:
    # In ASCII, and so without marks that turn the direction of writing.
    return json.dumps(value)
