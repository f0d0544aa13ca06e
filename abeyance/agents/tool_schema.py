"""The arguments of a tool: their JSON Schema, and validating what a model sent.

Arguments travel as JSON: people see them, predicates check them, and a digest binds an approval to them.
A call is validated once, with defaults filled in and values in the form of their types; the function gets
the typed values when it runs. Pydantic AI's function schemas only validate; they cannot write the values.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, SchemaError

from abeyance.agents.state import json_fault
from abeyance.agents.tool_errors import ArgumentsError
from abeyance.authoring.context import Context
from abeyance.core.json import Json, canonical, size, why_not_json
from abeyance.core.text import truncate
from abeyance.errors import Fatal
from abeyance.schemas.answer_types import refuse_unsteady
from abeyance.schemas.json_schema import faults_of, schema_of
from abeyance.schemas.json_types import in_one_order

_MAX_BYTES: Final = 500_000
"""The most bytes of the arguments, which are copied several times with their call."""
_MAX_FAULTS: Final = 20
_MAX_VALUE_CHARS: Final = 100
_MAX_SCHEMA_CHARS: Final = 300
_VERBATIM: Final = frozenset({"default", "const", "enum", "examples"})
"""Keywords of a schema whose values are not schemas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedArguments:
    """Arguments declared by a function's signature. Its types validate them, and write them as JSON.

    `schema` is their JSON Schema, an object. `adapter` validates a dataclass with a field for each of the
    `parameters`; `context` is the parameter that gets the context, or None.
    """

    schema: Json
    adapter: TypeAdapter[Any]
    parameters: tuple[str, ...]
    context: str | None

    rewrites = True
    """Whether `read` can return arguments that differ from those that it was given."""
    is_judged_elsewhere = False
    """Whether arguments that the schema does not allow can be valid."""

    def read(self, tool: str, arguments: str | Mapping[str, Json]) -> dict[str, Json]:
        """Validate the arguments of a call, and return them as JSON. Raises ArgumentsError."""
        typed = self._typed(tool, _text(tool, arguments))
        try:
            dumped = self.adapter.dump_python(typed, mode="json", by_alias=True, round_trip=True)
            checked = _require_json(tool, in_one_order(dumped, typed))
            refuse_unsteady(self.adapter, typed, checked)
        except (PydanticSerializationError, ValueError) as error:
            raise Fatal(
                f"the arguments of {tool!r} do not survive a round trip through JSON, which a waiting "
                f"call needs: {error}. Give the parameter a type that does"
            ) from error
        return checked

    def bound(
        self, function: Callable[..., Any], tool: str, arguments: Mapping[str, Json], context: Any
    ) -> partial[Any]:
        """Bind the context and the typed arguments to the function. Raises ArgumentsError."""
        typed = self._typed(tool, _text(tool, arguments))
        named = {name: getattr(typed, name) for name in self.parameters}
        if self.context is not None:
            named[self.context] = context
        return partial(function, **named)

    def _typed(self, tool: str, text: str) -> Any:
        try:
            return self.adapter.validate_json(text)
        except ValidationError as error:
            raise _refused(tool, _sentences(error, self.schema)) from error


Judge: TypeAlias = Callable[[dict[str, Json]], object]


