"""Who takes part in a workload, and whether he is installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A contender: what `--contenders` calls it, and what the table does.

    `module` has `opened(folder, **options)`, an asynchronous context manager. `packages` are the
    distributions that it needs. `floor` names the contender that it is compared with.
    """

    name: str
    title: str
    module: str
    packages: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    floor: str = "by-hand"

    def missing(self) -> list[str]:
        """The packages that are not installed."""
        return [package for package in self.packages if version_of(package) is None]


def version_of(package: str) -> str | None:
    """The version of an installed distribution; None if it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
