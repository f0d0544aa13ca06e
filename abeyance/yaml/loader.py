"""`load("triage.yaml")` returns the graph that a YAML file declares.

A document names code (`module:function`), and loading imports it: load only files that you trust.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from abeyance.authoring.graph import Graph
from abeyance.core.json import Json
from abeyance.core.spec import END, START
from abeyance.errors import GraphError
from abeyance.util import ImportStringError
from abeyance.yaml import source
from abeyance.yaml.builder import declared
from abeyance.yaml.schema import GraphForm
from abeyance.yaml.source import Document, Faults, Place

_ITEMS: Final[dict[str | int, Any]] = {
    "nodes": {"id": "", "kind": "nothing:nothing"},
    "edges": [START, END],
    "rules": {"id": "", "when": {}, "then": []},
}
"""The placeholder of an item that cannot be parsed, by its list."""


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

    graph = None
    if isinstance(document.data, dict):
        form = _form(document, faults)
        if form is not None:
            graph = declared(form, faults, file.stem if form.id is None else form.id, opener)
    elif not document.faults:
        faults.note((), "the document is not a mapping: write at least the key 'nodes'")
    if graph is None or faults.listed():
        raise GraphError(str(file), faults.listed())
    return graph


def _form(document: Document, faults: Faults) -> GraphForm | None:
    """Parse a document, and record the faults of its form; None if that is not possible.

    Faulty parts are left out, so that faults of the graph are found in the same pass: keys, and then
    items of a list that lack a key.
    """
    data = copy.deepcopy(document.data)
    for leave_out in (_without_keys, _without_items):
        try:
            return GraphForm.model_validate(data)
        except ValidationError as error:
            if leave_out is _without_keys:
                faults.misfits(error)
            leave_out(data, [entry["loc"] for entry in error.errors()], faults)
    try:
        return GraphForm.model_validate(data)
    except ValidationError:
        return None


def _without_keys(data: Json, places: Iterable[Place], faults: Faults) -> None:
    for place in map(faults.existing, places):
        keys = [number for number, step in enumerate(place) if isinstance(step, str)]
        if not keys or (keys[-1] == 0 and place[0] in _ITEMS and len(place) > 1):
            # `_without_items` leaves out an item of a list.
            continue
        *around, key = place[: keys[-1] + 1]
        faults.left_out((*around, key))
        here = data
        for step in around:
            # A part around the key may have been left out already.
            is_there = isinstance(here, list) or step in here
            here = here[step] if is_there else {}
        if around == ["state"]:
            here[key] = "any"
        else:
            here.pop(key, None)


def _without_items(data: Json, places: Iterable[Place], faults: Faults) -> None:
    for part, *inside in places:
        if part in _ITEMS and inside:
            number = inside[0]
            item = data[part][number]
            name = item.get("id") if isinstance(item, dict) else None
            faults.lost((part, number), named=isinstance(name, str))
            named = {"id": name} if isinstance(name, str) else {}
            stand_in = _ITEMS[part]
            data[part][number] = stand_in | named if isinstance(stand_in, dict) else stand_in
