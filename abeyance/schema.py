"""Holding answers against JSON Schema 2020-12, in a way that no schema or answer can abuse.

It runs inside a workflow's validator, where a regular expression that never ends would wedge the
run: backtracking is bounded, and an answer that exceeds the bound does not fit. References to other
documents are refused, so nothing is ever fetched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs
from pydantic import PydanticInvalidForJsonSchema, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError

from abeyance.core.canonical import Json, canonical
from abeyance.core.events import SchemaFault

_PATTERNS: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000, size_limit=1_000_000)
_MOST_FAULTS = 20


def schema_of(response: Any) -> Json:
    """The JSON Schema of what an author gave as `response`: a type, a schema, or None for anything.

    Raises ValueError if it is neither.
    """
    if response is None:
        return None
    if isinstance(response, Mapping):
        schema = dict(response)
    else:
        try:
            schema = TypeAdapter(response).json_schema()
        except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError) as error:
            message = f"{response!r} cannot be written as a JSON Schema: {error}"
            raise ValueError(message) from error
    try:
        _validator(canonical(schema))
    except (jsonschema_rs.ValidationError, TypeError) as error:
        text = getattr(error, "message", str(error))
        message = f"{schema!r} is not a JSON Schema that can be used: {text}"
        raise ValueError(message) from error
    return schema


def faults_of(schema: Json, answer: Json) -> tuple[SchemaFault, ...]:
    """Everything by which an answer misses a schema, at most twenty things; empty if it fits."""
    found: list[SchemaFault] = []
    for error in _validator(canonical(schema)).iter_errors(answer):
        pointer = "".join(f"/{_escaped(str(part))}" for part in error.instance_path)
        found.append(SchemaFault(pointer=pointer, message=error.message[:500]))
        if len(found) == _MOST_FAULTS:
            break
    return tuple(found)


@lru_cache(maxsize=1000)
def _validator(schema_text: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        json.loads(schema_text),
        validate_formats=True,
        pattern_options=_PATTERNS,
        offline=True,
    )


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")
