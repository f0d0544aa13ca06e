"""Random values, addresses and graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from core_drive import edge, graph
from hypothesis import strategies as st

from abeyance.core.address import Address, Segment
from abeyance.core.json import Json
from abeyance.core.outcome import Asked
from abeyance.core.spec import (
    END,
    START,
    Ask,
    AskHuman,
    Default,
    Edge,
    Fail,
    FunctionNode,
    GoTo,
    GraphSpec,
    Halt,
    HaltRun,
    InterruptNode,
    InterruptSpec,
    Matches,
    Node,
    OnError,
    OnTimeout,
    Parallel,
    Reducer,
    Retry,
    Route,
    Rule,
    RuleAction,
    SubgraphNode,
)
from abeyance.core.state import Limits, RunState
from abeyance.core.terms import Escalation, Quorum, Terms

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def json_values() -> st.SearchStrategy[Json]:
    """Return a strategy for any JSON value."""
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
    """Return a strategy for any address, with ids of letters, separators and escapes."""
    ids = st.text(st.sampled_from("ab:;%3AB25 é"), min_size=1, max_size=6)
    segments = st.builds(Segment, ids, ids, st.none() | ids)
    return st.builds(Address, st.lists(segments, min_size=1, max_size=4).map(tuple))


SECONDS = st.sampled_from([0.0, 1.0, 5.0, 20.0, 60.0])
"""Lengths of time, few enough that deadlines meet."""

_WAYS = st.sampled_from(
    ["end", "plain", "plain", "gather", "gather", "both", "when", "else", "else", "route", "route"]
)
RARE = st.integers(0, 3).map(lambda number: number == 3)


_ANSWER_FIELDS = st.sampled_from([None, "flag", "flag", "log"])
SHOWING = st.sampled_from(["{flag}", "{flag}|{count}", "{log}|{flag}|{count}", "Go on?"])
"""Prompts of a graph's own questions, from which `core_shown` reads the shown values."""
SAYING = st.sampled_from(["Go on?", "Go on?", "Really?"])
"""Prompts of questions that code asks."""


@st.composite
def graphs(draw: st.DrawFn, *, is_nested: bool = False) -> GraphSpec:
    """Draw a graph without faults, with branches, joins, loops, conditions, routes, rules, gates, finally
    nodes, nested graphs, fan-outs and static interrupts.
    """
    names = [f"n{number}" for number in range(draw(st.integers(1, 3 if is_nested else 5)))]
    may_loop = draw(st.booleans()) and not is_nested
    fan = draw(_fans(names))
    nodes: list[Node] = []
    edges: list[Edge] = []
    routes: list[Route] = []
    for number, name in enumerate(names):
        later = names if may_loop else names[number + 1 :]
        somewhere = st.sampled_from([*later, END])
        if name in fan:
            # This node sends to the next one, and the node after that gathers the items.
            nodes.append(FunctionNode(id=name, to=(fan[name],)))
            edges.append(edge([fan[name]], names[names.index(fan[name]) + 1]))
            continue
        nodes.append(draw(_nodes(name, somewhere, is_nested=is_nested)))
        match draw(_WAYS):
            case "plain":
                edges.append(edge(name, draw(somewhere)))
            case "gather" if later:
                edges.append(edge([name], draw(st.sampled_from(later))))
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
    finally_ = [f"f{number}" for number in range(0 if is_nested else draw(st.integers(0, 2)))]
    first = names[0] if fan else draw(st.sampled_from(names))
    looked_at = st.lists(st.sampled_from(names), max_size=1) if draw(RARE) else st.just([])
    return graph(
        *nodes,
        ways=_reaching_all(nodes, _distinct(edges), routes, first=first),
        routes=routes,
        rules=rules,
        finally_=finally_,
        fields={"flag": "last", "count": "add", "log": "append"},
        name="inner" if is_nested else "g",
        before=draw(looked_at),
        after=draw(looked_at),
    )


