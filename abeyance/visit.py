"""Running the code of one visit, wherever it runs: in a Temporal activity or in memory.

It reads the values into the author's state, calls the function, holds its patch against the state,
and asks the node's route functions. What the author's code raises is let through, for the caller to
decide about retries; what can never become right by another attempt is a `Failed` outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from abeyance import wire
from abeyance.context import Context, Goto
from abeyance.core.canonical import Json, size
from abeyance.core.model import END
from abeyance.core.patch import PatchError, merged
from abeyance.errors import FailureCode, Fatal
from abeyance.graph import Graph
from abeyance.nodecode import call
from abeyance.statemodel import ValuesError

_LONGEST_MESSAGE: Final = 2_000
"""In characters: what failed goes into the run's memo, its view and its closing record."""
_LARGEST: Final = 1_500_000
"""In bytes: Temporal's server takes 2 MB in one payload, and answers travel with the values."""

Deciders: TypeAlias = Sequence[tuple[str, Callable[..., Any]]]
"""The route functions of a node, with the names of their routes."""


class CodeMissing(Exception):
    """This process does not have the code that a run needs; another, or a later one, may."""


async def run_visit(graph: Graph, order: wire.VisitOrder, context: Context) -> wire.VisitOutcome:
    """Carry out an order. Raises CodeMissing, and whatever the author's code raises but `Fatal`."""
    # Looked for first: a node whose routes are missing is not to run again until they are there.
    deciders = _deciders(graph, order)
    try:
        if order.kind == "routes":
            return wire.Finished(routed=await _routed(graph, order.node, deciders, order.values))
        return await _run_code(graph, order, context, deciders)
    except ValuesError as error:
        return _failed(FailureCode.VALUES_INCOMPATIBLE, str(error))
    except Fatal as error:
        return _failed(FailureCode.NODE_FAILED, describe(error))


async def _run_code(
    graph: Graph, order: wire.VisitOrder, context: Context, deciders: Deciders
) -> wire.VisitOutcome:
    code = graph.code.get(order.node)
    if code is None:
        raise CodeMissing(
            f"the graph {graph.name!r} of this worker has no node {order.node!r}: deploy a worker "
            "that has it, and the visit goes on"
        )
    state = graph.states.read(order.values)
    returned = await call(code.function, *(state, context)[: code.takes])
    goto: str | None = None
    changes: Any = returned
    if isinstance(returned, Goto):
        goto, changes = returned.node, returned.patch
        if not isinstance(goto, str):
            return _failed(
                FailureCode.UNKNOWN_NODE,
                f"the node {order.node!r} returned a Goto to {goto!r}; it takes the name of a node",
            )
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
        graph.states.check_merged(after, patch)
    except (ValuesError, PatchError) as error:
        return _failed(FailureCode.INVALID_PATCH, str(error))
    if patch and (actual := size(after)) > _LARGEST:
        return _failed(
            FailureCode.INVALID_PATCH,
            f"the patch of {order.node!r} makes the values {actual} bytes large, and they may take "
            f"{_LARGEST}: keep large data elsewhere, and a reference to it in the values",
        )
    routed = () if goto is not None else await _routed(graph, order.node, deciders, after)
    return wire.Finished(patch=patch, goto=goto, routed=routed)


def _deciders(graph: Graph, order: wire.VisitOrder) -> Deciders:
    names = order.routes
    if names is None:
        names = tuple(route.name for route in graph.build().routes_from(order.node))
    missing = [name for name in names if (order.node, name) not in graph.route_code]
    if missing:
        raise CodeMissing(
            f"the graph {graph.name!r} of this worker has no route {missing[0]!r} from "
            f"{order.node!r}: deploy a worker that has it, and the visit goes on"
        )
    return [(name, graph.route_code[order.node, name]) for name in names]


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


def describe(error: BaseException) -> str:
    """What an exception says, with its type, for a person."""
    text = _cut(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _failed(code: FailureCode, message: str) -> wire.Failed:
    return wire.Failed(code=code, message=_cut(message))


def _cut(text: str) -> str:
    # A text that is no UTF-8 could not be sent, and the visit would fail without a word.
    text = text.encode(errors="replace").decode()
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}..."
