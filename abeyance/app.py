"""Finding the graphs that a process serves: `package.module:attribute`, or a YAML file."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Final

from abeyance.authoring.graph import Graph
from abeyance.errors import AbeyanceError, GraphError, SettingsError
from abeyance.util import ImportStringError, import_module_named
from abeyance.yaml.loader import load

_HINT: Final = (
    "write package.module:attribute, where the attribute is a Graph, a path of a YAML file or a list of "
    "these; or the path itself"
)
_SUFFIXES: Final = frozenset({".yaml", ".yml"})


def load_graphs(app: str | None) -> Mapping[str, Graph]:
    """The graphs that `app` names, by name, each built.

    Paths are relative to the current directory, and modules are also looked for there. Raises
    SettingsError if there is nothing of that name or its module raises something, and GraphError for a
    graph with faults.
    """
    graphs, faulty = read_graphs(app)
    if faulty:
        raise faulty[0]
    return graphs


def read_graphs(app: str | None) -> tuple[Mapping[str, Graph], list[GraphError]]:
    """The same, with the faults of every graph that has some instead of an error at the first."""
    if not app:
        raise SettingsError(f"no graphs to serve: set ABEYANCE_APP, or name them; {_HINT}")
    with _authors_errors(app):
        return _read(app)


def _read(app: str) -> tuple[Mapping[str, Graph], list[GraphError]]:
    found = app if _is_path(app) else _named(app)
    graphs = [found] if isinstance(found, Graph) or _is_path(found) else found
    if not isinstance(graphs, Iterable) or isinstance(graphs, str | Mapping):
        what = (
            f"the class {found.__name__}"
            if isinstance(found, type)
            else f"a {type(found).__name__}"
        )
        raise SettingsError(f"{app!r} is {what}, not a graph; {_HINT}")
    by_name: dict[str, Graph] = {}
    faulty: list[GraphError] = []
    for held in graphs:
        try:
            graph = _loaded(held, app) if _is_path(held) else held
            if not isinstance(graph, Graph):
                raise SettingsError(f"{app!r} holds a {type(graph).__name__}; {_HINT}")
            if graph.name in by_name:
                raise SettingsError(f"{app!r} holds two graphs named {graph.name!r}: rename one")
            graph.build()
        except GraphError as error:
            faulty.append(error)
        else:
            by_name[graph.name] = graph
    if not (by_name or faulty):
        raise SettingsError(f"{app!r} holds no graph; {_HINT}")
    return by_name, faulty


@contextmanager
def _authors_errors(app: str) -> Iterator[None]:
    """Whatever a module raises when it is imported, its author has to see what, and where."""
    try:
        yield
    except AbeyanceError:
        raise
    except SyntaxError as error:
        raise SettingsError(
            f"{app!r} cannot be loaded: SyntaxError: {error.msg} ({error.filename}, line {error.lineno})"
        ) from error
    # A module that ends the process would else end it as if all were well.
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise SettingsError(
            f"{app!r} cannot be loaded: {type(error).__name__}: {' '.join(str(error).split())} "
            f"({last.filename}, line {last.lineno})"
        ) from error


def _is_path(found: Any) -> bool:
    return isinstance(found, str | PathLike) and Path(found).suffix in _SUFFIXES


def _named(app: str) -> Any:
    module_name, _, attribute = app.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or not attribute:
        raise SettingsError(f"{app!r} does not name graphs: {_HINT}{_instead_of(app)}")
    try:
        module = import_module_named(module_name)
    except ImportStringError as error:
        raise SettingsError(f"{app!r}: {error}") from error
    if not hasattr(module, attribute):
        raise SettingsError(f"{app!r}: the module {module_name!r} has no attribute {attribute!r}")
    return getattr(module, attribute)


def _instead_of(app: str) -> str:
    """What somebody may have meant who has written the path of a module."""
    path, _, attribute = app.partition(":")
    if not path.endswith(".py"):
        return ""
    module = path.removeprefix("./").removesuffix(".py").replace("/", ".")
    return f". Of that file: {module}:{attribute or 'graph'}"


def _loaded(path: str | PathLike[str], app: str) -> Graph:
    try:
        return load(path)
    except OSError as error:
        why = error.strerror or error
        raise SettingsError(f"{app!r}: the file {str(path)!r} cannot be read: {why}") from error
