"""Values as visits read and change them: a scope's, an item's, and an agent's memory.

Each field has a reducer: `last` replaces, `append` extends a list by a list, `merge` updates a mapping,
`add` sums numbers (a Decimal is a text), `union` keeps the distinct items of lists, and `start` keeps
what the start of the run has set. Reducers are data, not functions, because the merge happens here, in
the same way in every replay.

Within an item, the values are the scope's with the item's own patches on top; those of an item inside
an item build on both. Nothing is visible outside before the fan-out is gathered, so neither other
branches nor the order of items matter. Patches of one item are folded into one: every reducer is
associative.

The conversation of an agent is stored elsewhere, and the run has only a reference to its end: in the
field `transcript` of the agent's values, and in `RunState.transcripts` once those are gone. An agent
that remembers starts with what the last visit of the same node, in the same graph, has left.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation, localcontext
from math import inf
from typing import Final

from abeyance.core.json import Json, canonical, size, why_not_json
from abeyance.core.spec import FieldSpec, GraphSpec, Reducer, SubgraphNode
from abeyance.core.state import Item, RunState, Scope
from abeyance.core.step import Step
from abeyance.core.visit import FanOutBranch, Visit
from abeyance.errors import Code, Refusal

_LAST = FieldSpec()
_DIGITS = 1_000
"""The most that a sum of Decimals may have."""


class PatchError(Exception):
    """A patch cannot be merged; the text names the field."""


def values_of(state: RunState, visit: Visit) -> Mapping[str, Json]:
    """Return the values that a visit reads."""
    return values_at(state, visit.scope, visit.members)


def values_at(state: RunState, scope: str, members: tuple[FanOutBranch, ...]) -> Mapping[str, Json]:
    """Return the values within these items of a scope's fan-outs; without any, the scope's own."""
    values = state.scopes[scope].values
    for member in members:
        changed = item_of(state, scope, member).patch
        if changed:
            values = applied(state.graph_of(scope), values, changed)
    return values


def version_of(state: RunState, visit: Visit) -> int:
    """Return the version of the values that a visit reads: it grows with every change of them."""
    own = (item_of(state, visit.scope, member).changes for member in visit.members)
    return state.scopes[visit.scope].version + sum(own)


def answers_of(state: RunState, visit: Visit) -> Mapping[str, Json]:
    """Return the answers that a visit sees: its own item's take precedence over the scope's."""
    answers = state.scopes[visit.scope].answers
    for member in visit.members:
        own = item_of(state, visit.scope, member).answers
        answers = {**answers, **own} if own else answers
    return answers


def item_of(state: RunState, scope: str, member: FanOutBranch) -> Item:
    """Return one item of a fan-out under way."""
    return state.scopes[scope].fans[member.fan].items[member.index]


def put_patch(
    step: Step,
    scope_address: str,
    members: tuple[FanOutBranch, ...],
    *patches: Mapping[str, Json],
) -> None:
    """Merge changes where they belong: into the innermost item, or into the scope.

    Raises PatchError, and merges nothing, if one of them cannot be merged.
    """
    changed = [*filter(None, patches)]
    if not changed:
        return
    graph = step.run.graph_of(scope_address)
    values = values_at(step.run, scope_address, members)
    for changes in changed:
        values = merged(graph, values, changes)
    if not members:
        put_values(step, scope_address, values, versions=len(changed))
    for changes in changed if members else ():
        item = item_of(step.run, scope_address, members[-1])
        item.patch = applied(graph, item.patch, changes)
        item.changes += 1


def put_values(
    step: Step, scope_address: str, values: Mapping[str, Json], *, versions: int = 1
) -> None:
    """Replace the values of a scope, raising their version by `versions`."""
    scope = step.run.scopes[scope_address]
    scope.values, scope.size = values, size(values)
    scope.version += versions


def put_result(step: Step, visit: Visit, result: Json) -> None:
    """Set the result of a tool call, merged over the result so far."""
    if result is not None and visit.members:
        item = item_of(step.run, visit.scope, visit.members[-1])
        if isinstance(item.result, Mapping) and isinstance(result, Mapping):
            result = {**item.result, **result}
        item.result = result


def put_answers(
    step: Step, scope: str, members: tuple[FanOutBranch, ...], answers: Mapping[str, Json]
) -> None:
    """Store answers where later visits of the same item, or of the scope, read them."""
    if answers:
        holder = holder_of(step, scope, members)
        holder.answers = {**holder.answers, **answers}


def holder_of(step: Step, scope: str, members: tuple[FanOutBranch, ...]) -> Item | Scope:
    """Return the innermost item, else the scope, to change."""
    return item_of(step.run, scope, members[-1]) if members else step.run.scopes[scope]


def forget_counts(step: Step, visit: Visit) -> None:
    """Reset the visit counts around a visit, and around the graph that it is in."""
    for each in step.run.outward(visit):
        step.run.scopes[each.scope].visit_counts = {}
        for member in each.members:
            item_of(step.run, each.scope, member).visit_counts = {}


def forget_all_counts(step: Step) -> None:
    """Reset the visit counts of every scope and item."""
    for scope in step.run.scopes.values():
        scope.visit_counts = {}
        for item in (item for fan in scope.fans.values() for item in fan.items):
            item.visit_counts = {}


def gathering(graph: GraphSpec, targets: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys of the joins that gather a fan-out to these targets, in order of declaration.

    These are the joins reachable from the targets. A sending node on the way opens one more fan-out,
    which its join ends.
    """
    depths = dict.fromkeys(targets, 1)
    waiting = list(depths)
    while waiting:
        name = waiting.pop()
        deeper = graph.declared_by(name)
        joined = {edge.target for edge in graph.edges_from(name) if edge.is_join}
        for target in graph.successors(name):
            depth = depths[name] + (target in deeper) - (target in joined)
            # If a node is reachable at several depths, use the smallest; deeper paths are gotos or loops.
            if 0 < depth < depths.get(target, inf):
                depths[target] = depth
                waiting.append(target)
    return tuple(
        edge.key
        for edge in graph.edges
        if edge.is_join and any(depths.get(source) == 1 for source in edge.sources)
    )


