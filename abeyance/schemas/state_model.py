"""The author's state: a pydantic model at the border, JSON inside.

The run holds JSON values and knows nothing of pydantic. Before a node's code sees them they become an
instance of the model, and what it returns is held against the model's fields again, so that an
ill-typed value is stopped where it was made, with the name of its field. A field is written as its
type says, and by its own name: an alias is one more name by which it may come in. A graph without a
model has an open state: any field, and its nodes get a mapping.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import chain
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError

from abeyance import wire
from abeyance.core import spec
from abeyance.core.json import Json, canonical, why_not_json
from abeyance.core.spec import FieldSpec
from abeyance.errors import Code, Refusal
from abeyance.schemas.json_schema import escaped, schema_of
from abeyance.schemas.json_types import ALL, kinds


@dataclass(frozen=True, slots=True)
class Reducer:
    """A mark on a field of the state."""

    name: spec.Reducer


append: Final = Reducer("append")
"""Extend a list by a list."""

merge: Final = Reducer("merge")
"""Update a mapping."""

add: Final = Reducer("add")
"""Sum numbers."""

union: Final = Reducer("union")
"""Keep the distinct items of lists, in the order in which they first came."""


# Otherwise pydantic writes NaN as null, and nobody would hear of it.
_CONFIG: Final = ConfigDict(ser_json_inf_nan="constants")
_ANY: Final[TypeAdapter[Any]] = TypeAdapter(Any, config=_CONFIG)
_MOST_ERRORS: Final = 20


class ValuesError(Exception):
    """Values do not fit the state; the text names the field, and `errors` point to the places."""

    def __init__(self, message: str, errors: Iterable[Mapping[str, str]] = ()) -> None:
        self.errors = [dict(error) for error in errors]
        super().__init__(message)


class StateModel:
    """Converts between the values of a run and the state that a node's code sees."""

    def __init__(self, model: type[BaseModel] | None) -> None:
        is_model = isinstance(model, type) and issubclass(model, BaseModel)
        self.model = model if is_model else None
        self.declared = model

    @property
    def is_open(self) -> bool:
        """Whether patches may add any field."""
        return self.model is None or self.model.model_config.get("extra") == "allow"

    @property
    def fields(self) -> Mapping[str, FieldInfo]:
        """The fields of the model."""
        if self.model is None:
            return {}
        # What a field refers to may have been defined after the model was.
        self.model.model_rebuild(raise_errors=False)
        return self.model.model_fields

    def field_specs(self) -> dict[str, FieldSpec]:
        """The fields with their reducers, and of which kinds of JSON what is put to them may be."""
        return {name: self._field_spec(name) for name in self.fields}

    def _field_spec(self, name: str) -> FieldSpec:
        found = reducers_of(self.fields[name])
        reducer = found[0].name if found else "last"
        try:
            # Both ways: code is held against what it gives, and a run against what is written of that.
            known = kinds(self._patches[name].json_schema(mode="validation"))
            known |= kinds(self._patches[name].json_schema(mode="serialization"))
        except (PydanticUserError, PydanticUndefinedAnnotation):
            # It is told as a fault of the graph.
            known = ALL
        return FieldSpec(reducer=reducer, kinds=() if known == ALL else tuple(sorted(known)))

    def input_schema(self) -> Json:
        """The JSON Schema of a run's input."""
        if self.model is None:
            return {"type": "object"}
        return self.model.model_json_schema(schema_generator=_InputSchema)

    def answer_type(self, field: str) -> Any:
        """What an answer to a field may be: the field's type, but not the None by which it says that
        there is no answer yet. None where the state has no such field.
        """
        found = self.fields.get(field)
        if found is None:
            return None
        type_ = found.annotation
        if get_origin(type_) in (Union, UnionType):
            type_ = reduce(or_, (part for part in get_args(type_) if part is not NoneType))
        # A reducer's answer is what is put to the field: the field's bounds are not for it.
        if not found.metadata or reducers_of(found):
            return type_
        return Annotated[type_, *found.metadata]

    def patch_type(self, field: str) -> Any:
        """What a patch may set a field to: of one with a reducer what is put to it, without bounds."""
        found = self.fields[field]
        return found.annotation if reducers_of(found) else found.rebuild_annotation()

    def field_schema(self, name: str) -> Json:
        """Return the JSON Schema of what a patch may set a field to; None if it is unknown."""
        if name not in self.fields:
            return None
        try:
            return schema_of(self.patch_type(name))
        except ValueError:
            return None

    def initial(self, given: Mapping[str, Any] | BaseModel) -> dict[str, Json]:
        """The values with which a run starts, from a mapping or the author's own state. Raises the
        Refusal `invalid_input`.
        """
        try:
            given = to_mapping(given)
            if self.model is None:
                return self._open_patch(given)
            return self._validated(self.model, given)
        except ValuesError as error:
            raise Refusal(
                Code.INVALID_INPUT,
                f"The input does not fit the graph's state: {error}.",
                errors=error.errors,
            ) from error

    def defaults(self, given: Iterable[str]) -> tuple[dict[str, Json], list[str]]:
        """The values of the fields that nobody gives, and the names of those that have none."""
        given = set(given)
        found: dict[str, Json] = {}
        missing: list[str] = []
        for name, field in self.fields.items():
            if name in given:
                continue
            if field.is_required():
                missing.append(name)
                continue
            default = field.get_default(call_default_factory=True, validated_data={})
            found[name] = _written(name, self.adapters[name], default)
        return found, missing

    def read(self, values: Mapping[str, Json]) -> Any:
        """The state that a node's code sees, all its own. Raises ValuesError."""
        fresh = json.loads(json.dumps(dict(values)))
        if self.model is None:
            return fresh
        try:
            # Not strict: a date is text in JSON, also where its author would not take text for one.
            return self.model.model_validate(fresh, strict=False, by_alias=True, by_name=True)
        except ValidationError as error:
            errors = at_pointer(error, fresh)
            message = (
                f"the run's values do not fit {self.model.__name__} as it is now: {_told(errors)}"
            )
            raise ValuesError(message, errors) from error

    def patch(self, changes: Mapping[str, Any]) -> dict[str, Json]:
        """What a node returned, as JSON. Raises ValuesError naming the field that does not fit."""
        if self.model is None:
            return self._open_patch(changes)
        self._refuse_odd_names(changes)
        unknown = [name for name in changes if name not in self.fields]
        if unknown and not self.is_open:
            message = (
                f"the patch sets {', '.join(map(repr, unknown[:_MOST_ERRORS]))}, which "
                f"{self.model.__name__} does not have; it has {', '.join(map(repr, self.fields))}"
            )
            raise ValuesError(message, [_unknown(name) for name in unknown[:_MOST_ERRORS]])
        return {name: self._patched(name, value) for name, value in changes.items()}

    def check_merged(self, values: Mapping[str, Json], patch: Mapping[str, Json]) -> None:
        """Raise ValuesError if a reducer has made of a patch what its field does not allow."""
        for name in patch:
            field = self.fields.get(name)
            if field is not None and reducers_of(field):
                self._checked(name, self.adapters[name], values[name], strict=False)

    @cached_property
    def adapters(self) -> dict[str, TypeAdapter[Any]]:
        """The fields with all their bounds."""
        return {
            name: self._adapter(field.rebuild_annotation()) for name, field in self.fields.items()
        }

    @cached_property
    def _patches(self) -> dict[str, TypeAdapter[Any]]:
        """What a patch may set: of a field with a reducer what is put to it, which has no bounds."""
        return {
            name: self._adapter(self.patch_type(name))
            if reducers_of(field)
            else self.adapters[name]
            for name, field in self.fields.items()
        }

    def _adapter(self, annotation: Any) -> TypeAdapter[Any]:
        config = self.model.model_config if self.model is not None else ConfigDict()
        try:
            return TypeAdapter(annotation, config=ConfigDict(**{**config, **_CONFIG}))
        except PydanticUserError as error:
            if error.code != "type-adapter-config-unused":
                raise
            # The field is itself a model, which has a config of its own.
            return TypeAdapter(annotation)

    def _validated(self, model: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Json]:
        unknown = [] if self.is_open else sorted(set(given) - set(self._names()), key=str)
        errors = [_unknown(name) for name in unknown]
        places = {error["pointer"] for error in errors}
        try:
            state = _instance(model, given)
        except ValidationError as error:
            errors += [e for e in at_pointer(error, given) if e["pointer"] not in places]
        if errors:
            raise ValuesError(_told(errors[:_MOST_ERRORS]), errors[:_MOST_ERRORS])
        values = {
            name: _written(name, self.adapters[name], getattr(state, name))
            for name in self.adapters
        }
        extra = state.model_extra or {}
        return {**values, **self._open_patch(extra)}

    def _names(self) -> Iterator[str]:
        for name, field in self.fields.items():
            yield name
            match field.validation_alias:
                case str() as alias:
                    yield alias
                case AliasChoices(choices=choices):
                    yield from (_first(choice) for choice in choices)
                case AliasPath() as path:
                    yield _first(path)
                case None:
                    pass

    def _open_patch(self, changes: Mapping[str, Any]) -> dict[str, Json]:
        self._refuse_odd_names(changes)
        return {name: _open_value(name, value) for name, value in changes.items()}

    def _refuse_odd_names(self, changes: Mapping[Any, Any]) -> None:
        odd = [name for name in changes if not isinstance(name, str)]
        if odd:
            message = f"fields have names, which are texts; {odd[0]!r} is none"
            raise ValuesError(message, [{"pointer": "", "message": message}])

    def _patched(self, name: str, value: Any) -> Json:
        adapter = self._patches.get(name)
        if adapter is None:
            return _open_value(name, value)
        return _written(name, adapter, self._checked(name, adapter, value))

    def _checked(
        self, name: str, adapter: TypeAdapter[Any], value: Any, *, strict: bool | None = None
    ) -> Any:
        try:
            return adapter.validate_python(value, strict=strict, by_alias=True, by_name=True)
        except ValidationError as error:
            errors = [
                {**entry, "pointer": f"/{escaped(name)}{entry['pointer']}"}
                for entry in at_pointer(error, value)
            ]
            raise ValuesError(
                f"the patch does not fit the state: {_told(errors)}", errors
            ) from error


