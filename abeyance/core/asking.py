"""Questions that the code of a visit asks, and those that the run itself asks an operator.

*Code* that asks leaves its visit waiting, with its journal and user state, until everything that it asked
is settled; a composite one starts again at every answer. A question that its code asks again stays open,
with its id and deadline; one that it no longer asks is superseded.

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

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, Literal, assert_never

from abeyance.core import events, gates, interrupts, items, ledger, policy, routing
from abeyance.core.json import Json, differing, why_not_json
from abeyance.core.ledger import Interrupt, Parent
from abeyance.core.outcome import Asked, Call, Interrupted, key_of
from abeyance.core.policy import Principal
from abeyance.core.spec import (
    Default,
    FunctionNode,
    GoTo,
    GraphSpec,
    InterruptNode,
    InterruptSpec,
    Node,
    SubgraphNode,
)
from abeyance.core.state import RunState
from abeyance.core.step import Step
from abeyance.core.visit import Checkpoint, Failure, Ready, Running, Visit, Waiting
from abeyance.errors import Code, FailureCode, Refusal

ERROR: Final = "error"
"""Name of the question about a failed visit; its answer is `{action, patch?}`."""


def interrupted(step: Step, visit: Visit, running: Running, outcome: Interrupted) -> None:
    """Open the questions of a visit's code, which was `running`, and let the visit wait."""
    if step.run.ending is not None and not visit.is_finally:
        step.drop_visit(visit.address)
        return
    graph = step.run.graph_of(visit.scope)
    outcome = replace(outcome, interrupts=_with_capabilities(graph, visit, outcome.interrupts))
    answered = running.answered_keys
    if (failure := _fault(step.run, visit, outcome, answered)) is not None:
        visit.checkpoint = visit.checkpoint.after_failure(outcome.journal, outcome.patch)
        routing.fail(step, visit, failure, fatal=_is_fatal(failure))
        return
    # A question that was answered is asked again if it shows something else now, or its code cannot read
    # the answer.
    again = {
        each.key
        for each in outcome.interrupts
        if each.misfit is not None or _shows_another(visit, each)
    }
    for each in outcome.interrupts:
        if each.key in again & visit.questions.answers.keys():
            interrupts.void_before(step, visit, each)
    visit.questions = visit.questions.without(again)
    gates.withdraw(step, visit, again)
    step.move(visit, "ask", Waiting(stage=running.stage, composite=outcome.composite))
    before = visit.checkpoint.user_state
    visit.checkpoint = Checkpoint(
        journal=outcome.journal,
        user_state=before if outcome.user_state is None else outcome.user_state,
        interrupted=True,
        patch=outcome.patch,
    )
    inbox, read = visit.inbox, outcome.messages_read
    read = len(inbox.taken) if read is None else read
    visit.inbox = replace(inbox, read_count=max(inbox.read_count, read))
    open_by_key = {entry.key: entry for entry in interrupts.of_visit(step, visit.address)}
    asked_keys = {asked.key for asked in outcome.interrupts}
    interrupts.withdraw(
        step,
        [entry for key, entry in open_by_key.items() if key not in asked_keys],
        "the visit no longer asks this",
        status="superseded",
    )
    parents: tuple[Parent, ...] = ()
    if outcome.composite:
        parents = (interrupts.parent_of(step.run.run_id, visit.address, outcome.reason),)
    for asked in outcome.interrupts:
        if (open_entry := open_by_key.get(asked.key)) is not None:
            interrupts.update_open(step, open_entry, asked)
            content = ledger.content_digest(asked.question)
            visit.questions = visit.questions.showing(asked.key, content)
        elif asked.key not in visit.questions.answers:
            interrupts.ask(step, visit, asked, parents=parents)
    waits = interrupts.of_visit(step, visit.address)
    has_news = any(key not in answered for key in visit.questions.answers)
    if not waits or (outcome.composite and has_news):
        step.move(visit, "resume", Ready(stage=running.stage))


def ask_before_call(step: Step, visit: Visit, call: Call) -> None:
    """Ask what has to be answered before the code of a tool call runs for the first time."""
    graph = step.run.graph_of(visit.scope)
    questions = _with_capabilities(graph, visit, call.interrupts)
    if (failure := _fault(step.run, visit, Interrupted(interrupts=questions), ())) is not None:
        routing.fail(step, visit, failure, fatal=_is_fatal(failure))
        return
    visit.call = replace(call, interrupts=())
    step.move(visit, "ask", Waiting(stage="body"))
    for each in questions:
        interrupts.ask(step, visit, each)


def _with_capabilities(
    graph: GraphSpec, visit: Visit, asked: tuple[Asked, ...]
) -> tuple[Asked, ...]:
    """Add to each question without a capability the one that its node declares."""
    return tuple(
        replace(
            each,
            question=replace(
                each.question,
                requested_capability=policy.asked_for(graph, visit.node, each.question),
            ),
        )
        for each in asked
    )


def _shows_another(visit: Visit, asked: Asked) -> bool:
    shown = visit.questions.shown_hashes.get(asked.key)
    return asked.key in visit.questions.answers and shown != ledger.content_digest(asked.question)


def _is_fatal(failure: Failure) -> bool:
    # A model could do nothing about it.
    return failure.code in {FailureCode.UNDECLARED_CAPABILITY, FailureCode.UNKNOWN_QUESTION}


