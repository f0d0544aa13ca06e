"""Load the graphs that a process serves, from `package.module:attribute` or a YAML file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from abeyance.authoring.graph import Graph
from abeyance.authoring.lines import raised_at
from abeyance.errors import GraphError, SettingsError
from abeyance.schemas.forms import in_words
from abeyance.util import ImportStringError, import_module_named, without_attribute
from abeyance.yaml.loader import load

_HINT: Final = (
    "write package.module:attribute, where the attribute is a Graph, a path of a YAML file or a list of "
    "these; or the path itself"
)
_SUFFIXES: Final = frozenset({".yaml", ".yml"})


def load_graphs(app: str | None) -> Mapping[str, Graph]:
    """Load and build the graphs that `app` names, by name.

    Paths are relative to the current directory, and modules are also imported from there. Raise
    SettingsError if they cannot be loaded, and GraphError for a graph with faults.
    """
    graphs, faulty = read_graphs(app)
    if faulty:
        raise faulty[0]
    return graphs


def read_graphs(app: str | None) -> tuple[Mapping[str, Graph], list[GraphError]]:
    """Load the graphs as `load_graphs` does, and return the errors of the faulty ones."""
    if not app:
        raise SettingsError(f"no graphs to serve: set ABEYANCE_APP, or name them; {_HINT}")
    with _authors_errors(app):
        return _read(app)


def _read(app: str) -> tuple[Mapping[str, Graph], list[GraphError]]:
    loaded = app if _is_path(app) else _named(app)
    graphs = [loaded] if isinstance(loaded, Graph) or _is_path(loaded) else loaded
    if not isinstance(graphs, Iterable) or isinstance(graphs, str | Mapping):
        kind = (
            f"the class {loaded.__name__}"
            if isinstance(loaded, type)
            else f"a {type(loaded).__name__}"
        )
        raise SettingsError(f"{app!r} is {kind}, not a graph; {_HINT}")
    by_name: dict[str, Graph] = {}
    faulty: list[GraphError] = []
    for item in graphs:
        try:
            graph = _loaded(item, app) if _is_path(item) else item
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
    """Turn an error that the author's module raises on import into a SettingsError with its place."""
    try:
        yield
    except (GraphError, SettingsError):
        raise
    except SyntaxError as error:
        raise SettingsError(
            f"{app!r} cannot be loaded: SyntaxError: {error.msg} ({error.filename}, line {error.lineno})"
        ) from error
    # SystemExit too: otherwise the process would end as if it had succeeded.
    except (Exception, SystemExit) as error:
        raise SettingsError(
            f"{app!r} cannot be loaded: {_in_words(error)} ({raised_at(error)})"
        ) from error


def _in_words(error: BaseException) -> str:
    if not isinstance(error, ValidationError):
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    # pydantic's own text has several lines for each option, and an address of its documentation.
    entries = error.errors(include_url=False, include_context=False)
    return "; ".join(in_words(entry, f"{error.title}, {_argument(entry)}") for entry in entries)


def _argument(entry: ErrorDetails) -> str:
    first, *below = entry["loc"] or ("",)
    name = f"argument {first + 1}" if isinstance(first, int) else f"{first}="
    return ", ".join([name, *map(str, below)])


def _is_path(value: Any) -> bool:
    return isinstance(value, str | PathLike) and Path(value).suffix in _SUFFIXES


def _named(app: str) -> Any:
    module_name, _, attribute = app.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or not attribute:
        raise SettingsError(f"{app!r} does not name graphs: {_HINT}{_instead_of(app)}")
    try:
        module = import_module_named(module_name)
    except ImportStringError as error:
        raise SettingsError(f"{app!r}: {error}") from error
    if not hasattr(module, attribute):
        raise SettingsError(f"{app!r}: {without_attribute(module, attribute)}")
    return getattr(module, attribute)


def _instead_of(app: str) -> str:
    """Return a suggestion for the path of a module, or nothing."""
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