TRANSCRIPT_FIELD: Final = "transcript"
"""The field of an agent's values that refers to the end of its conversation."""
_MOST_TRANSCRIPTS: Final = 200


def keep_agent(step: Step, visit: Visit, scope: Scope) -> None:
    """Store the memory and the transcript of an agent whose scope is about to be dropped."""
    memory = dict(step.run.agent_memory)
    for key in [key for key in memory if key.startswith(f"{scope.address}/")]:
        # Agents inside it are never entered again.
        del memory[key]
    node = step.run.node_of(visit)
    if isinstance(node, SubgraphNode) and node.remembers:
        memory[_agent_key(visit)] = {
            name: scope.values[name] for name in node.remembers if name in scope.values
        }
    if memory != step.run.agent_memory:
        step.run.agent_memory = memory
    head = scope.values.get(TRANSCRIPT_FIELD)
    if scope.is_agent and isinstance(head, str):
        references = {**step.run.transcripts, scope.address: head}
        while len(references) > _MOST_TRANSCRIPTS:
            del references[next(iter(references))]
        step.run.transcripts = references


def agent_memory(state: RunState, visit: Visit) -> Mapping[str, Json]:
    """Return the values that a visit of an agent's node starts with."""
    return state.agent_memory.get(_agent_key(visit), {})


def transcripts(state: RunState) -> dict[str, str]:
    """Return the transcripts of a run's agents, by the agents' addresses."""
    heads = {
        scope.address: scope.values.get(TRANSCRIPT_FIELD)
        for scope in state.scopes.values()
        if scope.is_agent
    }
    return {
        **state.transcripts,
        **{key: head for key, head in heads.items() if isinstance(head, str)},
    }


def call_results(state: RunState) -> dict[str, dict[str, Json]]:
    """Return the results of tool calls that are in no transcript yet, by the address of the agent and the
    id of the call: of fan-outs under way, and of those that the current turn is reading.
    """
    results = {
        scope.address: {
            str(item.item["call_id"]): item.result
            for fan in scope.fans.values()
            for item in fan.items
            if isinstance(item.item, Mapping) and item.result is not None
        }
        for scope in state.scopes.values()
        if scope.is_agent and scope.fans
    }
    for visit in state.visits.values():
        scope = state.scopes.get(visit.scope)
        if visit.results and scope is not None and scope.is_agent:
            results.setdefault(scope.address, {}).update(
                {
                    str(each["item"]["call_id"]): each["result"]
                    for each in visit.results
                    if "result" in each
                }
            )
    return results


def _agent_key(visit: Visit) -> str:
    return f"{visit.scope}/{visit.node}"


# Merging by reducers


def merged(
    spec: GraphSpec, values: Mapping[str, Json], patch: Mapping[str, Json]
) -> Mapping[str, Json]:
    """Return the values after a patch. Raises PatchError; then nothing of the patch is merged."""
    unknown = sorted(name for name in patch if name not in spec.fields and not spec.open_values)
    if unknown:
        raise PatchError(
            f"the patch sets {', '.join(map(repr, unknown))}, but the state of graph {spec.name!r} "
            f"has only the fields {', '.join(map(repr, spec.fields)) or '(none)'}"
        )
    for name, value in patch.items():
        if (fault := why_not_json(value)) is not None:
            raise PatchError(f"the field {name!r} is not JSON: {fault}")
    if fixed := _fixed(spec, values, patch):
        raise PatchError(
            f"the patch changes {', '.join(map(repr, fixed))}, which only the start of the run sets "
            "(FromStart): leave it out"
        )
    return applied(spec, values, patch)


