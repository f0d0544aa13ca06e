"""Approvals: an answered gate covers exactly what it showed.

A gate is a question that asks for a capability, or that not everybody may answer, or not alone. Its
answer covers the visits that it leads to. Hashes of the values that it showed are compared with the
values when the first of these visits begins: after any change, by anyone, the gate is asked again
(`schedule`). After that only the words of people without its capability can reopen it: their answers to
other questions, or to an agent. What the author's code changes on the way needs no approval.

A question that everybody may answer is held against the values in the same way until the first code
behind it begins. Then its answer is used up, and nobody needs a permission because of it.

A tool call is bound to its arguments, which travel with it, so its approval covers that call alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from abeyance.core import authority, duties, items
from abeyance.core.copying import replace
from abeyance.core.json import Json, differing, look_up, paths, sha256
from abeyance.core.ledger import CAST, Interrupt
from abeyance.core.spec import InterruptNode, InterruptSpec
from abeyance.core.state import BY_VISIT, RunState, Scope
from abeyance.core.terms import is_restricted
from abeyance.core.visit import Approval, FanOutBranch, Running, TakenToken, Token, Visit
from abeyance.core.working_state import WorkingState

_ABSENT: Final = "absent"
Covered: TypeAlias = tuple[Approval, ...]
_Change: TypeAlias = Callable[[Covered], Covered]


def shown_by(question: InterruptSpec, values: Mapping[str, Json]) -> dict[str, str]:
    """Return hashes of the values that a question shows, by their paths."""
    shown_paths = {*paths([question.prompt, question.reason, question.payload])}
    return {path: hash_at(values, path) for path in sorted(shown_paths)}


def grant(visit: Visit, interrupt: Interrupt) -> None:
    """Cover a visit by the answer to its question."""
    if interrupt.kind not in {"question", "rule"} or visit.call is not None:
        return
    capability = authority.of_answer(interrupt)
    if capability is None and not interrupt.fields:
        return
    approval = Approval(
        gate=visit.address,
        scope=visit.scope,
        node=visit.node,
        capability=capability,
        key=interrupt.key,
        shown_hashes=interrupt.fields,
        is_restricted=is_restricted(interrupt.terms),
        members=visit.members,
        routing=visit.routing,
    )
    same = (approval.gate, approval.key)
    others = (each for each in visit.approvals if (each.gate, each.key) != same)
    visit.approvals = without_rounds((*others, approval))


def without_rounds(covered: Covered) -> Covered:
    """Return what covers a visit, without approvals of earlier rounds of a loop. One stays while another
    gate after it was reached by way of it alone: where that is asked again, both count.
    """
    kept = list(covered)
    for at in reversed(range(len(covered))):
        old = covered[at]
        later = [each for each in covered[at + 1 :] if each in kept]
        newer = next((n for n, each in enumerate(later) if _is_again(each, old)), None)
        before = {(each.scope, each.node) for each in covered[:at]}
        if newer is not None and all(
            (each.scope, each.node) in before or each.gate == old.gate for each in later[:newer]
        ):
            kept.remove(old)
    return tuple(kept)


def _is_again(new: Approval, old: Approval) -> bool:
    """Return whether an approval was given by the same node as an older one, in a later visit."""
    return (new.scope, new.node) == (old.scope, old.node) and new.gate != old.gate


def _latest(covered: Covered) -> Iterator[Approval]:
    """Yield the approvals of each node's latest visit: only these are compared with the values."""
    gates = {(each.scope, each.node): each.gate for each in covered}
    yield from (each for each in covered if gates[each.scope, each.node] == each.gate)


def of_others(visit: Visit) -> Covered:
    """Return what covers a visit, without approvals that it or something inside it asked for."""
    return tuple(each for each in visit.approvals if each.gate != visit.address)


def are_guarded(covered: Covered) -> bool:
    """Return whether one of these was given by somebody who was allowed to."""
    return any(not each.is_open for each in covered)


def field_of(path: str) -> str:
    """Return the field of a path."""
    return path.partition(".")[0]


def hear(draft: WorkingState, visit: Visit, capability: str | None) -> None:
    """Record that a visit, and every visit around it, has read words of people with this capability."""
    for each in (visit, *_around(draft.state, visit)):
        if capability not in each.heard_from:
            draft.visit(each.address).heard_from = (*each.heard_from, capability)


