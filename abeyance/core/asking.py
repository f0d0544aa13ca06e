"""Questions from code: opening, updating and withdrawing what a visit asks.

The visit waits, with its journal and user state, until everything that it asked is settled; a composite
one starts again at every answer. A question that its code asks again stays open, with its id and
deadline; one that it no longer asks is superseded.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from abeyance.core import gates, interrupts, ledger, policy, routing
from abeyance.core.json import Json, why_not_json
from abeyance.core.ledger import Parent
from abeyance.core.outcome import Asked, Call, Interrupted
from abeyance.core.spec import Default, GoTo, GraphSpec
from abeyance.core.state import RunState
from abeyance.core.step import Step
from abeyance.core.visit import Checkpoint, Failure, Ready, Running, Visit, Waiting
from abeyance.errors import FailureCode


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
        "the visit asks this no more",
        status="superseded",
    )
    parents: tuple[Parent, ...] = ()
    if outcome.composite:
        parents = (interrupts.unit(step.run.run_id, visit.address, outcome.reason),)
    for asked in outcome.interrupts:
        if (open_entry := open_by_key.get(asked.key)) is not None:
            interrupts.ask_anew(step, open_entry, asked)
            content = ledger.content_digest(asked.question)
            visit.questions = visit.questions.showing(asked.key, content)
        elif asked.key not in visit.questions.answers:
            interrupts.ask(step, visit, asked, parents=parents)
    waits = interrupts.of_visit(step, visit.address)
    has_news = any(key not in answered for key in visit.questions.answers)
    if not waits or (outcome.composite and has_news):
        step.move(visit, "resume", Ready(stage=running.stage))


def before(step: Step, visit: Visit, call: Call) -> None:
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
        # Its code would start again at once, for ever.
        return failed(f"the node {visit.node!r} asks people nothing: name its interrupts")
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
                    f"which is no node of {graph.name!r} that can be gone to",
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
