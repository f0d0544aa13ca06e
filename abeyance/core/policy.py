"""Who may answer what.

A principal is somebody who acts, with the capabilities that somebody trustworthy vouched for. The
rule is membership, and nothing implies anything else: an administrator who may stop every run may
still not approve a payment. Who comes around the API (Temporal's own UI or command line) brings no
principal and is `temporal`, with no capability.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

EVERYTHING = "*"
"""The capability of a principal who may do all. It comes from a file of tokens, from an API without
authentication, and from an issuer of tokens only where a setting lets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who acts, and what they may do."""

    subject: str
    capabilities: tuple[str, ...] = ()

    def may(self, capability: str | None) -> bool:
        """Whether the principal has the capability; None asks for none."""
        return (
            capability is None or capability in self.capabilities or EVERYTHING in self.capabilities
        )

    def lacks(self, wanted: Iterable[str | None]) -> tuple[str, ...]:
        """Those of several capabilities that the principal does not have, each once, sorted.

        A pattern such as `tenant:*:approve` stands for every capability that fits it, so that only
        who may do everything has it.
        """
        if EVERYTHING in self.capabilities:
            return ()
        missing = {name for name in wanted if name is not None and not self.may(name)}
        return tuple(sorted(missing | {name for name in wanted if name and EVERYTHING in name}))


TEMPORAL = Principal(subject="temporal")
TIMEOUT = "timeout"
"""The subject that gave an answer when nobody did in time."""