def _around(state: RunState, visit: Visit) -> list[Visit]:
    address = state.scopes[visit.scope].visit
    if address is None:
        return []
    around = state.visits[address]
    return [around, *_around(state, around)]


def changed(
    draft: WorkingState,
    scope: str,
    members: tuple[FanOutBranch, ...],
    before: Mapping[str, Json],
    *,
    own: tuple[Approval, ...],
    heard: tuple[str | None, ...],
    by: str = "",
) -> tuple[Approval, ...]:
    """Update all approvals after values of a scope, or of an item in it, changed; return `own` so too.

    The change was made by the visit `by`, covered by `own`, after it has read words of people with the
    capabilities `heard`. What code made of its own data and of approved values stays approved. Words of
    people without the capability are compared with what was shown, on every other branch too.
    """
    if not own and not heard:
        return own
    after = items.values_at(draft.state, scope, members)
    changed_fields = differing(before, after)
    if heard:
        _hear_around(draft, scope, members, changed_fields, heard)
    if changed_fields and None in heard:
        _reopen_cast(draft, scope)

    def updated(approval: Approval, *, is_own: bool) -> Approval:
        if approval.is_open and approval.gate != by:
            return approval
        shows_no_field = not (approval.shown_hashes or approval.begun or is_own)
        if shows_no_field and changed_fields and None in heard:
            # It showed no field, so this change may be about it.
            return replace(approval, broken=True)
        touched = [path for path in approval.shown_hashes if field_of(path) in changed_fields]
        if not touched:
            return approval
        if not approval.is_open and any(name != approval.capability for name in heard):
            return replace(approval, begun=False)
        if not is_own:
            return approval
        fresh = {
            path: hash_at(after, path)
            for path in touched
            if approval.shown_hashes[path] == hash_at(before, path)
        }
        return replace(approval, shown_hashes={**approval.shown_hashes, **fresh})

    if heard:
        put_all(draft, scope, members, lambda all_: tuple(updated(a, is_own=False) for a in all_))
    return tuple(updated(approval, is_own=True) for approval in own)


def edited(draft: WorkingState, scope: str, fields: Collection[str]) -> None:
    """Update approvals after a person has edited fields of the values: around their graph they are not
    the work of its code.
    """
    around = draft.state.scopes[scope].visit
    if around is not None and fields:
        hear(draft, draft.state.visits[around], None)
    if fields:
        _reopen_cast(draft, scope)
    _hear_around(draft, scope, (), fields, (None,))
    put_all(draft, scope, (), lambda all_: after_edit(all_, fields))


def _hear_around(
    draft: WorkingState,
    scope: str,
    members: tuple[FanOutBranch, ...],
    fields: Collection[str],
    heard: tuple[str | None, ...],
) -> None:
    """Update nested graphs after fields around them were changed, by words of people with these
    capabilities. What is inside has a copy from before, so only gates that show nothing are asked again.
    """
    state = draft.state
    visits = items.visits_within(state, scope, members)
    for inner in [s for visit in visits for s in state.scope_table.found(BY_VISIT, visit.address)]:
        heard_from = {
            name: tuple(dict.fromkeys([*inner.heard_from.get(name, ()), *heard]))
            for name in sorted(fields)
        }
        draft.scope(inner.address).heard_from = {**inner.heard_from, **heard_from}
        for address in [*state.scopes] if fields and None in heard else ():
            if f"{address};".startswith(f"{inner.address};"):
                put_all(draft, address, (), lambda all_: after_edit(all_, ()))
                _reopen_cast(draft, address)


def _reopen_cast(draft: WorkingState, scope: str) -> None:
    """Have answers to open gates given again that show no field: they may be about the change."""
    for entry in draft.state.ledger.open_table.found(CAST, scope):
        node = draft.state.node_of(draft.state.visits[entry.visit])
        # Code asks with what it shows, and is run again.
        is_declared = entry.kind == "rule" or isinstance(node, InterruptNode)
        if is_declared and not entry.fields and authority.of_answer(entry) is not None:
            duties.reopen(draft, entry, votes=(), reason="the values have changed since")


