"""The state of a graph that is written in YAML: a pydantic model, made from names of types and schemas.

Nothing is in the values before somebody puts it there, so every field may be absent, and is null then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, WithJsonSchema, create_model

from abeyance.core.json import Json, canonical
from abeyance.schemas import json_schema

_TYPES: Final[Mapping[str, Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": list[Any],
    "dict": dict[str, Any],
    "any": Any,
}

FieldType: TypeAlias = str | Mapping[str, Json]
"""The name of a type, or a JSON Schema."""


def model_of(graph: str, fields: Mapping[str, FieldType]) -> type[BaseModel]:
    """The model of a graph's state, named after it. The fields are without faults."""
    definitions: dict[str, Any] = {
        name: (_type(what) | None, None) for name, what in fields.items()
    }
    return create_model(graph, __config__=ConfigDict(protected_namespaces=()), **definitions)


def fault_of(name: str, what: FieldType) -> str | None:
    """Why a field cannot be one, or None."""
    if hasattr(BaseModel, name):
        return "is a name that pydantic's models need themselves: take another"
    if isinstance(what, str):
        return None
    if any(f'"{word}":' in canonical(what) for word in ("$ref", "$dynamicRef")):
        return (
            "has a schema with a reference, which would lead out of it: write the state as a pydantic "
            "model, and name that (state: module:Class)"
        )
    try:
        json_schema.schema_of(what)
    except ValueError as error:
        return f"has no usable schema: {error}"
    return None


def _type(what: FieldType) -> Any:
    if isinstance(what, str):
        return _TYPES[what]
    written = json_schema.schema_of(what)

    def checked(value: Any) -> Any:
        faults = json_schema.faults_of(written, value)
        if faults:
            raise ValueError("; ".join(f"{f.pointer} {f.message}".strip() for f in faults))
        return value

    return Annotated[Any, AfterValidator(checked), WithJsonSchema(dict(written))]
