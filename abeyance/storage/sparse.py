"""Write starts, graphs, visit inputs and visit reports as JSON, without fields that have their defaults.

Most fields of most records do. A default must never change, because earlier JSON is read with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, TypeAdapter

_Places: TypeAlias = "dict[Any, bool | _Places]"
_KIND: Final = "kind"
"""The field that says which of several types a value has. It is always written."""


def written(record: Any) -> bytes:
    """Return the JSON of a dataclass or a model, without the defaults in it and in nested records."""
    return _adapter(record.__class__).dump_json(record, exclude=_usual(record))


@cache
def _adapter(type_: Any) -> TypeAdapter[Any]:
    return TypeAdapter(type_)


def _usual(record: Any) -> _Places:
    """Return the places of a record that have their defaults, for pydantic to leave out."""
    found: _Places = {}
    for name, default in _defaults(record.__class__).items():
        value = getattr(record, name)
        if name == _KIND:
            continue
        # 0 is not the default False.
        if type(value) is type(default) and value == default:
            found[name] = True
        elif places := _inside(value):
            found[name] = places
    return found


def _inside(value: Any) -> _Places:
    match value:
        case Mapping():
            return _in_items(value.items())
        case list() | tuple():
            return _in_items(enumerate(value))
        case _ if _is_record(value):
            return _usual(value)
        case _:
            return {}


def _in_items(items: Iterable[tuple[Any, Any]]) -> _Places:
    found: _Places = {}
    for key, item in items:
        if not _is_record(item):
            # The values of a run are plain JSON, and may be too large to search.
            break
        if places := _usual(item):
            found[key] = places
    return found


def _is_record(value: Any) -> bool:
    return isinstance(value, BaseModel) or (is_dataclass(value) and not isinstance(value, type))


@cache
def _defaults(type_: Any) -> dict[str, Any]:
    """Return the defaults of a type's fields; for a field without one, a marker that no value equals."""
    if issubclass(type_, BaseModel):
        return {
            name: field.get_default(call_default_factory=True)
            for name, field in type_.model_fields.items()
        }
    return {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(type_)
    }