def judged_when_called(_: dict[str, Json]) -> None:
    """Accept all arguments: the tool's framework or server judges them when the tool runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaArguments:
    """Arguments declared by a JSON Schema: the function takes the context and one mapping.

    With `judge`, the schema only describes the arguments: the tool belongs to a framework or a server,
    whose own validation decides. `judge` raises ValueError or TypeError with its message.
    """

    schema: Json
    judge: Judge | None = None
    rewrites = False

    @property
    def is_judged_elsewhere(self) -> bool:
        return self.judge is not None

    def read(self, tool: str, arguments: str | Mapping[str, Json]) -> dict[str, Json]:
        """Validate the arguments of a call, and return them as JSON. Raises ArgumentsError."""
        try:
            parsed = json.loads(_text(tool, arguments))
        except (ValueError, RecursionError) as error:
            raise _refused(tool, [f"they are not JSON: {error}"]) from error
        if not isinstance(parsed, dict):
            raise _refused(tool, [f"they must be one JSON object; this is {_value_text(parsed)}"])
        checked = _require_json(tool, parsed)
        if self.judge is None:
            faults = [
                f"{fault.pointer.removeprefix('/') or 'the arguments'}: {fault.message}"
                for fault in faults_of(self.schema, checked)
            ]
            if faults:
                raise _refused(tool, faults)
            return checked
        try:
            self.judge(checked)
        except ValidationError as error:
            raise _refused(tool, _sentences(error, self.schema)) from error
        except (ValueError, TypeError) as error:
            raise _refused(tool, [str(error)]) from error
        return checked

    def bound(
        self, function: Callable[..., Any], tool: str, arguments: Mapping[str, Json], context: Any
    ) -> partial[Any]:
        """Bind the context and the mapping of arguments to the function. Raises ArgumentsError."""
        return partial(function, context, self.read(tool, arguments))


Arguments: TypeAlias = TypedArguments | SchemaArguments
"""The declared arguments of a tool."""


def _text(tool: str, arguments: str | Mapping[str, Json]) -> str:
    """Return the arguments as JSON text. A model may send an empty text for no arguments."""
    if isinstance(arguments, str):
        return arguments if arguments.strip() else "{}"
    try:
        return json.dumps(arguments)
    except (TypeError, ValueError, RecursionError) as error:
        raise _refused(tool, [f"they are not JSON: {error}"]) from error


def _require_json(tool: str, arguments: dict[str, Json]) -> dict[str, Json]:
    if (fault := json_fault(arguments)) is not None:
        raise _refused(tool, [f"they are not JSON: {fault}"])
    if (bytes_ := size(arguments)) > _MAX_BYTES:
        message = f"they take {bytes_} bytes of at most {_MAX_BYTES}: send less in one call"
        raise _refused(tool, [message])
    return arguments


def _refused(tool: str, faults: Iterable[str]) -> ArgumentsError:
    listed = "\n".join(f"- {fault}" for fault in islice(faults, _MAX_FAULTS))
    return ArgumentsError(
        f"{tool!r} was not run, because its arguments do not fit:\n{listed}\n"
        "Call it again with arguments that fit."
    )


def _sentences(invalid: ValidationError, schema: Json) -> Iterator[str]:
    properties: Mapping[str, Json] = schema.get("properties", {})
    for error in invalid.errors(include_url=False, include_context=False):
        name = str(error["loc"][0]) if error["loc"] else ""
        place = ".".join(map(str, error["loc"]))
        match error["type"]:
            case "json_invalid":
                yield f"they are not a JSON object: {error['msg']}"
            case "dataclass_type" if not error["loc"]:
                yield f"they must be one JSON object; this is {_value_text(error['input'])}"
            case "unexpected_keyword_argument" if place == name:
                listed = ", ".join(map(repr, properties)) or "none"
                yield f"{place}: there is no such argument; there are {listed}"
            case "missing":
                yield f"{place}: it is missing{_expected(name, properties)}"
            case _:
                text = f"{error['msg']}, but it is {_value_text(error['input'])}"
                yield f"{place}: {text}{_expected(name, properties)}"


def _expected(name: str, properties: Mapping[str, Json]) -> str:
    return (
        f"; expected: {truncate(canonical(properties[name]), _MAX_SCHEMA_CHARS)}"
        if name in properties
        else ""
    )


def _value_text(value: Any) -> str:
    text = canonical(value) if why_not_json(value) is None else repr(value)
    return truncate(text, _MAX_VALUE_CHARS)


_CONTEXT_NAMES: Final = frozenset({"context", "ctx"})
_CONTEXT_TYPES: Final = frozenset({"Context", "ToolContext"})
_CONFIG: Final = ConfigDict(
    extra="forbid", validate_default=True, allow_inf_nan=False, ser_json_inf_nan="constants"
)


def arguments_of(function: Callable[..., Any], faults: list[str]) -> TypedArguments | None:
    """Read the arguments from a signature. On errors, add them to `faults` and return None.

    pydantic-ai's `function_schema` is not used: it is slow to import, stops at the first error, cannot
    write arguments as JSON, and offers the fields of a lone model as the arguments themselves.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError, NameError) as error:
        faults.append(f"its signature cannot be read: {error}")
        return None
    before = len(faults)
    contexts: list[str] = []
    fields: dict[str, _Field] = {}
    sent: Counter[str] = Counter()
    for number, parameter in enumerate(parameters):
        try:
            field = _field_of(parameter, function, is_first=number == 0)
            if field is None:
                contexts.append(parameter.name)
            else:
                sent[_sent_name(parameter.name, field)] += 1
                fields[parameter.name] = field
        except _InvalidParameter as invalid:
            faults.append(f"the parameter {parameter.name!r} {invalid}")
    if len(contexts) > 1:
        faults.append(f"{' and '.join(map(repr, contexts))} both take the context; one may")
    faults.extend(f"{name!r} is the name of two arguments" for name, n in sent.items() if n > 1)
    if len(faults) > before:
        return None
    dataclass_ = _dataclass_of(fields)
    return TypedArguments(
        schema=_untitled(schema_of(dataclass_)),
        adapter=TypeAdapter(dataclass_),
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


class _InvalidParameter(Exception):
    """A model cannot send the parameter. The text is the reason."""


def _field_of(
    parameter: inspect.Parameter, function: Callable[..., Any], *, is_first: bool
) -> _Field | None:
    """Read a parameter; None if it takes the context. Raises _InvalidParameter."""
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise _InvalidParameter(
            f"is {parameter.kind.description}; a model sends arguments by name: declare each one"
        )
    try:
        type_ = _resolve_type(parameter.annotation, function)
    except Exception as error:
        if _is_context(parameter.annotation):
            return None
        raise _InvalidParameter(
            f"has the type {parameter.annotation!r}, which cannot be resolved ({error}): define or "
            "import it in the function's module"
        ) from error
    is_untyped = type_ is parameter.empty
    if _is_context(type_) or (is_first and is_untyped and parameter.name in _CONTEXT_NAMES):
        return None
    if is_untyped:
        hint = (
            "; make a tool of the bound method, as in tool(thing.method)"
            if is_first and parameter.name in {"self", "cls"}
            else ""
        )
        raise _InvalidParameter(f"has no type: write {parameter.name}: str, or what it is{hint}")
    return _Field(type=type_, default=parameter.default)


def _resolve_type(annotation: Any, function: Callable[..., Any]) -> Any:
    if annotation is inspect.Parameter.empty or isinstance(annotation, type):
        return annotation
    inner = function.func if isinstance(function, partial) else function
    inner = inspect.unwrap(inner)
    if not hasattr(inner, "__globals__"):
        inner = getattr(inner, "__func__", None) or type(inner).__call__

    def holder() -> None:
        """Hold one annotation, so that get_type_hints resolves it alone."""

    holder.__annotations__ = {"it": annotation}
    namespace = getattr(inner, "__globals__", {})
    return get_type_hints(holder, globalns=namespace, include_extras=True)["it"]


def _is_context(annotation: Any) -> bool:
    if isinstance(annotation, str):
        # A type that is imported for the type checker only cannot be resolved.
        return annotation.rpartition(".")[2] in _CONTEXT_TYPES
    return isinstance(annotation, type) and issubclass(annotation, Context)


def _dataclass_of(fields: Mapping[str, _Field]) -> type:
    plain = dataclasses.make_dataclass(
        "Arguments",
        [(name, field.type, field.declared()) for name, field in fields.items()],
        kw_only=True,
    )
    return pydantic_dataclass(config=_CONFIG)(plain)


def _sent_name(name: str, field: _Field) -> str:
    """Return the name under which a model sends a parameter. Raises _InvalidParameter if it cannot."""
    try:
        declared = _dataclass_of({name: field})
        # The default comes first, because making the schema warns about an invalid one.
        if (fault := _default_fault(TypeAdapter(declared))) is None:
            schema = schema_of(declared)
    except (
        PydanticUserError,
        PydanticUndefinedAnnotation,
        SchemaError,
        TypeError,
        ValueError,
        NameError,
    ) as error:
        fault = f"cannot be described to a model: {getattr(error, 'message', error)}"
    if fault is not None:
        raise _InvalidParameter(fault)
    info: FieldInfo = declared.__pydantic_fields__[name]  # type: ignore[attr-defined]
    if not info.alias == info.validation_alias == info.serialization_alias:
        raise _InvalidParameter(
            "has different aliases for validation and serialization: give it alias= alone"
        )
    if '"writeOnly":true' in canonical(schema):
        raise _InvalidParameter(
            "is a secret, which a model must not send: read it where the tool runs"
        )
    return info.alias or name


def _default_fault(adapter: TypeAdapter[Any]) -> str | None:
    try:
        dumped = adapter.dump_json(adapter.validate_json("{}"), by_alias=True, round_trip=True)
        adapter.validate_json(dumped)
    except ValidationError as error:
        faults = [entry for entry in error.errors() if entry["type"] != "missing"]
        return f"has a default that does not fit its type: {faults[0]['msg']}" if faults else None
    except PydanticSerializationError as error:
        return f"has a default that is not JSON: {error}"
    return None


def _untitled(schema: Json) -> Json:
    """Return the schema without generated titles, which would be sent with every turn."""
    match schema:
        case dict():
            return {
                key: value if key in _VERBATIM else _untitled(value)
                for key, value in schema.items()
                if not (key == "title" and isinstance(value, str))
            }
        case list():
            return [_untitled(entry) for entry in schema]
        case _:
            return schema
