"""Holding answers against JSON Schema 2020-12, in a way that no schema or answer can abuse.

It runs inside a workflow's validator, where what takes long would wedge the run. So the backtracking of
regular expressions is bounded, and an answer that exceeds the bound does not fit. Whether an answer
fits is always asked first, which is quick; where it does not is searched for only where that is quick
too. References to other documents are refused, so nothing is ever fetched.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import Any, Final

import jsonschema_rs
from pydantic import TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from abeyance.core.canonical import Json, canonical, size
from abeyance.core.events import SchemaFault

_PATTERNS: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=1_000, size_limit=1_000_000)
_BOUNDS: Final = frozenset({"ge", "gt", "le", "lt", "max_digits", "multiple_of"})
_KEYS: Final = {
    "int": "^[+-]?[0-9]+$",
    "float": r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$",
}
"""What a key, which is text in JSON, has to look like, by the type that it will be read as."""
_VERSION: Final = re.compile("uuid[1-8]")
_UUID: Final = "^.{{14}}{version}"
_MOST_FAULTS: Final = 20
_MOST_CHARS: Final = 500
_SEARCHED_BYTES: Final = 20_000
"""How large an answer may be for all its faults to be listed: the validator finds all of them or none."""


def schema_of(response: Any) -> Json:
    """The JSON Schema of what an author gave as `response`: a type, a schema, or None for anything.

    Raises ValueError if it is neither.
    """
    if response is None:
        return None
    if isinstance(response, Mapping):
        # A copy: the author's own may change after it was declared.
        schema = copy.deepcopy(dict(response))
    else:
        try:
            schema = TypeAdapter(response).json_schema(schema_generator=_AnswerSchema)
        except (PydanticUserError, PydanticUndefinedAnnotation) as error:
            message = f"{response!r} cannot be written as a JSON Schema: {error.message}"
            raise ValueError(message) from error
    try:
        _validator(canonical(schema))
    except (jsonschema_rs.ValidationError, TypeError) as error:
        text = getattr(error, "message", str(error))
        message = f"{schema!r} is not a JSON Schema that can be used: {text}"
        raise ValueError(message) from error
    return schema


def faults_of(schema: Json, answer: Json) -> tuple[SchemaFault, ...]:
    """Everything by which an answer misses a schema, at most twenty things; empty if it fits.

    An answer that is very large, or whose schema refers to itself, gets one fault without a place.
    """
    text = canonical(schema)
    validator = _validator(text)
    if validator.is_valid(answer):
        return ()
    if _refers_to_itself(text):
        return (SchemaFault(pointer="", message="it does not fit the schema, which is recursive"),)
    if size(answer) > _SEARCHED_BYTES:
        message = "it does not fit the schema, and is too large for the place to be searched for"
        return (SchemaFault(pointer="", message=message),)
    found: list[SchemaFault] = []
    for error in chain.from_iterable(map(_likely, validator.iter_errors(answer))):
        pointer = "".join(f"/{escaped(str(part))}" for part in error.instance_path)
        # A part that is there although its schema is `false`: what the library says of it helps nobody.
        is_needless = error.message.startswith("False schema does not allow")
        message = "it may not be given here" if is_needless else error.message[:_MOST_CHARS]
        found.append(SchemaFault(pointer=pointer, message=message))
        if len(found) == _MOST_FAULTS:
            break
    return tuple(found)


def _likely(error: jsonschema_rs.ValidationError) -> Iterator[jsonschema_rs.ValidationError]:
    """What an answer that could be one of several things misses of the one that it seems to be."""
    place = len(error.instance_path)
    seeming = [
        branch
        for branch in getattr(error.kind, "context", ())
        if not any(_is_of_another(each, place) for each in branch)
    ]
    if len(seeming) == 1:
        for each in seeming[0]:
            yield from _likely(each)
    else:
        yield error


def _is_of_another(error: jsonschema_rs.ValidationError, place: int) -> bool:
    """Whether the thing itself is of another kind, or a member that names its kind names another."""
    depth = len(error.instance_path) - place
    return (depth == 0 and error.kind.name in {"type", "const", "enum"}) or (
        depth == 1 and error.kind.name == "const"
    )


def escaped(part: str) -> str:
    """A part of a JSON pointer, as it is written in one."""
    return part.replace("~", "~0").replace("/", "~1")


class _AnswerSchema(GenerateJsonSchema):
    """Says of some types what pydantic's own schema leaves out, so that no answer is taken that they will
    refuse: which texts are a Decimal, a UUID of one version, a URL of one scheme, or a key.
    """

    def generate(
        self, schema: core_schema.CoreSchema, mode: JsonSchemaMode = "validation"
    ) -> JsonSchemaValue:
        found: JsonSchemaValue = _with_known_formats(super().generate(schema, mode))
        return found

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        found = super().dict_schema(schema)
        keys = schema.get("keys_schema")
        if keys is not None and keys["type"] in _KEYS:
            found["propertyNames"] = {"pattern": _KEYS[keys["type"]]}
        return found

    def url_schema(self, schema: core_schema.UrlSchema) -> JsonSchemaValue:
        found = super().url_schema(schema)
        if schemes := schema.get("allowed_schemes"):
            found["pattern"] = f"^({'|'.join(map(re.escape, schemes))}):"
        return found

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        places, digits = schema.get("decimal_places"), schema.get("max_digits")
        number: JsonSchemaValue = super().decimal_schema(schema)["anyOf"][0]
        if places is not None:
            number.setdefault("multipleOf", 10.0**-places)
        if digits is not None:
            bound = 10.0 ** (digits - (places or 0))
            number.update(exclusiveMinimum=-bound, exclusiveMaximum=bound)
        if not _BOUNDS.isdisjoint(schema):
            # A number can be bounded by a schema, but not one that is written as text.
            return number
        fraction = "[0-9]+" if places is None else f"[0-9]{{1,{places}}}" if places else "0+"
        text = {"type": "string", "pattern": rf"^[+-]?[0-9]+(\.{fraction})?$"}
        return {"anyOf": [number, text]}


def _with_known_formats(schema: Json) -> Json:
    match schema:
        case {"type": "string", "format": str(format_)} if _VERSION.fullmatch(format_):
            pattern = _UUID.format(version=format_[-1])
            return {**schema, "format": "uuid", "pattern": pattern}
        case Mapping():
            return {key: _with_known_formats(value) for key, value in schema.items()}
        case list():
            return [_with_known_formats(value) for value in schema]
        case _:
            return schema


@lru_cache(maxsize=1000)
def _validator(schema_text: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        json.loads(schema_text),
        validate_formats=True,
        pattern_options=_PATTERNS,
        offline=True,
    )


@lru_cache(maxsize=1000)
def _refers_to_itself(schema_text: str) -> bool:
    # In such a schema the time that it takes to say why an answer misses an `anyOf` is exponential in
    # the depth of the answer.
    schema = json.loads(schema_text)
    named = schema.get("$defs", {})
    refers = {f"#/$defs/{name}": set(_references(part)) for name, part in named.items()}
    if not set(_references(schema)) <= refers.keys():
        # By another way than pydantic's: it may lead anywhere.
        return True
    try:
        TopologicalSorter(refers).prepare()
    except CycleError:
        return True
    return False


def _references(schema: Json) -> Iterator[str]:
    match schema:
        case Mapping():
            for key, value in schema.items():
                if key in {"$ref", "$dynamicRef"} and isinstance(value, str):
                    yield value
                yield from _references(value)
        case list():
            for item in schema:
                yield from _references(item)
        case _:
            pass
