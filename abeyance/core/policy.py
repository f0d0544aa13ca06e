"""Principals and their capabilities.

A principal acts with the capabilities that a trusted issuer vouched for. The rule is membership, and no
capability implies another: an administrator who may stop every run may still not approve a payment.
Callers that bypass the API (Temporal's own UI or command line) have no principal; they act as
`temporal`, without capabilities.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

EVERYTHING = "*"
"""The capability that includes all others. It comes from a file of tokens, from an API without
authentication, and from an issuer of tokens only where a setting allows it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The subject that acts, its capabilities, and the groups that it belongs to."""

    subject: str
    capabilities: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def may(self, capability: str | None) -> bool:
        """Return whether the principal has the capability; None requires none."""
        return (
            capability is None or capability in self.capabilities or EVERYTHING in self.capabilities
        )

    def lacks(self, wanted: Iterable[str | None]) -> tuple[str, ...]:
        """Return the required capabilities that the principal does not have, each once, sorted.

        A pattern such as `tenant:*:approve` stands for every capability that fits it, so only a
        principal with `*` has it.
        """
        if EVERYTHING in self.capabilities:
            return ()
        missing = {name for name in wanted if name is not None and not self.may(name)}
        return tuple(sorted(missing | {name for name in wanted if name and EVERYTHING in name}))


TEMPORAL = Principal(subject="temporal")
TIMEOUT = "timeout"
"""The subject of an answer that was given by default at a deadline."""
