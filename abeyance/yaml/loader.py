"""`load("triage.yaml")` returns the graph that a YAML file declares.

A document names code (`module:function`), and loading imports it: load only files that you trust.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from abeyance.authoring.graph import Graph
from abeyance.core.json import Json
from abeyance.errors import GraphError
from abeyance.util import ImportStringError
from abeyance.yaml import source
from abeyance.yaml.builder import Declaration, Item, Opener
from abeyance.yaml.schema import GraphForm, NodeForm, RuleForm, WayForm
from abeyance.yaml.source import Document, Faults, Place

_PARTS: Final[dict[str, TypeAdapter[Any]]] = {
    "nodes": TypeAdapter(NodeForm),
    "edges": TypeAdapter(WayForm),
    "rules": TypeAdapter(RuleForm),
}


def load(path: str | os.PathLike[str]) -> Graph:
    """Load the graph in a YAML file, and build it. Its name is its `id`, else that of the file.

    Raise OSError if the file cannot be read, and GraphError with all faults, each with its line.
    Modules are also imported from the current directory. Paths of nested graphs are relative to the
    document that names them.
    """
    return _loaded(Path(path), ())


def _loaded(file: Path, around: tuple[Path, ...]) -> Graph:
    """Load the graph in a file that is nested in the documents `around` it."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise GraphError(str(file), [f"line {line}: not UTF-8: {error.reason}"]) from error
    document = source.read(text)
    faults = Faults(document)
    graph = None
    within = (*around, file.resolve())

    def opener(path: str) -> Graph:
        inner = file.parent / path
        if inner.resolve() in within:
            raise ImportStringError(f"{path!r} contains this document: remove the cycle")
        try:
            return _loaded(inner, within)
        except OSError as error:
            message = f"the file {path!r} cannot be read: {error.strerror or error}"
            raise ImportStringError(message) from error

    if isinstance(document.data, dict):
        graph = _declared(document, faults, file.stem, opener)
    elif not document.faults:
        faults.note((), "the document is not a mapping: write at least the key 'nodes'")
    if graph is None or faults.listed():
        raise GraphError(str(file), faults.listed())
    return graph


def _declared(document: Document, faults: Faults, name: str, opener: Opener) -> Graph:
    data = document.data
    head = _head(document, faults)
    declaration = Declaration(head, faults, name if head.id is None else head.id, opener)
    for item in _items(document, "nodes", faults):
        declaration.node(item)
    for item in _items(document, "edges", faults):
        declaration.edge(item)
    for item in _items(document, "rules", faults):
        declaration.rule(item)
    if data.get("edges") is None:
        declaration.in_order()
    return declaration.graph()


def _head(document: Document, faults: Faults) -> GraphForm:
    """Parse everything but the lists. Keys with faults are left out."""
    data = document.data
    head = {key: [] if key in _PARTS and isinstance(data[key], list) else data[key] for key in data}
    try:
        return GraphForm.model_validate(head)
    except ValidationError as error:
        faults.misfits(error, ())
        wrong = {entry["loc"][0] for entry in error.errors()}
        fitting = {key: value for key, value in head.items() if key not in wrong}
        state = _state_of(head, error)
    if wrong & _PARTS.keys():
        faults.lost(node="nodes" in wrong)
    return GraphForm.model_validate({"nodes": [], **state, **fitting})


def _state_of(head: dict[str, Json], error: ValidationError) -> dict[str, Json]:
    """Return the fields of the state, with the type `any` where a type is invalid."""
    state = head.get("state")
    fields = dict(state) if isinstance(state, dict) else {}
    places = [entry["loc"] for entry in error.errors() if entry["loc"][0] == "state"]
    for place in places:
        fields.update(dict.fromkeys(place[2:3], "any"))
    for place in places:
        if place[-1] == "[key]":
            fields.pop(place[2], None)
    return {"state": fields} if fields else {}


def _items(document: Document, part: str, faults: Faults) -> Iterator[Item]:
    listed = document.data.get(part)
    for number, value in enumerate(listed if isinstance(listed, list) else []):
        place = (part, number)
        try:
            yield Item(place=place, form=_PARTS[part].validate_python(value))
        except ValidationError as error:
            faults.misfits(error, place)
            yield _parsed_without_faults(document, place, value, error)


def _parsed_without_faults(
    document: Document, place: tuple[str, int], value: Json, error: ValidationError
) -> Item:
    """Parse an item again without its faulty keys.

    Of an edge or a rule only unknown keys are left out: without its condition, it has another meaning.
    """
    surplus = {"extra_forbidden"}
    kinds = {entry["type"] for entry in error.errors()}
    rest = copy.deepcopy(value)
    if place[0] == "nodes" or kinds == surplus:
        for entry in error.errors():
            if inside := document.existing([*place, *entry["loc"]])[len(place) :]:
                _drop(rest, inside)
    name = value.get("id") if isinstance(value, dict) else None
    try:
        form = _PARTS[place[0]].validate_python(rest)
    except ValidationError:
        form = None
    return Item(
        place=place,
        form=form,
        name=name if isinstance(name, str) else None,
        is_spoilt=True,
        has_lost_ways=kinds != surplus,
    )


def _drop(here: Json, place: Place) -> None:
    """Remove a key, unless an outer one has been removed already."""
    *steps, key = place
    for step in steps:
        if isinstance(here, dict) and step not in here:
            return
        here = here[step]
    if isinstance(here, dict):
        here.pop(key, None)
