"""The JSON that a state model writes: which paths it has, and which values can stand at them.

Conditions and `{field}` templates read the values of a run as JSON, so a path names a field of a nested
model by its alias, and a value is compared with the text or number that its type writes. Whatever the
types leave open (Any, a mapping, a schema that the author wrote) may have any name and any value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from abeyance.core.items import kind_of
from abeyance.core.json import Json, canonical
from abeyance.schemas.json_types import DEFINED, Kinds, definitions_of, in_words, kinds
from abeyance.schemas.state_model import StateModel

_MOST_LISTED: Final = 12
_DEEPEST: Final = 50


class _WrittenSchema(GenerateJsonSchema):
    """Generates the schema of a type's written form. A model writes all its fields and no others."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _closed(super().model_schema(schema), is_whole=True)

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _closed(super().dataclass_schema(schema), is_whole=True)

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _closed(super().typed_dict_schema(schema), is_whole=False)

    def computed_field_schema(self, _: core_schema.ComputedField) -> JsonSchemaValue:
        # It is not among the values, because it could not be read back.
        return {"not": {}}

    def ser_schema(self, schema: Any) -> JsonSchemaValue | None:
        is_untyped = schema["type"].startswith("function-") and "return_schema" not in schema
        return {} if is_untyped else super().ser_schema(schema)


def _closed(schema: JsonSchemaValue, *, is_whole: bool) -> JsonSchemaValue:
    if "properties" not in schema:
        # A root model writes what it contains.
        return schema
    fields = {name: part for name, part in schema["properties"].items() if "not" not in part}
    schema = {"additionalProperties": False, **schema, "properties": fields}
    return {**schema, "required": [*fields]} if is_whole else schema


@dataclass(frozen=True, slots=True)
class _Place:
    """The schemas of the values at a path; `may_be_absent` if there may be none, which counts as null."""

    schemas: tuple[Json, ...]
    definitions: Mapping[str, Json]
    may_be_absent: bool = False

    @property
    def kinds(self) -> Kinds:
        return frozenset().union(*(kinds(each, self.definitions) for each in self.schemas))

    def alternatives(self) -> Iterator[Mapping[str, Json]]:
        """Yield the schemas without references and unions."""
        for schema in self.schemas:
            yield from _alternatives(schema, self.definitions)

    def may_be(self, value: Json) -> bool:
        """Return whether a value of the place may be this one."""
        return any(_may_be(value, each, self.definitions) for each in self.schemas)


class WrittenValues:
    """The values of a run, as far as the types of its state tell."""

    def __init__(self, states: StateModel) -> None:
        self._states = states
        self._fields: dict[str, Json] = {}

    def path_fault(self, path: str) -> str | None:
        """Return why no value has a path, as the end of a sentence that names it; None if one may."""
        found = self._at(path)
        return found if isinstance(found, str) else None

    def value_fault(self, path: str, value: Json) -> str | None:
        """Return why the value at a path is never this one, or None if it may be."""
        place = self._at(path)
        if isinstance(place, str) or (value is None and place.may_be_absent):
            return None
        if place.may_be(value):
            return None
        return f"which it never is: as JSON it is {_described(place)}{_hint(value, place)}"

    def _at(self, path: str) -> _Place | str:
        first, *rest = path.split(".")
        if first not in self._states.fields:
            if self._states.is_open:
                return _Place(schemas=(True,), definitions={}, may_be_absent=True)
            return f"which is not a field of the state{_nearest(first, self._states.fields, rest)}"
        schema = self._schema_of(first)
        place = _Place(schemas=(schema,), definitions=definitions_of(schema))
        for at, name in enumerate(rest, 1):
            following = _below(place, name)
            if isinstance(following, _Place):
                place = following
                continue
            above = ".".join([first, *rest[: at - 1]])
            if not following:
                return (
                    f"but {above!r} is {in_words(place.kinds - {'null'})} as JSON, with nothing below "
                    f"it: name {above!r} alone"
                )
            return f"but {above!r} has no {name!r}{_nearest(name, following, rest[at:], above)}"
        return place

    def _schema_of(self, name: str) -> Json:
        if name not in self._fields:
            try:
                self._fields[name] = self._states.adapters[name].json_schema(
                    by_alias=True, mode="serialization", schema_generator=_WrittenSchema
                )
            except (PydanticUserError, PydanticUndefinedAnnotation):
                # The graph reports this error itself.
                self._fields[name] = True
        return self._fields[name]


def unread_aliases(adapter: TypeAdapter[Any]) -> Iterator[tuple[str, str]]:
    """Yield each model in a type, with a name under which it writes a field and does not read it."""
    written = adapter.json_schema(mode="serialization", schema_generator=_WrittenSchema)
    read = [_objects(adapter.json_schema(by_alias=by_alias)) for by_alias in (True, False)]
    for model, names in _objects(written).items():
        known = [each[model] for each in read if model in each]
        for name in sorted(names.difference(*known) if known else ()):
            yield model or written["title"], name