def to_mapping(given: Mapping[str, Any] | BaseModel) -> Mapping[str, Any]:
    """Fields by their names. Raises ValuesError for what has none."""
    if isinstance(given, BaseModel):
        # What was left to its default is left to it again: it may be made anew for each run.
        return {name: getattr(given, name) for name in given.model_fields_set}
    if not isinstance(given, Mapping):
        message = f"it is a {type(given).__name__}, and has to be a mapping of fields to values"
        raise ValuesError(message, [{"pointer": "", "message": message}])
    return given


class _InputSchema(GenerateJsonSchema):
    """A schema that is the same in every process: the order of a set is not."""

    def encode_default(self, dft: Any) -> Any:
        encoded = super().encode_default(dft)
        return sorted(encoded, key=canonical) if isinstance(dft, set | frozenset) else encoded


def at_pointer(error: ValidationError, given: Any = None) -> list[dict[str, str]]:
    """The faults that pydantic found, each with a JSON pointer to its place in what was given."""
    return [
        {"pointer": pointer(entry["loc"], entry["type"], given), "message": entry["msg"]}
        for entry in error.errors(include_url=False, include_context=False, include_input=False)[
            :_MOST_ERRORS
        ]
    ]


def pointer(place: Sequence[int | str], type_: str, given: Any = None) -> str:
    """A JSON pointer to where pydantic found a fault of this type in what was given."""
    parts: list[str] = []
    here = given
    for number, part in enumerate(place, 1):
        match here:
            case Mapping() if part in here:
                here = here[part]
            case list() | tuple() if isinstance(part, int) and part < len(here):
                here = here[part]
            case None:
                pass
            case _ if type_ == "missing" and number == len(place):
                pass
            case _:
                # Pydantic also says which member of a union it tried: no place in what was given.
                continue
        parts.append(f"/{escaped(str(part))}")
    return "".join(parts)


