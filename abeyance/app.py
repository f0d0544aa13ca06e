"""Finding the graphs that a process serves: `package.module:attribute`, or a YAML file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final

from abeyance.errors import SettingsError
from abeyance.graph import Graph
from abeyance.reference import NotFound, module_named
from abeyance.yaml import load

_HINT: Final = (
    "write package.module:attribute, where the attribute is a Graph, a path of a YAML file or a list of "
    "these; or the path itself"
)
_SUFFIXES: Final = frozenset({".yaml", ".yml"})


def load_graphs(app: str | None) -> Mapping[str, Graph]:
    """The graphs that `app` names, by name, each built.

    Paths are relative to the current directory, and modules are also looked for there. Raises
    SettingsError if there is nothing of that name, and GraphError for a graph with faults.
    """
    if not app:
        raise SettingsError(f"no graphs to serve: set ABEYANCE_APP, or name them; {_HINT}")
    found = app if _is_path(app) else _named(app)
    graphs = [found] if isinstance(found, Graph) or _is_path(found) else found
    if not isinstance(graphs, Iterable) or isinstance(graphs, str | Mapping):
        raise SettingsError(f"{app!r} is a {type(found).__name__}; {_HINT}")
    by_name: dict[str, Graph] = {}
    for held in graphs:
        graph = _loaded(held, app) if _is_path(held) else held
        if not isinstance(graph, Graph):
            raise SettingsError(f"{app!r} holds a {type(graph).__name__}; {_HINT}")
        if graph.name in by_name:
            raise SettingsError(f"{app!r} holds two graphs named {graph.name!r}")
        graph.build()
        by_name[graph.name] = graph
    if not by_name:
        raise SettingsError(f"{app!r} holds no graph")
    return by_name


def _is_path(found: Any) -> bool:
    return isinstance(found, str | PathLike) and Path(found).suffix in _SUFFIXES


def _named(app: str) -> Any:
    module_name, _, attribute = app.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or not attribute:
        raise SettingsError(f"{app!r} does not name graphs: {_HINT}")
    try:
        module = module_named(module_name)
    except NotFound as error:
        raise SettingsError(f"{app!r}: {error}") from error
    if not hasattr(module, attribute):
        raise SettingsError(f"{app!r}: the module {module_name!r} has no attribute {attribute!r}")
    return getattr(module, attribute)


def _loaded(path: str | PathLike[str], app: str) -> Graph:
    try:
        return load(path)
    except OSError as error:
        raise SettingsError(f"{app!r}: the file {str(path)!r} cannot be read: {error}") from error
