"""The graphs whose runs are compared: each has more of one thing than another."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from pydantic import BaseModel

from abeyance import END, START, Context, Graph

NODES: Final = (2, 12)
QUESTIONS: Final = (1, 3)
"""With some more, a run continues as new, which counts for no question."""
AT_ONCE: Final = 5
"""The questions of `at-once`, which are open side by side."""


class Claim(BaseModel):
    """What is decided about."""

    amount: int = 250
    read: int = 0


def _chain(name: str, *, nodes: int, questions: int) -> Graph:
    graph = Graph(name, state=Claim)
    names = [START]
    for number in range(nodes):
        names.append(f"node{number}")

        @graph.node(name=names[-1])
        async def code(state: Claim) -> None:
            return None

    for number in range(questions):
        names.append(f"ask{number}")
        graph.interrupt(names[-1], prompt="Pay {amount}?", timeout="7d")
    for source, target in pairwise([*names, END]):
        graph.edge(source, target)
    return graph


chains = {f"nodes-{n}": _chain(f"nodes-{n}", nodes=n, questions=0) for n in NODES}
gates = {f"questions-{n}": _chain(f"questions-{n}", nodes=2, questions=n) for n in QUESTIONS}
one_gate = gates[f"questions-{QUESTIONS[0]}"]

reads = Graph("reads", state=Claim)
reads.interrupt("ask", prompt="Pay {amount}?", timeout="7d")


@reads.node
async def node(state: Claim, ctx: Context) -> dict[str, int]:
    """Read the messages that are there."""
    count = 0
    while await ctx.check_interrupt() is not None:
        count += 1
    return {"read": count}


for _source, _target in pairwise((START, "ask", "node", END)):
    reads.edge(_source, _target)

at_once = Graph("at-once", state=Claim)
for _number in range(AT_ONCE):
    at_once.interrupt(f"ask{_number}", prompt="Pay {amount}?", timeout="7d")
    at_once.edge(START, f"ask{_number}")

graphs = [*chains.values(), *gates.values(), reads, at_once]
