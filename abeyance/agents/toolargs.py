"""The arguments of a tool: what a model is told that it may send, and how what it sent is read.

They are JSON on the way: people see them, predicates judge them, and a digest binds an approval to them.
So a call is read once, with its defaults filled in and each value in the form that its type gives it;
the function gets them as its own types, when it runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError

from abeyance.agents.callerror import ArgumentsError, cut
from abeyance.core.canonical import Json, canonical, size, why_not_json
from abeyance.errors import Fatal
from abeyance.values.schema import faults_of
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
