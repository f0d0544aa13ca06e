"""Scenarios: the ways through a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from sample_graphs import Held, State, chain, gated
from temporal_site import eventually

from abeyance import END, START, Context, Goto, Graph
from abeyance.core.state import Limits
from tests.replay.stage import Scenario, Stage


async def nodes_one_after_another(stage: Stage) -> None:
    async with stage.run(chain(4)) as run:
        await run.ended()


async def local_nodes(stage: Stage) -> None:
    async with stage.run(chain(6, local=True)) as run:
        await run.ended()


async def local_and_other_nodes_side_by_side(stage: Stage) -> None:
    graph = _side_by_side(3)
    for number in range(3):
        graph.node(name=f"quick{number}", local=True)(_work)
        graph.edge(START, f"quick{number}")
    async with stage.run(graph) as run:
        await run.ended()


async def fifty_branches(stage: Stage) -> None:
    async with stage.run(_side_by_side(50)) as run:
        await run.ended()


async def more_branches_than_may_run_at_once(stage: Stage) -> None:
    async with stage.run(_side_by_side(8), limits=Limits(max_parallel_visits=3)) as run:
        await run.ended()


async def more_than_one_task_may_send(stage: Stage) -> None:
    big = {"log": ["x" * 20_000]}
    async with stage.run(_side_by_side(6), big, limits=Limits(task_bytes=50_000)) as run:
        await run.ended()


async def joined(stage: Stage) -> None:
    async with stage.run(_joining("all"), {"amount": 1}) as run:
        await run.ended()


async def joined_by_what_arrived(stage: Stage) -> None:
    async with stage.run(_joining("arrived")) as run:
        view = await run.ended()
        assert view.values["log"] == ["a", "c"]


async def starved_at_a_join(stage: Stage) -> None:
    async with stage.run(_joining("all")) as run:
        view = await run.ended("failed")
        assert view.error is not None
        assert view.error.code == "join_starved"


async def looped(stage: Stage) -> None:
    async with stage.run(_looping(4)) as run:
        view = await run.ended()
        assert view.values["amount"] == 4


async def looped_too_often(stage: Stage) -> None:
    async with stage.run(_looping(9), limits=Limits(max_visits=3)) as run:
        view = await run.ended("failed")
        assert view.error is not None
        assert view.error.code == "max_visits"


async def routed_by_code(stage: Stage) -> None:
    graph = Graph("routes", state=State)
    graph.node(name="work")(_count)
    graph.node(name="over")(_work)
    graph.route("work", lambda s: "over" if s.amount > 1 else "work", to=["work", "over"])
    graph.edge(START, "work")
    async with stage.run(graph) as run:
        await run.ended()


async def goto_by_a_node(stage: Stage) -> None:
    graph = Graph("jumps", state=State)

    @graph.node(to=["over"])
    async def jump(state: State) -> Goto:
        return Goto("over", {"log": ["jump"]})

    graph.node(name="over")(_work)
    graph.edge(START, "jump")
    async with stage.run(graph) as run:
        await run.ended()


async def rule_goes_elsewhere(stage: Stage) -> None:
    async with stage.run(_ruled({"kind": "goto", "node": "other"})) as run:
        view = await run.ended()
        assert view.values["log"] == ["other"]


async def rule_halts(stage: Stage) -> None:
    async with stage.run(_ruled({"kind": "halt", "reason": "enough"})) as run:
        view = await run.ended("halted")
        assert view.reason == "enough"


async def rule_halts_what_runs(stage: Stage) -> None:
    held = Held()
    graph = held.graph
    graph.node(name="work")(_count)
    graph.edge(START, "work")
    graph.rule("r", when={"node": "work"}, then=[{"kind": "halt", "reason": "enough"}])
    async with stage.run(graph) as run:
        await run.ended("halted")


async def rule_retries(stage: Stage) -> None:
    async with stage.run(_ruled({"kind": "retry"})) as run:
        view = await run.ended()
        assert (view.values["amount"], view.values["log"]) == (2, ["next"])


async def rule_starts_several(stage: Stage) -> None:
    async with stage.run(_ruled({"kind": "parallel", "nodes": ["other", "next"]})) as run:
        view = await run.ended()
        assert sorted(view.values["log"]) == ["next", "other"]


async def rule_asks(stage: Stage) -> None:
    asks = {"kind": "interrupt", "prompt": "Sure?", "timeout": "2d"}
    async with stage.run(_ruled(asks, {"kind": "goto", "node": "other"})) as run:
        await run.waiting()
        await run.answer(r=True)
        view = await run.ended()
        assert view.values["log"] == ["other"]


async def rules_ask_several_things(stage: Stage) -> None:
    graph = _ruled({"kind": "interrupt", "prompt": "Sure?"})
    graph.rule("s", when={"node": "work"}, then=[{"kind": "interrupt", "prompt": "Really?"}])
    async with stage.run(graph) as run:
        await run.waiting()
        await run.answer(s=True)
        await run.pause()
        await run.answer(r=False)
        await run.resume()
        await run.ended()


async def rule_after_an_answer(stage: Stage) -> None:
    graph = gated()
    halts = {"kind": "halt", "reason": "refused"}
    when = {"node": "approve", "decision.approved": False}
    graph.rule("refused", when=when, then=[halts])
    async with stage.run(graph) as run:
        await run.waiting()
        await run.answer(approve={"approved": False})
        await run.ended("halted")


async def worker_replaced_while_a_node_runs(stage: Stage) -> None:
    held = Held(retries=0)
    site = stage.site(held.graph)
    async with site.worker():
        run = await stage.started(site)
        await eventually(lambda: held.started)
    held.release.set()
    async with site.worker():
        await run.ended()


async def _work(state: State, ctx: Context) -> dict[str, Any]:
    return {"log": [ctx.node]}


async def _count(state: State) -> dict[str, Any]:
    return {"amount": state.amount + 1}


def _side_by_side(count: int) -> Graph:
    graph = Graph("side-by-side", state=State)
    for number in range(count):
        graph.node(name=f"n{number}")(_work)
        graph.edge(START, f"n{number}")
    return graph


def _joining(join: Literal["all", "arrived"]) -> Graph:
    graph = Graph("joining", state=State)
    for name in ("a", "b", "c"):
        graph.node(name=name)(_work)
    graph.edge(START, "a")
    graph.edge("a", "b", when={"amount": 1})
    graph.edge("a", END, when="else")
    graph.edge(["a", "b"], "c", join=join)
    return graph


def _looping(until: int) -> Graph:
    graph = Graph("looping", state=State)
    graph.node(name="work", local=True)(_count)
    graph.edge(START, "work")
    graph.edge("work", END, when={"amount": until})
    graph.edge("work", "work", when="else")
    return graph


def _ruled(*then: Mapping[str, Any]) -> Graph:
    """`work` counts, and leads to `next`, unless what the rule does when it has counted to 1."""
    graph = Graph("ruled", state=State)
    graph.node(name="work")(_count)
    for name in ("next", "other"):
        graph.node(name=name)(_work)
    graph.edge(START, "work")
    graph.edge("work", "other", when={"amount": 9})
    graph.edge("work", "next", when="else")
    graph.rule("r", when={"node": "work", "amount": 1}, then=then)
    return graph


SCENARIOS: tuple[Scenario, ...] = (
    nodes_one_after_another,
    local_nodes,
    local_and_other_nodes_side_by_side,
    fifty_branches,
    more_branches_than_may_run_at_once,
    more_than_one_task_may_send,
    joined,
    joined_by_what_arrived,
    starved_at_a_join,
    looped,
    looped_too_often,
    routed_by_code,
    goto_by_a_node,
    rule_goes_elsewhere,
    rule_halts,
    rule_halts_what_runs,
    rule_retries,
    rule_starts_several,
    rule_asks,
    rules_ask_several_things,
    rule_after_an_answer,
    worker_replaced_while_a_node_runs,
)
