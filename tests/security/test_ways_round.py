"""A way around a gate: repeating, without control, what was approved in a nested graph or in items.

`test_gates_around.py` and `test_gates_of_items.py` of the core try the other ways.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from gated_office import APPROVE, Refund

from abeyance import START, Graph, Principal, Refusal, Send
from abeyance.errors import Code
from abeyance.testing import InMemoryRun


def nested(graph: Graph) -> str:
    """Put the gate in a graph of its own, and return the node after which the graph pays."""
    desk = Graph("desk", state=Refund)
    desk.interrupt("approve", prompt="Refund {amount}?", requested_capability=APPROVE)
    desk.edge(START, "approve")
    graph.subgraph("desk", desk)
    graph.edge(START, "desk")
    return "desk"


def in_items(graph: Graph) -> str:
    """Put a gate in each item of a fan-out, and return the node after which the graph pays."""

    @graph.node(to=["approve"])
    async def split(state: Refund) -> list[Send]:
        return [Send("approve", number) for number in range(2)]

    graph.interrupt("approve", prompt="Refund {amount}?", requested_capability=APPROVE)
    graph.edge(START, "split")
    return "approve"


@pytest.mark.parametrize("place", [nested, in_items])
async def test_a_failed_approved_visit_is_repeated_only_by_an_approver(
    place: Callable[[Graph], str],
) -> None:
    graph, paid = Graph("paying", state=Refund), list[float]()

    @graph.node(retries=0, on_error="interrupt")
    async def pay(state: Refund) -> None:
        paid.append(state.amount)
        raise ConnectionError("the bank hung up")

    graph.edge([place(graph)], "pay")
    run = InMemoryRun(graph)
    await run.start()
    for entry in await run.interrupts():
        approver = Principal(subject="approver", capabilities=(APPROVE,))
        await run.respond(entry.id, True, principal=approver)
    with pytest.raises(Refusal) as refused:
        await run.respond("error", {"action": "retry"}, principal=Principal(subject="clerk"))

    assert refused.value.code is Code.CAPABILITY_REQUIRED
    assert refused.value.details["capabilities"] == [APPROVE, "runs:control"]
    assert paid == [250]