def after_edit(covered: Covered, fields: Collection[str]) -> Covered:
    """Return what covers a visit after a person has edited fields of its values.

    Before what it allowed has begun, a gate that showed no field is asked again. After that one is that
    showed such a field, if it is restricted: the editor could not have approved it, or not alone.
    """

    def is_broken(each: Approval) -> bool:
        if each.is_open:
            return False
        if not each.begun:
            return not each.shown_hashes
        return each.is_restricted and any(field_of(path) in fields for path in each.shown_hashes)

    return tuple(replace(each, broken=True) if is_broken(each) else each for each in covered)


def invalidate(visit: Visit) -> None:
    """Have the gates of a visit asked again, because a person has changed its result."""
    visit.approvals = tuple(
        each if each.begun or each.is_open else replace(each, broken=True)
        for each in visit.approvals
    )


def first_invalid(state: RunState, visit: Visit) -> Approval | None:
    """Return the first gate that has to be asked again before a visit's code may run, or None."""
    for unit in (visit, *_around(state, visit)):
        values = items.values_of(state, unit)
        for each in _latest(of_others(unit)):
            if each.broken or (not each.begun and _differs(each, values)):
                return each
    return None


def are_unchanged(state: RunState, visit: Visit) -> bool:
    """Return whether the values that the gates of a visit showed are those that were approved."""
    return not any(
        each.broken or _differs(each, items.values_of(state, unit))
        for unit in (visit, *_around(state, visit))
        for each in _latest(unit.approvals)
        if not each.is_open
    )


def _differs(approval: Approval, values: Mapping[str, Json]) -> bool:
    return any(hash_at(values, path) != hash_ for path, hash_ in approval.shown_hashes.items())


def begin(draft: WorkingState, visit: Visit) -> None:
    """Mark the approvals of a visit, and of the visits around it, as begun.

    Its own questions are checked by its code, which sees the current values and asks again if they
    differ from what was shown. Answers that everybody could give are used up on every branch, and
    forgotten when more code begins.
    """
    _change_open(draft, visit, lambda each: None if each.begun else replace(each, begun=True))
    for address in [*(each.address for each in _around(draft.state, visit)), visit.address]:
        if draft.state.visits[address].approvals:
            unit = draft.visit(address)
            unit.approvals = tuple(
                each if each.gate == unit.address or each.begun else replace(each, begun=True)
                for each in unit.approvals
            )
            keep(draft, unit)
    visit.approvals = tuple(
        replace(each, broken=False) if each.broken and each.gate == visit.address else each
        for each in visit.approvals
    )


def use_up(visit: Visit, running: Running) -> None:
    """Record that the code of a visit has gone on with the answers that everybody could give."""
    gates = {each.key for each in visit.approvals if each.gate == visit.address}
    if used := {*running.answered_keys} & {*visit.questions.shown_at} - gates:
        visit.questions = visit.questions.used_up(used)


def not_begun(draft: WorkingState, visit: Visit) -> None:
    """Let answers that everybody could give count again: the code that used them up did not run."""
    _change_open(draft, visit, lambda each: replace(each, begun=False))


def _change_open(
    draft: WorkingState, visit: Visit, change: Callable[[Approval], Approval | None]
) -> None:
    """Change, or remove, the open approvals of a visit and the visits around it on every branch."""
    units = (visit, *_around(draft.state, visit))
    questions = {(a.gate, a.key) for unit in units for a in unit.approvals if a.is_open}

    def changed_(covered: Covered) -> Covered:
        return tuple(
            new
            for each in covered
            if (new := change(each) if (each.gate, each.key) in questions else each) is not None
        )

    for scope in [*draft.state.scopes] if questions else ():
        put_all(draft, scope, (), changed_)


def keep(draft: WorkingState, visit: Visit) -> None:
    """Store approvals given in an item or nested graph, for what follows it."""
    keep_in(draft, visit.scope, visit.members, visit.approvals)


def keep_in(
    draft: WorkingState, scope: str, members: tuple[FanOutBranch, ...], covered: Iterable[Approval]
) -> None:
    """Store approvals for the item of these members, else for the nested graph."""
    own = [each for each in covered if each.scope == scope and each.members == members]
    if not own:
        return
    if not members and draft.state.scopes[scope].visit is None:
        return
    holder = draft.item(scope, members[-1]) if members else draft.scope(scope)
    # The latest approval of each node.
    latest = {
        (approval.node, key): approval
        for (_, key), approval in _by_question([*holder.approvals, *own]).items()
    }
    holder.approvals = tuple(latest.values())


