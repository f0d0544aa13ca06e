"""The arguments of a tool: what a model is told that it may send, and how what it sent is read.

They are JSON on the way: people see them, predicates judge them, and a digest binds an approval to them.
So a call is read once, with its defaults filled in and each value in the form that its type gives it;
the function gets them as its own types, when it runs.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticSerializationError, SchemaError

from abeyance.agents.tool_errors import ArgumentsError, cut
from abeyance.authoring.context import Context
from abeyance.core.json import Json, canonical, size, why_not_json
from abeyance.errors import Fatal
from abeyance.schemas.json_schema import faults_of, schema_of
from abeyance.wire import refuse_too_deep

_LARGEST: Final = 500_000
"""In bytes: the arguments of a call travel with it, more than once."""
_MOST_FAULTS: Final = 20
_MOST_SHOWN: Final = 100
_MOST_EXPECTED: Final = 300
_VERBATIM: Final = frozenset({"default", "const", "enum", "examples"})
_DATE: Final = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_TIME: Final = r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?"
_WRITTEN: Final = {
    "date-time": f"^{_DATE}T{_TIME}$",
    "time": f"^{_TIME}$",
    "duration": (
        r"^[+-]?P([0-9]+Y)?([0-9]+M)?([0-9]+W)?([0-9]+D)?"
        r"(T([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]{1,6})?S)?)?$"
    ),
}
"""Times without a zone, and lengths of time with a sign or a fraction, by their formats."""


class Arguments(Protocol):
    """What a tool takes."""

    @property
    def schema(self) -> Json:
        """The JSON Schema of the arguments: that of an object."""

    @property
    def editable(self) -> Json:
        """The same for a person who edits arguments that were read: what they are shown fits."""

    def read(self, tool: str, given: str | Mapping[str, Json]) -> dict[str, Json]:
        """What was sent for a call, as JSON in the form of its types. Raises ArgumentsError."""

    def bound(
        self, function: Callable[..., Any], tool: str, arguments: Mapping[str, Json], context: Any
    ) -> partial[Any]:
        """The function with the context and the arguments that it is to be called with, as its types.

        Raises ArgumentsError.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedArguments:
    """Arguments that a function's signature declares. `adapter` is of a dataclass that has a field for
    each of the `parameters`; `context` is the one that gets the context, or None.
    """

    schema: Json
    adapter: TypeAdapter[Any]
    parameters: tuple[str, ...]
    context: str | None

    @property
    def editable(self) -> Json:
        return _as_written(self.schema)

    def read(self, tool: str, given: str | Mapping[str, Json]) -> dict[str, Json]:
        typed = self._typed(tool, _text(tool, given))
        try:
            found = self.adapter.dump_python(typed, mode="json", by_alias=True, round_trip=True)
            kept = _checked(tool, found)
            self.adapter.validate_json(json.dumps(kept))
        except (PydanticSerializationError, ValidationError) as error:
            message = (
                f"the arguments of {tool!r} cannot be written as JSON and read again, as a call that "
                f"waits for people has to be: {error}. Give the parameter a type that can"
            )
            raise Fatal(message) from error
        return kept

    def bound(
        self, function: Callable[..., Any], tool: str, arguments: Mapping[str, Json], context: Any
    ) -> partial[Any]:
        typed = self._typed(tool, _text(tool, arguments))
        named = {name: getattr(typed, name) for name in self.parameters}
        if self.context is not None:
            named[self.context] = context
        return partial(function, **named)

    def _typed(self, tool: str, text: str) -> Any:
        try:
            return self.adapter.validate_json(text)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False)
            raise _refused(tool, list(_sentences(found, self.schema))) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaArguments:
    """Arguments that a JSON Schema declares: the function takes the context, and all of them as one
    mapping.
    """

    schema: Json

    @property
    def editable(self) -> Json:
        return self.schema

    def read(self, tool: str, given: str | Mapping[str, Json]) -> dict[str, Json]:
        try:
            found = json.loads(_text(tool, given))
        except (ValueError, RecursionError) as error:
            raise _refused(tool, [f"they are no JSON: {error}"]) from error
        if not isinstance(found, dict):
            raise _refused(tool, [f"they have to be one JSON object; this is {_shown(found)}"])
        kept = _checked(tool, found)
        faults = [
            f"{fault.pointer.removeprefix('/') or 'the arguments'}: {fault.message}"
            for fault in faults_of(self.schema, kept)
        ]
        if faults:
            raise _refused(tool, faults)
        return kept

    def bound(
        self, function: Callable[..., Any], tool: str, arguments: Mapping[str, Json], context: Any
    ) -> partial[Any]:
        return partial(function, context, self.read(tool, arguments))


