"""Who may answer a question, and in whose right.

*The right.* To answer a question, people need its capability. With `assignees_only`, they must be among
its assignees, and where a quorum names its people, among those. After an escalation, the people whom it
names may answer too. People without that right may answer for a person who has delegated it to them; if
several have, they say for whom.

*What is in the way.* Four eyes (`not_by`) bar people by name, whatever else they may do: both the
delegate and the person for whom they answer. A claim keeps a question for one person until it ends.

The rule rests on the question and the request alone, so a list of questions can say who may answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol

from abeyance.core.json import Json, canonical, fill_by, look_up, rfc3339
from abeyance.core.ledger import Claim, Interrupt
from abeyance.core.policy import TEMPORAL, Principal, capability_required, is_reserved, may_not
from abeyance.core.terms import STARTER, Escalation, Terms, is_template
from abeyance.errors import Code, Refusal

if TYPE_CHECKING:
    from abeyance.core.delegations import Delegation
    from abeyance.core.events import Responded

_MOST_NAMED: Final = 20
_SUBJECT: Final = re.compile(r"[^\s,*@{}\x00-\x1f\x7f][^\s,{}\x00-\x1f\x7f]*")
"""The form of a value that names a person: no rule, such as `@starter`, and no list."""


class _Person(Protocol):
    def may(self, capability: str | None) -> bool: ...

    def is_among(self, people: Iterable[str]) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Who wants to answer, when, for whom if they say so, and the delegations to them."""

    principal: Principal
    now: datetime
    on_behalf_of: str | None = None
    delegations: tuple[Delegation, ...] = ()

    @property
    def active(self) -> list[Delegation]:
        """The delegations that count."""
        subject, now = self.principal.subject, self.now
        return [each for each in self.delegations if each.to == subject and each.is_active(now)]


def claimed(question: Interrupt, now: datetime) -> Claim | None:
    """Return the claim of a question, if it has not ended."""
    claim = question.claim
    return claim if claim is not None and now < claim.until else None


def acting_for(question: Interrupt, request: Request) -> str | None:
    """Return for whom a principal answers an open question; None means in their own right.

    Raise the Refusals `capability_required`, `not_assigned`, `ambiguous_delegation`,
    `separation_of_duties` and `claimed`.
    """
    _refuse_nobody(question, request.principal)
    name = _right(question, request)
    _refuse_barred(question, request.principal, name)
    claim = claimed(question, request.now)
    if claim is not None and claim.people.isdisjoint({request.principal.subject, name}):
        until = rfc3339(claim.until)
        raise Refusal(
            Code.CLAIMED,
            f"{claim.by!r} has claimed {question.name!r} until {until}. Wait until then, ask for its "
            "release, or, if you stand in for that person, say so with `on_behalf_of`.",
            interrupt_id=question.id,
            claimed_by=claim.by,
            claimed_until=until,
            **({} if claim.on_behalf_of is None else {"on_behalf_of": claim.on_behalf_of}),
        )
    return name


def names(question: Interrupt, request: Request) -> list[str]:
    """Return the names for whom a principal may answer a question by a delegation."""
    makers = {
        each.by for each in request.active if _fulfils(each, question, request.now)
    } - question.barred.keys()
    return [] if request.principal.subject in question.barred else sorted(makers)


def names_of(entries: Mapping[str, Interrupt], event: Responded) -> dict[str, str | None]:
    """Return for whom each open question of a response is answered, by its id.

    Raise the Refusals of `acting_for`.
    """
    asked = {id_: entries[id_] for id_ in event.answers if id_ in entries}
    return {
        id_: acting_for(entry, event.request)
        for id_, entry in asked.items()
        if entry.status == "open"
    }


def may_learn_of(
    settled: Interrupt, principal: Principal, delegations: Sequence[Delegation]
) -> bool:
    """Return whether a principal may learn what became of a settled question."""
    cast = [*settled.votes, *filter(None, [settled.held])]
    people = {settled.on_behalf_of, *(name for vote in cast for name in vote.people)}
    if settled.status == "answered":
        people.add(settled.by)
    return (
        principal.may(settled.requested_capability)
        or principal.subject in people
        or any(each.may(settled.requested_capability) for each in delegations)
    )


def lacks_capability(question: Interrupt, principal: Principal, capability: str | None) -> Refusal:
    """Return the refusal of a principal without a capability that a question asks for."""
    return capability_required(
        f"{may_not(principal, f'answer {question.name!r}')}: it asks for the capability "
        f"{capability!r}. The interrupt stays as it is.",
        capability,
        interrupt_id=question.id,
    )


def _refuse_nobody(question: Interrupt, principal: Principal) -> None:
    quorum = question.quorum
    if (
        quorum is not None
        and principal == TEMPORAL
        and principal.may(question.requested_capability)
    ):
        raise Refusal(
            Code.NOT_ASSIGNED,
            f"{question.name!r} takes the votes of {quorum.count} people, and this answer names nobody: "
            "answer through the API, with a token of your own.",
            interrupt_id=question.id,
        )


