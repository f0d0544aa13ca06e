"""Rules whose condition is CLIPS text, in a run: they take part like every other rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel

from abeyance import START, Graph, append, testing

AFTER_WORK = "(node-id (id work)) "


class State(BaseModel):
    verdict: str | None = None
    amount: int = 0
    ok: bool | None = None
    deep: dict[str, Any] = {}
    log: Annotated[list[str], append] = []


def logs(name: str) -> Callable[[], dict[str, Any]]:
    return lambda: {"log": [name]}


def shop(**rules: tuple[Any, list[dict[str, Any]]]) -> Graph:
    """Return a graph: work -> last, which leads to the node that the verdict names, if it names one."""
    graph = Graph("shop", state=State)
    for name in ("work", "last", "left", "right"):
        graph.node(name=name)(logs(name))
    graph.edge(START, "work")
    graph.edge("work", "last")
    for name in ("left", "right"):
        graph.edge("last", name, when={"verdict": name})
    graph.edge("last", "END", when="else")
    for name, (when, then) in rules.items():
        graph.rule(name, when=when, then=then)
    return graph


async def log_of(graph: Graph, given: dict[str, Any] | None = None, **more: Any) -> Any:
    ended = await testing.run(graph, given, **more)
    assert ended.status == "completed", ended.reason
    return ended.values["log"]


HALT = {"kind": "halt", "reason": "enough"}
LEFT, RIGHT = ({"kind": "goto", "node": node} for node in ("left", "right"))


async def test_a_rule_with_a_mapping_changes_facts_in_its_turn_and_depends_on_none() -> None:
    tell = {"kind": "assert", "fact": "told"}
    graph = shop(
        take=("?n <- (node-id (id work))", [{"kind": "retract", "pattern": "?n"}]),
        tell=({"node": "work"}, [tell]),
        act=("(told)", [LEFT]),
        # This rule comes after the rule that acts, so it is too late.
        calm=({"node": "work"}, [{"kind": "retract", "pattern": "(told)"}]),
        never=(AFTER_WORK + "(told)", [HALT]),
    )

    assert await log_of(graph) == ["work", "left"]


async def test_a_mapping_tells_a_text_from_a_number_where_clips_does_not() -> None:
    tell = {"kind": "assert", "fact": "told"}
    graph = shop(tell=({"node": "work", "deep.n": 7}, [tell]), act=("(told)", [LEFT]))

    assert await log_of(graph, {"deep": {"n": "7"}}) == ["work", "last"]


async def test_a_rule_looks_at_what_a_nested_graph_left_and_each_graph_has_its_own() -> None:
    inner = shop(inside=(AFTER_WORK + '(amount (value "1"))', [RIGHT]))
    graph = Graph("outer", state=State)
    graph.subgraph("shop", inner)
    graph.node(name="work")(lambda: {"log": ["outer work"]})
    graph.node(name="end")(lambda: {"log": ["end"]})
    graph.edge(START, "shop")
    graph.edge("shop", "work")
    graph.rule(
        "skip",
        when='(node-id (id shop)) (amount (value "1"))',
        then=[{"kind": "goto", "node": "end"}],
    )

    assert await log_of(graph, {"amount": 1}) == ["work", "right", "end"]
    assert await log_of(graph, {"amount": 2}) == ["work", "last", "outer work"]


async def test_a_rule_of_another_node_need_not_bear_the_values_of_this_one() -> None:
    large = "(verdict (value ?v)) (test (> (string-to-field ?v) 3)) (node-id (id last))"
    graph = Graph("later", state=State)
    graph.node(name="work")(lambda: {"log": ["work"]})
    graph.node(name="last")(lambda: {"log": ["last"], "verdict": "4"})
    graph.edge(START, "work")
    graph.edge("work", "last")
    graph.rule("large", when=large, then=[HALT])
    ended = await testing.run(graph, {"verdict": "not yet a number"})

    assert (ended.status, ended.reason) == ("halted", "enough")
