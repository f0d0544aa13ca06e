"""Run the code of one visit, in a Temporal activity or in memory.

Convert the values to the author's state, call the function, validate its patch, and call the node's route
functions. Exceptions of the author's code are let through, so that the caller decides about retries. An
error that no retry can fix is a `Failed` outcome, and a question is an `Interrupted` one. CLIPS rules
are evaluated here too: only this code may take long or need a library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final, TypeAlias, TypeGuard

from abeyance.agents.tool_errors import MAX_ERROR_CHARS, described
from abeyance.authoring.callables import INBOX, call
from abeyance.authoring.context import Context, Goto, Send
from abeyance.authoring.graph import Graph
from abeyance.authoring.interrupts import suspended_by
from abeyance.authoring.routers import RouterError, RouterMissing, router
from abeyance.core import outcome as outcomes
from abeyance.core import policy
from abeyance.core.bounds import Attempts
from abeyance.core.effects import VisitInput
from abeyance.core.items import PatchError, merged
from abeyance.core.json import Json, size, why_not_json
from abeyance.core.lifecycle import unpinned_target
from abeyance.core.outcome import (
    AttemptFailed,
    Failed,
    Finished,
    Interrupted,
    Misread,
    VisitOutcome,
)
from abeyance.core.spec import END, Clips
from abeyance.core.text import truncate
from abeyance.core.visits import unknown_targets, why_unknown
from abeyance.errors import AgentFailed, Blocked, BlockedCode, FailureCode, Fatal
from abeyance.schemas.json_types import to_json
from abeyance.schemas.state_model import ValuesError
from abeyance.util import extra_of

_LARGEST: Final = 1_500_000
"""In bytes. Temporal's server accepts 2 MB in one payload, and answers travel with the values."""

Deciders: TypeAlias = Sequence[tuple[str, Callable[..., Any]]]
"""A node's routes: name and function."""


