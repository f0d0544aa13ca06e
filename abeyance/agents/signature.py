"""What the signature of a function says of the arguments of a tool, and all that is wrong with it."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, SchemaError

from abeyance.agents.toolargs import TypedArguments
from abeyance.core.canonical import Json
from abeyance.nodes.context import Context
from abeyance.values.schema import schema_of

_CONTEXT_NAMES: Final = frozenset({"context", "ctx"})
_CONTEXT_TYPES: Final = frozenset({"Context", "ToolContext"})
_CONFIG: Final = ConfigDict(
    extra="forbid", validate_default=True, allow_inf_nan=False, ser_json_inf_nan="constants"
)
_VERBATIM: Final = frozenset({"const", "default", "enum", "examples"})
"""The keywords of a schema whose values are no schemas."""


def arguments_of(function: Callable[..., Any], faults: list[str]) -> TypedArguments | None:
    """What a function takes. What is wrong is added to `faults`, and the result is then None."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError, NameError) as error:
        faults.append(f"its signature cannot be read: {error}")
        return None
    before = len(faults)
    contexts: list[str] = []
    fields: dict[str, _Field] = {}
    for number, parameter in enumerate(parameters):
        told = f"the parameter {parameter.name!r}"
        try:
            field = _field_of(parameter, function, is_first=number == 0)
        except _Unfit as unfit:
            faults.append(f"{told} {unfit}")
            continue
        if field is None:
            contexts.append(parameter.name)
        else:
            fields[parameter.name] = field
            faults.extend(f"{told} {fault}" for fault in _faults({parameter.name: field}))
    if len(contexts) > 1:
        faults.append(f"{' and '.join(map(repr, contexts))} both take the context; one may")
    if len(faults) > before:
        return None
    names = Counter(_sent_as(name, field) for name, field in fields.items())
    faults.extend(f"{name!r} is the name of two arguments" for name, n in names.items() if n > 1)
    if len(faults) > before:
        return None
    declared = _class_of(fields)
    return TypedArguments(
        schema=_untitled(schema_of(declared)),
        adapter=TypeAdapter(declared),
        parameters=tuple(fields),
        context=contexts[0] if contexts else None,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    type: Any
    default: Any

    def declared(self) -> Any:
        default = self.default
        if default is inspect.Parameter.empty:
            return dataclasses.field()
        if isinstance(default, FieldInfo) or default.__hash__ is not None:
            return dataclasses.field(default=default)
        return dataclasses.field(default_factory=partial(copy.deepcopy, default))


class _Unfit(Exception):
    """A model could not send a parameter; the text says why."""


def _field_of(
    parameter: inspect.Parameter, function: Callable[..., Any], *, is_first: bool
) -> _Field | None:
    """What a parameter takes; None if it takes the context. Raises _Unfit."""
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        message = (
            f"is {parameter.kind.description}; a model sends arguments by name, each of which has to be "
            "declared"
        )
        raise _Unfit(message)
    try:
        type_ = _resolved(parameter.annotation, function)
    except Exception as error:
        if _is_context(parameter.annotation):
            return None
        message = (
            f"has the type {parameter.annotation!r}, which cannot be read ({error}): it has to be known "
            "where the function's module can see it"
        )
        raise _Unfit(message) from error
    is_untyped = type_ is parameter.empty
    if _is_context(type_) or (is_first and is_untyped and parameter.name in _CONTEXT_NAMES):
        return None
    if is_untyped:
        hint = (
            "; a method is made a tool when it is bound, as in tool(thing.method)"
            if is_first and parameter.name in {"self", "cls"}
            else ""
        )
        message = f"has no type: write {parameter.name}: str, or what it is{hint}"
        raise _Unfit(message)
    return _Field(type=type_, default=parameter.default)


def _resolved(annotation: Any, function: Callable[..., Any]) -> Any:
    if annotation is inspect.Parameter.empty or isinstance(annotation, type):
        return annotation
    inner = function.func if isinstance(function, partial) else function
    inner = inspect.unwrap(inner)
    if not hasattr(inner, "__globals__"):
        inner = getattr(inner, "__func__", None) or type(inner).__call__

    def holder() -> None:
        """Hold one annotation, so that each that cannot be read is told."""

    holder.__annotations__ = {"it": annotation}
    known = getattr(inner, "__globals__", {})
    return get_type_hints(holder, globalns=known, include_extras=True)["it"]


def _is_context(annotation: Any) -> bool:
    if isinstance(annotation, str):
        # Imported for the type checker only.
        return annotation.rpartition(".")[2] in _CONTEXT_TYPES
    return isinstance(annotation, type) and issubclass(annotation, Context)


def _class_of(fields: Mapping[str, _Field]) -> type:
    plain = dataclasses.make_dataclass(
        "Arguments",
        [(name, field.type, field.declared()) for name, field in fields.items()],
        kw_only=True,
    )
    return pydantic_dataclass(config=_CONFIG)(plain)


def _faults(fields: Mapping[str, _Field]) -> Iterable[str]:
    try:
        declared = _class_of(fields)
        adapter: TypeAdapter[Any] = TypeAdapter(declared)
        # Before the schema is made, which warns of a default that is none.
        if (fault := _default_fault(adapter)) is not None:
            return [fault]
        schema = schema_of(declared)
    except (
        PydanticUserError,
        PydanticUndefinedAnnotation,
        SchemaError,
        TypeError,
        ValueError,
        NameError,
    ) as error:
        return [f"cannot be described to a model: {getattr(error, 'message', error)}"]
    infos: Mapping[str, FieldInfo] = declared.__pydantic_fields__  # type: ignore[attr-defined]
    if any(not i.alias == i.validation_alias == i.serialization_alias for i in infos.values()):
        return ["has one name to be read by and another to be written by: give it alias= alone"]
    if _has(schema, "writeOnly"):
        return ["is a secret, which no model should send: take it from where the tool runs"]
    return []


def _default_fault(adapter: TypeAdapter[Any]) -> str | None:
    try:
        written = adapter.dump_json(adapter.validate_json("{}"), by_alias=True, round_trip=True)
        adapter.validate_json(written)
    except ValidationError as error:
        wrong = [each for each in error.errors() if each["type"] != "missing"]
        return f"has a default that does not fit its type: {wrong[0]['msg']}" if wrong else None
    except PydanticSerializationError as error:
        return f"has a default that is no JSON: {error}"
    return None


def _sent_as(name: str, field: _Field) -> str:
    declared = _class_of({name: field})
    info: FieldInfo = declared.__pydantic_fields__[name]  # type: ignore[attr-defined]
    return info.alias or name


def _has(schema: Json, keyword: str) -> bool:
    match schema:
        case dict():
            is_said = schema.get(keyword) is True
            return is_said or any(_has(each, keyword) for each in schema.values())
        case list():
            return any(_has(each, keyword) for each in schema)
        case _:
            return False


def _untitled(schema: Json) -> Json:
    """A schema without the titles that were made of names: a model is sent them with every turn."""
    match schema:
        case dict():
            return {
                key: value if key in _VERBATIM else _untitled(value)
                for key, value in schema.items()
                if not (key == "title" and isinstance(value, str))
            }
        case list():
            return [_untitled(each) for each in schema]
        case _:
            return schema