def _as_written(schema: Json) -> Json:
    """A schema with the forms of times that types read and write, and JSON Schema does not know."""
    match schema:
        case {"type": "string", "format": str() as name, **rest} if name in _WRITTEN:
            return {
                "type": "string",
                **rest,
                "anyOf": [{"format": name}, {"pattern": _WRITTEN[name]}],
            }
        case dict():
            return {
                key: value if key in _VERBATIM else _as_written(value)
                for key, value in schema.items()
            }
        case list():
            return [_as_written(each) for each in schema]
        case _:
            return schema


def _text(tool: str, given: str | Mapping[str, Json]) -> str:
    """What was sent, as JSON text. A model that has nothing to say may send no text at all."""
    if isinstance(given, str):
        return given if given.strip() else "{}"
    try:
        return json.dumps(given)
    except (TypeError, ValueError, RecursionError) as error:
        raise _refused(tool, [f"they are no JSON: {error}"]) from error


def _checked(tool: str, found: dict[str, Json]) -> dict[str, Json]:
    try:
        refuse_too_deep(found)
        fault = why_not_json(found)
    except ValueError as error:
        fault = str(error)
    if fault is not None:
        raise _refused(tool, [f"they are no JSON: {fault}"])
    if (actual := size(found)) > _LARGEST:
        message = f"they take {actual} bytes, and may take {_LARGEST}: send less in one call"
        raise _refused(tool, [message])
    return found


def _refused(tool: str, faults: Sequence[str]) -> ArgumentsError:
    listed = "\n".join(f"- {fault}" for fault in faults[:_MOST_FAULTS])
    return ArgumentsError(
        f"{tool!r} was not run, because its arguments do not fit:\n{listed}\n"
        "Call it again with arguments that fit."
    )


def _sentences(found: Sequence[ErrorDetails], schema: Json) -> Iterator[str]:
    known: Mapping[str, Json] = schema.get("properties", {})
    for error in found:
        name = str(error["loc"][0]) if error["loc"] else ""
        place = ".".join(map(str, error["loc"]))
        match error["type"]:
            case "json_invalid":
                yield f"they are no JSON object: {error['msg']}"
            case "dataclass_type" if not error["loc"]:
                yield f"they have to be one JSON object; this is {_shown(error['input'])}"
            case "unexpected_keyword_argument" if place == name:
                listed = ", ".join(map(repr, known)) or "none"
                yield f"{place}: there is no such argument; there are {listed}"
            case "missing":
                yield f"{place}: it is missing{_expected(name, known)}"
            case _:
                given = f"{error['msg']}, but it is {_shown(error['input'])}"
                yield f"{place}: {given}{_expected(name, known)}"


def _expected(name: str, known: Mapping[str, Json]) -> str:
    return f"; expected: {cut(canonical(known[name]), _MOST_EXPECTED)}" if name in known else ""


def _shown(value: Any) -> str:
    text = canonical(value) if why_not_json(value) is None else repr(value)
    return cut(text, _MOST_SHOWN)


_CONTEXT_NAMES: Final = frozenset({"context", "ctx"})
_CONTEXT_TYPES: Final = frozenset({"Context", "ToolContext"})
_CONFIG: Final = ConfigDict(
    extra="forbid", validate_default=True, allow_inf_nan=False, ser_json_inf_nan="constants"
)
_VERBATIM_KEYS: Final = frozenset({"const", "default", "enum", "examples"})
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
                key: value if key in _VERBATIM_KEYS else _untitled(value)
                for key, value in schema.items()
                if not (key == "title" and isinstance(value, str))
            }
        case list():
            return [_untitled(each) for each in schema]
        case _:
            return schema
