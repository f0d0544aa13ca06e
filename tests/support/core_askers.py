"""People, and runs that ask them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from core_drive import Drive, at, chain, gate

from abeyance.core import events
from abeyance.core.delegations import Delegation
from abeyance.core.events import Responded
from abeyance.core.policy import EVERYTHING, Principal
from abeyance.core.terms import Terms
from abeyance.errors import Refusal

PAY = "refunds:approve"


def person(name: str, *capabilities: str, groups: tuple[str, ...] = ()) -> Principal:
    return Principal(subject=name, capabilities=capabilities, groups=groups)


ADA, BOB, CAROL = person("ada"), person("bob"), person("carol")
ROOT = person("root", EVERYTHING)
CFO = person("cfo", PAY)


def lent(
    by: str, to: str = "bob", *names: str, until: datetime | None = None, **fields: Any
) -> Delegation:
    """Return a delegation that holds from the start time on."""
    about = {"id": f"{by}-{to}", "capabilities": names, "since": at(0), "created_at": at(0)}
    return Delegation(by=by, to=to, until=until or at(9_000), **{**about, **fields})


def asking(*, capability: str | None = None, **terms: Any) -> Drive:
    """Start a run that waits for the answer to `ask`, and then runs `work`."""
    schema = {"properties": {"approved": {"type": "boolean"}}} if "quorum" in terms else None
    question = gate("ask", capability=capability, schema=schema, terms=Terms(**terms))
    return Drive(chain(question, "work"))


def refusal_of(run: Drive, who: Principal, name: str = "ask", **fields: Any) -> Refusal:
    about = run.response({run.open(name).id: "yes"}, principal=who, **fields)
    return run.refused(Responded, **about)


def claim(run: Drive, who: Principal, *, seconds: float = 60, **fields: Any) -> None:
    id_ = run.open("ask").id
    run.feed(events.Claimed, principal=who, interrupt_id=id_, seconds=seconds, **fields)


def started_by(who: str, *nodes: Any) -> Drive:
    run = Drive(chain(*nodes))
    run.state = replace(run.state, starters=(who,))
    return run


def eyes(name: str, *not_by: str, capability: str | None = None) -> Any:
    return gate(name, capability=capability, terms=Terms(not_by=not_by))
