"""docs/how-to/changing-a-graph.md and the check both say what a change does to a waiting run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pages import blocks, perform, read
from pydantic import BaseModel
from scripted_agents import Script, desk
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import START, Agent, Goto, Graph, tool
from abeyance.check import check_runs

PAGE = "how-to/changing-a-graph.md"
ROWS = dict(re.findall(r"^\| ([^|]+?) \| ([^|]+?) \| [^|]+ \|$", read(PAGE), re.MULTILINE))


class State(BaseModel):
    amount: int = 5
    note: str | None = None
    paid: bool = False


class WithDefault(State):
    iban: str = "unknown"


class WithRequired(State):
    iban: str


class WithoutNote(BaseModel):
    amount: int = 5
    paid: bool = False


class OtherType(State):
    amount: list[int]  # type: ignore[assignment]


def paying(state: Any) -> dict[str, Any]:
    return {"paid": True}


def failing(state: Any) -> dict[str, Any]:
    raise RuntimeError("the older code")


def nested(name: str = "inner") -> Graph:
    inner = Graph(name, state=State)
    inner.node(name="a")(paying)
    inner.edge(START, "a")
    return inner


def to_pay(state: Any) -> str:
    return "pay"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A graph `expense` that asks, and then visits one node."""

    state: type[BaseModel] = State
    node: str = "pay"
    code: Any = paying
    options: dict[str, Any] = field(default_factory=dict)
    change: Callable[[Graph], None] = lambda graph: None

    def graph(self) -> Graph:
        graph = Graph("expense", state=self.state)
        graph.interrupt("ask", prompt="Pay?")
        graph.edge(START, "ask")
        if isinstance(self.code, Graph):
            graph.subgraph(self.node, self.code)
        else:
            graph.node(name=self.node, **self.options)(self.code)
        graph.edge("ask", self.node)
        self.change(graph)
        return graph


def with_more(graph: Graph) -> None:
    graph.node(name="more")(failing)
    graph.edge("pay", "more")
    graph.rule("always", when={"node": "pay"}, then=[{"kind": "goto", "node": "more"}])


def unasked() -> Graph:
    graph = Graph("expense", state=State)
    graph.node(name="pay")(paying)
    graph.edge(START, "pay")
    return graph


def chooses(target: str) -> Graph:
    """Return a graph whose `choose` goes to `target`: `pay` in the older graph, another node today."""

    def choose(state: Any) -> Goto:
        return Goto(target)

    graph = Shape(node="choose", code=choose, options={"to": [target]}).graph()
    graph.node(name=target)(paying)
    if target != "pay":
        graph.retired("pay")(paying)
    return graph


def routed(route: Callable[[Any], str] | None) -> Graph:
    graph = Shape(node="check", code=lambda: None).graph()
    graph.node(name="pay")(paying)
    if route is None:
        graph.edge("check", "pay")
    else:
        graph.route("check", route, to=["pay"])
    return graph


def asking(capability: str) -> Graph:
    async def review(state: Any, ctx: Any) -> dict[str, Any]:
        await ctx.interrupt("second", prompt="Sure?", requested_capability=capability)
        return {"paid": True}

    return Shape(node="review", code=review, options={"asks": capability}).graph()


@tool(approve=True)
def send(to: str) -> str:
    """Send it."""
    return "sent"


def clerk(*tools: Any) -> Graph:
    model = Script([("send", {"to": "bob"})], "Done.")
    return desk(Agent("clerk", model=model, tools=list(tools)), name="expense")


OLD = Shape()
CHANGES: dict[str, tuple[Graph, Graph | None]] = {
    "add nodes, edges, rules or questions": (OLD.graph(), Shape(change=with_more).graph()),
    "remove a question or an edge": (OLD.graph(), unasked()),
    "change what a function does": (Shape(code=failing).graph(), OLD.graph()),
    "change timeouts, retries or `on_error` of a node": (
        OLD.graph(),
        Shape(options={"timeout": 0.001, "retries": 0}).graph(),
    ),
    "add a field with a default": (OLD.graph(), Shape(state=WithDefault).graph()),
    "remove a field": (OLD.graph(), Shape(state=WithoutNote).graph()),
    "remove or rename a node": (OLD.graph(), Shape(node="payout").graph()),
    "remove or rename a nested graph or an agent": (
        Shape(code=nested()).graph(),
        Shape(node="payout", code=nested()).graph(),
    ),
    "rename the function of a route": (
        routed(to_pay),
        routed(lambda state: "pay"),
    ),
    "remove a route": (routed(to_pay), routed(None)),
    "remove a graph": (OLD.graph(), None),
    "add a field without a default": (OLD.graph(), Shape(state=WithRequired).graph()),
    "change the type of a field": (OLD.graph(), Shape(state=OtherType).graph()),
    "let a route or a `Goto` choose a new node": (chooses("pay"), chooses("payout")),
    "let code ask for another capability": (asking("pay:old"), asking("pay:new")),
    "remove a tool of an agent": (clerk(send), clerk()),
}
NOT_SERVED = nested("another")
LIKE_OTHERS = {
    "remove a question or an edge",
    "change timeouts, retries or `on_error` of a node",
    "add a field with a default",
    "remove a field",
    "remove or rename a nested graph or an agent",
    "remove a route",
    "change the type of a field",
}
"""Rows with the same effect as another row: only the slow lane tries them."""


def test_every_change_of_the_table_is_tried() -> None:
    assert {row for row in ROWS if row not in ("change", "---")} == CHANGES.keys()
    assert CHANGES.keys() > LIKE_OTHERS


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(each, marks=[pytest.mark.slow] if each in LIKE_OTHERS else [])
        for each in CHANGES
    ],
)
async def test_a_change_does_to_a_waiting_run_what_the_page_and_the_check_say(
    change: str, temporal: TemporalClient
) -> None:
    before, after = CHANGES[change]
    told = re.match(r"`(\w+)`", ROWS[change])
    expected = {told[1]} if told else set()
    today = {} if after is None else {after.name: after}
    site = Site(temporal, before)
    async with site.worker():
        run_id = await site.start()
        (asked,) = (await site.until(run_id, "awaiting-input")).interrupts

        async def is_listed() -> bool:
            return (await check_runs(temporal, site.settings.task_queue, today)).open == 1

        await eventually(is_listed)
    closely = await check_runs(temporal, site.settings.task_queue, today, every=True)
    one_of_each = await check_runs(temporal, site.settings.task_queue, today)
    async with site.worker(*today.values() or [NOT_SERVED]):
        answer = (
            True if before.name != "expense" or asked.kind != "approval" else {"approved": True}
        )
        await site.client.run(run_id).respond(asked.id, answer, principal=ANYBODY)

        async def came_to() -> list[set[str]]:
            view = await site.client.run(run_id).view()
            assert view.status != "failed", view.error
            if view.blocked:
                return [{str(view.blocked[0].code)}]
            return [set()] if view.status == "completed" else []

        (happened,) = await eventually(came_to)

    assert {block.code for block in closely.blocks} == expected
    assert {block.code for block in one_of_each.blocks} == expected
    assert all([*run_ids] == [run_id] for run_ids in closely.blocks.values())
    assert happened == expected


async def test_the_examples_do_what_they_assert() -> None:
    names: dict[str, Any] = {}
    for block in blocks(PAGE, "python"):
        await perform(block, names)
