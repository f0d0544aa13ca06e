"""What `module:name` names: code, by a text that may stand in a setting or a document."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


class NotFound(Exception):
    """Nothing is there under a name; the text says what is missing."""


def module_named(name: str) -> ModuleType:
    """Import a module; it is also looked for in the current directory.

    Raises NotFound if there is none, and whatever the module itself raises.
    """
    here = str(Path.cwd())
    # Last, not first: a folder of the user's must not shadow an installed package.
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        message = (
            f"the module {name!r} cannot be imported ({error}); it is looked for among the installed "
            f"packages and below {here}"
        )
        raise NotFound(message) from error


def object_named(reference: str) -> Any:
    """What `module:name` names; dots in the name lead into classes. Raises like `module_named`."""
    module_name, _, path = reference.partition(":")
    found: Any = module_named(module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            raise NotFound(f"the module {module_name!r} has no attribute {path!r}")
        found = getattr(found, name)
    return found
