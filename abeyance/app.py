"""Finding the graphs that a process serves: `package.module:attribute`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from abeyance.errors import SettingsError
from abeyance.graph import Graph

_HINT = "write package.module:attribute, where the attribute is a Graph or a list of graphs"


def load_graphs(app: str | None) -> Mapping[str, Graph]:
    """The graphs that `app` names, by name, each built.

    Modules are also looked for in the current directory. Raises SettingsError if there is nothing of
    that name, and GraphError for a graph with faults.
    """
    if not app:
        raise SettingsError(f"no graphs to serve: set ABEYANCE_APP, or name them; {_HINT}")
    module_name, _, attribute = app.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or not attribute:
        raise SettingsError(f"{app!r} does not name graphs: {_HINT}")
    module = _module(module_name, app)
    if not hasattr(module, attribute):
        raise SettingsError(f"{app!r}: the module {module_name!r} has no attribute {attribute!r}")
    found = getattr(module, attribute)
    graphs = [found] if isinstance(found, Graph) else found
    if not isinstance(graphs, Iterable) or isinstance(graphs, str | Mapping):
        raise SettingsError(f"{app!r} is a {type(found).__name__}; {_HINT}")
    by_name: dict[str, Graph] = {}
    for graph in graphs:
        if not isinstance(graph, Graph):
            raise SettingsError(f"{app!r} holds a {type(graph).__name__}; {_HINT}")
        if graph.name in by_name:
            raise SettingsError(f"{app!r} holds two graphs named {graph.name!r}")
        graph.build()
        by_name[graph.name] = graph
    if not by_name:
        raise SettingsError(f"{app!r} holds no graph")
    return by_name


def _module(name: str, app: str) -> object:
    here = str(Path.cwd())
    # Last, not first: a folder of the user's must not shadow an installed package.
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SettingsError(
            f"{app!r}: the module {name!r} cannot be imported ({error}); it is looked for among the "
            f"installed packages and below {here}"
        ) from error