def applied(
    spec: GraphSpec, values: Mapping[str, Json], patch: Mapping[str, Json]
) -> Mapping[str, Json]:
    """Return the values after a patch that was validated by `merged` before. Raises PatchError."""
    changed = {
        name: _reduced(spec.fields.get(name, _LAST).reducer, name, values.get(name), value)
        for name, value in patch.items()
    }
    return {**values, **changed}


def misfits(spec: GraphSpec, changes: Mapping[str, Json]) -> dict[str, str]:
    """Return the fields that a person cannot set to these values, and why."""
    found = {}
    for name, value in changes.items():
        kinds = spec.fields.get(name, _LAST).kinds
        if name not in spec.fields and not spec.open_values:
            found[name] = f"is not in the state of {spec.name!r}"
        elif (fault := why_not_json(value)) is not None:
            found[name] = f"is not JSON: {fault}"
        elif kinds and kind_of(value) not in kinds:
            found[name] = f"takes {' or '.join(kinds)}, and not {kind_of(value)}"
    return found


def refuse_fixed(
    spec: GraphSpec, values: Mapping[str, Json], changes: Mapping[str, Json], at: str = ""
) -> None:
    """Refuse what a person changes if only the start of the run sets it. `at` points to the changes."""
    if fixed := _fixed(spec, values, changes):
        message = "only the start of the run sets this field (FromStart): leave it out"
        raise Refusal(
            Code.READ_ONLY_FIELD,
            f"The change sets {', '.join(map(repr, fixed))}: {message}.",
            errors=[{"pointer": f"{at}/{name}", "message": message} for name in fixed],
        )


def _fixed(spec: GraphSpec, values: Mapping[str, Json], changes: Mapping[str, Json]) -> list[str]:
    """Return the fields among the changes that only the start sets, and that are not as they were."""
    return [
        name
        for name, value in changes.items()
        if spec.fields.get(name, _LAST).reducer == "start"
        and (name not in values or canonical(values[name]) != canonical(value))
    ]


def kind_of(value: Json) -> str:
    """Return the JSON Schema type of a value; a number without a fraction is an integer."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case _:
            return "object"


def contribution(spec: FieldSpec | None, before: Json, after: Json) -> Json:
    """Return the patch that turns `before` into `after`, as far as the reducer can express it."""
    match (spec or _LAST).reducer:
        case "append" if _are(list, before, after) and after[: len(before or [])] == (before or []):
            return after[len(before or []) :]
        case "add" if _is_number(after) and _is_number(before):
            try:
                return after - before
            except OverflowError:
                # `applied` raises PatchError for a number this large.
                return after
        case "add" if isinstance(after, str) and isinstance(before, str):
            return _decimal_sum(after, before, sign=-1) or after
        case _:
            return after


def _reduced(reducer: Reducer, name: str, old: Json, new: Json) -> Json:
    match reducer:
        case "last" | "start":
            return new
        case "append" if _are(list, old, new):
            return [*(old or []), *new]
        case "union" if _are(list, old, new):
            distinct = {canonical(item): item for item in [*(old or []), *new]}
            return list(distinct.values())
        case "merge" if _are(dict, old, new):
            return {**(old or {}), **new}
        case "add" if _is_number(new) and (old is None or _is_number(old)):
            return _sum(name, old or 0, new)
        case "add" if (
            isinstance(new, str)
            and isinstance(old, str | None)
            and (total := _decimal_sum(old or "0", new)) is not None
        ):
            return total
        case _:
            raise PatchError(
                f"the field {name!r} merges by {reducer!r}, which cannot combine "
                f"a {type(old).__name__} with a {type(new).__name__}"
            )


def _sum(name: str, old: Json, new: Json) -> Json:
    try:
        total = old + new
    except OverflowError:
        total = None
    if total is None or why_not_json(total) is not None:
        raise PatchError(f"the field {name!r} adds up to more than a number can hold")
    return total


def _are(kind: type, old: Json, new: Json) -> bool:
    return isinstance(new, kind) and (old is None or isinstance(old, kind))


def _decimal_sum(one: str, other: str, *, sign: int = 1) -> str | None:
    """Return the exact sum of two Decimals; None if they are none, or the sum has too many digits."""
    with localcontext(Context(prec=_DIGITS, traps=[Inexact, InvalidOperation])):
        try:
            total = Decimal(one) + sign * Decimal(other)
        except (Inexact, InvalidOperation):
            return None
    return str(total) if total.is_finite() else None


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
