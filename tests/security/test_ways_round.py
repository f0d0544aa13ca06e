"""Ways round a gate without control: what others answer, where a graph is nested or spread out.

Each graph asks for the approval of an amount, and pays what its values say in the end.
"""

from __future__ import annotations

from typing import Any

import pytest
from gated_office import APPROVE, Refund

from abeyance import START, Graph, Principal, Refusal, Send
from abeyance.errors import Code
from abeyance.testing import InMemoryRun

APPROVER = Principal(subject="approver", capabilities=(APPROVE,))
CLERK = Principal(subject="clerk")
CHIEF = Principal(subject="chief", capabilities=("runs:control", APPROVE))
ASKED = "Refund {amount}?"


def paying(name: str = "paying", *, fails: bool = False) -> tuple[Graph, list[float]]:
    """A graph with a node that pays, or tries to."""
    graph, paid = Graph(name, state=Refund), []

    @graph.node(retries=0, on_error="interrupt" if fails else "fail")
    async def pay(state: Refund) -> dict[str, Any]:
        paid.append(state.amount)
        if fails:
            message = "the bank hung up"
            raise ValueError(message)
        return {}

    return graph, paid


def with_desk(graph: Graph) -> Graph:
    """The graph, with the gate in a graph of its own, `desk`."""
    desk = Graph("desk", state=Refund)
    desk.interrupt("approve", prompt=ASKED, requested_capability=APPROVE)
    desk.edge(START, "approve")
    graph.subgraph("desk", desk)
    return graph


def with_items(graph: Graph) -> Graph:
    """The graph, with a gate in each item of a fan-out, `split`."""

    @graph.node(to=["approve"])
    async def split(state: Refund) -> list[Send]:
        return [Send("approve", number) for number in range(2)]

    graph.interrupt("approve", prompt=ASKED, requested_capability=APPROVE)
    return graph


def with_note(graph: Graph, *sources: str) -> Graph:
    """The graph, whose payment also waits for the amount that anybody may name on another branch."""
    graph.interrupt("note", prompt="Which amount?", answer_to="amount")
    graph.edge(START, "note")
    graph.edge((*sources, "note"), "pay")
    return graph


async def started(graph: Graph) -> InMemoryRun:
    run = InMemoryRun(graph)
    await run.start()
    return run


async def approve(run: InMemoryRun) -> None:
    """The approver answers all that is asked of them."""
    for entry in await run.interrupts():
        if entry.name == "approve":
            await run.respond(entry.id, True, principal=APPROVER)


async def asked(run: InMemoryRun) -> set[str]:
    return {entry.prompt for entry in await run.interrupts()}


async def test_a_gate_in_a_nested_graph_binds_what_follows_that() -> None:
    graph, paid = paying()
    with_desk(graph).edge(START, "desk")
    run = await started(with_note(graph, "desk"))
    await approve(run)
    await run.respond("note", 888_888, principal=CLERK)

    assert (await asked(run), paid) == ({"Refund 888888?"}, [])


async def test_an_edit_around_a_nested_graph_is_shown_before_it_is_paid() -> None:
    graph, paid = paying()
    with_desk(graph).edge(START, "desk")
    graph.edge("desk", "pay")
    run = await started(graph)
    await run.edit_values({"amount": 777}, principal=CHIEF)
    await approve(run)

    assert (await asked(run), paid) == ({"Refund 777?"}, [])


async def test_gates_of_items_bind_what_gathers_them() -> None:
    graph, paid = paying()
    graph.interrupt("gathered", prompt="Is that all?")
    with_items(graph).edge(START, "split")
    graph.edge(["approve"], "gathered")
    run = await started(with_note(graph, "gathered"))
    await approve(run)
    await run.respond("gathered", True, principal=CLERK)
    await run.respond("note", 888_888, principal=CLERK)

    assert (await asked(run), paid) == ({"Refund 888888?"}, [])


@pytest.mark.parametrize("place", ["nested", "items"])
async def test_what_was_approved_there_and_failed_is_repeated_only_by_who_may_approve(
    place: str,
) -> None:
    graph, paid = paying(fails=True)
    if place == "nested":
        with_desk(graph).edge(START, "desk")
        graph.edge("desk", "pay")
    else:
        with_items(graph).edge(START, "split")
        graph.edge(["approve"], "pay")
    run = await started(graph)
    await approve(run)
    with pytest.raises(Refusal) as refused:
        await run.respond("error", {"action": "retry"}, principal=CLERK)

    assert refused.value.code is Code.CAPABILITY_REQUIRED
    assert refused.value.details["capabilities"] == [APPROVE, "runs:control"]
    assert paid == [250]
