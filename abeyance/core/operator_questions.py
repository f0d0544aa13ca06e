"""Questions that a run itself asks an operator: at breakpoints, and about failed visits.

*Breakpoints* (static interrupts) show a person the values before or after a node, and let them edit
them. The graph names these nodes, or the start of the run does. The question shows the current values
with their version. Null continues the run; `{values, version}` sets fields first, unless they have
changed since. Within an item of a fan-out the values are shown, and null is the only answer: people edit
values before or after a fan-out, and skip a failed visit of an item without a patch.

*Error questions* are asked where a node declares `on_error="interrupt"`: try the visit again, skip it
with a patch, or let it fail. The visit keeps its place and its journal, so trying again repeats no
finished step. Trying again what a gate allowed needs nobody's approval if what was approved is unchanged
and can be repeated (`demand_repeat`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, Literal, assert_never

from abeyance.core import events, gates, interrupts, items, policy
from abeyance.core.json import Json, differing
from abeyance.core.ledger import Interrupt
from abeyance.core.outcome import Asked, key_of
from abeyance.core.policy import Principal
from abeyance.core.spec import (
    FunctionNode,
    GraphSpec,
    InterruptNode,
    InterruptSpec,
    Node,
    SubgraphNode,
)
from abeyance.core.state import RunState
from abeyance.core.step import Step
from abeyance.core.visit import Failure, Visit, Waiting
from abeyance.errors import Code, Refusal

ERROR: Final = "error"
"""Name of the question about a failed visit; its answer is `{action, patch?}`."""


def open_breakpoint(step: Step, visit: Visit, stage: Literal["before", "after"]) -> None:
    """Stop at the breakpoint before or after a visit's node."""
    step.move(visit, "ask", Waiting(stage=stage))
    question = _breakpoint(step, visit, f"interrupt_{stage}")
    interrupts.ask(step, visit, Asked(question=question, kind="static"))


def _breakpoint(step: Step, visit: Visit, name: str) -> InterruptSpec:
    values = dict(items.values_of(step.run, visit))
    begins = f"{name.removeprefix('interrupt_').capitalize()} {visit.node!r}"
    if visit.members:
        return InterruptSpec(
            name=name,
            prompt=f"{begins}, within an item of a fan-out: let the run go on (null)?",
            payload={"values": values, "node": visit.node},
            response_schema={"type": "null"},
        )
    graph, version = step.run.graph_of(visit.scope), step.run.scopes[visit.scope].version
    return InterruptSpec(
        name=name,
        prompt=f"{begins}: let the run go on (null), or edit its values first?",
        payload={"values": values, "version": version, "node": visit.node},
        response_schema=_breakpoint_schema(graph),
        rewrites=_rewrites(graph),
    )


def take_edits(step: Step, interrupt: Interrupt, answer: Json, by: str) -> None:
    """Apply the edits in an answer to a breakpoint, at once, so that later events are checked against
    them.
    """
    if interrupt.kind != "static" or answer is None:
        return
    visit = step.run.visits[interrupt.visit]
    before = step.run.scopes[visit.scope].values
    values = {**before, **answer["values"]}
    fields = differing(before, values)
    if not fields:
        return
    items.put_values(step, visit.scope, values)
    step.publish("run.values_edited", visit.address, by, fields=sorted(fields))
    if visit.routing is not None:
        visit.routing = replace(visit.routing, is_stale=True)
    values_edited(step, visit.scope, fields, besides=interrupt.id)


def set_values(step: Step, changes: Mapping[str, Json]) -> None:
    """Set fields of the run's values as a person has edited them, ignoring their reducers."""
    root = step.run.root
    before, after = root.values, {**root.values, **changes}
    items.put_values(step, root.address, after)
    values_edited(step, root.address, differing(before, after))


def values_edited(
    step: Step, scope: str, fields: Collection[str], *, besides: str | None = None
) -> None:
    """Update questions and gates of a scope after people have edited fields of its values."""
    gates.edited(step, scope, fields)
    interrupts.update_questions(step, scope)
    for entry in list(step.run.ledger.open.values()):
        if entry.kind == "static" and entry.scope == scope and entry.id != besides:
            visit = step.run.visits[entry.visit]
            question = _breakpoint(step, visit, entry.name)
            interrupts.ask_anew(step, entry, Asked(question=question, kind="static"))


def drop_breakpoint_answer(visit: Visit, stage: Literal["before", "after"]) -> None:
    """Drop the answer to a breakpoint, which is not an answer of the graph."""
    key = key_of("static", f"interrupt_{stage}")
    visit.questions = visit.questions.without({key})


def refuse(state: RunState, event: events.Responded) -> None:
    """Refuse an answer that does more than let the run go on, from whom may not do that; and an edit of
    what only the start sets, or of values that have changed since.
    """
    edited: set[str] = set()
    for id_, answer in event.taken.items():
        entry, principal = state.ledger.open.get(id_), event.principal
        match entry, answer:
            case Interrupt(kind="static", name=name), {"values": values, "version": version}:
                policy.demand(state, principal, f"edit the values of the run at {name!r}")
                _refuse_fixed(state, entry, values, "/values")
                _refuse_stale(state, entry, version, is_second=entry.scope in edited)
                edited.add(entry.scope)
            case Interrupt(kind="error"), {"action": "skip"}:
                node = state.visits[entry.visit].node
                policy.demand(state, principal, f"skip {node!r}")
                _refuse_fixed(state, entry, answer.get("patch", {}), "/patch")
            case Interrupt(kind="error"), {"action": "retry"}:
                visit = state.visits[entry.visit]
                has_begun = visit.activations > 0 or isinstance(state.node_of(visit), SubgraphNode)
                # Its code may be over, and only the way out of its node have failed.
                is_over = visit.routing is not None
                demand_repeat(state, visit, principal, may_have_happened=has_begun and not is_over)
            case _:
                pass