def _right(question: Interrupt, request: Request) -> str | None:
    principal, wanted, now = request.principal, request.on_behalf_of, request.now
    is_own = wanted in (None, principal.subject)
    if is_own and _fulfils(principal, question, now):
        return None
    if wanted == principal.subject:
        raise _no_right(question, request)
    makers = {
        each.by
        for each in request.active
        if wanted in (None, each.by) and _fulfils(each, question, now)
    }
    # Four eyes may leave one of several.
    makers = makers - question.barred.keys() or makers
    match sorted(makers):
        case []:
            raise _no_right(question, request)
        case [only]:
            return only
        case several:
            raise Refusal(
                Code.AMBIGUOUS_DELEGATION,
                f"You may answer {question.name!r} for "
                f"{', '.join(map(repr, several))}: name one with `on_behalf_of`.",
                interrupt_id=question.id,
                on_behalf_of=several,
            )


def _fulfils(person: _Person, question: Interrupt, now: datetime) -> bool:
    return any(person.may(capability) for capability in _asked_for(person, question, now))


def _asked_for(person: _Person, question: Interrupt, now: datetime) -> Iterator[str | None]:
    """Yield the capabilities that each let a person answer: the one of the question, and those of past
    escalations, if the person is among the people whom they name.
    """
    terms = question.effective_terms
    voters = () if terms.quorum is None else terms.quorum.of
    is_asked = not terms.assignees_only or person.is_among(terms.assignees)
    if is_asked and (not voters or person.is_among(voters)):
        yield question.requested_capability
    for each in _escalated(question, now):
        if not each.to or person.is_among(each.to):
            yield each.requested_capability


def _escalated(question: Interrupt, now: datetime) -> list[Escalation]:
    """Return the escalations that have come. Without moments none comes."""
    moments = zip(question.effective_terms.escalate, question.escalations, strict=False)
    return [each for each, at in moments if at <= now]


def _no_right(question: Interrupt, request: Request) -> Refusal:
    principal, wanted = request.principal, request.on_behalf_of
    if wanted not in (None, principal.subject) and all(
        each.by != wanted for each in request.active
    ):
        return Refusal(
            Code.NOT_ASSIGNED,
            f"You cannot answer {question.name!r} for {wanted!r}, who has not "
            "delegated that: leave out `on_behalf_of`, or ask for a delegation.",
            interrupt_id=question.id,
            on_behalf_of=wanted,
        )
    own = question.requested_capability
    capability = next(_asked_for(principal, question, request.now), own)
    if not principal.may(capability):
        return lacks_capability(question, principal, capability)
    terms = question.effective_terms
    of = () if terms.quorum is None else terms.quorum.of
    later = [name for each in _escalated(question, request.now) for name in each.to]
    people = [*(of or terms.assignees), *later][:_MOST_NAMED]
    listed = ", ".join(people)
    return Refusal(
        Code.NOT_ASSIGNED,
        f"You have no vote on {question.name!r}. These have: {listed}."
        if of
        else f"{may_not(principal, f'answer {question.name!r}')}: it is only for {listed}. Leave it "
        "to them, or have it reassigned.",
        interrupt_id=question.id,
        assignees=people,
    )


def filled(terms: Terms | None, values: Mapping[str, Json]) -> Terms | None:
    """Return the terms of a declared question, with the people whom the values name. Raise ValueError if
    a field names nobody. `not_by` keeps its templates: `barred` has the people whom they name.
    """
    if terms is None:
        return None
    for each in filter(is_template, terms.not_by):
        person(each, values)
    quorum, assignees = terms.quorum, _people(terms.assignees, values)
    if quorum is not None:
        quorum = replace(quorum, of=_people(quorum.of, values))
    return replace(terms, assignees=assignees, quorum=quorum)


def _people(names: tuple[str, ...], values: Mapping[str, Json]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(person(name, values) for name in names))


def person(name: str, values: Mapping[str, Json]) -> str:
    """Return a subject or group with each `{field}` filled. Raise ValueError if that is nobody's name."""

    def value_of(path: str) -> str:
        value = look_up(values, path)
        if not isinstance(value, str) or not _SUBJECT.fullmatch(value) or is_reserved(value):
            raise ValueError(
                f"{name!r} must name a person, but {path!r} is {canonical(value)[:100]}: start the run "
                "with the name of one subject, without blanks, commas, braces, '@' before it or 'group:'"
            )
        return value

    return fill_by(name, value_of)


def _refuse_barred(question: Interrupt, principal: Principal, name: str | None) -> None:
    barred: Mapping[str, str] = question.barred
    if principal == TEMPORAL and question.effective_terms.not_by:
        why = (
            f"{question.name!r} bars some people, and nobody knows whose this answer is: answer through "
            "the API, with a token of your own."
        )
    else:
        who = next((each for each in (principal.subject, name) if each in barred), None)
        if who is None:
            return
        rule, is_own = barred[who], who == principal.subject
        did = f"answered {rule!r}"
        if rule == STARTER:
            did = "started this run"
        elif is_template(rule):
            did = f"{'are' if is_own else 'is'} the {rule[1:-1]!r} of this run"
        why = f"{who!r} {did}, so nobody can answer {question.name!r} for {who!r}."
        if is_own:
            why = f"You {did}, so you cannot answer {question.name!r}."
        why += " Ask another approver."
    raise Refusal(
        Code.SEPARATION_OF_DUTIES,
        why,
        interrupt_id=question.id,
        not_by=list(question.effective_terms.not_by),
    )
