"""Protocols that are served beside the API's own routes, by packages that the API need not know.

A package offers one by an entry point of the group `abeyance.protocols`, which names a `Protocol`. Ours
are in `abeyance.contrib`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from abeyance import extensions
from abeyance.errors import SettingsError

if TYPE_CHECKING:
    # A program that serves nothing may import such a package for its other parts.
    from fastapi import FastAPI

Serving: TypeAlias = Callable[[], AbstractAsyncContextManager[None]]
"""Opens the resources that a protocol needs while an application serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A protocol at `path` and below it, which `install` adds to an application.

    `install` finds the `Backend` in `app.state.backend`, and returns a `Serving` if it needs one. If the
    protocol's library is not installed, `install` adds nothing, or raises SettingsError if a setting asks
    for the protocol.

    The guard authenticates the callers of requests that change something. A route that only reads has to
    authenticate its caller (`abeyance.api.auth.CredentialsDep`): else anybody may read it.

    Pages of ABEYANCE_ALLOWED_ORIGINS may call the path with a token, and these `headers`. Its bodies may
    have `largest_body` bytes, if that is more than ABEYANCE_MAX_BODY_SIZE.
    """

    path: str
    install: Callable[[FastAPI], Serving | None]
    headers: tuple[str, ...] = ()
    largest_body: int = 0

    def has(self, path: str) -> bool:
        """Return whether a path belongs to this protocol."""
        return path == self.path or path.startswith(f"{self.path}/")


def installed() -> tuple[Protocol, ...]:
    """Return the protocols of all installed packages, in the order of their names.

    Raises SettingsError for an entry point that cannot be imported, or does not name a Protocol.
    """
    return tuple(map(_loaded, extensions.names_in(extensions.PROTOCOLS)))


def _loaded(name: str) -> Protocol:
    protocol = extensions.load(extensions.PROTOCOLS, name)
    if not isinstance(protocol, Protocol):
        raise SettingsError(
            f"the entry point {name!r} of {extensions.PROTOCOLS} is {type(protocol).__name__}: it has to "
            "name a Protocol (abeyance.api.protocols)"
        )
    return protocol
