"""Fused nodes: visits that run one after another in one activity, which is called a hop.

A hop begins with a visit that is alone in its graph, so nothing can change the values under it, and the
worker decides what this run would decide (`hops`). What a hop has done comes with the end of its first
visit. It has happened, so it is applied at once, in its order, whatever came meanwhile: a visit of it
starts also while the run is paused, and no directive comes between. If the run does not enter such a
visit, because it is ending, for instance, the changes of the visit are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, assert_never

from abeyance.core import approvals, items, routing
from abeyance.core.address import Address
from abeyance.core.copying import derived, replace
from abeyance.core.effects import Hop, StopNode
from abeyance.core.events import VisitEnded
from abeyance.core.outcome import Ran
from abeyance.core.patch import PatchError
from abeyance.core.retries import RetryPolicy
from abeyance.core.spec import (
    END,
    Ask,
    AskHuman,
    FunctionNode,
    GraphSpec,
    InterruptNode,
    InterruptSpec,
    Rule,
    SubgraphNode,
)
from abeyance.core.state import RunState, Scope
from abeyance.core.visit import BY_SCOPE, Failure, Running, Visit, transition
from abeyance.core.working_state import WorkingState
from abeyance.errors import Code, FailureCode, Refusal

HOP_SECONDS: Final = 60.0
"""In seconds. No visit begins in a hop after that."""
MAX_NODES: Final = 50
"""How many nodes can be in one hop, and how many visits it makes."""


def why_not(graph: GraphSpec, name: str) -> str | None:
    """Return why a node always has an activity of its own; None if it may share one."""
    match graph.nodes[name]:
        case InterruptNode():
            return "it asks a person"
        case SubgraphNode(agent=agent):
            return "it is an agent" if agent else "it is a nested graph"
        case FunctionNode(local=True):
            return "it is local"
        case FunctionNode(fuse=False):
            return "it is not fused"
        case FunctionNode(asks=(_, *_)):
            return "it may ask a person (asks=)"
        case FunctionNode(reads_inbox=True) | FunctionNode(guarded=True):
            return "it reads messages"
        case FunctionNode(retry=RetryPolicy(retries=0)):
            return "it may run only once (retries=0)"
        case FunctionNode(timeout=timeout) if timeout is not None and timeout > HOP_SECONDS:
            return f"its timeout of {timeout:g} s is longer than a hop, {HOP_SECONDS:g} s"
        case FunctionNode():
            pass
        case unknown:
            assert_never(unknown)
    if name in graph.finally_nodes:
        return "it runs after the end of the run"
    return "a person is asked before it" if name in graph.interrupt_before else None


@derived
def sharing(graph: GraphSpec, first: str) -> tuple[str, ...]:
    """Return the nodes that may share the activity of a visit of `first`, which comes first."""
    if why_not(graph, first) is not None:
        return ()
    found, waiting = [first], [first]
    while waiting and len(found) < MAX_NODES:
        name = waiting.pop(0)
        reached = _following(graph, name)
        for target in graph.nodes:
            if target in reached and target not in found and _may_follow(graph, first, target):
                found.append(target)
                waiting.append(target)
    return tuple(found[:MAX_NODES])


def _following(graph: GraphSpec, name: str) -> frozenset[str]:
    """Return the nodes that may follow a visit of `name` in its hop, which ends where it fails, asks a
    person after it, or returns Sends.
    """
    if name in graph.interrupt_after:
        return frozenset()
    targets = {edge.target for edge in graph.edges_from(name)}
    targets.update(graph.routed_from(name) if _sends(graph, name) else graph.targets_of(name))
    silent = [rule for rule in graph.rules_on(name) if not _asks(rule)]
    targets.update(target for rule in silent for target in rule.targets(name))
    return frozenset(targets - {END})


def _asks(rule: Rule) -> bool:
    return any(isinstance(action, Ask) for action in rule.actions)


def _sends(graph: GraphSpec, name: str) -> bool:
    """Return whether a node returns Sends, and no Goto: what it leads to is gathered."""
    joins = items.gathering(graph, graph.declared_by(name))
    # A join of one source is for items alone.
    alone = (edge.key for edge in graph.edges if edge.is_join and len(edge.sources) == 1)
    return not set(joins).isdisjoint(alone)


def _of_items(graph: GraphSpec) -> frozenset[str]:
    """Return the nodes that run for the items of a fan-out, until they are gathered."""
    found: set[str] = set()
    waiting = [
        each for name in graph.nodes if _sends(graph, name) for each in graph.declared_by(name)
    ]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [edge.target for edge in graph.edges_from(name) if not edge.is_join]
            waiting += graph.routed_from(name)
    return frozenset(found)


def _may_follow(graph: GraphSpec, first: str, name: str) -> bool:
    return why_not(graph, name) is None and _silence(graph, name) == _silence(graph, first)


def _silence(graph: GraphSpec, name: str) -> float:
    node = graph.nodes[name]
    assert isinstance(node, FunctionNode)  # noqa: S101 no other node shares an activity
    return node.heartbeat


def described(graph: GraphSpec) -> tuple[str, ...]:
    """Return, for a person, which fused nodes share an activity, and where and why each hop ends."""
    lines: list[str] = []
    covered: set[str] = set()
    of_items = _of_items(graph)
    fused = [n for n, node in graph.nodes.items() if isinstance(node, FunctionNode) and node.fuse]
    sources = {name: {s for s in graph.nodes if name in graph.successors(s)} for name in fused}
    # First the nodes at which a hop begins, then those that are in a loop.
    for name in sorted(fused, key=lambda name: bool(sources[name].intersection(fused))):
        if name in covered:
            continue
        nodes = sharing(graph, name)
        why = "it runs for the items of a fan-out" if name in of_items else why_not(graph, name)
        if why is not None:
            lines.append(f"alone: {name} ({why})")
            continue
        covered.update(nodes)
        ends = " or ".join(_ends(graph, nodes))
        if len(nodes) > 1:
            lines.append(f"hop: {'+'.join(nodes)}, which ends {ends or 'with the branch'}")
        else:
            lines.append(
                f"alone: {name}" + (f", which ends {ends}" if ends else " (no node comes after it)")
            )
    return tuple(lines)


def _ends(graph: GraphSpec, nodes: tuple[str, ...]) -> Iterator[str]:
    """Yield where a hop ends, and why."""
    beyond = frozenset().union(*(_following(graph, name) for name in nodes)).difference(nodes)
    for name in graph.nodes:
        if name in beyond:
            yield f"before {name} ({_end(graph, nodes[0], name)})"
    for name in nodes:
        if reasons := [*_reasons_after(graph, name)]:
            yield f"after {name} ({', and '.join(reasons)})"


def _reasons_after(graph: GraphSpec, name: str) -> Iterator[str]:
    if name in graph.interrupt_after:
        yield "a person is asked after it"
    if _sends(graph, name):
        yield "the items of a fan-out share no activity"
    elif graph.declared_by(name):
        yield "if it returns Sends"
    yield from (f"if the rule {rule.id!r} asks" for rule in graph.rules_on(name) if _asks(rule))
    match graph.nodes[name]:
        case FunctionNode(on_error=AskHuman()):
            yield "if it fails, which a person decides"
        case _:
            pass


def _end(graph: GraphSpec, first: str, name: str) -> str:
    if (why := why_not(graph, name)) is not None:
        return why
    if _silence(graph, name) != _silence(graph, first):
        return f"its heartbeat is {_silence(graph, name):g} s, and not {_silence(graph, first):g} s"
    return f"a hop has at most {MAX_NODES} nodes"


def hop_of(draft: WorkingState, visit: Visit) -> Hop | None:
    """Return what is needed to go on with the visits after one that starts; None if none may follow."""
    state, graph = draft.state, draft.graph(visit.scope)
    node = graph.nodes[visit.node]
    if not isinstance(node, FunctionNode) or not node.fuse:
        return None
    scope = state.scopes[visit.scope]
    is_alone = not scope.fans and state.visit_table.count(BY_SCOPE, visit.scope) == 1
    is_plain = visit.call is None and visit.blocked is None and not visit.heard_from
    if not is_alone or not is_plain or _is_awaited(state) or _may_be_asked_again(scope):
        return None
    nodes = sharing(graph, visit.node)
    if _following(graph, visit.node).isdisjoint(nodes):
        return None
    return Hop(
        graph=_part(graph, visit.node),
        nodes=nodes,
        approvals=visit.approvals,
        tokens=scope.tokens,
        ordinals={name: scope.ordinals[name] for name in nodes if name in scope.ordinals},
        visit_counts={n: scope.visit_counts[n] for n in nodes if n in scope.visit_counts},
        max_visits=state.limits.max_visits,
        visit_bytes=state.limits.visit_bytes,
    )


def _may_be_asked_again(scope: Scope) -> bool:
    """Return whether a join may lead to a visit before which a gate is asked again."""
    queues = (queue for come in scope.tokens.values() for queue in come.values())
    covered = (each for queue in queues for token in queue for each in token.approvals)
    return any(each.broken or each.inherited or not each.begun for each in covered)


@derived
def _part(graph: GraphSpec, first: str) -> GraphSpec:
    """Return the part of a graph that can be seen from the nodes that share an activity with the first.

    In it they are not fused, because no hop begins inside one.
    """
    nodes = sharing(graph, first)
    fused = [each for name in nodes if isinstance(each := graph.nodes[name], FunctionNode)]
    beyond = frozenset().union(*(graph.successors(name) for name in nodes)).difference(nodes)
    ends = {
        name: InterruptNode(id=name, question=InterruptSpec(name=name, prompt=""))
        for name in sorted(beyond)
    }
    return GraphSpec(
        name=graph.name,
        fields=graph.fields,
        open_values=graph.open_values,
        nodes={**{n.id: replace(n, fuse=False) for n in fused}, **ends},
        edges=tuple(edge for edge in graph.edges if not set(nodes).isdisjoint(edge.sources)),
        routes=tuple(route for route in graph.routes if route.source in nodes),
        rules=tuple(rule for rule in graph.rules if rule.condition.node in (None, *nodes)),
        interrupt_after=tuple(name for name in graph.interrupt_after if name in nodes),
    )


def _is_awaited(state: RunState) -> bool:
    """Return whether something may happen only between two visits that the run itself starts."""
    return state.pause is not None or state.rotation is not None or bool(state.mailbox.queue)


def leave(draft: WorkingState) -> None:
    """Have running hops come back after the node that runs now, if the run waits for that."""
    for visit, running in draft.state.running() if _is_awaited(draft.state) else ():
        if running.hop == "fused" and not running.stopping:
            draft.emit(StopNode(visit=visit.code_address, reason="boundary"))
            left = replace(running, hop="leaving")
            transition(draft.visit(visit.address), "stop", left)


def refuse_migration(state: RunState) -> None:
    """Refuse to move a run to another graph while a hop runs: which nodes it has run is not known yet."""
    hops = [visit for visit, running in state.running() if running.hop]
    if not hops:
        return
    remedy = "pause the run, and migrate it when no code runs"
    why = "fused nodes run after it in the same activity"
    obstacles = [
        {"what": "visit", "name": v.node, "why": why, "remedy": remedy, "address": v.address}
        for v in hops
    ]
    raise Refusal(
        Code.CANNOT_MIGRATE,
        f"The run cannot be migrated now: {hops[0].address} runs, and {why}. Nothing has changed: "
        f"{remedy}.",
        obstacles=obstacles,
    )


def scope_of(visit: str) -> str:
    """Return the scope of the visit at an address."""
    return visit.rpartition(";")[0]


def came_back(draft: WorkingState, visit: Visit, running: Running, then: tuple[Ran, ...]) -> None:
    """Take what a hop has done after its first visit. A worker cannot say that any other visit has run,
    nor one of a node that always has an activity of its own: one that asks a person, for instance.
    """
    nodes = draft.graph(visit.scope).nodes
    for ran in then if running.hop is not None else ():
        name = Address.parse(ran.visit).segments[-1].id
        is_inside = scope_of(ran.visit) == visit.scope and name in nodes
        if is_inside and why_not(draft.graph(visit.scope), name) is None:
            draft.ahead[ran.visit] = ran


def start(draft: WorkingState, visit: Visit, ran: Ran) -> None:
    """Start and end a visit that has run already."""
    approvals.begin(draft, visit)
    transition(visit, "start", Running())
    visit.activations += 1
    ended = VisitEnded(now=draft.now, visit=visit.address, outcome=ran.outcome, worked=ran.worked)
    draft.queued.append(ended)


def settle(draft: WorkingState) -> bool:
    """Keep what visits have changed that have run, and that the run does not enter. Return whether there
    was one.
    """
    left = [*draft.ahead.values()]
    draft.ahead.clear()
    for ran in left:
        scope = scope_of(ran.visit)
        if scope not in draft.state.scopes:
            continue
        try:
            items.put_patch(draft, scope, (), ran.outcome.patch)
        except PatchError as error:
            code = FailureCode.INVALID_PATCH
            failure = Failure(code=code, message=str(error), address=ran.visit)
            routing.fail_scope(draft, scope, failure)
    return bool(left)
