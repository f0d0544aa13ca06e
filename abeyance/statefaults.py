"""What is wrong with the model of a graph's state, in sentences for its author."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from abeyance.core.canonical import Json
from abeyance.statemodel import StateModel, reducers_of

_REDUCED: Final = {
    "append": {"array"},
    "union": {"array"},
    "merge": {"object"},
    "add": {"integer", "number"},
}
"""What sort of JSON a reducer works on."""


def faults_of(states: StateModel) -> list[str]:
    """Every fault of the model; empty if runs may use it."""
    model = states.model
    if model is None:
        return [] if states.given is None else [f"the state {states.given!r} is no pydantic model"]
    try:
        model.model_rebuild()
        states.input_schema()
        return [fault for name in states.fields for fault in _field_faults(states, name)]
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        return [f"the state {model.__name__} cannot be used: {error.message}"]


def _field_faults(states: StateModel, name: str) -> Iterator[str]:
    written = states.adapters[name].json_schema(mode="serialization")
    reducers = reducers_of(states.fields[name])
    if len(reducers) > 1:
        yield f"the field {name!r} has {len(reducers)} reducers; it can have one"
    for reducer in reducers[:1]:
        kinds, wanted = _kinds(written, written.get("$defs", {})), _REDUCED.get(reducer.name)
        if kinds and wanted is not None and not kinds & wanted:
            yield (
                f"the field {name!r} merges by {reducer.name!r}, which works on {_listed(wanted)}, "
                f"but its JSON is {_listed(kinds)}"
            )
    if '"writeOnly": true' in json.dumps(written):
        yield (
            f"the field {name!r} holds a secret, and values are written into the run's history: keep "
            "there what the secret is called, and look it up in the node"
        )


def _kinds(schema: Json, definitions: Json) -> set[str]:
    """Of which sorts what fits a schema is, but for null; empty if the schema does not say."""
    match schema:
        case {"$ref": str() as reference}:
            return _kinds(definitions.get(reference.rpartition("/")[2]), definitions)
        case {"anyOf": parts} | {"oneOf": parts}:
            found = [_kinds(part, definitions) for part in parts if part != {"type": "null"}]
            return set().union(*found) if all(found) else set()
        case {"type": str() as kind}:
            return {kind}
        case _:
            return set()


def _listed(names: Iterable[str]) -> str:
    return " or ".join(sorted(names))
