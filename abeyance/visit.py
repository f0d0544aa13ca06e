"""Running the code of one visit, wherever it runs: in a Temporal activity or in memory.

It reads the values into the author's state, calls the function, holds its patch against the state,
and asks the node's route functions. What the author's code raises is let through, for the caller to
decide about retries; what can never become right by another attempt is a `Failed` outcome.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from abeyance import wire
from abeyance.context import Context, Goto
from abeyance.core.canonical import Json
from abeyance.core.model import END
from abeyance.core.patch import PatchError, merged
from abeyance.errors import FailureCode, Fatal
from abeyance.graph import Graph
from abeyance.statemodel import ValuesError


class CodeMissing(Exception):
    """This process does not have the code that a run needs; another, or a later one, may."""


async def run_visit(graph: Graph, order: wire.VisitOrder, context: Context) -> wire.VisitOutcome:
    """Carry out an order. Raises CodeMissing, and whatever the author's code raises but `Fatal`."""
    try:
        if order.kind == "routes":
            return wire.Finished(routed=await _routed(graph, order.node, order.values))
        return await _run_code(graph, order, context)
    except ValuesError as error:
        return _failed(FailureCode.VALUES_INCOMPATIBLE, str(error))
    except Fatal as error:
        return _failed(FailureCode.NODE_FAILED, describe(error))


async def _run_code(graph: Graph, order: wire.VisitOrder, context: Context) -> wire.VisitOutcome:
    code = graph.code.get(order.node)
    if code is None:
        raise CodeMissing(
            f"the graph {graph.name!r} of this worker has no node {order.node!r}: deploy a worker "
            "that has it, and the visit goes on"
        )
    state = graph.states.read(order.values)
    returned = await _call(code.function, (state, context)[: code.takes])
    goto: str | None = None
    changes: Any = returned
    if isinstance(returned, Goto):
        goto, changes = returned.node, returned.patch
    if changes is None:
        changes = {}
    if not isinstance(changes, Mapping):
        return _failed(
            FailureCode.INVALID_PATCH,
            f"the node {order.node!r} returned a {type(changes).__name__}; a node returns a mapping "
            "of the fields that it changes, a Goto, or None",
        )
    try:
        patch = graph.states.patch(changes)
        after = merged(graph.build(), order.values, patch)
    except (ValuesError, PatchError) as error:
        return _failed(FailureCode.INVALID_PATCH, str(error))
    routed = () if goto is not None else await _routed(graph, order.node, after)
    return wire.Finished(patch=patch, goto=goto, routed=routed)


async def _routed(graph: Graph, node: str, values: Mapping[str, Json]) -> tuple[str, ...]:
    targets: list[str] = []
    for route in graph.build().routes_from(node):
        function = graph.route_code[node, route.name]
        chosen = await _call(function, (graph.states.read(values),))
        match chosen:
            case None:
                pass
            case str():
                targets.append(chosen)
            case list() | tuple() if all(isinstance(target, str) for target in chosen):
                targets.extend(chosen)
            case _:
                message = (
                    f"the route {route.name!r} of {node!r} returned {chosen!r}; a route returns the "
                    f"name of a node, a list of names, {END} or None"
                )
                raise Fatal(message)
    return tuple(targets)


async def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    returned = await _in_thread(function, arguments)
    return await returned if inspect.isawaitable(returned) else returned


async def _in_thread(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    loop = asyncio.get_running_loop()
    running = loop.run_in_executor(None, contextvars.copy_context().run, function, *arguments)
    # A thread cannot be stopped, only told (`ctx.cancelled`). To leave it would let the same visit run
    # twice at once, so a cancel waits for it like everybody else.
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            continue
    return running.result()


def describe(error: BaseException) -> str:
    """What an exception says, with its type, for a person."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _failed(code: FailureCode, message: str) -> wire.Failed:
    return wire.Failed(code=code, message=message)