@st.composite
def gated_graphs(draw: st.DrawFn) -> GraphSpec:
    """Draw a graph of two branches, one with gates. Both may change the values that the gates show. The
    branches may meet, and the first may begin with a nested graph.
    """
    main = draw(st.lists(st.sampled_from(_PARTS), min_size=1, max_size=4))
    side = draw(st.lists(st.sampled_from(_BESIDE), min_size=1, max_size=2))
    first = [
        draw(_parts(f"m{number}", kind)) for number, kind in enumerate(["gate", *main, "work"])
    ]
    second = [draw(_parts(f"s{number}", kind)) for number, kind in enumerate(side)]
    if draw(RARE):
        cut = draw(st.integers(1, len(first) - 1))
        inner = _chained("inner", [first[:cut]])
        first = [SubgraphNode(id="sub", graph=inner), *first[cut:]]
    looked_at = [node.id for node in first if draw(RARE) and draw(RARE)]
    rules = []
    if draw(RARE):
        names = [node.id for node in (*first[:-1], *second)]
        asks = Ask(
            question=draw(_questions("r", st.just(END), SHOWING)), answer_to=draw(_ANSWER_FIELDS)
        )
        condition = Matches(node=draw(st.sampled_from(names)))
        rules.append(Rule(id="r", condition=condition, actions=(asks,)))
    met = [FunctionNode(id="met")] if draw(st.booleans()) else []
    return _chained("g", [first, second], met=met, before=looked_at, rules=rules)


@st.composite
def chained_graphs(draw: st.DrawFn, *, is_nested: bool = False) -> GraphSpec:
    """Draw a graph of functions: in sequence, in parallel branches that join, or as alternatives, with
    gates and nested graphs between.
    """
    nodes: list[Node] = []
    ways: list[Edge] = []
    last: tuple[str, ...] = (START,)

    def work(name: str) -> str:
        nodes.append(FunctionNode(id=name, on_error=draw(_MENDED)))
        return name

    kinds = ["work", "work", "fork", "either", "gate", "graph"]
    for number in range(draw(st.integers(2, 4))):
        first = work(f"w{number}")
        ways.append(edge(last[0] if len(last) == 1 else last, first))
        last = (first,)
        match draw(st.sampled_from(kinds[:-1] if is_nested else kinds)):
            case "fork":
                last = (work(f"a{number}"), work(f"b{number}"))
                ways += [edge(first, name) for name in last]
            case "either":
                end = work(f"c{number}")
                ways += [edge(first, end, {"flag": True}), edge(first, work(f"d{number}"), "else")]
                ways.append(edge(f"d{number}", end))
                last = (end,)
            case "gate":
                question = InterruptSpec(name=f"g{number}", prompt=draw(SHOWING))
                nodes.append(InterruptNode(id=f"g{number}", question=question))
                ways.append(edge(first, f"g{number}"))
                last = (f"g{number}",)
            case "graph":
                nodes.append(
                    SubgraphNode(id=f"s{number}", graph=draw(chained_graphs(is_nested=True)))
                )
                ways.append(edge(first, f"s{number}"))
                last = (f"s{number}",)
            case _:
                pass
    fields: dict[str, Reducer] = {"flag": "last", "count": "add", "log": "append"}
    return graph(*nodes, ways=ways, fields=fields, name="inner" if is_nested else "g")


_MENDED: st.SearchStrategy[OnError] = st.sampled_from([Fail(), Fail(), AskHuman()])
_PARTS = ["gate", "gate", "remark", "remark", "work", "work", "nested"]
_BESIDE = ["remark", "work", "work", "gate"]


@st.composite
def _parts(draw: st.DrawFn, name: str, kind: str) -> Node:
    match kind:
        case "work":
            error: OnError = AskHuman() if draw(RARE) else Fail()
            asks = ("approve", "audit") if draw(RARE) else ()
            return FunctionNode(id=name, on_error=error, asks=asks, reads_inbox=draw(RARE))
        case "nested":
            kinds = draw(st.lists(st.sampled_from(["work", "remark", "gate"]), max_size=2))
            nodes = [draw(_parts(f"i{at}", each)) for at, each in enumerate([*kinds, "work"])]
            return SubgraphNode(id=name, graph=_chained("inner", [nodes]))
        case _:
            capability = draw(st.sampled_from(["approve", "audit"])) if kind == "gate" else None
            question = InterruptSpec(
                name=name, prompt=draw(SHOWING), requested_capability=capability
            )
            if draw(RARE):
                default = Default(answer=draw(st.booleans()))
                question = replace(question, timeout=20.0, on_timeout=default)
            return InterruptNode(id=name, question=question, answer_to=draw(_ANSWER_FIELDS))


