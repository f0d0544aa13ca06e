"""Principals, their capabilities, and the runs that they may see.

A principal acts with the capabilities that a trusted issuer vouched for. The rule is membership, and no
capability implies another: an administrator who may stop every run may still not approve a payment.
Callers that bypass the API (Temporal's own UI or command line) have no principal; they act as
`temporal`, without capabilities.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from abeyance.core.terms import GROUP

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

    def is_among(self, people: Iterable[str]) -> bool:
        """Return whether these subjects and groups (`group:finance`) include the principal."""
        return not {self.subject, *(f"{GROUP}{name}" for name in self.groups)}.isdisjoint(people)

    def lacks(self, wanted: Iterable[str | None]) -> tuple[str, ...]:
        """Return the required capabilities that the principal does not have, each once, sorted.

        A pattern such as `tenant:*:approve` stands for every capability that fits it, so only a
        principal with `*` has it.
        """
        if EVERYTHING in self.capabilities:
            return ()
        missing = {name for name in wanted if name is not None and not self.may(name)}
        return tuple(sorted(missing | {name for name in wanted if name and EVERYTHING in name}))


@dataclass(frozen=True, slots=True)
class ReadRights:
    """The runs that a caller may see: those that have, of each label named here, one of its values.

    Without labels these are all runs. A run that a caller may not see is to them one that does not exist.
    """

    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, labels: Mapping[str, Sequence[str]]) -> Self:
        """Return the rights to the runs with one of these values of each label."""
        return cls(tuple((name, tuple(sorted({*labels[name]}))) for name in sorted(labels)))

    @property
    def is_bound(self) -> bool:
        """Whether there are runs that the caller may not see."""
        return bool(self.labels)

    def may_read(self, labels: Mapping[str, str]) -> bool:
        """Return whether a run with these labels may be seen."""
        return all(labels.get(name) in values for name, values in self.labels)

    def filled(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the labels of a new run, with those that have one value here and are absent."""
        only = {name: values[0] for name, values in self.labels if len(values) == 1}
        return {**only, **labels}


ALL_RUNS = ReadRights()
"""The rights of a caller who is bound to no label."""
TEMPORAL = Principal(subject="temporal")
TIMEOUT = "timeout"
"""The subject of an answer that was given by default at a deadline."""


def is_reserved(subject: str) -> bool:
    """Return whether nobody may have this subject: the run acts under it, or it is that of a group."""
    return subject in {TEMPORAL.subject, TIMEOUT} or subject.startswith(GROUP)
