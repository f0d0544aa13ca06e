"""Running the code of one visit, wherever it runs: in a Temporal activity or in memory.

It reads the values into the author's state, calls the function, holds its patch against the state,
and asks the node's route functions. What the author's code raises is let through, for the caller to
decide about retries; what can never become right by another attempt is a `Failed` outcome, and what
asks people is an `Interrupted` one. Rules with CLIPS text are looked at here too, on the same values as
the routes, because nothing but this may take its time or need a library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final, TypeAlias, TypeGuard

from abeyance.agents.tool_errors import cut, described
from abeyance.authoring.callables import INBOX, call
from abeyance.authoring.context import Context, Goto, Send
from abeyance.authoring.graph import Graph
from abeyance.authoring.interrupts import suspended_by
from abeyance.clips import engine
from abeyance.clips.engine import ClipsError, ClipsMissing
from abeyance.core import authority
from abeyance.core import outcome as outcomes
from abeyance.core.effects import VisitInput
from abeyance.core.json import Json, size, why_not_json
from abeyance.core.outcome import Failed, Finished, Interrupted, VisitOutcome
from abeyance.core.patch import PatchError, merged
from abeyance.core.spec import END, Clips
from abeyance.errors import AgentFailed, Blocked, FailureCode, Fatal
from abeyance.schemas.json_types import to_json
from abeyance.schemas.state_model import ValuesError

_LARGEST: Final = 1_500_000
"""In bytes: Temporal's server takes 2 MB in one payload, and answers travel with the values."""

Deciders: TypeAlias = Sequence[tuple[str, Callable[..., Any]]]
"""The route functions of a node, with the names of their routes."""


class CodeMissing(Blocked):
    """This process does not have the code that a run needs; another, or a later one, may."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=FailureCode.CODE_MISSING)


def graph_for(visit_input: VisitInput, graphs: Mapping[str, Graph]) -> Graph:
    """The graph that a visit is of, among those of this process. Raises CodeMissing."""
    root = visit_input.root
    graph = graphs.get(root)
    if graph is None:
        message = (
            f"this worker has no graph {root!r}: deploy one that has it, and the visit goes on"
        )
        raise CodeMissing(message)
    for node in visit_input.path:
        inner = graph.subgraphs.get(node)
        if inner is None:
            message = (
                f"the graph {graph.name!r} of this worker has no nested graph {node!r}: deploy a "
                "worker that has it, and the visit goes on"
            )
            raise CodeMissing(message)
        graph = inner
    return graph


async def run_visit(graph: Graph, context: Context) -> VisitOutcome:
    """Run the code of a visit, or ask for its routes.

    Raises CodeMissing, and whatever the author's code raises but `Fatal`.
    """
    visit_input = context.input
    # Looked for first: a node whose routes are missing is not to run again until they are there.
    deciders = _deciders(graph, visit_input)
    _demand_clips(visit_input)
    try:
        if visit_input.kind == "routes":
            routed = await _routed(graph, visit_input.node, deciders, visit_input.values)
            return Finished(
                route_targets=routed, fired_rules=await _fired(visit_input, visit_input.values)
            )
        outcome = await _asking(graph, context, deciders)
    except ValuesError as error:
        outcome = _failed(FailureCode.VALUES_INCOMPATIBLE, str(error))
    except Fatal as error:
        outcome = _failed(FailureCode.NODE_FAILED, described(error), fatal=True)
    except AgentFailed as error:
        outcome = _failed(error.code, str(error))
    except ClipsError as error:
        message = f"the rules cannot be evaluated after {visit_input.node!r}: {error}"
        outcome = _failed(FailureCode.NODE_FAILED, message)
    return _with_notes(outcome, context)


def _with_notes(outcome: VisitOutcome, context: Context) -> VisitOutcome:
    book = context.runtime.journal
    emitted, journal = tuple(book.emitted), book.steps or None
    match outcome:
        case Finished():
            return replace(outcome, emitted=emitted, messages_read=book.messages_read)
        case Interrupted():
            return replace(
                outcome,
                emitted=emitted,
                messages_read=book.messages_read,
                journal=journal,
                patch=book.partial_patch,
            )
        case _:
            return replace(outcome, journal=journal, patch=book.partial_patch)


async def _asking(graph: Graph, context: Context, deciders: Deciders) -> VisitOutcome:
    visit_input, node = context.input, context.node
    try:
        return await _run_code(graph, context, deciders)
    except BaseException as error:
        asked = suspended_by(error)
        if asked is None:
            raise
        context.runtime.journal.require_durable("ask a person")
        _demand_pinned(graph, visit_input, asked)
        for what, kept in (("state", asked.user_state), ("reason", asked.reason)):
            if (fault := why_not_json(kept)) is not None:
                message = f"the {what} that {node!r} gives with its question is not JSON: {fault}"
                raise Fatal(message) from error
        shown = [asdict(each.question) for each in asked.interrupts]
        # Each question is listed with the reason of what it is a part of.
        if (actual := size([shown, asked.user_state, [asked.reason] * len(shown)])) > _LARGEST:
            message = (
                f"{node!r} asks {len(asked.interrupts)} questions that take {actual} bytes with the "
                f"state that it keeps, and they may take {_LARGEST}: show references to what is large"
            )
            raise Fatal(message) from error
        return asked


def _demand_pinned(graph: Graph, visit_input: VisitInput, asked: Interrupted) -> None:
    """Raise Blocked for a capability that today's code declares, and the graph of the run does not.
    What neither declares is the author's fault, which the core finds.
    """
    today, node = graph.build(), visit_input.node
    for each in asked.interrupts:
        capability = each.question.requested_capability
        if (
            capability is not None
            and not authority.declares(visit_input.asks, capability)
            and authority.declares(today.asks_of(node), capability)
        ):
            message = (
                f"the node {node!r} asks for the capability {capability!r}, and the graph that the "
                "run was started with does not know that it may: nobody was asked. Deploy code that asks "
                "for what the run knows"
            )
            raise Blocked(message, code=FailureCode.UNDECLARED_CAPABILITY)


async def _run_code(graph: Graph, context: Context, deciders: Deciders) -> VisitOutcome:
    visit_input = context.input
    code = graph.code.get(visit_input.node)
    if code is None:
        raise CodeMissing(
            f"the graph {graph.name!r} of this worker has no node {visit_input.node!r}: deploy a worker "
            "that has it, and the visit goes on"
        )
    state = graph.states.read(visit_input.values)
    named = {INBOX: list(context.inbox)} if code.takes_inbox else {}
    returned = await call(code.function, *(state, context)[: code.takes], **named)
    # Fails closed: code that caught its own question has not heard what a person says to it.
    context.runtime.journal.require_all_answered()
    read = _read(visit_input.node, returned)
    if isinstance(read, Failed):
        return read
    try:
        patch = graph.states.patch(read.patch)
        after = merged(graph.build(), visit_input.values, patch)
        graph.states.check_merged(after, patch)
    except (ValuesError, PatchError) as error:
        return _failed(FailureCode.INVALID_PATCH, str(error))
    if patch and (actual := size(after)) > _LARGEST:
        return _failed(
            FailureCode.INVALID_PATCH,
            f"the patch of {visit_input.node!r} makes the values {actual} bytes large, and they may take "
            f"{_LARGEST}: keep large data elsewhere, and a reference to it in the values",
        )
    routed = () if read.is_decided else await _routed(graph, visit_input.node, deciders, after)
    return replace(
        read, patch=patch, route_targets=routed, fired_rules=await _fired(visit_input, after)
    )


def _read(node: str, returned: Any) -> Finished | Failed:
    """What a node's function returned, in the one form of all that it may return."""
    match returned:
        case Finished():
            return returned
        case Goto(node=str() as goto, patch=changes):
            found = Finished(patch={} if changes is None else changes, goto=goto)
        case Goto(node=chosen, patch=changes) if _are_sends(chosen):
            found = Finished(patch={} if changes is None else changes, sends=_sent(node, chosen))
        case Goto(node=chosen):
            return _failed(
                FailureCode.UNKNOWN_NODE,
                f"the node {node!r} returned a Goto to {chosen!r}; it takes the name of a node, or a "
                "list of Send",
            )
        case _ if _are_sends(returned):
            found = Finished(sends=_sent(node, returned))
        case None:
            found = Finished()
        case _:
            found = Finished(patch=returned)
    if not isinstance(found.patch, Mapping):
        return _failed(
            FailureCode.INVALID_PATCH,
            f"the node {node!r} returned a {type(found.patch).__name__}; a node returns a mapping of "
            "the fields that it changes, a Goto, a list of Send, or None",
        )
    return found