def _refuse_fixed(
    state: RunState, entry: Interrupt, changes: Mapping[str, Json], pointer: str
) -> None:
    values = state.scopes[entry.scope].values
    items.refuse_fixed(state.graph_of(entry.scope), values, changes, pointer)


def _refuse_stale(state: RunState, entry: Interrupt, version: int, *, is_second: bool) -> None:
    """Refuse an edit of other values than those at this version; `is_second` in the same call."""
    scope = state.scopes[entry.scope]
    if version != scope.version or is_second:
        raise Refusal(
            Code.STALE,
            f"The edit is of version {version} of the values, which are at version "
            f"{scope.version + is_second}: read the values again, and edit those.",
            interrupt_id=entry.id,
            version=scope.version,
            values=dict(scope.values),
        )


def demand_repeat(
    state: RunState, visit: Visit, principal: Principal, *, may_have_happened: bool
) -> None:
    """Refuse to do again what gates have allowed once to a principal who may not.

    Exactly what was approved takes control of the run and the right to answer, if it has not happened or
    its author lets it be retried. Everything else is a change of course.
    """
    lacking = policy.missing(state, principal)
    if not lacking or not gates.are_guarded(state, visit):
        return
    doing = f"have {visit.node!r} done again, which was approved once"
    if not gates.are_unchanged(state, visit):
        why = "The values that were approved have changed since, so this requires all approvals."
        raise policy.lacks(principal, doing, lacking, why=why)
    if may_have_happened and not _may_be_retried(state.node_of(visit)):
        why = (
            "It may have happened, and its author allows no retries of it (retries=0), so this requires "
            "all approvals."
        )
        raise policy.lacks(principal, doing, lacking, why=why)
    why = "Nothing has changed since it was approved, so no approval is needed."
    policy.demand_only(principal, policy.CONTROL, policy.RESPOND, doing=doing, why=why)


def _may_be_retried(node: Node) -> bool:
    match node:
        case FunctionNode(retry=policy):
            return policy.retries != 0
        case SubgraphNode(graph=graph):
            return all(map(_may_be_retried, graph.nodes.values()))
        case InterruptNode():
            return True
        case unknown:
            assert_never(unknown)


def _breakpoint_schema(graph: GraphSpec) -> Json:
    fields, definitions = _fields_schema(graph)
    edited = {
        "type": "object",
        "properties": {"values": fields, "version": {"type": "integer"}},
        "required": ["values", "version"],
        "additionalProperties": False,
    }
    # Not `anyOf`, so that a fault in an edit is reported with its pointer.
    schema: dict[str, Json] = {
        "if": {"type": "object"},
        "then": edited,
        "else": {"type": "null"},
    }
    return {**schema, "$defs": definitions} if definitions else schema


def ask_operator(step: Step, visit: Visit, failure: Failure) -> None:
    """Ask what to do about a failed visit, which was dropped and is put back to wait."""
    step.add_visit(visit)
    step.move(visit, "fail", Waiting(stage="error"))
    visit.failure = failure
    question = InterruptSpec(
        name=ERROR,
        prompt=(
            f"{visit.node!r} failed: {failure.message} ({failure.code}). "
            "Try it again, skip it, or let it fail?"
        ),
        reason={"code": failure.code, "message": failure.message, "address": failure.address},
        response_schema=_error_schema(step.run.graph_of(visit.scope), is_item=bool(visit.members)),
        rewrites=not visit.members and _rewrites(step.run.graph_of(visit.scope)),
    )
    interrupts.ask(step, visit, Asked(question=question, kind="error"))


def _fields_schema(graph: GraphSpec) -> tuple[Json, Json]:
    """Return the JSON Schema of a mapping of fields of a graph's values, and its definitions."""
    state = graph.input_schema if isinstance(graph.input_schema, dict) else {}
    properties: dict[str, Json] = dict.fromkeys(graph.fields, True) | state.get("properties", {})
    schema = {"type": "object", "properties": properties, "additionalProperties": graph.open_values}
    return schema, state.get("$defs")


def _rewrites(graph: GraphSpec) -> bool:
    return any(field.rewrites for field in graph.fields.values())


def _error_schema(graph: GraphSpec, *, is_item: bool) -> Json:
    if is_item:
        return {
            "type": "object",
            "properties": {"action": {"enum": ["retry", "skip", "fail"]}},
            "required": ["action"],
            "additionalProperties": False,
        }
    patch, definitions = _fields_schema(graph)
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {"action": {"enum": ["retry", "skip", "fail"]}, "patch": patch},
        "required": ["action"],
        "additionalProperties": False,
        "if": {"properties": {"action": {"enum": ["retry", "fail"]}}},
        "then": {"properties": {"patch": False}},
    }
    return {**schema, "$defs": definitions} if definitions else schema
