"""Four eyes: who started the run and who answered which question, and whom that bars from another one.

For each name the last answer counts: in the same item of a fan-out, else in the same graph, else in the
graphs around it. An answer that the deadline gave is nobody's. An open question has the people whom it
bars; they are computed when it opens and at every answer. A vote or a held yes of a person who is barred
by then no longer counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from abeyance.core import deadlines, items
from abeyance.core.events import Responded
from abeyance.core.ledger import BARRING, BY_NAME, Answerer, Interrupt, Vote
from abeyance.core.policy import TIMEOUT
from abeyance.core.state import Item, RunState, Scope
from abeyance.core.step import Step
from abeyance.core.terms import STARTER, Terms, is_template, named
from abeyance.core.visit import FanOutBranch, Visit
from abeyance.core.who_may_answer import person
from abeyance.errors import Code, Refusal

ALWAYS_KNOWN: Final = frozenset(
    {STARTER, "error", "interrupt_before", "interrupt_after", "approve", "outcome", "budget"}
)
"""In `not_by`: the starter, and the questions that runs and agents ask by themselves."""
_MOST_NAMES: Final = 200
"""How many names a graph, or an item of a fan-out, remembers. Code may ask under ever new names."""


def answered_by(state: RunState, visit: Visit, name: str) -> Answerer | None:
    """Return who last answered the question with a name, as a visit knows it; None if nobody did."""
    return next((found[name] for found in _records(state, visit) if name in found), None)


def known_to(state: RunState, visit: Visit) -> Mapping[str, Answerer]:
    """Return who answered last, by the names of the questions, as a visit knows it."""
    known: dict[str, Answerer] = {}
    for found in _records(state, visit):
        known = {**found, **known}
    return known


def barred(
    state: RunState, visit: Visit, terms: Terms | None, before: Interrupt | None = None
) -> Mapping[str, str]:
    """Return the people whom the terms of a visit's question bar, each with the rule that does. `before`
    is the question, if it is open: votes on it do not bar the voter, and people whom a field named stay
    barred.
    """
    found: dict[str, str] = {}
    own = None if before is None else before.id
    filled = () if before is None or before.terms is None else before.terms.not_by
    # The rule with a field comes first: it still bars the same people when another rule no longer does.
    for rule in () if terms is None else sorted(terms.not_by, key=is_template, reverse=True):
        people: tuple[str, ...] = state.starters
        if before is not None and is_template(rule) and rule in filled:
            people = tuple(who for who, by in before.barred.items() if by == rule)
        elif is_template(rule):
            people = (person(rule, items.values_of(state, visit)),)
        elif rule != STARTER:
            last = answered_by(state, visit, rule)
            people = (*_undecided(state, visit, rule, own), *(() if last is None else last.people))
        found.update(dict.fromkeys(people, rule) | found)
    return found


def why_unknown(
    state: RunState, visit: Visit, terms: Terms | None, beside: Collection[str]
) -> str | None:
    """Return the fault in the rules of a question that a visit is about to ask together with those
    `beside` it: a name that no question has would bar nobody.
    """
    for name in () if terms is None else terms.not_by:
        if not (name in beside or _is_known(state, visit, name)):
            return (
                f"not_by= names {name!r}, and no question of that name has been asked, nor does the "
                "graph declare one, so it would bar nobody: correct the name"
            )
    return None


def _is_known(state: RunState, visit: Visit, name: str) -> bool:
    return (
        name in ALWAYS_KNOWN
        or is_template(name)
        or any(name in state.graph_of(v.scope).question_names for v in state.outward(visit))
        or answered_by(state, visit, name) is not None
        or any(_sees(state, visit, each) for each in state.ledger.open.found(BY_NAME, name))
    )


def remember(step: Step, visit: Visit, interrupt: Interrupt, vote: Vote) -> None:
    """Record who answered a question, and bar them from the open questions that say so."""
    by, on_behalf_of = vote.by, vote.on_behalf_of
    named = () if by == TIMEOUT else (by, on_behalf_of)
    people = tuple(dict.fromkeys(filter(None, (*named, *_voters(interrupt)))))
    answerer = Answerer(
        by=by, on_behalf_of=on_behalf_of, at=step.now, people=people, votes=interrupt.votes
    )
    _put(step, visit.scope, visit.members, {interrupt.name: answerer})
    bar(step, interrupt.name)


def bar(step: Step, name: str) -> None:
    """Update the people whom the question with a name bars from other open ones, after an answer or a
    vote.
    """
    for found in step.run.ledger.open.found(BARRING, name):
        visit = step.run.visits[found.visit]
        now_barred = barred(step.run, visit, found.terms, found)
        entry = step.run.ledger.open[found.id] = replace(found, barred=now_barred)
        if void := now_barred.keys() & {*_voters(entry)}:
            left = tuple(vote for vote in entry.votes if not vote.people & void)
            reopen(step, entry, votes=left, reason=f"{min(void)!r} has answered {name!r} since")
            bar(step, entry.name)


def reopen(
    step: Step,
    entry: Interrupt,
    *,
    votes: tuple[Vote, ...],
    reason: str,
    by: str | None = None,
) -> None:
    """Let only these votes on an open question count, and no yes that is held."""
    is_held = entry.held is not None
    left = deadlines.reopened(entry, step.now, votes) if is_held else replace(entry, votes=votes)
    step.run.ledger.open[entry.id] = left
    step.publish_about(entry, "interrupt.reopened", by, reason=reason)


def gather(
    step: Step,
    scope: str,
    outer: tuple[FanOutBranch, ...],
    gathered: Iterable[Item | Scope],
) -> None:
    """Keep who answered in the items through which a run leaves a fan-out. If several answered, all had a
    part in it.
    """
    found: dict[str, Answerer] = {}
    for item in gathered:
        for name, each in item.answerers.items():
            before = () if name not in found else found[name].people
            found[name] = replace(each, people=tuple(dict.fromkeys((*before, *each.people))))
    if found:
        _put(step, scope, outer, found)


def warnings(state: RunState, entry: Interrupt) -> list[str]:
    """Return warnings about rules of an open question that nobody can fulfil, or that have no effect so
    far.
    """
    terms = entry.terms
    if terms is None:
        return []
    found = []
    if (people := named(terms)) is not None:
        left = people - entry.barred.keys()
        has_votes = terms.quorum is not None and bool(terms.quorum.of)
        way_out = "reassign it, and its votes too" if has_votes else "reassign it"
        if not left:
            found.append(f"all people whom it is for are barred: {way_out}")
        elif terms.quorum is not None and terms.quorum.count > len(left):
            found.append(f"it needs more approvals than it has people who may answer: {way_out}")
    voters = () if terms.quorum is None else terms.quorum.of
    if voters and entry.reassigned and (others := [*{*terms.assignees} - {*voters}]):
        found.append(
            f"{', '.join(sorted(others))}: no vote came with the question, which {', '.join(voters)} "
            "decide: reassign its votes too if others are to vote"
        )
    visit = state.visits[entry.visit]
    lost = (name for name in terms.not_by if not _is_known(state, visit, name))
    return [
        *found,
        *(f"not_by names {name!r}, which is no longer asked: it bars nobody" for name in lost),
    ]


def refuse_both(state: RunState, event: Responded) -> None:
    """Refuse to answer, in one call, a question and another one that bars its answerer."""
    known = [entry for id_ in event.answers if (entry := state.ledger.open.get(id_)) is not None]
    answered = {entry.name for entry in known}
    for entry in known:
        both = answered.intersection(entry.effective_terms.not_by)
        if both - {entry.name}:
            other = min(both)
            raise Refusal(
                Code.SEPARATION_OF_DUTIES,
                f"One person may not answer both {entry.name!r} and {other!r}: have different people "
                "answer them, each in a call of its own.",
                interrupt_id=entry.id,
                not_by=[other],
            )


def _undecided(state: RunState, visit: Visit, name: str, own: str | None) -> Iterator[str]:
    """Yield who has a part in an answer that is not settled yet, by a vote or by a held yes."""
    for entry in state.ledger.open.found(BY_NAME, name):
        if entry.id != own and _sees(state, visit, entry):
            yield from _voters(entry)


def _sees(state: RunState, visit: Visit, entry: Interrupt) -> bool:
    asking = state.visits[entry.visit]
    return any(
        asking.scope == each.scope and asking.members == each.members[: len(asking.members)]
        for each in state.outward(visit)
    )


def _voters(entry: Interrupt) -> list[str]:
    cast = (*entry.votes, *filter(None, [entry.held]))
    return [name for vote in cast for name in sorted(vote.people)]


def _put(
    step: Step,
    scope: str,
    members: tuple[FanOutBranch, ...],
    latest: Mapping[str, Answerer],
) -> None:
    holder = items.holder_of(step, scope, members)
    known = {name: it for name, it in holder.answerers.items() if name not in latest}
    kept = [*known.items(), *latest.items()][-_MOST_NAMES:]
    holder.answerers = dict(kept)


def _records(state: RunState, visit: Visit) -> Iterator[Mapping[str, Answerer]]:
    for each in state.outward(visit):
        for member in reversed(each.members):
            yield items.item_of(state, each.scope, member).answerers
        yield state.scopes[each.scope].answerers
