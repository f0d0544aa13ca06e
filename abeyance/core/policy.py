"""Principals, their capabilities, what takes which, and the runs that they may see.

A principal acts with the capabilities that a trusted issuer vouched for. The rule is membership, and no
capability implies another: an administrator who may stop every run may still not approve a payment.

*A change of course* is anything that a person does to a run's values or routing other than answering a
question as it was asked. It takes `runs:control` and every capability that the run's graph can ask for,
for the whole life of the run and whether or not a question is open: what was approved must be what runs.

Callers that bypass the API (Temporal's own UI or command line) have no principal; they act as
`temporal`, without capabilities. They are trusted with the run, but may not touch an open question
without its capability.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Self

from abeyance.core.json import Json, canonical, fill_by, look_up
from abeyance.core.spec import GraphSpec, InterruptSpec
from abeyance.core.terms import GROUP
from abeyance.core.text import HALVES
from abeyance.errors import Code, Refusal

if TYPE_CHECKING:
    from abeyance.core.ledger import Interrupt
    from abeyance.core.state import RunState

READ: Final = "runs:read"
CONTROL: Final = "runs:control"
STEER: Final = "runs:steer"
RESPOND: Final = "runs:respond"

_FILLING: Final = re.compile(r"[^\s*:,\x00-\x1f\x7f]+")

_CHANGES: Final = "Changing what was approved requires permission to approve it."

EVERYTHING = "*"
"""The capability that includes all others. It comes from a file of tokens and from an API without
authentication, and never from an issuer of tokens.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The subject that acts, its capabilities, and the groups that it belongs to."""

    subject: str
    capabilities: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if HALVES.search("".join((self.subject, *self.capabilities, *self.groups))):
            message = (
                "the subject, a capability or a group of a principal has an unpaired surrogate"
            )
            raise ValueError(message)

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


def named(who: str | None, reader: Principal) -> str:
    """Return the name that a refusal gives a person to its reader. A caller through Temporal is not a
    person.
    """
    return "you" if who == reader.subject and reader != TEMPORAL else repr(who)


def may_not(reader: Principal, doing: str) -> str:
    """Begin a refusal with what its reader may not do."""
    who = named(reader.subject, reader)
    return f"{who[0].upper()}{who[1:]} may not {doing}"


def is_reserved(subject: str) -> bool:
    """Return whether nobody may have this subject: the run acts under it, or it is that of a group."""
    return subject in {TEMPORAL.subject, TIMEOUT} or subject.startswith(GROUP)


# Changes of course


def guarded_by(state: RunState) -> tuple[str, ...]:
    """Return every capability that the run can ask for, or asks for now."""
    pinned = {*state.spec.guarded_by, *state.earlier_guards}
    return tuple(sorted({*pinned, *state.ledger.capabilities}))


def missing(state: RunState, principal: Principal) -> tuple[str, ...]:
    """Return the capabilities that a principal lacks to change the course of a run."""
    return _missing(principal, guarded_by(state), state.ledger.capabilities)


def _missing(principal: Principal, guards: Iterable[str], asked: Iterable[str]) -> tuple[str, ...]:
    return principal.lacks(asked if principal == TEMPORAL else (CONTROL, *guards))


def demand(state: RunState, principal: Principal, doing: str) -> None:
    """Refuse a change of course to a principal who may not approve everything the run asks."""
    if lacking := missing(state, principal):
        raise lacking_refusal(principal, doing, lacking)


def demand_by(
    principal: Principal, guards: Iterable[str], asked: Iterable[str], doing: str
) -> None:
    """Like `demand`, from the capabilities that a run can ask for and those that it asks for now."""
    if lacking := _missing(principal, guards, asked):
        raise lacking_refusal(principal, doing, lacking)


def demand_only(principal: Principal, *capabilities: str, doing: str, why: str) -> None:
    """Refuse what takes these capabilities, and no approval, to a principal without them."""
    if principal != TEMPORAL and (lacking := principal.lacks(capabilities)):
        raise lacking_refusal(principal, doing, lacking, why=why)


def lacking_refusal(
    principal: Principal, doing: str, lacking: tuple[str, ...], *, why: str = _CHANGES
) -> Refusal:
    """Return the Refusal that names every missing capability."""
    missing = ", ".join(map(repr, lacking))
    message = f"{may_not(principal, doing)}: missing {missing}. {why}"
    return capability_required(message, *lacking)


def capability_required(message: str, *lacking: str | None, **details: Json) -> Refusal:
    """Return the Refusal of a principal who lacks these capabilities."""
    about = {"capability": lacking[0], "capabilities": list(lacking), **details}
    return Refusal(Code.CAPABILITY_REQUIRED, message, **about)


def refuse_foreign(
    what: str, by: str, principal: Principal, capability: str, *, doing: str
) -> None:
    """Refuse to let anybody but its maker do this to a thing, unless they have the capability."""
    if by != principal.subject and not principal.may(capability):
        who = f"only {by!r}, or somebody with {capability!r}, may {doing} it"
        raise capability_required(f"The {what} is by {by!r}: {who}.", capability)


def refuse_without_control(principal: Principal, entry: Interrupt, problem: str) -> None:
    """Refuse to a principal without `runs:control` what they may not do to this question otherwise."""
    if principal != TEMPORAL and not principal.may(CONTROL):
        raise capability_required(problem, CONTROL, interrupt_id=entry.id)


# Capabilities that graphs and nodes declare


def declares(asks: Iterable[str], capability: str) -> bool:
    """Return whether a node that declares `asks` may ask for a capability."""
    return any(fits(capability, each) for each in asks)


def fits(capability: str, declared: str) -> bool:
    """Return whether a capability equals a declared one or fits its pattern.

    `*` in a pattern matches one or more characters other than `:`.
    """
    parts, pattern = capability.split(":"), declared.split(":")
    return len(parts) == len(pattern) and all(
        part and fnmatchcase(part, each.replace("[", "[[]").replace("?", "[?]"))
        for part, each in zip(parts, pattern, strict=True)
    )


def filled(template: str, values: Mapping[str, Json]) -> str:
    """Return a capability with each `{field}` in it filled.

    Raise ValueError for a value that could mean another capability than the author's: one that is not
    text or a whole number, is empty, or contains `*`, `:`, `,` or a blank.
    """

    def value_of(path: str) -> str:
        value = look_up(values, path)
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        text = str(value) if is_whole else value
        if not isinstance(text, str) or not _FILLING.fullmatch(text):
            raise ValueError(
                f"it requests the capability {template!r}, and {path!r} is {canonical(value)[:100]}: the "
                "field must be text without '*', ':', ',' and blanks, and not empty"
            )
        return text

    return fill_by(template, value_of)


def asked_for(graph: GraphSpec, node: str, question: InterruptSpec) -> str | None:
    """Return the capability that a question asks for: its own, else the first that its node declares
    and that it does not escalate to.

    None if there is none, or it is a pattern, which only the question itself can fill.
    """
    if question.requested_capability is not None:
        return question.requested_capability
    declared = (each for each in graph.asks_of(node) if each not in question.escalates_to)
    first = next(declared, None)
    return None if first is None or "*" in first else first