def _by_question(approvals: Iterable[Approval]) -> dict[tuple[str, str], Approval]:
    """Return one approval for each question: begun, or broken, if it is on any branch."""
    by_question: dict[tuple[str, str], Approval] = {}
    for each in approvals:
        earlier = by_question.setdefault((each.gate, each.key), each)
        if earlier is each:
            continue
        tokens = {
            (m.edge, m.source, m.token.visit): m
            for m in (*earlier.taken_tokens, *each.taken_tokens)
        }
        is_more = (each.broken, each.begun) >= (earlier.broken, earlier.begun)
        by_question[each.gate, each.key] = replace(
            each if is_more else earlier, taken_tokens=tuple(tokens.values())
        )
    return by_question


def of_tokens(scope: str, edge: str, tokens: Mapping[str, Token]) -> Covered:
    """Return what covers the visit that several tokens begin together at a join."""
    merged = _by_question(each for token in tokens.values() for each in token.approvals)
    return tuple(
        each
        if each.scope != scope
        else replace(
            each,
            taken_tokens=(
                *each.taken_tokens,
                *(
                    TakenToken(edge=edge, source=source, token=token)
                    for source, token in tokens.items()
                    if not covers(each.gate, token.approvals)
                ),
            ),
        )
        for each in merged.values()
    )


def covers(gate: str, covered: Iterable[Approval]) -> bool:
    """Return whether the answer of a gate is among these approvals."""
    return any(each.gate == gate for each in covered)


def tokens_taken_with(state: RunState, approval: Approval) -> list[TakenToken]:
    """Return the tokens of other branches that joins have taken together with those of an approval."""
    scope = state.scopes[approval.scope]
    approvals = [each for visit in state.visits.values() for each in visit.approvals]
    approvals += [each for token in _tokens(scope) for each in token.approvals]
    approvals += [each for fan in scope.fans.values() for each in fan.approvals]
    current = {(each.gate, each.key): each for each in approvals}
    gate = approval.gate, approval.scope
    taken_tokens = {
        (each.edge, each.source, each.token.visit): each
        for own in approvals
        for each in (own.taken_tokens if (own.gate, own.scope) == gate else ())
    }

    def as_now(token: Token) -> Token:
        now = (
            replace(current.get((a.gate, a.key), a), taken_tokens=a.taken_tokens)
            for a in token.approvals
        )
        return replace(token, approvals=tuple(now))

    return [replace(each, token=as_now(each.token)) for each in taken_tokens.values()]


def forget(draft: WorkingState, approval: Approval) -> None:
    """Remove the approvals of a gate that is asked again."""

    def rest(covered: Covered) -> Covered:
        return tuple(each for each in covered if each.gate != approval.gate)

    put_all(draft, approval.scope, (), rest)


def put_all(
    draft: WorkingState, scope: str, members: tuple[FanOutBranch, ...], change: _Change
) -> None:
    """Change the approvals of every branch that reads values of a scope, or of an item in it."""
    for visit in items.visits_within(draft.state, scope, members):
        if visit.approvals:
            draft.visit(visit.address).approvals = change(visit.approvals)
    around = draft.scope(scope)
    for address, fan in around.fans.items():
        if fan.approvals and items.are_within(members, fan.outer):
            draft.fan(scope, address).approvals = change(fan.approvals)
        for index, item in items.within(address, fan, members):
            if item.approvals:
                own = draft.item(scope, FanOutBranch(fan=address, index=index))
                own.approvals = change(item.approvals)
    if not members:
        around.tokens = {
            key: {
                source: tuple(replace(token, approvals=change(token.approvals)) for token in queue)
                for source, queue in come.items()
            }
            for key, come in around.tokens.items()
        }
        around.approvals = change(around.approvals)


def _tokens(scope: Scope) -> Iterator[Token]:
    for come in scope.tokens.values():
        for queue in come.values():
            yield from queue


def hash_at(values: Mapping[str, Json], path: str) -> str:
    """Return the hash of the value at a path, which is known for one that is not there too."""
    value = look_up(values, path, _ABSENT)
    return _ABSENT if value is _ABSENT else sha256(value)
