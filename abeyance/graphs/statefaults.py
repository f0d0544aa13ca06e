"""What is wrong with the model of a graph's state, in sentences for its author."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Final

from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from abeyance.values.kinds import Kinds, in_words, kinds
from abeyance.values.schema import places_fault
from abeyance.values.statemodel import StateModel, reducers_of

_REDUCED: Final[dict[str, Kinds]] = {
    "append": frozenset({"array"}),
    "union": frozenset({"array"}),
    "merge": frozenset({"object"}),
    "add": frozenset({"integer", "number"}),
}
"""What sort of JSON a reducer works on."""


def faults_of(states: StateModel) -> list[str]:
    """Every fault of the model; empty if runs may use it."""
    model = states.model
    if model is None:
        return [] if states.given is None else [f"the state {states.given!r} is no pydantic model"]
    try:
        model.model_rebuild()
        if (fault := places_fault(states.input_schema())) is not None:
            return [
                f"the state {model.__name__} has a schema of which no question can be made: {fault}"
            ]
        return [fault for name in states.fields for fault in _field_faults(states, name)]
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        return [f"the state {model.__name__} cannot be used: {error.message}"]


def _field_faults(states: StateModel, name: str) -> Iterator[str]:
    written = states.adapters[name].json_schema(mode="serialization")
    reducers = reducers_of(states.fields[name])
    if len(reducers) > 1:
        yield f"the field {name!r} has {len(reducers)} reducers; it can have one"
    for reducer in reducers[:1]:
        found, wanted = kinds(written) - {"null"}, _REDUCED.get(reducer.name)
        if wanted is not None and not found & wanted:
            yield (
                f"the field {name!r} merges by {reducer.name!r}, which works on {in_words(wanted)}, "
                f"but its JSON is {in_words(found)}"
            )
    for mark in filter(inspect.isroutine, states.fields[name].metadata):
        yield (
            f"the field {name!r} is marked with the function {mark.__name__!r}, by which nothing merges: "
            "there are append, merge, add and union of abeyance"
        )
    if '"writeOnly": true' in json.dumps(written):
        yield (
            f"the field {name!r} holds a secret, and values are written into the run's history: keep "
            "there what the secret is called, and look it up in the node"
        )
