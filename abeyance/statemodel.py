"""The author's state: a pydantic model at the border, JSON inside.

The run holds JSON values and knows nothing of pydantic. Before a node's code sees them they become an
instance of the model, and what it returns is held against the model's fields again, so that an
ill-typed value is stopped where it was made, with the name of its field. A graph without a model has
an open state: any field, and its nodes get a mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from abeyance.core.canonical import Json, canonical
from abeyance.core.model import FieldSpec
from abeyance.errors import Code, Refusal
from abeyance.reducers import Reducer

_ANY: TypeAdapter[Any] = TypeAdapter(Any)


class ValuesError(Exception):
    """Values do not fit the state; the text names the field."""


class StateModel:
    """Converts between the values of a run and the state that a node's code sees."""

    def __init__(self, model: type[BaseModel] | None) -> None:
        self.model = model
        self._fields: dict[str, TypeAdapter[Any]] = {}
        if model is not None:
            self._fields = {
                name: TypeAdapter(field.rebuild_annotation())
                for name, field in model.model_fields.items()
            }

    @property
    def is_open(self) -> bool:
        """Whether patches may add any field."""
        return self.model is None or self.model.model_config.get("extra") == "allow"

    def field_specs(self) -> dict[str, FieldSpec]:
        """The fields with their reducers. Raises ValueError for a field with two."""
        if self.model is None:
            return {}
        found: dict[str, FieldSpec] = {}
        for name, field in self.model.model_fields.items():
            marks = [mark for mark in field.metadata if isinstance(mark, Reducer)]
            if len(marks) > 1:
                message = f"the field {name!r} has {len(marks)} reducers; it can have one"
                raise ValueError(message)
            found[name] = FieldSpec(reducer=marks[0].name) if marks else FieldSpec()
        return found

    def input_schema(self) -> Json:
        """The JSON Schema of a run's input."""
        return {"type": "object"} if self.model is None else self.model.model_json_schema()

    def answer_type(self, field: str) -> Any:
        """What an answer to a field may be: the field's type, but not the None by which it says that
        there is no answer yet. None where the state has no such field.
        """
        if self.model is None or field not in self.model.model_fields:
            return None
        annotation = self.model.model_fields[field].annotation
        if get_origin(annotation) not in (Union, UnionType):
            return annotation
        parts = [part for part in get_args(annotation) if part is not NoneType]
        return reduce(or_, parts)

    def initial(self, given: Mapping[str, Any]) -> dict[str, Json]:
        """The values with which a run starts. Raises the Refusal `invalid_input`."""
        if self.model is None:
            return _plain(dict(given))
        unknown = [] if self.is_open else [n for n in given if n not in self.model.model_fields]
        errors = [
            {"pointer": f"/{name}", "message": f"the state of this graph has no field {name!r}"}
            for name in unknown
        ]
        try:
            state = self.model.model_validate(dict(given), by_alias=True, by_name=True)
        except ValidationError as error:
            errors += pointed(error)
        if errors:
            listed = "; ".join(f"{entry['pointer'] or '/'}: {entry['message']}" for entry in errors)
            raise Refusal(
                Code.INVALID_INPUT,
                f"The input does not fit the graph's state: {listed}.",
                errors=errors,
            )
        return dict(state.model_dump(mode="json"))

    def read(self, values: Mapping[str, Json]) -> Any:
        """The state that a node's code sees. Raises ValuesError."""
        if self.model is None:
            return dict(values)
        try:
            return self.model.model_validate(dict(values), by_alias=True, by_name=True)
        except ValidationError as error:
            listed = "; ".join(f"{e['pointer'] or '/'}: {e['message']}" for e in pointed(error))
            message = f"the run's values do not fit {self.model.__name__} as it is now: {listed}"
            raise ValuesError(message) from error

    def patch(self, changes: Mapping[str, Any]) -> dict[str, Json]:
        """What a node returned, as JSON. Raises ValuesError naming the field that does not fit."""
        if not all(isinstance(name, str) for name in changes):
            raise ValuesError(f"a patch maps names of fields to values; this one is {changes!r}")
        if self.model is not None and not self.is_open:
            unknown = [name for name in changes if name not in self._fields]
            if unknown:
                listed = ", ".join(map(repr, unknown))
                message = (
                    f"the patch sets {listed}, which {self.model.__name__} does not have; "
                    f"it has {', '.join(map(repr, self._fields))}"
                )
                raise ValuesError(message)
        return {name: self._dumped(name, value) for name, value in changes.items()}

    def _dumped(self, name: str, value: Any) -> Json:
        adapter = self._fields.get(name, _ANY)
        try:
            dumped = adapter.dump_python(adapter.validate_python(value), mode="json")
            canonical(dumped)
        except ValidationError as error:
            listed = "; ".join(f"{name}{e['pointer']}: {e['message']}" for e in pointed(error))
            raise ValuesError(f"the patch does not fit the state: {listed}") from error
        except (PydanticSerializationError, TypeError, ValueError) as error:
            message = f"the value of {name!r} in the patch cannot be written as JSON: {error}"
            raise ValuesError(message) from error
        return dumped


def pointed(error: ValidationError) -> list[dict[str, str]]:
    """The faults that pydantic found, each with a JSON pointer to its place."""
    return [
        {
            "pointer": "".join(f"/{part}" for part in entry["loc"]),
            "message": entry["msg"],
        }
        for entry in error.errors(include_url=False, include_context=False, include_input=False)
    ]


def _plain(values: dict[str, Any]) -> dict[str, Json]:
    try:
        dumped = _ANY.dump_python(values, mode="json")
        canonical(dumped)
    except (PydanticSerializationError, TypeError, ValueError) as error:
        raise Refusal(
            Code.INVALID_INPUT, f"The input cannot be written as JSON: {error}.", errors=[]
        ) from error
    return dict(dumped)