def _instance(model: type[BaseModel], given: Mapping[str, Any]) -> BaseModel:
    try:
        return model.model_validate(dict(given), by_alias=True, by_name=True)
    except ValidationError:
        if why_not_json(given) is not None:
            raise
    # What came as JSON is read as JSON: a strict model then takes a date that is text.
    return model.model_validate_json(json.dumps(dict(given)), by_alias=True, by_name=True)


def _written(name: str, adapter: TypeAdapter[Any], value: Any) -> Json:
    try:
        dumped = adapter.dump_python(value, mode="json", by_alias=False, round_trip=True)
        wire.refuse_too_deep(dumped)
        fault = why_not_json(dumped)
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        fault = str(error)
    if fault is not None:
        message = f"the value of {name!r} cannot be written as JSON: {fault}"
        raise ValuesError(message, [{"pointer": f"/{escaped(name)}", "message": fault}])
    # A set has another order in every process, and values are compared.
    return sorted(dumped, key=canonical) if isinstance(value, set | frozenset) else dumped


def _open_value(name: str, value: Any) -> Json:
    written = _written(name, _ANY, value)
    for key in _odd_keys(value):
        message = f"the value of {name!r} has the key {key!r}; in JSON a key is text"
        raise ValuesError(message, [{"pointer": f"/{escaped(name)}", "message": message}])
    return written


def _odd_keys(value: Any) -> Iterator[Any]:
    match value:
        case Mapping():
            yield from (key for key in value if not isinstance(key, str))
            yield from chain.from_iterable(map(_odd_keys, value.values()))
        case list() | tuple():
            yield from chain.from_iterable(map(_odd_keys, value))
        case _:
            pass


def reducers_of(field: FieldInfo) -> list[Reducer]:
    """The reducers that a field was marked with."""
    return [mark for mark in field.metadata if isinstance(mark, Reducer)]


def _first(alias: str | AliasPath) -> str:
    return alias if isinstance(alias, str) else str(alias.path[0])


def _unknown(name: Any) -> dict[str, str]:
    message = f"the state of this graph has no field {name!r}"
    return {"pointer": f"/{escaped(str(name))}", "message": message}


def _told(errors: Iterable[Mapping[str, str]]) -> str:
    return "; ".join(f"{entry['pointer'] or '/'}: {entry['message']}" for entry in errors)
