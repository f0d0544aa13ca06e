"""Conversion between the author's state, a pydantic model, and the JSON values of a run.

A run holds JSON values only. A node gets them as an instance of the model, and its patch is validated
against the fields of the model, so that a wrong value fails the node that returned it, with the name of
the field. A field is kept under its own name, and an alias of it is accepted as input only; inside a
field, its type writes aliases, as people do in their answers. A graph without a model has an open state:
any field is allowed, and its nodes get a mapping.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from itertools import chain
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo

from abeyance.core import spec
from abeyance.core.json import Json, canonical, why_not_json
from abeyance.core.spec import FieldSpec
from abeyance.errors import Code, Refusal
from abeyance.schemas import answer_types
from abeyance.schemas.faults import MOST_FAULTS, at_pointer
from abeyance.schemas.json_schema import AnswerSchema, escaped, schema_of
from abeyance.schemas.json_types import ALL, ANY, CONFIG, kinds


@dataclass(frozen=True, slots=True)
class Reducer:
    """The reducer of a state field, as an annotation: `Annotated[list[str], append]`."""

    name: spec.Reducer


append: Final = Reducer("append")
"""Append the items of a list."""

merge: Final = Reducer("merge")
"""Update a mapping key by key."""

add: Final = Reducer("add")
"""Add a number."""

union: Final = Reducer("union")
"""Add the items of a list that are not there yet, in their order."""

FromStart: Final = Reducer("start")
"""Keep what the start of the run has set: neither code nor a person changes the field."""


class ValuesError(Exception):
    """Values do not match the state. The message names the field; `errors` have JSON pointers."""

    def __init__(self, message: str, errors: Iterable[Mapping[str, str]] = ()) -> None:
        self.errors = [dict(error) for error in errors]
        super().__init__(message)

    def refusal(self) -> Refusal:
        """Return the refusal of a request with these values."""
        return Refusal(Code.INVALID_INPUT, f"{self}.", errors=self.errors)


class StateModel:
    """Converts between the values of a run and the state of a node. None is an open state."""

    def __init__(self, model: type[BaseModel] | None) -> None:
        is_model = isinstance(model, type) and issubclass(model, BaseModel)
        self.model = model if is_model else None
        self.declared = model

    @property
    def is_open(self) -> bool:
        """True if patches may add any field."""
        return self.model is None or self.model.model_config.get("extra") == "allow"

    @property
    def fields(self) -> Mapping[str, FieldInfo]:
        if self.model is None:
            return {}
        # A field may refer to a class that was defined after the model.
        self.model.model_rebuild(raise_errors=False)
        return self.model.model_fields

    def field_specs(self) -> dict[str, FieldSpec]:
        """Return the reducer and the allowed kinds of JSON of each field."""
        return {name: self._field_spec(name) for name in self.fields}

    def _field_spec(self, name: str) -> FieldSpec:
        found = reducers_of(self.fields[name])
        reducer = found[0].name if found else "last"
        try:
            # Both modes: patches are validated, and the values of a run are serialized.
            known = kinds(self._patches[name].json_schema(mode="validation"))
            known |= kinds(self._patches[name].json_schema(mode="serialization"))
        except (PydanticUserError, PydanticUndefinedAnnotation):
            # The graph reports this error itself.
            known = ALL
        return FieldSpec(
            reducer=reducer,
            kinds=() if known == ALL else tuple(sorted(known)),
            rewrites=self.rewrites(name),
        )

    def input_schema(self) -> Json:
        """Return the JSON Schema of a run's input."""
        if self.model is None:
            return {"type": "object"}
        return self.model.model_json_schema(schema_generator=_InputSchema)

    def answer_type(self, field: str) -> Any:
        """Return the type of an answer to a field, or None if there is no such field.

        It is the type of the field without None, which means that there is no answer yet.
        """
        found = self.fields.get(field)
        if found is None:
            return None
        type_ = found.annotation
        if get_origin(type_) in (Union, UnionType):
            type_ = reduce(or_, (part for part in get_args(type_) if part is not NoneType))
        # With a reducer, the constraints apply to the merged value, not to the answer.
        if not found.metadata or reducers_of(found):
            return type_
        return Annotated[type_, *found.metadata]

    def patch_type(self, field: str) -> Any:
        """Return the type of a patch of a field; without the field's constraints if it has a reducer."""
        found = self.fields[field]
        return found.annotation if reducers_of(found) else found.rebuild_annotation()

    def field_schema(self, name: str) -> Json:
        """Return the JSON Schema of a patch of a field, or None if it is unknown."""
        if name not in self.fields:
            return None
        try:
            return schema_of(self.patch_type(name))
        except ValueError:
            return None

    def is_read_only(self, name: str) -> bool:
        """Return whether only the graph sets a field, and no input: JSON Schema's `readOnly`."""
        return name in self._read_only

    @cached_property
    def _read_only(self) -> frozenset[str]:
        if self.model is None:
            return frozenset()
        try:
            properties = self.model.model_json_schema(by_alias=False).get("properties", {})
        except (PydanticUserError, PydanticUndefinedAnnotation):
            # The graph reports this error itself.
            return frozenset()
        return frozenset(name for name, schema in properties.items() if schema.get("readOnly"))

    def initial(self, given: Mapping[str, Any] | BaseModel) -> dict[str, Json]:
        """Return the initial values of a run, from a mapping or an instance of the model.

        Raise the Refusal `invalid_input`.
        """
        try:
            given = to_mapping(given)
            if self.model is None:
                return self._open_patch(given)
            self._refuse_read_only(given)
            return self._validated(self.model, given)
        except ValuesError as error:
            raise Refusal(
                Code.INVALID_INPUT,
                f"The input does not match the graph's state: {error}.",
                errors=error.errors,
            ) from error

    def _refuse_read_only(self, given: Mapping[str, Any]) -> None:
        names = [name for name in given if isinstance(name, str) and self.is_read_only(name)]
        message = "is read-only: leave it out, the graph sets it"
        if names:
            raise ValuesError(
                f"/{names[0]}: {message}",
                [{"pointer": f"/{name}", "message": message} for name in names],
            )

    def defaults(self, given: Iterable[str]) -> tuple[dict[str, Json], list[str]]:
        """Return the defaults of the fields not in `given`, and the names of required ones among them."""
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
        """Return a new state for a node. Raise ValuesError if the values do not match the model."""
        fresh = json.loads(json.dumps(dict(values)))
        if self.model is None:
            return fresh
        try:
            # Not strict: a date is a string in JSON, even if the model is strict.
            return self.model.model_validate(fresh, strict=False, by_alias=True, by_name=True)
        except ValidationError as error:
            errors = at_pointer(error, fresh)
            message = (
                f"the run's values do not match the current {self.model.__name__}: "
                f"{_joined(errors)}"
            )
            raise ValuesError(message, errors) from error

    def patch(self, changes: Mapping[str, Any]) -> dict[str, Json]:
        """Return the patch of a node as JSON. Raise ValuesError, which names the wrong field."""
        if self.model is None:
            return self._open_patch(changes)
        self._refuse_odd_names(changes)
        unknown = [name for name in changes if name not in self.fields]
        if unknown and not self.is_open:
            message = (
                f"the patch sets {', '.join(map(repr, unknown[:MOST_FAULTS]))}, which "
                f"{self.model.__name__} does not have; it has {', '.join(map(repr, self.fields))}"
            )
            raise ValuesError(message, [_unknown(name) for name in unknown[:MOST_FAULTS]])
        return {name: self._patched(name, value) for name, value in changes.items()}

    def edited(self, before: Mapping[str, Json], changes: Mapping[str, Json]) -> dict[str, Json]:
        """Return fields that a person sets as their types write them; what is as it was `before`, and
        what the model does not declare, as it is. Raise ValuesError.
        """
        made, errors = {**changes}, list[Mapping[str, str]]()
        for name, adapter in self.adapters.items():
            if name in changes and (name not in before or before[name] != changes[name]):
                try:
                    made[name] = self._as_written(name, adapter, changes[name])
                except ValuesError as error:
                    errors += error.errors
        if errors:
            raise ValuesError(_joined(errors), errors)
        return made

    def edit(self, changes: Mapping[str, Any]) -> dict[str, Json]:
        """Return the new values of fields that a person sets, from Python values or JSON. Raise
        ValuesError.
        """
        try:
            made = self.patch(changes)
        except ValuesError:
            is_known = changes.keys() <= self.fields.keys()
            if not is_known or why_not_json(changes) is not None:
                raise
            return self.edited({}, changes)
        self.check_merged(made, made)
        return made

    def answered(self, name: str, answer: Json, merged: Callable[[Json], Json]) -> Json:
        """Return an answer as the field that it is written to writes it. Raise ValuesError.

        `merged` returns the value of the field after an answer.
        """
        if name not in self.fields:
            return answer
        made = self.written_patch(name, answer)
        if reducers_of(self.fields[name]):
            self._as_written(name, self.adapters[name], merged(made))
        return made

    def written_patch(self, name: str | None, value: Json) -> Json:
        """Return a patch of a field, from JSON, as its type writes it; unchanged if there is no such
        field. Raise ValuesError.
        """
        adapter = None if name is None else self._patches.get(name)
        return value if adapter is None else self._as_written(str(name), adapter, value)

    def rewrites(self, name: str) -> bool:
        """Return whether what a field's type writes can differ from what people send."""
        return name in self.fields and answer_types.rewrites(self.patch_type(name))

    def _as_written(self, name: str, adapter: TypeAdapter[Any], value: Json) -> Json:
        with _misfits(name, value, ""):
            # As JSON: a strict model then accepts a date as a text.
            typed = adapter.validate_json(json.dumps(value), by_alias=True, by_name=True)
        return _kept(name, adapter, typed)

    def check_merged(self, values: Mapping[str, Json], patch: Mapping[str, Json]) -> None:
        """Raise ValuesError if a reducer produced a value that its field does not allow."""
        for name in patch:
            field = self.fields.get(name)
            if field is not None and reducers_of(field):
                self._checked(name, self.adapters[name], values[name], strict=False)

    @cached_property
    def adapters(self) -> dict[str, TypeAdapter[Any]]:
        """The type adapters of the fields, with all constraints."""
        return {
            name: self._adapter(field.rebuild_annotation()) for name, field in self.fields.items()
        }

    @cached_property
    def _patches(self) -> dict[str, TypeAdapter[Any]]:
        """The type adapters of patches: without constraints if a field has a reducer."""
        return {
            name: self._adapter(self.patch_type(name))
            if reducers_of(field)
            else self.adapters[name]
            for name, field in self.fields.items()
        }

    def _adapter(self, annotation: Any) -> TypeAdapter[Any]:
        config = self.model.model_config if self.model is not None else ConfigDict()
        return answer_types.new_adapter(annotation, ConfigDict(**{**config, **CONFIG}))

    def _validated(self, model: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Json]:
        unknown = [] if self.is_open else sorted(set(given) - set(self._names()), key=str)
        errors = [_unknown(name) for name in unknown]
        places = {error["pointer"] for error in errors}
        try:
            state = _instance(model, given)
        except ValidationError as error:
            errors += [e for e in at_pointer(error, given) if e["pointer"] not in places]
        if errors:
            raise ValuesError(_joined(errors[:MOST_FAULTS]), errors[:MOST_FAULTS])
        values = {
            # A default is not a value of the type before it is read.
            name: (_kept if name in state.model_fields_set else _written)(
                name, adapter, getattr(state, name)
            )
            for name, adapter in self.adapters.items()
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
            message = f"the name of a field must be a string, not {odd[0]!r}"
            raise ValuesError(message, [{"pointer": "", "message": message}])

    def _patched(self, name: str, value: Any) -> Json:
        adapter = self._patches.get(name)
        if adapter is None:
            return _open_value(name, value)
        return _kept(name, adapter, self._checked(name, adapter, value))

    def _checked(
        self, name: str, adapter: TypeAdapter[Any], value: Any, *, strict: bool | None = None
    ) -> Any:
        with _misfits(name, value, "the patch does not match the state: "):
            return adapter.validate_python(value, strict=strict, by_alias=True, by_name=True)


@contextmanager
def _misfits(name: str, value: Any, before: str) -> Iterator[None]:
    """Raise pydantic's errors in the value of a field as a ValuesError, whose message begins so."""
    try:
        yield
    except ValidationError as error:
        errors = [
            {**entry, "pointer": f"/{escaped(name)}{entry['pointer']}"}
            for entry in at_pointer(error, value)
        ]
        raise ValuesError(f"{before}{_joined(errors)}", errors) from error


def to_mapping(given: Mapping[str, Any] | BaseModel) -> Mapping[str, Any]:
    """Return the fields of a model or mapping by name. Raise ValuesError for anything else."""
    if isinstance(given, BaseModel):
        # Keep defaults unset: a default factory may create a new value for each run.
        return {name: getattr(given, name) for name in given.model_fields_set}
    if not isinstance(given, Mapping):
        message = f"it must be a mapping of fields to values, not a {type(given).__name__}"
        raise ValuesError(message, [{"pointer": "", "message": message}])
    return given


class _InputSchema(AnswerSchema):
    """Generates the same schema in every process: the order of a set differs between processes."""

    def encode_default(self, dft: Any) -> Any:
        encoded = super().encode_default(dft)
        return sorted(encoded, key=canonical) if isinstance(dft, set | frozenset) else encoded


def _instance(model: type[BaseModel], given: Mapping[str, Any]) -> BaseModel:
    try:
        return model.model_validate(dict(given), by_alias=True, by_name=True)
    except ValidationError:
        if why_not_json(given) is not None:
            raise
    # Read JSON as JSON: a strict model then accepts a date as a string.
    return model.model_validate_json(json.dumps(dict(given)), by_alias=True, by_name=True)


def _written(
    name: str, adapter: TypeAdapter[Any], value: Any, *, is_read_anew: bool = False
) -> Json:
    try:
        made = answer_types.dumped(adapter, value)
        if is_read_anew:
            answer_types.refuse_unsteady(adapter, value, made)
        return made
    except ValueError as error:
        message = f"the value of {name!r} cannot be kept as JSON: {error}"
        raise ValuesError(
            message, [{"pointer": f"/{escaped(name)}", "message": str(error)}]
        ) from error


_kept: Final = partial(_written, is_read_anew=True)
"""Returns the JSON of a value that each node reads anew, or raises ValuesError."""


def _open_value(name: str, value: Any) -> Json:
    written = _written(name, ANY, value)
    for key in _odd_keys(value):
        message = f"the value of {name!r} has the key {key!r}: use strings as keys, as in JSON"
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
    """Return the reducers of a field."""
    return [mark for mark in field.metadata if isinstance(mark, Reducer)]


def _first(alias: str | AliasPath) -> str:
    return alias if isinstance(alias, str) else str(alias.path[0])


def _unknown(name: Any) -> dict[str, str]:
    message = f"the state of this graph has no field {name!r}"
    return {"pointer": f"/{escaped(str(name))}", "message": message}


def _joined(errors: Iterable[Mapping[str, str]]) -> str:
    return "; ".join(f"{entry['pointer'] or '/'}: {entry['message']}" for entry in errors)
