"""What installed packages add to the product, by entry points.

The groups are `abeyance.notifiers` (`abeyance.notifications.notifier`), `abeyance.protocols`
(`abeyance.api.protocols`), `abeyance.routers` (`abeyance.authoring.routers`) and `abeyance.storage`
(`abeyance.storage.backends`). What we add ourselves is in `abeyance.contrib`.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, Final

from abeyance.errors import SettingsError

NOTIFIERS: Final = "abeyance.notifiers"
PROTOCOLS: Final = "abeyance.protocols"
ROUTERS: Final = "abeyance.routers"
STORAGE: Final = "abeyance.storage"


def names_in(group: str) -> list[str]:
    """Return the names of the extensions of a group, sorted."""
    return sorted(entry_points(group=group).names)


def load(group: str, name: str) -> Any:
    """Return what an extension names. Raises SettingsError if it is not there, or cannot be imported."""
    try:
        point = entry_points(group=group)[name]
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
