"""Extensions that installed packages add to the product, by entry points.

The groups are `abeyance.notifiers` (`abeyance.notifications.notifier`), `abeyance.protocols`
(`abeyance.api.protocols`), `abeyance.routers` (`abeyance.authoring.routers`) and `abeyance.storage`
(`abeyance.storage.backends`). Our own extensions are in `abeyance.contrib`.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import EntryPoints, entry_points
from typing import Any, Final

from abeyance.errors import SettingsError

NOTIFIERS: Final = "abeyance.notifiers"
PROTOCOLS: Final = "abeyance.protocols"
ROUTERS: Final = "abeyance.routers"
STORAGE: Final = "abeyance.storage"


def _of(group: str) -> EntryPoints:
    return _found(group, tuple(sys.path))


@lru_cache(maxsize=16)
def _found(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Return the extensions of a group, cached: a search of all packages on the path takes 10 ms."""
    del path
    return entry_points(group=group)


def names_in(group: str) -> list[str]:
    """Return the names of the extensions of a group, sorted."""
    return sorted(_of(group).names)


def load(group: str, name: str) -> Any:
    """Return the object that an extension names. Raises SettingsError if it is not there, or cannot be
    imported.
    """
    try:
        point = _of(group)[name]
    except KeyError as error:
        raise SettingsError(
            f"no installed package has the entry point {name!r} of {group}: install abeyance again"
        ) from error
    try:
        return point.load()
    except (AttributeError, ImportError) as error:
        raise SettingsError(
            f"the entry point {name!r} of {group} ({point.value}) cannot be imported: {error}. Mend or "
            "uninstall the package that has it"
        ) from error