def _are_sends(returned: Any) -> TypeGuard[Sequence[Send]]:
    return isinstance(returned, list | tuple) and all(isinstance(each, Send) for each in returned)


def _sent(node: str, sends: Sequence[Send]) -> tuple[outcomes.Send, ...]:
    found = []
    for each in sends:
        try:
            item = to_json(each.item)
        except ValueError as error:
            message = f"the node {node!r} sends {each.node!r} an item that is not JSON: {error}"
            raise Fatal(message) from error
        found.append(outcomes.Send(node=each.node, item=item))
    return tuple(found)


def _deciders(graph: Graph, visit_input: VisitInput) -> Deciders:
    missing = [
        name for name in visit_input.routes if (visit_input.node, name) not in graph.route_code
    ]
    if missing:
        raise CodeMissing(
            f"the graph {graph.name!r} of this worker has no route {missing[0]!r} from "
            f"{visit_input.node!r}: deploy a worker that has it, and the visit goes on"
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
                message = (
                    f"the route {name!r} of {node!r} returned {chosen!r}; a route returns the name of "
                    f"a node, a list of names, {END} or None"
                )
                raise Fatal(message)
    return tuple(targets)


def _demand_clips(visit_input: VisitInput) -> None:
    rule = next((rule for rule in visit_input.rules if isinstance(rule.condition, Clips)), None)
    if rule is not None:
        try:
            engine.library(rule.id)
        except ClipsMissing as error:
            message = f"this worker lacks what rules need: {error}, and the visit goes on"
            raise CodeMissing(message) from error


async def _fired(visit_input: VisitInput, values: Mapping[str, Json]) -> tuple[str, ...]:
    """The rules with CLIPS text that fire on the values, as they fired."""
    if not visit_input.rules:
        return ()
    rules = engine.taking_part(visit_input.rules, values)
    fired = await call(partial(engine.evaluate, rules, node=visit_input.node, values=values))
    texts = {rule.id for rule in visit_input.rules if isinstance(rule.condition, Clips)}
    return tuple(id_ for id_ in fired if id_ in texts)


def _failed(code: FailureCode, message: str, *, fatal: bool = False) -> Failed:
    return Failed(code=code, message=cut(message), fatal=fatal)
