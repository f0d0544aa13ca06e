"""The faults of a graph name the lines of the author's code."""

from __future__ import annotations

from typing import Any

from graph_faults import faults

DECLARED = """\
from pydantic import BaseModel
from abeyance import START, Agent, Graph

inner = Graph("inner")
class Order(BaseModel):
    n: int = 0

graph = Graph("g", state=Order, interrupt_before=["nobody"])

@graph.node(
    retries=-1,
)
def a(state): ...

graph.interrupt("ask", prompt="?", timeout="soon")
clerk = Agent("clerk", model="gpt")
graph.agent("clerk", clerk, input=5)
graph.subgraph("inner", inner)
for name in ("a", "b"):
    graph.edge(START, name)
graph.edge("a", "inner", when={"n": "x"})
graph.edge("a", "inner", when={"m": 1})
graph.route("a", lambda state: "c", to=["c"])
graph.rule("r", when={"node": "d"}, then=[{"kind": "halt"}])
graph.finally_("e")
graph.retired("a")(a)
"""
LINES = {
    "interrupt_before names an unknown node 'nobody'": "graph = Graph",
    "the node 'a', retries=-1 is negative": "@graph.node(",
    "the interrupt 'ask', timeout=: 'soon' is not a duration": "graph.interrupt",
    "the node 'ask' is unreachable": "graph.interrupt",
    "the nested graph 'clerk': model='gpt' names no provider": "clerk =",
    "the agent 'clerk', input=: 5 is invalid": "graph.agent",
    "the nested graph 'inner': there are no nodes": "inner =",
    "the edge from 'START' to 'b' leads to an unknown node": "    graph.edge",
    "the edge from 'a' to 'inner' looks at 'n'": 'graph.edge("a", "inner", when={"n"',
    "the edge from 'a' to 'inner' looks at 'm'": 'graph.edge("a", "inner", when={"m"',
    "the route 'route' from 'a' leads to an unknown node 'c'": "graph.route",
    "the rule 'r' looks at an unknown node 'd'": "graph.rule",
    "finally names an unknown node 'e'": "graph.finally_",
    "the retired node 'a' is also in the graph": "graph.retired",
}


def test_each_fault_names_the_line_of_its_declaration() -> None:
    declared: dict[str, Any] = {"__name__": "shop"}
    exec(compile(DECLARED, "shop.py", "exec"), declared)
    told = faults(declared["graph"])

    lines = DECLARED.splitlines()
    for fault, declaration in LINES.items():
        (found,) = (each for each in told if each.startswith(fault))
        number = next(n for n, line in enumerate(lines, 1) if line.startswith(declaration))
        assert found.endswith(f" (shop.py, line {number})")
    assert all(" (shop.py, line " in each for each in told)