class CodeMissing(Blocked):
    """This process lacks code that the run needs; another worker or a later deployment may have it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=BlockedCode.CODE_MISSING)


class TimedOut(TimeoutError):
    """The code of a visit took longer than its timeout."""

    def __init__(self, visit_input: VisitInput) -> None:
        super().__init__(
            f"{visit_input.node!r} took longer than its timeout of {visit_input.timeout:g} s."
        )


def graph_for(visit_input: VisitInput, graphs: Mapping[str, Graph]) -> Graph:
    """Return the graph of a visit. Raise CodeMissing if this process does not have it."""
    root = visit_input.root
    graph = graphs.get(root)
    if graph is None:
        raise CodeMissing(
            f"this worker has no graph {root!r}: deploy one that has it, and the visit continues"
        )
    for node in visit_input.path:
        inner = graph.subgraphs.get(node)
        if inner is None:
            raise CodeMissing(
                f"the graph {graph.name!r} of this worker has no nested graph {node!r}: deploy a "
                "worker that has it, and the visit continues"
            )
        graph = inner
    return graph


async def run_visit(graph: Graph, context: Context) -> VisitOutcome:
    """Run the code of a visit, or only its routes.

    Raise Blocked, and what the author's code raises except `Fatal`.
    """
    visit_input = context.input
    # Checked first: a node must not run if its routes or libraries are missing.
    deciders = _deciders(graph, visit_input)
    _require_clips(visit_input)
    try:
        if visit_input.kind == "routes":
            routed = await _routed(graph, visit_input.node, deciders, visit_input.values)
            if unpinned := _unpinned(graph, visit_input, routed):
                raise Blocked(
                    unpinned_target(visit_input.node, unpinned[0]), code=BlockedCode.TARGET_UNKNOWN
                )
            return Finished(
                route_targets=routed, fired_rules=await _fired(visit_input, visit_input.values)
            )
        outcome = await _ask_or_run(graph, context, deciders)
    except ValuesError as error:
        if faults := _misread(visit_input, error):
            return Misread(faults=faults)
        # The run has these values, and people gave these answers: later code has to read them.
        raise Blocked(str(error), code=BlockedCode.VALUES_INCOMPATIBLE) from error
    except ModuleNotFoundError as error:
        if (extra := extra_of(error.name)) is None:
            raise
        message = f"this worker lacks {error.name!r}: pip install 'abeyance[{extra}]' there"
        raise Blocked(message, code=BlockedCode.EXTRA_MISSING) from error
    except Fatal as error:
        outcome = _failed(FailureCode.NODE_FAILED, described(error), fatal=True)
    except AgentFailed as error:
        outcome = _failed(error.code, str(error))
    except RouterError as error:
        message = f"the rules cannot be evaluated after {visit_input.node!r}: {error}"
        outcome = _failed(FailureCode.NODE_FAILED, message)
    return _with_journal(graph, outcome, context)


def _misread(visit_input: VisitInput, error: ValuesError) -> dict[str, str]:
    """Return the faults of fields that people can be asked for again."""
    faults: dict[str, str] = {}
    for each in error.errors:
        field = each["pointer"].removeprefix("/").partition("/")[0]
        if field in visit_input.answered:
            faults.setdefault(field, f"{each['pointer']}: {each['message']}")
    return faults


def failed_attempt(
    graph: Graph, context: Context, error: BaseException, attempts: Attempts
) -> AttemptFailed | Failed:
    """Return the outcome of an attempt whose code raised. `attempts` include this one."""
    visit_input, journal = context.input, context.runtime.journal
    steps, patch = journal.steps or None, journal.partial_patch
    message = described(error)
    code = graph.code.get(visit_input.node)
    is_worth_it = code is None or isinstance(error, code.retry_on)
    pause = visit_input.retry.pause_after(attempts)
    if is_worth_it and pause is not None:
        return AttemptFailed(
            message=message,
            attempts=attempts,
            pause=pause,
            journal=steps,
            patch=patch,
        )
    if isinstance(error, TimedOut):
        not_retried = "TimeoutError is not in its retry_on."
        why = visit_input.retry.why_none_left(attempts) if is_worth_it else not_retried
        message = f"{error} {why}"
    return Failed(code=FailureCode.NODE_FAILED, message=message, journal=steps, patch=patch)


def _with_journal(graph: Graph, outcome: VisitOutcome, context: Context) -> VisitOutcome:
    journal = context.runtime.journal
    emitted, steps = tuple(journal.emitted), journal.steps or None
    match outcome:
        case Finished(patch=patch):
            # Values of the run may have changed so that they cannot take the patch any more; those of an
            # agent cannot. Both travel in one payload.
            may_be_refused = steps and patch and graph.compiled_from is None
            return replace(
                outcome,
                emitted=emitted,
                messages_read=journal.messages_read,
                journal=steps if may_be_refused and size([steps, patch]) <= _LARGEST else None,
            )
        case Interrupted():
            return replace(
                outcome,
                emitted=emitted,
                messages_read=journal.messages_read,
                journal=steps,
                patch=journal.partial_patch,
            )
        case Misread():
            return outcome
        case _:
            return replace(outcome, journal=steps, patch=journal.partial_patch)


async def _ask_or_run(graph: Graph, context: Context, deciders: Deciders) -> VisitOutcome:
    visit_input, node = context.input, context.node
    try:
        return await _run_code(graph, context, deciders)
    except BaseException as error:
        asked = suspended_by(error)
        if asked is None:
            raise
        context.runtime.journal.require_durable("ask a person")
        _require_declared(graph, visit_input, asked)
        for option, value in (("state", asked.user_state), ("reason", asked.reason)):
            if (fault := why_not_json(value)) is not None:
                message = f"the {option} of an interrupt of {node!r} is not JSON: {fault}"
                raise Fatal(message) from error
        shown = [asdict(part.question) for part in asked.interrupts]
        # Each question is listed with the reason of its parent.
        if (actual := size([shown, asked.user_state, [asked.reason] * len(shown)])) > _LARGEST:
            raise Fatal(
                f"{node!r} asks {len(asked.interrupts)} questions that take {actual} bytes with their "
                f"state, and the limit is {_LARGEST}: show references to large data"
            ) from error
        return asked


def _require_declared(graph: Graph, visit_input: VisitInput, asked: Interrupted) -> None:
    """Raise Blocked for a capability that this code declares but the run's own graph does not.

    The core fails the visit for a capability that neither declares.
    """
    current, node = graph.build(), visit_input.node
    for part in asked.interrupts:
        capability = part.question.requested_capability
        if (
            capability is not None
            and not policy.declares(visit_input.asks, capability)
            and policy.declares(current.asks_of(node), capability)
        ):
            message = (
                f"the node {node!r} requests the capability {capability!r}, which the graph that the run "
                "was started with does not declare, so nobody was asked: deploy code that requests a "
                "declared one"
            )
            raise Blocked(message, code=BlockedCode.UNDECLARED_CAPABILITY)


async def _run_code(graph: Graph, context: Context, deciders: Deciders) -> VisitOutcome:
    visit_input = context.input
    code = graph.code.get(visit_input.node)
    if code is None:
        raise CodeMissing(
            f"the graph {graph.name!r} of this worker has no node {visit_input.node!r}: deploy a worker "
            "that has it, and the visit continues"
        )
    state = graph.states.read(visit_input.values)
    named = {INBOX: list(context.inbox)} if code.takes_inbox else {}
    await context.runtime.begin()
    returned = await call(code.function, *(state, context)[: code.takes], **named)
    # Fail closed: code that caught its own question has no answer.
    context.runtime.journal.require_all_awaited()
    finished = _parse_result(visit_input.node, returned)
    if isinstance(finished, Failed):
        return finished
    if finished.sends == () and returned is not finished and not _may_send(graph, visit_input):
        # The run would end without the nodes behind it, as if all were well.
        return _failed(
            FailureCode.UNKNOWN_NODE,
            f"the node {visit_input.node!r} returned an empty list of Send, and declares no targets: "
            "name them with to=[...], or return None to follow the edges",
        )
    try:
        patch = graph.states.patch(finished.patch)
        after = merged(graph.build(), visit_input.values, patch)
        graph.states.check_merged(after, patch)
    except (ValuesError, PatchError) as error:
        return _failed(FailureCode.INVALID_PATCH, str(error))
    if patch and (actual := size(after)) > _LARGEST:
        return _failed(
            FailureCode.INVALID_PATCH,
            f"the patch of {visit_input.node!r} brings the values to {actual} bytes, and the limit is "
            f"{_LARGEST}: store large data elsewhere, and a reference in the values",
        )
    routed = () if finished.is_decided else await _routed(graph, visit_input.node, deciders, after)
    chosen = [*routed, *([finished.goto] if finished.goto is not None else [])]
    chosen += [send.node for send in finished.sends or ()]
    finished = replace(
        finished,
        patch=patch,
        route_targets=routed,
        unpinned=_unpinned(graph, visit_input, chosen),
    )
    if unknown := _unknown(graph, visit_input, finished):
        message = why_unknown(visit_input.node, unknown, visit_input.targets)
        return _failed(FailureCode.UNKNOWN_NODE, message)
    return replace(finished, fired_rules=await _fired(visit_input, after))


def _unknown(graph: Graph, visit_input: VisitInput, finished: Finished) -> set[str]:
    """Return the chosen targets that no graph allows. The run refuses them too, but finished code hands
    over its journal only with a patch: a retry would run all its steps again.
    """
    allowed = {*visit_input.targets, *finished.unpinned}
    if finished.sends is not None:
        allowed -= {END}
    return unknown_targets(graph.build(), visit_input.node, finished) - allowed


def _may_send(graph: Graph, visit_input: VisitInput) -> bool:
    """Return whether the code of a node may return Sends, by its own graph or by that of the run."""
    spec, node = graph.build(), visit_input.node
    return bool(spec.declared_by(node) or {*visit_input.targets} - {*spec.routed_from(node)})


def _unpinned(graph: Graph, visit_input: VisitInput, chosen: Sequence[str]) -> tuple[str, ...]:
    """Return the chosen targets that this code declares and the run's own graph does not."""
    new = {*chosen} - {*visit_input.targets, END}
    return tuple(sorted(new & {*graph.build().targets_of(visit_input.node)})) if new else ()


