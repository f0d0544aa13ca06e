"""The way through a graph: entering nodes, failing in them, and meeting at joins.

Dataflow without supersteps: a node is entered as soon as an edge to it fires, whatever other branches
are doing. An edge with several sources is a join: it keeps a queue of tokens for each source and fires
when every source has one, taking the oldest of each, so that loops pair up. How a visit finds its way
out of its node is told in `leaving`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from abeyance.core import ending
from abeyance.core.address import Address
from abeyance.core.canonical import Json, size
from abeyance.core.draft import Draft
from abeyance.core.model import END, Edge, FunctionNode, GoTo
from abeyance.core.state import Failure, Scope, Visit
from abeyance.errors import FailureCode


def enter(draft: Draft, scope_address: str, node: str, *, is_finally: bool = False) -> None:
    """Make a visit of a node, ready to start. Too many of one node end the run."""
    scope = draft.state.scopes[scope_address]
    ordinal = scope.ordinals.get(node, 0) + 1
    count = scope.visit_counts.get(node, 0) + 1
    address = Address.parse(scope_address).child("node", node, ordinal)
    bound = draft.state.limits.max_visits
    if count > bound and not is_finally:
        message = (
            f"the node {node!r} has been visited {bound} times since a person last answered or "
            "wrote, and max_visits allows no more: give its loop a way out, or raise max_visits"
        )
        error = Failure(code=FailureCode.MAX_VISITS, message=message, address=str(address))
        ending.begin(draft, "failed", message, error=error)
        return
    draft.put_scope(
        replace(
            scope,
            ordinals={**scope.ordinals, node: ordinal},
            visit_counts={**scope.visit_counts, node: count},
        )
    )
    draft.put_visit(
        Visit(
            address=str(address),
            scope=scope_address,
            node=node,
            created_at=draft.now,
            is_finally=is_finally,
        )
    )
    draft.count(visits=1)


def fail(draft: Draft, visit: Visit, failure: Failure) -> None:
    """A visit failed: go where its node's `on_error` says, else end the run."""
    failure = replace(failure, address=visit.address)
    node = draft.state.spec.nodes[visit.node]
    draft.drop_visit(visit.address)
    if visit.is_finally or draft.state.ending is not None:
        ending.begin(draft, "failed", failure.message, error=failure)
        return
    match node:
        case FunctionNode(on_error=GoTo(node=target)):
            go(draft, visit.scope, target)
        case _:
            ending.begin(draft, "failed", failure.message, error=failure)


def put_values(draft: Draft, scope_address: str, values: Mapping[str, Json]) -> None:
    """Replace the values of a scope by a new version of them."""
    scope = draft.state.scopes[scope_address]
    draft.put_scope(replace(scope, values=values, version=scope.version + 1, size=size(values)))


def go(draft: Draft, scope_address: str, target: str) -> None:
    """Enter a target, unless it is END or the run is ending."""
    if target != END and draft.state.ending is None:
        enter(draft, scope_address, target)


def put_token(draft: Draft, scope_address: str, edge: Edge, source: str, visit: str) -> None:
    """Leave a visit's token at a join, and enter its target if no other is missing."""
    scope = draft.state.scopes[scope_address]
    come = scope.tokens.get(edge.key, {})
    come = {**come, source: (*come.get(source, ()), visit)}
    is_complete = all(come.get(name) for name in edge.sources)
    if is_complete:
        come = {name: queue[1:] for name, queue in come.items()}
    _keep_tokens(draft, scope, edge.key, come)
    if is_complete:
        go(draft, scope_address, edge.target)


def release_starved(draft: Draft, scope: Scope) -> bool:
    """Deal with the joins of a scope in which nothing else can happen. False if there are none.

    A join that takes what has arrived starts with that; any other fails the run.
    """
    starved = [edge for edge in draft.state.spec.edges if edge.key in scope.tokens]
    if not starved:
        return False
    edge = next((edge for edge in starved if edge.join == "arrived"), starved[0])
    come = scope.tokens[edge.key]
    if edge.join == "arrived":
        _keep_tokens(draft, scope, edge.key, {name: queue[1:] for name, queue in come.items()})
        go(draft, scope.address, edge.target)
        return True
    missing = [name for name in edge.sources if name not in come]
    message = (
        f"the join of {', '.join(map(repr, edge.sources))} into {edge.target!r} waits for "
        f"{', '.join(map(repr, missing))}, which cannot come any more; "
        f"{', '.join(map(repr, come))} did. Use join='arrived' if that is enough"
    )
    error = Failure(code=FailureCode.JOIN_STARVED, message=message, address=scope.address)
    ending.begin(draft, "failed", message, error=error)
    return True


def _keep_tokens(draft: Draft, scope: Scope, key: str, come: Mapping[str, tuple[str, ...]]) -> None:
    tokens = {other: kept for other, kept in scope.tokens.items() if other != key}
    left = {name: queue for name, queue in come.items() if queue}
    if left:
        tokens[key] = left
    draft.put_scope(replace(scope, tokens=tokens))
