"""The types of answers: read an answer as its type, and write it in the one form that its type writes.

The JSON Schema that people see says which shapes a type accepts; the type itself decides. A type
*rewrites* answers if its written form can differ from what was sent: `12.50` or `"12.50"`, `10:00` or
`10:00:00`, a default that was left out.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from uuid import uuid4

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import PydanticSerializationError

from abeyance.core.json import Json, canonical, why_not_json
from abeyance.core.text import truncate
from abeyance.schemas.json_types import CONFIG, in_one_order
from abeyance.wire import refuse_too_deep

_VERBATIM: Final = frozenset({"any", "none", "bool", "int", "float", "literal", "enum"})
"""Core schemas of types that write what was sent."""
_WITHIN: Final = ("schema", "items_schema", "keys_schema", "values_schema")
_OF_ITS_OWN: Final = (
    "serialization",
    "validation_alias",
    "serialization_alias",
    "serialization_exclude",
    "custom_init",
    "post_init",
)
"""Parts of a core schema that do more than read values."""
_ABOUT: Final = frozenset({"config", "metadata"})
"""Parts of a core schema that are not schemas."""
_MOST_KNOWN: Final = 1_000
_MOST_SHOWN: Final = 200
_PROCESS: Final = uuid4().hex[:8]
_known: Final[OrderedDict[str, Any]] = OrderedDict()
"""Types of questions by their names: those asked last."""


def read(type_: Any, answer: Json) -> Any:
    """Return a JSON value as the type. Raise pydantic's ValidationError if it does not fit."""
    return adapter(type_).validate_json(json.dumps(answer), by_alias=True, by_name=True)


def written(type_: Any, answer: Json) -> Json:
    """Return a JSON value as the type writes it. Raise pydantic's ValidationError if it does not fit,
    ValueError if the type cannot write the value that it has read, or reads its own writing as another
    value.
    """
    value = read(type_, answer)
    made = dumped(adapter(type_), value)
    refuse_unsteady(adapter(type_), value, made)
    return made


def is_typed(response: Any) -> bool:
    """Return whether a `response` is a type: no JSON Schema, and not None, which takes any answer."""
    return response is not None and not isinstance(response, Mapping)


def read_answer(response: Any, answer: Json) -> Any:
    """Return an answer as `read` returns it; unchanged if the response is not a type."""
    return read(response, answer) if is_typed(response) else answer


def written_answer(response: Any, answer: Json) -> Json:
    """Return an answer as `written` returns it; unchanged if the response is not a type."""
    return written(response, answer) if is_typed(response) else answer


def dumped(writer: TypeAdapter[Any], value: Any) -> Json:
    """Return the JSON that a type writes of a value; fields of models by their aliases, as the schema
    that people see names them. Raise ValueError if there is none.
    """
    try:
        made: Json = writer.dump_python(value, mode="json", by_alias=True, round_trip=True)
        refuse_too_deep(made)
        made = in_one_order(made, value)
        fault = why_not_json(made)
    except (PydanticSerializationError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if fault is not None:
        raise ValueError(fault)
    return made


def refuse_unsteady(writer: TypeAdapter[Any], value: Any, made: Json) -> None:
    """Raise ValueError if a type does not read what it has written of a value, or reads another value.

    What is kept is read again wherever it is used: people would see one value, and code get another.
    """
    if not _runs_code(writer):
        return
    try:
        read_again = writer.validate_json(json.dumps(made), by_alias=True, by_name=True)
    except ValidationError as error:
        why = error.errors(include_url=False)[0]["msg"]
        raise ValueError(
            f"its type writes {_shown(made)}, and does not read that: {why}"
        ) from error
    again = dumped(writer, read_again)
    if again != made and read_again != value:
        raise ValueError(f"its type writes {_shown(made)}, and reads that as {_shown(again)}")


def _shown(value: Json) -> str:
    return truncate(canonical(value), _MOST_SHOWN)


@lru_cache(maxsize=2_000)
def _runs_code(writer: TypeAdapter[Any]) -> bool:
    """Return whether code of the author runs in reading or writing, or a field is left out of it."""
    return _has_code(writer.core_schema)


def _has_code(schema: Any) -> bool:
    match schema:
        case {"type": str(type_)} if type_.startswith("function-"):
            return True
        case Mapping():
            return any(schema.get(name) for name in _OF_ITS_OWN) or any(
                _has_code(part) for name, part in schema.items() if name not in _ABOUT
            )
        case list() | tuple():
            return any(map(_has_code, schema))
        case _:
            return False


def adapter(type_: Any) -> TypeAdapter[Any]:
    """Return the adapter of a type."""
    try:
        return _cached_adapter(type_)
    except TypeError:
        # An annotation of the type cannot be hashed.
        return new_adapter(type_)


def new_adapter(type_: Any, config: ConfigDict = CONFIG) -> TypeAdapter[Any]:
    """Return an adapter of a type with this configuration, or with its own if it is a model."""
    try:
        return TypeAdapter(type_, config=config)
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        return TypeAdapter(type_)


_cached_adapter = lru_cache(maxsize=500)(new_adapter)


def rewrites(type_: Any) -> bool:
    """Return whether what the type writes can differ from an answer that it accepts."""
    if not is_typed(type_):
        return False
    try:
        return _rewrites(adapter(type_).core_schema)
    except (PydanticUserError, PydanticUndefinedAnnotation, ImportError):
        # The declaration of the type reports this error.
        return False


def _rewrites(schema: Any) -> bool:
    match schema:
        case {"type": "str"}:
            return not {"strip_whitespace", "to_lower", "to_upper"}.isdisjoint(schema)
        case {"type": "union", "choices": choices}:
            return any(_rewrites(each[0] if isinstance(each, tuple) else each) for each in choices)
        case {"type": "definitions"}:
            return any(map(_rewrites, [schema["schema"], *schema["definitions"]]))
        case {"type": "model" | "model-field" | "nullable" | "list" | "dict"}:
            return any(schema.get(name) for name in _OF_ITS_OWN) or any(
                _rewrites(schema[name]) for name in _WITHIN if name in schema
            )
        case {"type": "model-fields", "fields": fields}:
            return any(map(_rewrites, fields.values()))
        case {"type": "definition-ref"}:
            return False
        case {"type": type_, **rest}:
            return type_ not in _VERBATIM or "serialization" in rest
        case _:
            return True


def remember(type_: Any) -> str | None:
    """Return a name by which the type of a question that code asked is found again; None for a schema.

    Any process finds a class of a module that it has imported; anything else only this one.
    """
    if not is_typed(type_):
        return None
    if (
        isinstance(type_, type)
        and _found(name := f"{type_.__module__}:{type_.__qualname__}") is type_
    ):
        return name
    name = f"{_PROCESS}:{type_!r}"
    if _known.setdefault(name, type_) != type_:
        # Two classes of one name, defined within functions.
        name = f"{name}@{id(type_):x}"
        _known[name] = type_
    _known.move_to_end(name)
    while len(_known) > _MOST_KNOWN:
        _known.popitem(last=False)
    return name


def known(name: str) -> Any:
    """Return the type of this name, None if this process does not find it."""
    return _known.get(name) or _found(name)


def _found(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None