def _parse_result(node: str, returned: Any) -> Finished | Failed:
    """Convert what a node's function returned to an outcome."""
    match returned:
        case Finished():
            return returned
        case Goto(node=str() as goto, patch=changes):
            outcome = Finished(patch={} if changes is None else changes, goto=goto)
        case Goto(node=chosen, patch=changes) if _are_sends(chosen):
            outcome = Finished(
                patch={} if changes is None else changes, sends=_to_sends(node, chosen)
            )
        case Goto(node=chosen):
            return _failed(
                FailureCode.UNKNOWN_NODE,
                f"the node {node!r} returned a Goto to {chosen!r}: use the name of a node, or a list "
                "of Send",
            )
        case _ if _are_sends(returned):
            outcome = Finished(sends=_to_sends(node, returned))
        case None:
            outcome = Finished()
        case _:
            outcome = Finished(patch=returned)
    if not isinstance(outcome.patch, Mapping):
        return _failed(
            FailureCode.INVALID_PATCH,
            f"the node {node!r} returned a {type(outcome.patch).__name__}: return a mapping of changed "
            "fields, a Goto, a list of Send, or None",
        )
    return outcome


def _are_sends(returned: Any) -> TypeGuard[Sequence[Send]]:
    return isinstance(returned, list | tuple) and all(isinstance(item, Send) for item in returned)