def _chained(
    name: str,
    branches: list[list[Node]],
    *,
    met: Sequence[Node] = (),
    before: Sequence[str] = (),
    rules: Sequence[Rule] = (),
) -> GraphSpec:
    """Return a graph of parallel branches that join at the nodes `met`."""
    ways = [(START, branch[0].id) for branch in branches]
    ways += [(one.id, two.id) for branch in branches for one, two in pairwise(branch)]
    last = tuple(branch[-1].id for branch in branches)
    return graph(
        *(node for branch in branches for node in branch),
        *met,
        ways=[*ways, *((last, node.id) for node in met)],
        fields={"flag": "last", "count": "add", "log": "append"},
        name=name,
        before=before,
        rules=rules,
    )


@st.composite
def _fans(draw: st.DrawFn, names: list[str]) -> dict[str, str]:
    """Draw the senders and their targets: none, the first node, or the first two, one in the other."""
    senders = names[: draw(st.integers(0, max(0, min(2, len(names) - 2))))]
    return {name: names[names.index(name) + 1] for name in senders}


@st.composite
def _joins(draw: st.DrawFn, names: list[str], *, may_loop: bool) -> Edge:
    number = draw(st.integers(0, len(names) - 1))
    sources = [START, *(names if may_loop else names[:number])]
    if len(sources) == 1:
        return edge(START, names[number])
    come = draw(st.lists(st.sampled_from(sources), min_size=2, max_size=3, unique=True))
    return edge(tuple(come), names[number], join=draw(st.sampled_from(["all", "arrived"])))


def _distinct(edges: list[Edge]) -> list[Edge]:
    """Return the edges, with each join only once."""
    joins = {edge.key: edge for edge in edges if edge.is_join}
    return [*(edge for edge in edges if not edge.is_join), *joins.values()]


@st.composite
def _nodes(
    draw: st.DrawFn, name: str, somewhere: st.SearchStrategy[str], *, is_nested: bool
) -> Node:
    errors: list[OnError] = [Fail(), AskHuman(), GoTo(node=draw(somewhere))]
    on_error = draw(st.sampled_from(errors))
    kinds = ["function", "function", "function", "gate", "gate", "graph"]
    match draw(st.sampled_from(kinds[:-1] if is_nested else kinds)):
        case "function":
            to = draw(st.lists(somewhere, max_size=2, unique=True))
            asks = draw(st.sampled_from([("approve", "audit"), ("audit",), ("a:*", "approve"), ()]))
            return FunctionNode(
                id=name,
                to=tuple(to),
                on_error=on_error,
                asks=asks,
                reads_inbox=draw(RARE),
            )
        case "graph":
            inner = draw(graphs(is_nested=True))
            return SubgraphNode(id=name, graph=inner, on_error=on_error)
        case _:
            question = draw(_questions(name, somewhere, SHOWING))
            return InterruptNode(id=name, question=question, answer_to=draw(_ANSWER_FIELDS))


@st.composite
def asked_by(draw: st.DrawFn, graph: GraphSpec) -> tuple[Asked, ...]:
    """Draw one or two questions that code asks."""
    somewhere = st.sampled_from([*(n for n in graph.nodes if n not in graph.finally_nodes), END])
    places = st.tuples(st.sampled_from(["p", "q", "r"]), st.sampled_from([None, "one", "two"]))
    return tuple(
        Asked(question=draw(_questions(name, somewhere, SAYING)), process=process)
        for name, process in draw(st.lists(places, min_size=1, max_size=2, unique=True))
    )