def _undeclared(graph: GraphSpec, visit: Visit, asked: Asked) -> str | None:
    name, capability = asked.question.name, asked.question.requested_capability
    declared, later = graph.asks_of(visit.node), asked.question.escalates_to
    default = next((each for each in declared if each not in later), None)
    if capability is None and default is not None:
        return (
            f"the question {name!r} of {visit.node!r} has no capability, and {visit.node!r} declares "
            f"the pattern {default!r}: set requested_capability=... to one that fits it"
        )
    for each in (*(() if capability is None else (capability,)), *later):
        if not policy.declares(declared, each):
            return (
                f"the question {name!r} of {visit.node!r} asks for the capability {each!r}, which "
                f"{visit.node!r} does not declare: write asks=[{each!r}] where {visit.node!r} is "
                f"declared, as in @graph.node(asks=[{each!r}]), @tool(asks=[{each!r}]) or "
                f"Agent(asks=[{each!r}])"
            )
    return None


def _fault(
    state: RunState, visit: Visit, outcome: Interrupted, answered: tuple[str, ...]
) -> Failure | None:
    """Return why a visit may not ask this. Its code was started with the answers of `answered`."""
    graph, asked = state.graph_of(visit.scope), outcome.interrupts

    def failed(message: str, code: FailureCode = FailureCode.NODE_FAILED) -> Failure:
        return Failure(code=code, message=message)

    if visit.is_finally:
        return failed(
            f"the finally node {visit.node!r} may not ask a person: the run is over by then"
        )
    if not asked:
        # The code would start again at once, forever.
        return failed(f"the node {visit.node!r} asks no question: name its interrupts")
    carried = [outcome.user_state, outcome.reason, *map(_json_parts, asked)]
    if (reason := why_not_json(carried)) is not None:
        return failed(
            f"the questions or the state of the node {visit.node!r} are not JSON: {reason}"
        )
    counts = Counter(each.key for each in asked)
    for each in asked:
        name = each.question.name
        if counts[each.key] > 1:
            return failed(
                f"the node {visit.node!r} asks {name!r} twice in one pass: give each question of a "
                "visit a unique name"
            )
        if (undeclared := _undeclared(graph, visit, each)) is not None:
            return failed(undeclared, FailureCode.UNDECLARED_CAPABILITY)
        if each.key in answered and each.misfit is None and not _shows_another(visit, each):
            return failed(
                f"the node {visit.node!r} raises the interrupt {name!r} again after its answer: "
                "check ctx.answers before raising it, or use `await ctx.interrupt(...)`"
            )
        if any(rule.id == name for rule in graph.rules_on(visit.node)):
            return failed(
                f"the node {visit.node!r} asks {name!r}, which is the name of a rule evaluated "
                "after it: rename the question"
            )
        match each.question.on_timeout:
            case GoTo(node=node) if node not in interrupts.ways_out(state, visit.scope):
                return failed(
                    f"the interrupt {name!r} of {visit.node!r} would go to {node!r} at its deadline, "
                    f"but {graph.name!r} cannot go there",
                    FailureCode.UNKNOWN_NODE,
                )
            case _:
                pass
    return interrupts.misnamed(state, visit, [each.question for each in asked])


def _json_parts(spec: Asked) -> Json:
    question = spec.question
    values = [question.reason, question.payload, question.preview, question.response_schema]
    match question.on_timeout:
        case Default(answer=answer):
            return [*values, answer]
        case _:
            return values


# Questions to an operator


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
            prompt=f"{begins}, within an item of a fan-out: let the run go on?",
            payload={"values": values, "node": visit.node},
            response_schema={"type": "null"},
        )
    graph, version = step.run.graph_of(visit.scope), step.run.scopes[visit.scope].version
    return InterruptSpec(
        name=name,
        prompt=f"{begins}: let the run go on, or edit its values first?",
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
            interrupts.update_open(step, entry, Asked(question=question, kind="static"))


def drop_breakpoint_answer(visit: Visit, stage: Literal["before", "after"]) -> None:
    """Drop the answer to a breakpoint, which is not an answer of the graph."""
    key = key_of("static", f"interrupt_{stage}")
    visit.questions = visit.questions.without({key})


def refuse_changes(state: RunState, event: events.Responded) -> None:
    """Refuse an answer that does more than let the run go on, if its principal may not do that. Also
    refuse an edit of fields that only the start sets, or of values that have changed since.
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
    """Refuse a principal who may not do again what gates have allowed once.

    To do exactly what was approved requires control of the run and the right to answer, if it has not
    happened or its author lets it be retried. Everything else is a change of course.
    """
    lacking = policy.missing(state, principal)
    if not lacking or not gates.is_guarded(state, visit):
        return
    doing = f"have {visit.node!r} done again, although it was approved only once"
    if not gates.are_unchanged(state, visit):
        why = "The values that were approved have changed since, so this requires all approvals."
        raise policy.lacking_refusal(principal, doing, lacking, why=why)
    if may_have_happened and not _may_be_retried(state.node_of(visit)):
        why = (
            "It may have happened, and its author allows no retries of it (retries=0), so this requires "
            "all approvals."
        )
        raise policy.lacking_refusal(principal, doing, lacking, why=why)
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
    properties: dict[str, Json] = {"action": {"enum": ["retry", "skip", "fail"]}}
    schema: dict[str, Json] = {
        "type": "object",
        "properties": properties,
        "required": ["action"],
        "additionalProperties": False,
    }
    if is_item:
        return schema
    properties["patch"], definitions = _fields_schema(graph)
    schema["if"] = {"properties": {"action": {"enum": ["retry", "fail"]}}}
    schema["then"] = {"properties": {"patch": False}}
    return {**schema, "$defs": definitions} if definitions else schema
