"""Permission to change the course of a run, required for its whole life.

A *change of course* is anything that a person does to a run's values or routing other than answering a
question as it was asked. It takes `runs:control` and every capability that the run's graph can ask for,
whether or not a question is open: what was approved must be what runs. A request without them is refused.

Callers that bypass the API, through Temporal's own namespace, have no principal. They are trusted with
the rest of the run, but may not touch an open question without its capability.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from abeyance.core import events
from abeyance.core.json import Json, canonical, fill_by, look_up
from abeyance.core.ledger import Interrupt
from abeyance.core.policy import TEMPORAL, Principal
from abeyance.core.spec import GoTo, GraphSpec, InterruptSpec
from abeyance.core.state import RunState
from abeyance.core.terms import is_restricted
from abeyance.errors import Code, Refusal

READ: Final = "runs:read"
CONTROL: Final = "runs:control"
STEER: Final = "runs:steer"
RESPOND: Final = "runs:respond"

_FILLING: Final = re.compile(r"[^\s*:,\x00-\x1f\x7f]+")

_CHANGES: Final = "Changing what was approved requires permission to approve it."


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
        raise lacks(principal, doing, lacking)


def demand_by(
    principal: Principal, guards: Iterable[str], asked: Iterable[str], doing: str
) -> None:
    """Refuse the same by what a run can ask for, and what it asks for now."""
    if lacking := _missing(principal, guards, asked):
        raise lacks(principal, doing, lacking)


def demand_only(principal: Principal, *capabilities: str, doing: str, why: str) -> None:
    """Refuse what takes these capabilities, and no approval, to a principal without them."""
    if principal != TEMPORAL and (lacking := principal.lacks(capabilities)):
        raise lacks(principal, doing, lacking, why=why)


def lacks(
    principal: Principal, doing: str, lacking: tuple[str, ...], *, why: str = _CHANGES
) -> Refusal:
    """Return the Refusal that names every missing capability."""
    return Refusal(
        Code.CAPABILITY_REQUIRED,
        f"{principal.subject!r} may not {doing}: missing {', '.join(map(repr, lacking))}. {why}",
        capability=lacking[0],
        capabilities=list(lacking),
    )


def refuse_without_control(principal: Principal, entry: Interrupt, problem: str) -> None:
    """Refuse to a principal without `runs:control` what they may not do to this question otherwise."""
    if principal == TEMPORAL or principal.may(CONTROL):
        return
    raise Refusal(
        Code.CAPABILITY_REQUIRED,
        problem,
        interrupt_id=entry.id,
        capability=CONTROL,
        capabilities=[CONTROL],
    )


def refuse(state: RunState, event: events.Event) -> None:
    """Refuse an event by which a principal would change the course of a run without permission.

    A run that is ending or has ended refuses it for that reason first.
    """
    if state.ending is not None:
        return
    match event:
        case events.Paused(on_timeout=GoTo(node=node)):
            principal = Principal(subject=event.actor, capabilities=event.capabilities)
            demand(state, principal, f"lead the run to {node!r}")
        case events.ValuesEdited(principal=principal):
            demand(state, principal, "edit the values of the run")
        case events.DeadlineEdited(principal=principal):
            demand(state, principal, "edit a deadline of the run")
        case events.Migrated(principal=principal, dry_run=True):
            demand_only(
                principal, READ, doing="try a migration of the run", why="It reads the run."
            )
        case events.Migrated(principal=principal):
            demand(state, principal, "migrate the run")
        case events.Responded(principal=principal, answers=answers):
            for id_, answer in answers.items():
                entry = state.ledger.open.get(id_)
                if entry is not None and (doing := _beyond_answering(state, entry, answer)):
                    demand(state, principal, doing)
        case _:
            pass


def _beyond_answering(state: RunState, entry: Interrupt, answer: Json) -> str | None:
    """Return what an answer changes beyond answering; None if nothing."""
    match entry.kind, answer:
        case "static", None:
            return None
        case "static", _:
            return f"edit the values of the run at {entry.name!r}"
        case "error", {"action": "skip"}:
            return f"skip {state.visits[entry.visit].node!r}"
        case _:
            return None


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


def of_answer(question: Interrupt) -> str | None:
    """Return the capability that an answer to a question takes. None: everybody may answer. "": none,
    and yet not everybody may answer, or not alone.
    """
    return question.requested_capability or ("" if is_restricted(question.terms) else None)