DECIDED = [
    Terms(quorum=Quorum(count=2)),
    Terms(quorum=Quorum(count=2, veto=False), hold=4.0),
    Terms(hold=4.0),
]
"""Terms of questions that one answer does not settle at once."""


def _reminding(timeout: float | None) -> Terms:
    before = () if timeout is None else (-2.0,)
    escalation = Escalation(after=6.0, to=("group:directors",))
    return Terms(remind=(1.0, 6.0, *before), escalate=(escalation,))


@st.composite
def _questions(
    draw: st.DrawFn, name: str, somewhere: st.SearchStrategy[str], prompts: st.SearchStrategy[str]
) -> InterruptSpec:
    timeout = draw(st.none() | st.sampled_from([5.0, 20.0]))
    on_timeout: OnTimeout = Halt()
    if timeout is not None:
        on_timeout = draw(
            st.just(Halt())
            | st.just(Default(answer=True))
            | somewhere.map(lambda node: GoTo(node=node))
        )
    terms = draw(st.sampled_from([None, None, None, _reminding(timeout), *DECIDED]))
    return InterruptSpec(
        name=name,
        prompt=draw(prompts),
        response_schema={"type": "boolean"}
        if terms in DECIDED
        else draw(st.sampled_from([None, {}])),
        requested_capability=draw(st.sampled_from([None, None, "approve", "approve", "audit"])),
        timeout=timeout,
        on_timeout=on_timeout,
        terms=terms,
    )


@st.composite
def _rules(draw: st.DrawFn, id_: str, names: list[str], *, may_loop: bool) -> Rule:
    node = draw(st.none() | st.sampled_from(names))
    later = names[names.index(node) + 1 :] if node is not None else []
    somewhere = st.sampled_from([*(names if may_loop else later), END])
    question = draw(_questions(id_, somewhere, SHOWING))
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
    """Return the edges, with one from START to the first node and to each node that nothing leads to."""
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
    """Return a strategy for limits that are small enough to be reached."""
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


# Values of events that runs of these graphs get

GOOD_PATCHES: list[dict[str, Json]] = [
    {},
    {"flag": True},
    {"flag": False, "count": 1},
    {"log": ["x"]},
]
PATCHES = st.sampled_from([*GOOD_PATCHES * 4, {"count": "x"}, {"nope": 1}])
VALUES: st.SearchStrategy[dict[str, Json]] = st.sampled_from([{}, {"flag": True}, {"log": []}])
ANSWERS: st.SearchStrategy[Json] = st.sampled_from([None, False, True, ["x"], 7, float("inf")])
ITEMS: st.SearchStrategy[Json] = st.sampled_from([1, 1, 1, {"a": 1}, None, float("inf")])
JOURNALS: st.SearchStrategy[Json] = st.sampled_from([None, {"step": 1}, {"step": "x" * 6_000}])
MODES = st.sampled_from(["graceful", "now"])
RARELY = st.integers(0, 9).map(lambda number: number == 9)
"""True once in ten draws, for events that end or break runs: most events should meet running ones."""


def fitting(state: RunState, data: st.DataObject, id_: str, value: Json) -> Json:
    """Return an answer in the form that an interrupt asks for."""
    entry = state.ledger.open.get(id_)
    match entry and entry.kind:
        case "static" | "error" if entry is not None and state.visits[entry.visit].members:
            # An answer within an item of a fan-out cannot edit values.
            actions = ["retry", "retry", "skip", "fail"]
            return (
                None if entry.kind == "static" else {"action": data.draw(st.sampled_from(actions))}
            )
        case "static" if entry is not None and value is not None:
            version = state.scopes[entry.scope].version
            changes = data.draw(st.sampled_from(GOOD_PATCHES))
            return {"values": changes, "version": version - data.draw(st.integers(0, 1))}
        case "error":
            action = data.draw(st.sampled_from(["retry", "retry", "skip", "fail"]))
            patch = {"patch": data.draw(PATCHES)} if action == "skip" else {}
            return {"action": action, **patch}
        case _:
            return value
