"""Approvals at the boundaries of nested graphs and fan-outs: how far they reach in, and out again.

Outside, an approval is of what the graph or the items were given, and have made of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from abeyance.core.address import Address
from abeyance.core.approvals import Covered, field_of, hash_at, without_rounds
from abeyance.core.copying import replace
from abeyance.core.json import Json
from abeyance.core.spec import GraphSpec
from abeyance.core.state import FanOut, Scope
from abeyance.core.visit import Approval, FanOutBranch, Visit

_OPEN: Final = "/open"
"""In place of a capability; no question and no capability of a graph is called so."""


def handed_in(covered: Iterable[Approval], inputs: Mapping[str, str]) -> Covered:
    """Return what covers a nested graph, with the shown fields under their inner names."""
    return tuple(
        replace(
            each,
            taken_tokens=(),
            shown_hashes={
                _renamed(path, target): hash_
                for path, hash_ in each.shown_hashes.items()
                for target, source in inputs.items()
                if source == field_of(path)
            },
        )
        for each in covered
    )


def handed_out(
    graph: GraphSpec,
    visit: Visit,
    scope: Scope,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
) -> None:
    """Cover a visit by the gates that were answered in its nested graph. What they showed is compared
    with the graph's input and output.
    """
    if visit.call is not None:
        return
    approvals = []
    for each in filter(_still_counts, scope.approvals):
        shown: dict[str, str] = {}
        begun, broken = each.begun, each.broken
        for path, hash_ in each.shown_hashes.items():
            name, now = field_of(path), hash_at(scope.values, path)
            source = inputs.get(name)
            if source is not None:
                begun &= {*scope.heard_from.get(source, ())} <= {each.capability}
                shown[_renamed(path, source)] = hash_at(scope.input, path)
            for target, origin in outputs.items():
                if origin == name:
                    # What code made of approved values stays approved.
                    broken |= not each.begun and hash_ != now
                    declared = graph.fields.get(target)
                    if declared is None or declared.reducer == "last":
                        shown[_renamed(path, target)] = now
        outer = _outside(each, visit.address, visit.scope, members=visit.members, shown=shown)
        approvals.append(replace(outer, begun=begun, broken=broken))
    others = (each for each in visit.approvals if each.gate != visit.address)
    visit.approvals = without_rounds((*others, *approvals))


def gathered(
    graph: GraphSpec,
    fan: FanOut,
    scope: str,
    address: str,
    *,
    merged: Mapping[int, Mapping[str, Json]],
    after: Mapping[str, Json],
) -> Covered:
    """Return the approvals given in the items of a gathered fan-out, one for each capability. `merged`
    are the values in the gathered items that have any, `after` those of all items together.
    """
    by_capability: dict[str | None, Approval] = {}
    heard = Counter(name for item in fan.items if item.patch for name in item.heard_from)
    for index, values in merged.items():
        item = fan.items[index]
        own_words = Counter(item.heard_from if item.patch else ())
        for own in filter(_still_counts, item.approvals):
            each = _beside(graph, own, {*(heard - own_words)}, values, after)
            earlier = by_capability.get(each.capability)
            shown = dict(earlier.shown_hashes) if earlier is not None else {}
            for path, hash_ in each.shown_hashes.items():
                if hash_ == hash_at(after, path):
                    shown.setdefault(path, hash_)
                else:
                    shown[path] = hash_
            outer = _outside(each, address, scope, members=fan.outer, shown=shown)
            by_capability[each.capability] = replace(
                outer,
                key=_OPEN if each.capability is None else each.capability,
                is_restricted=each.is_restricted or (earlier is not None and earlier.is_restricted),
                begun=each.begun and (earlier is None or earlier.begun),
                broken=each.broken or (earlier is not None and earlier.broken),
            )
    return tuple(by_capability.values())


def _still_counts(approval: Approval) -> bool:
    """Return whether an approval is not used up."""
    return not (approval.is_open and approval.begun)


def _beside(
    graph: GraphSpec,
    own: Approval,
    heard: AbstractSet[str | None],
    values: Mapping[str, Json],
    after: Mapping[str, Json],
) -> Approval:
    """Return an approval given in an item, of these `values`, beside what the other items have made of
    them, after words of people with the capabilities `heard`.
    """
    shown, is_changed = {}, False
    # What code made of approved values stays approved, once what they were approved for has begun.
    is_theirs = not own.begun or not heard <= {own.capability}
    for path, hash_ in own.shown_hashes.items():
        field, mine, now = (
            graph.fields.get(field_of(path)),
            hash_at(values, path),
            hash_at(after, path),
        )
        stays = own.begun or hash_ == mine
        # What a reducer adds to it changes nothing of it.
        is_last = field is None or field.reducer == "last"
        is_others = stays and is_theirs and is_last and mine != now
        shown[path] = (mine if is_others else now) if stays else hash_
        is_changed |= is_others
    return replace(
        own,
        shown_hashes=shown,
        begun=own.begun and not is_changed,
        # One that showed no field may be about what another item has changed.
        broken=own.broken or (not own.begun and not shown and None in heard),
    )


def out_of_items(visit: Visit, members: tuple[FanOutBranch, ...]) -> Covered:
    """Return what covers a visit that is only within `members`, not in all items of `visit`."""
    depth = len(members)
    return tuple(
        _outside(
            each, each.members[depth].fan, each.scope, members=members, shown=each.shown_hashes
        )
        if each.scope == visit.scope and len(each.members) > depth
        else each
        for each in visit.approvals
    )


def _outside(
    approval: Approval,
    gate: str,
    scope: str,
    *,
    members: tuple[FanOutBranch, ...],
    shown: Mapping[str, str],
) -> Approval:
    """Return an approval that leaves its nested graph or items, whose visit is now asked again whole."""
    return replace(
        approval,
        gate=gate,
        scope=scope,
        node=Address.parse(gate).segments[-1].id,
        key=f"{approval.node}/{approval.key}",
        members=members,
        shown_hashes=shown,
        routing=None,
        taken_tokens=(),
    )


def _renamed(path: str, field: str) -> str:
    return ".".join([field, *path.split(".")[1:]])
