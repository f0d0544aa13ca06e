"""`load("triage.yaml")` returns the graph that a YAML file declares.

A document names code (`module:function`), and loading imports it: load only files that you trust.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ValidationError

from abeyance.authoring.graph import Graph
from abeyance.errors import GraphError
from abeyance.util import ImportStringError
from abeyance.yaml import source
from abeyance.yaml.builder import declared
from abeyance.yaml.schema import GraphForm
from abeyance.yaml.source import Faults


def load(path: str | os.PathLike[str]) -> Graph:
    """Load the graph in a YAML file, and build it. Its name is its `id`, else that of the file.

    Raise OSError if the file cannot be read, and GraphError with all faults of its form, or else with all
    of its graph, each with its line.
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

    form = None
    if isinstance(document.data, dict):
        try:
            form = GraphForm.model_validate(document.data)
        except ValidationError as error:
            faults.misfits(error)
    elif not document.faults:
        faults.note((), "the document is not a mapping: write at least the key 'nodes'")
    if form is None or faults.listed():
        raise GraphError(str(file), faults.listed())
    graph = declared(form, faults, file.stem if form.id is None else form.id, opener)
    if faults.listed():
        raise GraphError(str(file), faults.listed())
    return graph
