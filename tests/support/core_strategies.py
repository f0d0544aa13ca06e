"""Random values, addresses and graphs."""

from __future__ import annotations

from dataclasses import replace

from core_drive import edge, graph
from hypothesis import strategies as st

from abeyance.core.address import Address, Segment
from abeyance.core.canonical import Json
from abeyance.core.model import (
    END,
    START,
    Ask,
    Default,
    Edge,
    FunctionNode,
    GoTo,
    GraphSpec,
    Halt,
    HaltRun,
    InterruptNode,
    Matches,
    Node,
    OnTimeout,
    Parallel,
    Question,
    Retry,
    Route,
    Rule,
    RuleAction,
)
from abeyance.core.state import Limits

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def json_values() -> st.SearchStrategy[Json]:
    """Any JSON value."""
    plain = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | _TEXT
    )
    return st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
        max_leaves=8,
    )


def addresses() -> st.SearchStrategy[Address]:
    """Any address, of ids with every sign in them."""
    ids = st.text(st.sampled_from("ab:;%3AB25 é"), min_size=1, max_size=6)
    segments = st.builds(Segment, ids, ids, st.none() | ids)
    return st.builds(Address, st.lists(segments, min_size=1, max_size=4).map(tuple))


SECONDS = st.sampled_from([0.0, 1.0, 5.0, 20.0, 60.0])
"""Lengths of time, few enough that deadlines meet."""

_WAYS = st.sampled_from(["end", "plain", "plain", "both", "when", "else", "else", "route", "route"])


_ANSWER_FIELDS = st.sampled_from([None, "flag", "log"])


@st.composite
def graphs(draw: st.DrawFn) -> GraphSpec:
    """A graph without faults: branches, joins, loops, conditions, routes, rules, gates, finally nodes."""
    names = [f"n{number}" for number in range(draw(st.integers(1, 5)))]
    may_loop = draw(st.booleans())
    nodes: list[Node] = []
    edges: list[Edge] = []
    routes: list[Route] = []
    for number, name in enumerate(names):
        somewhere = st.sampled_from([*(names if may_loop else names[number + 1 :]), END])
        nodes.append(draw(_nodes(name, somewhere)))
        match draw(_WAYS):
            case "plain":
                edges.append(edge(name, draw(somewhere)))
            case "both":
                edges += [edge(name, draw(somewhere)), edge(name, draw(somewhere))]
            case "when":
                edges.append(edge(name, draw(somewhere), {"flag": draw(st.booleans())}))
            case "else":
                edges.append(edge(name, draw(somewhere), {"flag": True}))
                edges.append(edge(name, draw(somewhere), "else"))
            case "route":
                targets = draw(st.lists(somewhere, min_size=1, max_size=2, unique=True))
                routes.append(Route(source=name, name="r", targets=tuple(targets)))
            case _:
                pass
    edges += [draw(_joins(names, may_loop=may_loop)) for _ in range(draw(st.integers(0, 2)))]
    rules = [
        draw(_rules(f"r{number}", names, may_loop=may_loop))
        for number in range(draw(st.sampled_from([0, 0, 1, 2])))
    ]
    finally_ = [f"f{number}" for number in range(draw(st.integers(0, 2)))]
    return graph(
        *nodes,
        ways=_reaching_all(nodes, _distinct(edges), routes, first=draw(st.sampled_from(names))),
        routes=routes,
        rules=rules,
        finally_=finally_,
        fields={"flag": "last", "count": "add", "log": "append"},
    )


@st.composite
def _joins(draw: st.DrawFn, names: list[str], *, may_loop: bool) -> Edge:
    number = draw(st.integers(0, len(names) - 1))
    sources = [START, *(names if may_loop else names[:number])]
    if len(sources) == 1:
        return edge(START, names[number])
    come = draw(st.lists(st.sampled_from(sources), min_size=2, max_size=3, unique=True))
    return edge(tuple(come), names[number], join=draw(st.sampled_from(["all", "arrived"])))