def _to_sends(node: str, sends: Sequence[Send]) -> tuple[outcomes.Send, ...]:
    converted = []
    for send in sends:
        try:
            item = to_json(send.item)
        except ValueError as error:
            message = f"the node {node!r} sends {send.node!r} an item that is not JSON: {error}"
            raise Fatal(message) from error
        converted.append(outcomes.Send(node=send.node, item=item))
    return tuple(converted)


def _deciders(graph: Graph, visit_input: VisitInput) -> Deciders:
    missing = [
        name for name in visit_input.routes if (visit_input.node, name) not in graph.route_code
    ]
    if missing:
        raise CodeMissing(
            f"the graph {graph.name!r} of this worker has no route {missing[0]!r} from "
            f"{visit_input.node!r}: deploy a worker that has it, and the visit continues"
        )
    return [(name, graph.route_code[visit_input.node, name]) for name in visit_input.routes]


async def _routed(
    graph: Graph, node: str, deciders: Deciders, values: Mapping[str, Json]
) -> tuple[str, ...]:
    targets: list[str] = []
    for name, function in deciders:
        chosen = await call(function, graph.states.read(values))
        match chosen:
            case None:
                pass
            case str():
                targets.append(chosen)
            case list() | tuple() if all(isinstance(target, str) for target in chosen):
                targets.extend(chosen)
            case _:
                raise Fatal(
                    f"the route {name!r} of {node!r} returned {chosen!r}: return the name of a node, a "
                    f"list of names, {END} or None"
                )
    return tuple(targets)


def _require_clips(visit_input: VisitInput) -> None:
    rule = next((rule for rule in visit_input.rules if isinstance(rule.condition, Clips)), None)
    if rule is not None:
        try:
            router().require(rule.id)
        except RouterMissing as error:
            message = f"this worker lacks a library for rules: {error}"
            raise Blocked(message, code=BlockedCode.EXTRA_MISSING) from error


async def _fired(visit_input: VisitInput, values: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the rules with CLIPS text that fire on the values, in the order of firing."""
    if not visit_input.rules:
        return ()
    evaluate = partial(router().evaluate, visit_input.rules, node=visit_input.node, values=values)
    fired: tuple[str, ...] = await call(evaluate)
    return fired


def _failed(code: FailureCode, message: str, *, fatal: bool = False) -> Failed:
    return Failed(code=code, message=truncate(message, MAX_ERROR_CHARS), fatal=fatal)
