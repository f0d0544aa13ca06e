"""Fused nodes: which visits share an activity, and that a run comes to the same without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from core_drive import Drive, Ways, chain, edge, gate, graph, nested, reader
from core_forks import ROOT, fork
from core_fusing import WAYS, abc, address, comes_back, fused, log, nodes, order, ran, walk
from core_strategies import PATCHES, fused_graphs, graphs
from core_ways import targets_of
from hypothesis import given
from hypothesis import strategies as st

from abeyance.core import events, fusing
from abeyance.core.effects import RunNode, VisitInput
from abeyance.core.hops import MAX_BYTES, following
from abeyance.core.json import Json
from abeyance.core.outcome import (
    AttemptFailed,
    Failed,
    Finished,
    Send,
    Stopped,
    VisitOutcome,
)
from abeyance.core.retries import Attempts, RetryPolicy
from abeyance.core.spec import (
    START,
    Ask,
    AskHuman,
    Fail,
    FunctionNode,
    GoTo,
    GraphSpec,
    InterruptSpec,
    Matches,
    Node,
    Retry,
    Route,
    Rule,
    SubgraphNode,
)
from abeyance.core.state import Limits
from abeyance.core.terms import Terms

# Which nodes share an activity


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (gate("x"), "it asks a person"),
        (nested("x", chain("i")), "it is a nested graph"),
        (SubgraphNode(id="x", graph=chain("i"), agent=True), "it is an agent"),
        (FunctionNode(id="x"), "it is not fused"),
        (FunctionNode(id="x", local=True), "it is local"),
        (fused("x", asks=("pay",)), "it may ask a person (asks=)"),
        (fused("x", reads_inbox=True), "it reads messages"),
        (fused("x", guarded=True), "it reads messages"),
        (fused("x", retry=RetryPolicy(retries=0)), "it may run only once (retries=0)"),
        (fused("x", retry=RetryPolicy(retries=1)), None),
        (fused("x", timeout=61.0), "its timeout of 61 s is longer than a hop, 60 s"),
        (fused("x", timeout=60.0), None),
        (fused("x"), None),
    ],
)
def test_a_node_shares_an_activity_only_if_nothing_about_it_forbids_that(
    node: Node, why: str | None
) -> None:
    assert fusing.why_not(chain(node), "x") == why


def test_a_node_at_which_a_person_looks_and_one_that_runs_at_the_end_share_no_activity() -> None:
    spec = graph(fused("a"), fused("f"), ways=[(START, "a")], finally_=["f"], before=["a"])

    assert fusing.why_not(spec, "a") == "a person is asked before it"
    assert fusing.why_not(spec, "f") == "it runs after the end of the run"


def test_a_description_says_where_hops_end_and_why() -> None:
    spec = graph(
        fused("a"),
        fused("b"),
        gate("ask"),
        fused("c"),
        fused("slow", timeout=90.0),
        fused("quiet", heartbeat=30.0),
        fused("d"),
        fused("e"),
        ways=[
            *[(START, "a"), ("a", "b"), ("b", "ask"), ("ask", "c"), ("c", "slow")],
            *[("b", "quiet"), ("quiet", "d"), ("d", "e"), ("e", "d")],
        ],
    )

    assert fusing.described(spec) == (
        (
            "hop: a+b, which ends before ask (it asks a person) or before quiet "
            "(its heartbeat is 30 s, and not 5 s)"
        ),
        "alone: c, which ends before slow (its timeout of 90 s is longer than a hop, 60 s)",
        "alone: slow (its timeout of 90 s is longer than a hop, 60 s)",
        "alone: quiet, which ends before d (its heartbeat is 5 s, and not 30 s)",
        "hop: d+e, which ends with the branch",
    )
    turned = graph(fused("b"), fused("a"), ways=WAYS)
    assert fusing.described(turned) == ("hop: a+b, which ends with the branch",)
    assert fusing.described(chain("a", "b")) == ()
    assert fusing.described(chain(fused("a"))) == ("alone: a (no node comes after it)",)


def test_a_hop_ends_before_the_items_of_a_fan_out_and_the_next_begins_behind_them() -> None:
    sends = graph(
        *(fused("a"), fused("split", to=("it",)), fused("it"), fused("it2"), fused("loop")),
        *(fused("met"), fused("y"), fused("z")),
        ways=[(START, "a"), ("a", "split"), ("it", "it2"), (["it2"], "met"), ("met", "y")],
        routes=[
            Route(source="it", name="r", targets=("loop", "it")),
            Route(source="split", name="q", targets=("z",)),
        ],
    )

    assert fusing.sharing(sends, "a") == ("a", "split", "z")
    assert fusing.described(sends) == (
        "hop: a+split+z, which ends after split (the items of a fan-out share no activity)",
        *(f"alone: {name} (it runs for the items of a fan-out)" for name in ("it", "it2", "loop")),
        "hop: met+y, which ends with the branch",
    )
    # Without a join of items it may go on by a Goto.
    meets: Ways = [(START, "a"), (START, "z"), (("b", "z"), "y")]
    chooses = graph(*(fused("a", to=("b",)), fused("b"), fused("z"), fused("y")), ways=meets)
    assert fusing.described(chooses) == (
        "hop: a+b+y, which ends after a (if it returns Sends)",
        "hop: z+y, which ends with the branch",
    )


def test_a_hop_goes_on_where_a_rule_leads_that_asks_nobody() -> None:
    silent = Rule(id="s", condition=Matches(node="a"), actions=(Retry(), GoTo(node="b")))
    asks = Ask(question=InterruptSpec(name="q", prompt="?"))
    asking = Rule(id="q", condition=Matches(node="a"), actions=(asks, GoTo(node="c")))
    ways = [(START, "a"), (START, "b"), (START, "c")]
    spec = graph(fused("a"), fused("b"), fused("c"), ways=ways, rules=[silent, asking])

    assert fusing.sharing(spec, "a") == ("a", "b")
    alone = chain(fused("a"), rules=[replace(silent, actions=(Retry(),))])
    hop = order(Drive(alone)).hop
    assert hop is not None
    assert hop.nodes == ("a",)


def test_a_hop_ends_after_a_node_behind_which_a_person_is_asked() -> None:
    spec = graph(
        *(fused("a", on_error=GoTo(node="c")), fused("b"), fused("c", on_error=AskHuman())),
        *(fused("d"), fused("e")),
        ways=[(START, "a"), ("a", "b"), ("c", "d"), ("d", "e")],
        after=["b"],
        rules=[
            Rule(
                id="big",
                condition=Matches(node="d", equals={"x": 1}),
                actions=(Ask(question=InterruptSpec(name="big", prompt="?")),),
            )
        ],
    )

    assert fusing.described(spec) == (
        "hop: a+b, which ends after b (a person is asked after it)",
        (
            "hop: c+d+e, which ends after c (if it fails, which a person decides) "
            "or after d (if the rule 'big' asks)"
        ),
    )
    last = graph(fused("a"), fused("b"), ways=WAYS, after=["a"])
    assert fusing.described(last)[0] == (
        "alone: a, which ends after a (a person is asked after it)"
    )
    assert order(Drive(last)).hop is None


def test_a_hop_has_only_so_many_nodes() -> None:
    spec = chain(*(fused(f"n{number}") for number in range(60)))

    assert len(fusing.sharing(spec, "n0")) == fusing.MAX_NODES
    assert "before n50 (a hop has at most 50 nodes)" in fusing.described(spec)[0]


# When a hop begins


def test_a_visit_brings_with_it_what_is_needed_to_go_on() -> None:
    drive = Drive(chain(fused("a"), fused("b"), gate("ask"), "c"))

    hop = order(drive).hop
    assert hop is not None
    assert hop.nodes == ("a", "b")
    assert [*hop.graph.nodes] == ["a", "b", "ask"]


@pytest.mark.parametrize(
    "ways",
    [
        [(START, "a"), (START, "x"), ("a", "b"), ("x", "ask")],
        [(START, "ask"), (START, "a"), ("a", "b"), ("ask", "x")],
    ],
)
def test_no_hop_begins_beside_another_branch(ways: Ways) -> None:
    drive = Drive(graph(fused("a"), fused("b"), fused("x"), gate("ask"), ways=ways))

    assert all(each.hop is None for each in drive.orders("a"))


def test_no_hop_begins_while_messages_are_unread_or_the_history_is_long() -> None:
    drive = Drive(chain(reader("first"), fused("a"), fused("b"), fused("c")))
    drive.send("m1")
    drive.finish("first")
    alone = order(drive)
    drive.feed(events.MessagesCleared, actor="ada")
    drive.finish("a")

    assert (alone.node, alone.hop) == ("a", None)
    assert order(drive).hop is not None


@pytest.mark.parametrize("why", ["has not begun", "is broken", "is inherited"])
def test_no_hop_begins_where_a_gate_may_be_asked_again_at_a_join(why: str) -> None:
    behind, more = ("ask", []) if why == "has not begun" else ("check", [("ask", "check")])
    asks = gate(
        "ask",
        prompt="{x}?",
        capability="pay",
        terms=Terms(assignees=("root",), assignees_only=True),
    )
    spec = graph(
        *(asks, gate("w"), *(("check",) if more else ()), fused("a"), fused("b"), fused("c")),
        ways=[(START, "ask"), (START, "w"), ("w", "a"), ("a", "b"), *more, ((behind, "b"), "c")],
    )
    drive = Drive(spec)
    drive.answer("ask", True, principal=ROOT)
    if behind == "check":
        drive.finish("check")
    if why == "is broken":
        drive.feed(events.ValuesEdited, principal=ROOT, patch={"x": 1}, version=1)
    if why == "is inherited":
        drive = fork(drive)
    drive.answer("w")

    assert (order(drive).node, order(drive).hop) == ("a", None)
    drive.finish("a", {"x": "other"})
    drive.finish("b")
    assert (drive.running, len(drive.asking)) == ([], 1)


def test_no_hop_begins_with_what_may_not_share_or_has_nobody_to_share_with() -> None:
    drive = Drive(chain(fused("a"), "b", FunctionNode(id="c", local=True), fused("d")))
    for node in "abc":
        drive.finish(node)

    assert drive.started == ["a", "b", "c", "d"]
    assert all(each.input.hop is None for each in drive.wanted(RunNode))


def test_the_items_of_a_fan_out_do_not_share_an_activity() -> None:
    spec = graph(
        fused("a", to=("each",)),
        fused("each"),
        fused("then"),
        fused("met"),
        ways=[(START, "a"), ("each", "then"), (["then"], "met")],
    )
    drive = Drive(spec)
    sends = Finished(sends=(Send(node="each", item=1), Send(node="each", item=2)))
    done = walk(order(drive), lambda _: sends)
    comes_back(drive, done)

    assert nodes(done) == ["a"]
    assert [each.hop for each in drive.orders("each")] == [None, None]


# What follows in it


def test_what_follows_is_what_the_run_would_do() -> None:
    spec = graph(
        fused("a"),
        fused("b"),
        fused("c"),
        fused("d"),
        fused("never"),
        ways=[
            *[(START, "a"), ("a", "b"), ("a", "c")],
            (("b", "c"), "d"),
            edge("d", "never", {"x": 1}),
            edge("d", "END", "else"),
        ],
        rules=[Rule(id="again", condition=Matches(node="b", equals={"x": 5}), actions=(Retry(),))],
    )
    drive = Drive(spec)
    seen: list[tuple[str, Json]] = []

    def code(it: VisitInput) -> VisitOutcome:
        seen.append((it.node, it.values.get("log")))
        again = it.node == "b" and it.address == address("b")
        return Finished(patch={"log": [it.node], "x": 5 if again else 0})

    done = walk(order(drive), code)
    comes_back(drive, done)

    assert nodes(done) == ["a", "b", "c", "b:2", "d"]
    # Branches that begin together do not see each other's changes.
    assert seen[:3] == [("a", None), ("b", ["a"]), ("c", ["a"])]
    assert drive.status == "completed"
    assert drive.values["log"] == ["a", "b", "c", "b", "d"]
    assert drive.state.counters.visits == 5


@pytest.mark.parametrize(
    "outcome",
    [
        Stopped(),
        AttemptFailed(message="no", attempts=Attempts(count=1, seconds=1), pause=1.0),
        Failed(code="node_failed", message="no"),
        Finished(sends=()),
        Finished(goto="nowhere", unpinned=("nowhere",)),
        Finished(patch={"log": ["x" * MAX_BYTES]}),
    ],
)
def test_a_hop_ends_with_what_only_the_run_can_go_on_from(outcome: VisitOutcome) -> None:
    first = order(Drive(abc()))

    assert following(first, (ran(first.address, outcome),)) is None


def test_a_hop_ends_at_a_route_that_the_run_has_to_ask_again() -> None:
    ways: Ways = [(START, "a"), ("b", "END")]
    spec = graph(
        fused("a"), fused("b"), ways=ways, routes=[Route(source="a", name="r", targets=("b",))]
    )
    drive = Drive(spec)
    held = Finished(route_targets=("new",), unpinned=("new",))
    comes_back(drive, walk(order(drive), lambda _: held))

    assert drive.decided == ["a"]
    assert drive.started == ["a"]


@pytest.mark.parametrize(
    "spec",
    [
        # Somebody is asked, by a node or after one; the graph fails; something waits for its time.
        graph(fused("a"), fused("b"), gate("g1"), ways=[(START, "a"), ("a", "b"), ("a", "g1")]),
        abc(after=["a"]),
        graph(fused("a"), fused("b"), ways=[(START, "a"), edge("a", "b", {"x": "else"})]),
        abc(
            rules=[
                Rule(
                    id="r",
                    condition=Matches(node="a"),
                    actions=(Retry(node="b", backoff=5.0),),
                )
            ]
        ),
    ],
)
def test_a_hop_ends_where_the_run_waits_or_ends(spec: GraphSpec) -> None:
    drive = Drive(spec)
    done = walk(order(drive))

    assert nodes(done) == ["a"]
    comes_back(drive, done)
    assert "b" not in drive.started or order(drive).node == "b"


def test_a_hop_makes_only_so_many_visits() -> None:
    drive = Drive(graph(fused("a"), fused("b"), ways=[(START, "a"), ("a", "b"), ("b", "a")]))
    done = walk(order(drive), lambda _: Finished())
    comes_back(drive, done)

    assert len(done) == fusing.MAX_NODES
    assert drive.running == ["a"]
    assert order(drive).address == address("a:26")


def test_the_visit_limit_ends_a_loop_of_fused_nodes_too() -> None:
    spec = graph(fused("a"), fused("b"), ways=[(START, "a"), ("a", "b"), ("b", "a")])
    drive = Drive(spec, limits=Limits(max_visits=3))
    comes_back(drive, walk(order(drive), lambda _: Finished()))

    assert drive.error[0] == "max_visits"


def test_fused_nodes_of_a_nested_graph_share_an_activity() -> None:
    inner = chain(fused("i1"), fused("i2"), name="inner", fields={"log": "append"})
    drive = Drive(chain(fused("a"), nested("sub", inner), fused("b")))
    drive.finish("a", {"log": ["a"]})
    first = order(drive)
    second = following(first, (ran(first.address, log("i1")),))
    assert second is not None
    assert (second.root, second.path, second.graph) == ("g", ("sub",), "inner")

    comes_back(drive, walk(first))
    assert drive.values["log"] == ["a", "i1", "i2"]
    assert drive.running == ["b"]


# Both ways


@given(spec=graphs() | fused_graphs(), data=st.data())
def test_a_run_comes_to_the_same_with_fused_nodes_and_without(
    spec: GraphSpec, data: st.DataObject
) -> None:
    spec = replace(
        spec,
        nodes={
            name: replace(node, asks=(), reads_inbox=False, on_error=Fail())
            if isinstance(node, FunctionNode)
            else node
            for name, node in spec.nodes.items()
        },
    )
    chosen: dict[str, VisitOutcome] = {}

    def code(it: VisitInput) -> VisitOutcome:
        if it.address not in chosen:
            graph_ = spec
            for name in it.path:
                node = graph_.nodes[name]
                assert isinstance(node, SubgraphNode)
                graph_ = node.graph
            routed: tuple[str, ...] = ()
            if targets := targets_of(graph_, it.node):
                routed = tuple(data.draw(st.lists(st.sampled_from(targets), max_size=2)))
            chosen[it.address] = Finished(patch=data.draw(PATCHES), route_targets=routed)
        return chosen[it.address]

    apart, together = played(_with(spec, fuse=False), code), played(_with(spec, fuse=True), code)

    assert together.status == apart.status
    # How far other branches had come when one failed is a matter of time.
    if apart.status != "failed":
        assert together.values == apart.values
        assert together.asking == apart.asking
        assert together.state.counters == apart.state.counters
        assert together.running == apart.running


def _with(spec: GraphSpec, *, fuse: bool) -> GraphSpec:
    def changed(node: Node) -> Node:
        match node:
            case FunctionNode():
                return replace(node, fuse=fuse)
            case SubgraphNode():
                return replace(node, graph=_with(node.graph, fuse=fuse))
            case _:
                return node

    return replace(spec, nodes={name: changed(node) for name, node in spec.nodes.items()})


def played(spec: GraphSpec, code: Callable[[VisitInput], VisitOutcome]) -> Drive:
    """A run whose code runs one visit after another, in the order in which they were started."""
    drive = Drive(spec, limits=Limits(max_visits=5))
    for number in range(200):
        orders = drive.wanted(RunNode)
        if number == len(orders):
            break
        first = orders[number].input
        if first.kind == "routes":
            drive.end(Finished, visit=first.address)
        else:
            comes_back(drive, walk(first, code))
    return drive