def _objects(schema: Json) -> dict[str, frozenset[str]]:
    """Return the names of the fields of each model in a schema."""
    every = {"": schema, **definitions_of(schema)}
    return {name: frozenset(each.get("properties", ())) for name, each in every.items()}


def _alternatives(
    schema: Json, definitions: Mapping[str, Json], depth: int = 0
) -> Iterator[Mapping[str, Json]]:
    """Yield the alternatives of a schema, without references and unions."""
    if schema is False:
        return
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        yield {}
        return
    reference = str(schema.get("$ref", ""))
    union = next((schema[key] for key in ("anyOf", "oneOf") if key in schema), None)
    if reference.startswith(DEFINED):
        target = definitions.get(reference.removeprefix(DEFINED), {})
        yield from _alternatives(target, definitions, depth + 1)
    elif union is not None:
        for member in union:
            yield from _alternatives(member, definitions, depth + 1)
    else:
        yield schema


def _member(schema: Mapping[str, Json], name: str) -> Json:
    """Return the schema of an object's member; False if it has no such name."""
    if "patternProperties" in schema:
        return True
    return schema.get("properties", {}).get(name, schema.get("additionalProperties", True))


def _below(place: _Place, name: str) -> _Place | frozenset[str]:
    """Return the place of a name below another place, or the names there if it is none of them."""
    found: list[Json] = []
    known: set[str] = set()
    may_be_absent = place.may_be_absent
    for each in place.alternatives():
        can_be = kinds(each, place.definitions)
        may_be_absent |= can_be != {"object"} or name not in each.get("required", ())
        if "object" in can_be:
            known |= {*each.get("properties", {})}
            found.append(_member(each, name))
    found = [schema for schema in found if schema is not False]
    if not found:
        return frozenset(known)
    return _Place(schemas=tuple(found), definitions=place.definitions, may_be_absent=may_be_absent)


def _may_be(value: Json, schema: Json, definitions: Mapping[str, Json]) -> bool:
    return any(_fits(value, each, definitions) for each in _alternatives(schema, definitions))


def _fits(value: Json, schema: Mapping[str, Json], definitions: Mapping[str, Json]) -> bool:
    if kind_of(value) not in kinds(schema, definitions):
        return False
    if (listed := _listed(schema)) is not None:
        return canonical(value) in map(canonical, listed)
    match value:
        case Mapping():
            return value.keys() >= {*schema.get("required", ())} and all(
                _may_be(item, _member(schema, name), definitions) for name, item in value.items()
            )
        case list() | tuple() if "prefixItems" not in schema:
            items = schema.get("items", True)
            return all(_may_be(item, items, definitions) for item in value)
        case _:
            return True


def _listed(schema: Mapping[str, Json]) -> Sequence[Json] | None:
    """Return the only values that a schema accepts, if it lists them."""
    if "const" in schema:
        return [schema["const"]]
    listed = schema.get("enum")
    return listed if isinstance(listed, list) else None


def _described(place: _Place) -> str:
    listed = [_listed(each) for each in place.alternatives() if each.get("type") != "null"]
    values = [value for each in listed for value in each or ()]
    if None not in listed and 0 < len(values) <= _MOST_LISTED:
        return " or ".join(map(canonical, values))
    return in_words(place.kinds)


def _hint(value: Json, place: _Place) -> str:
    """Return a hint what to write instead, if there is one."""
    accepted = place.kinds - {"null"}
    match value:
        case Mapping() if "object" in accepted:
            return " with all that its type writes; compare single fields, by paths with dots"
        case int() | float() if not isinstance(value, bool) and place.may_be(canonical(value)):
            return f"; compare the text that its type writes, such as {canonical(canonical(value))}"
        case int() | float() | str() if accepted == {"boolean"}:
            return "; write true or false, without quotes (True or False in Python)"
        case str() if place.may_be(read := _read(value)):
            return f"; write {canonical(read)}, without quotes"
        case _:
            return ""


def _read(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _nearest(
    name: str, names: Mapping[str, Any] | frozenset[str], rest: Sequence[str], above: str = ""
) -> str:
    """Return the name that is probably meant, or all names."""
    near = get_close_matches(name.replace("_", "").lower(), _folded(names), n=1, cutoff=0.7)
    if near:
        path = ".".join(filter(None, [above, _folded(names)[near[0]], *rest]))
        return f": write {path!r}"
    if above:
        return f": it has {', '.join(map(repr, sorted(names)[:_MOST_LISTED]))}"
    return ""


def _folded(names: Mapping[str, Any] | frozenset[str]) -> dict[str, str]:
    return {name.replace("_", "").lower(): name for name in sorted(names)}