def _distinct(edges: list[Edge]) -> list[Edge]:
    """The edges, each join once."""
    joins = {edge.key: edge for edge in edges if len(edge.sources) > 1}
    return [*(edge for edge in edges if len(edge.sources) == 1), *joins.values()]


@st.composite
def _nodes(draw: st.DrawFn, name: str, somewhere: st.SearchStrategy[str]) -> Node:
    if draw(st.booleans()):
        to = draw(st.lists(somewhere, max_size=2, unique=True))
        node = FunctionNode(id=name, to=tuple(to))
        return replace(node, on_error=GoTo(node=draw(somewhere))) if draw(st.booleans()) else node
    question = draw(_questions(name, somewhere))
    return InterruptNode(id=name, question=question, answer_to=draw(_ANSWER_FIELDS))


@st.composite
def _questions(draw: st.DrawFn, name: str, somewhere: st.SearchStrategy[str]) -> Question:
    timeout = draw(st.none() | st.sampled_from([5.0, 20.0]))
    on_timeout: OnTimeout = Halt()
    if timeout is not None:
        on_timeout = draw(
            st.just(Halt())
            | st.just(Default(answer=True))
            | somewhere.map(lambda node: GoTo(node=node))
        )
    return Question(
        name=name,
        prompt="Go on?",
        response_schema=draw(st.sampled_from([None, {}])),
        requested_capability=draw(st.sampled_from([None, None, "approve"])),
        timeout=timeout,
        on_timeout=on_timeout,
    )


@st.composite
def _rules(draw: st.DrawFn, id_: str, names: list[str], *, may_loop: bool) -> Rule:
    node = draw(st.none() | st.sampled_from(names))
    later = names[names.index(node) + 1 :] if node is not None else []
    somewhere = st.sampled_from([*(names if may_loop else later), END])
    question = draw(_questions(id_, somewhere))
    decisions: list[RuleAction] = [
        GoTo(node=draw(somewhere)),
        HaltRun(reason="enough"),
        Parallel(nodes=tuple(draw(st.lists(somewhere, min_size=1, max_size=2, unique=True)))),
    ]
    if may_loop:
        decisions.append(Retry())
    asks = Ask(question=question, answer_to=draw(_ANSWER_FIELDS))
    actions = draw(st.lists(st.sampled_from(decisions), max_size=2, unique=True))
    is_asking = not actions or draw(st.booleans())
    return Rule(
        id=id_,
        condition=Matches(node=node, equals={"flag": draw(st.booleans())}),
        actions=(*actions, asks) if is_asking else tuple(actions),
    )


def _reaching_all(
    nodes: list[Node], edges: list[Edge], routes: list[Route], *, first: str
) -> list[Edge]:
    """The edges, and one from START to the first node and to every other that nothing leads to."""
    edges = [edge(START, first), *edges]
    while True:
        spec = GraphSpec(
            name="g",
            nodes={node.id: node for node in nodes},
            edges=tuple(edges),
            routes=tuple(routes),
        )
        reached, waiting = set[str](), [START]
        while waiting:
            found = spec.successors(waiting.pop()) - reached
            reached |= found
            waiting += found
        lost = [node.id for node in nodes if node.id not in reached]
        if not lost:
            return edges
        edges.append(edge(START, lost[0]))


def limits() -> st.SearchStrategy[Limits]:
    """Bounds that are small enough to be met."""
    return st.builds(
        Limits,
        max_queue_size=st.integers(1, 3),
        max_visits=st.integers(1, 6),
        max_parallel_visits=st.integers(1, 3),
        pause_timeout=st.none() | SECONDS,
        grace=SECONDS,
        settled_kept=st.sampled_from([1, 1000]),
        task_bytes=st.sampled_from([1, 5_000, 1_000_000]),
    )
