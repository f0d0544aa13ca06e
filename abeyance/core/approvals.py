"""What an answered gate covers: what was shown is what runs.

A gate is a question that asks for a capability. Its answer covers the visits that it leads to. What it
showed of the values is kept as hashes, and is held against the values when the first of these visits
begins: if anything differs, whoever changed it, the gate is asked again (`schedule`). After that only
people without its capability can have it asked again, by what they say: as the answer to another
question, or to an agent. What the author's code changes on the way needs nobody's word.

A tool call is bound to its arguments, which travel with it, so an approval of one covers that alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from abeyance.core import items, template
from abeyance.core.canonical import Json, sha256
from abeyance.core.draft import Draft
from abeyance.core.ledger import Interrupt
from abeyance.core.model import Question
from abeyance.core.state import Approval, Member, RunState, Scope, Token, Visit

_ABSENT: Final = "absent"
_Seen: TypeAlias = Callable[[Approval], Approval]


def shown_by(question: Question, values: Mapping[str, Json]) -> dict[str, str]:
    """Hashes of the values that a question shows, as it is written, by their paths."""
    found = {*template.paths(question.prompt), *template.paths(question.reason)}
    return {path: _hash(values, path) for path in sorted(found)}


def grant(visit: Visit, interrupt: Interrupt) -> Visit:
    """The visit, covered by the answer that its question got, if the question is a gate."""
    capability = interrupt.requested_capability
    if capability is None or interrupt.kind not in {"question", "rule"} or visit.call is not None:
        return visit
    approval = Approval(
        gate=visit.address,
        scope=visit.scope,
        node=visit.node,
        capability=capability,
        key=interrupt.key,
        shown=interrupt.fields,
        members=visit.members,
        way=visit.way,
    )
    # The node was a gate before where the run goes round in a loop.
    others = [each for each in visit.approvals if each.gate == visit.address]
    around = [
        each for each in visit.approvals if (each.scope, each.node) != (visit.scope, visit.node)
    ]
    return replace(visit, approvals=(*around, *others, approval))


def handed_in(approvals: Iterable[Approval], inputs: Mapping[str, str]) -> tuple[Approval, ...]:
    """What covers a nested graph that gets fields of the values around it, by their names in it."""
    return tuple(
        replace(
            each,
            begun=False,
            shown={
                ".".join([target, *path.split(".")[1:]]): hash_
                for path, hash_ in each.shown.items()
                for target, source in inputs.items()
                if source == path.split(".")[0]
            },
        )
        for each in approvals
    )


def hear(draft: Draft, visit: Visit, *capabilities: str | None) -> Visit:
    """The visit, after people have told it something under these capabilities. Whatever is around it has
    heard that too.
    """
    for outer in _around(draft.state, visit):
        draft.put_visit(replace(outer, heard=_joined(outer.heard, capabilities)))
    return replace(visit, heard=_joined(visit.heard, capabilities))


def _around(state: RunState, visit: Visit) -> list[Visit]:
    found = []
    while (address := state.scopes[visit.scope].visit) is not None:
        visit = state.visits[address]
        found.append(visit)
    return found


def _joined(heard: tuple[str | None, ...], more: Iterable[str | None]) -> tuple[str | None, ...]:
    return tuple(dict.fromkeys([*heard, *more]))


def changed(
    draft: Draft,
    scope: str,
    members: tuple[Member, ...],
    before: Mapping[str, Json],
    *,
    own: tuple[Approval, ...],
    heard: tuple[str | None, ...],
) -> tuple[Approval, ...]:
    """The values of a scope, or of an item in it, were changed by what is covered by `own`, after it has
    `heard` people. Returns what it is covered by now.

    What code made of its own and of what was approved stands approved. What somebody without the
    capability said is held against what was shown: also on every other branch.
    """
    if not own and not _is_covered(draft.state, scope):
        return own
    after = items.values_at(draft.state, scope, members)
    moved = {name for name in {*before, *after} if _hash(before, name) != _hash(after, name)}

    def seen(approval: Approval, *, is_own: bool) -> Approval:
        touched = [path for path in approval.shown if path.split(".")[0] in moved]
        if not touched:
            return approval
        if any(capability != approval.capability for capability in heard):
            return replace(approval, begun=False)
        if not is_own:
            return approval
        fresh = {
            path: _hash(after, path)
            for path in touched
            if approval.shown[path] == _hash(before, path)
        }
        return replace(approval, shown={**approval.shown, **fresh})

    _put_all(draft, scope, members, lambda approval: seen(approval, is_own=False))
    return tuple(seen(approval, is_own=True) for approval in own)


def edited(draft: Draft, scope: str) -> None:
    """A person has edited values of a scope. What a gate showed that names no field nobody can tell, so
    it is asked again, if what it allowed has not begun.
    """
    _put_all(
        draft,
        scope,
        (),
        lambda each: each if each.begun or each.shown else replace(each, broken=True),
    )


def spoiled(visit: Visit) -> Visit:
    """The visit, whose gates have to be asked again, because a person has changed what comes of them."""
    return replace(
        visit,
        approvals=tuple(
            each if each.begun else replace(each, broken=True) for each in visit.approvals
        ),
    )


def void(state: RunState, visit: Visit) -> Approval | None:
    """The first gate that has to be asked again before a visit may begin; None if it may."""
    values = items.values_of(state, visit)
    for each in visit.approvals:
        if each.broken:
            return each
        if not each.begun and any(
            _hash(values, path) != hash_ for path, hash_ in each.shown.items()
        ):
            return each
    return None


def begun(visit: Visit) -> Visit:
    """The visit, as what its approvals allowed."""
    return replace(visit, approvals=tuple(replace(each, begun=True) for each in visit.approvals))


def renewed(visit: Visit) -> tuple[Approval, ...]:
    """What covers a visit whose code is run: of what that has asked itself it sees the values as they
    are now, and asks again if they are not what it showed.
    """
    return tuple(
        replace(each, broken=False) if each.gate == visit.address else each
        for each in visit.approvals
    )


def of_tokens(tokens: Iterable[Token]) -> tuple[Approval, ...]:
    """What covers the visit that several tokens begin together."""
    return tuple({(a.gate, a.key): a for token in tokens for a in token.approvals}.values())


def _put_all(draft: Draft, scope: str, members: tuple[Member, ...], seen: _Seen) -> None:
    """Look at the approvals of every branch that reads values of a scope, or of an item in it."""
    for visit in list(draft.state.visits.values()):
        if visit.scope == scope and visit.approvals and visit.members[: len(members)] == members:
            found = tuple(map(seen, visit.approvals))
            if found != visit.approvals:
                draft.put_visit(replace(visit, approvals=found))
    scope_ = draft.state.scopes[scope]
    if not members and (kept := _with_tokens(scope_, seen)) is not scope_:
        draft.put_scope(kept)


def _is_covered(state: RunState, scope: str) -> bool:
    tokens = state.scopes[scope].tokens.values()
    return any(visit.approvals for visit in state.visits.values() if visit.scope == scope) or any(
        token.approvals for come in tokens for queue in come.values() for token in queue
    )


def _with_tokens(scope: Scope, seen: _Seen) -> Scope:
    tokens = {
        key: {
            source: tuple(
                replace(token, approvals=tuple(map(seen, token.approvals))) for token in queue
            )
            for source, queue in come.items()
        }
        for key, come in scope.tokens.items()
    }
    return scope if tokens == scope.tokens else replace(scope, tokens=tokens)


def _hash(values: Mapping[str, Json], path: str) -> str:
    found = template.look_up(values, path, _ABSENT)
    return _ABSENT if found is _ABSENT else sha256(found)
