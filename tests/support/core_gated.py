"""Graphs with gates, people who answer, and a run that is handed over after every step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from core_drive import Drive, chain, gate, graph, restored

from abeyance.core import events
from abeyance.core.json import Json
from abeyance.core.policy import Principal
from abeyance.core.spec import START, GraphSpec, InterruptNode, Node, Reducer
from abeyance.core.state import joined, parted
from abeyance.core.terms import Quorum, Terms

APPROVER = Principal(subject="approver", capabilities=("approve",))
"""A person who may approve, and nothing else."""
CLERK = Principal(subject="clerk")
"""A person who may only answer questions without a capability."""
OPERATOR = Principal(subject="operator", capabilities=("runs:control",))
BOSS = Principal(subject="boss", capabilities=("runs:control", "approve", "audit"))
"""A person who may approve everything, and so change everything."""

FIELDS: Mapping[str, Reducer] = {
    "amount": "last",
    "order_id": "last",
    "note": "last",
    "payments": "append",
}
SHOWN: dict[str, Json] = {"amount": 250, "order_id": "A-7"}
SEVERAL: dict[str, Any] = {"terms": Terms(quorum=Quorum(count=1)), "schema": {"type": "boolean"}}
"""Options of a question with a quorum: its answer still counts after the code behind it has begun."""


def approving(id_: str = "ask", **about: Any) -> InterruptNode:
    """Return a gate that shows the amount and the order."""
    given = {"prompt": "Refund {amount} for {order_id}?", "capability": "approve", **about}
    return gate(id_, **given)


def remark(id_: str = "remark", field: str | None = "amount", **about: Any) -> InterruptNode:
    """Return a question that anybody may answer, and whose answer goes into a field."""
    return gate(id_, prompt="Anything else?", answer_to=field, **about)


def refund(*nodes: str | Node, **about: Any) -> GraphSpec:
    """Return a graph of the nodes, one after another."""
    return chain(*nodes, **{"fields": FIELDS, **about})


def forked(
    *branches: tuple[str | Node, ...], more: Iterable[str | Node] = (), **about: Any
) -> GraphSpec:
    """Return a graph of several chains that begin at the start, with more nodes and `ways` between."""
    ways: list[Any] = []
    for branch in branches:
        names = [node if isinstance(node, str) else node.id for node in branch]
        ways += zip([START, *names], names, strict=False)
    ways += about.pop("ways", ())
    nodes = [*(node for each in branches for node in each), *more]
    return graph(*nodes, ways=ways, **{"fields": FIELDS, **about})


class Gated(Drive):
    """A run that is written to a snapshot, and read from it again, after every event."""

    def __init__(
        self, spec: GraphSpec, values: Mapping[str, Json] | None = None, **about: Any
    ) -> None:
        super().__init__(spec, values=SHOWN if values is None else values, **about)

    def feed(self, kind: type[events.Event], **fields: Any) -> None:
        super().feed(kind, **fields)
        snapshot, spec, values = parted(self.state)
        again = joined(restored(snapshot), spec, values)
        assert again == self.state
        self.state = again

    @property
    def reopened(self) -> list[str]:
        """The gates that were asked again, in order."""
        return [str(fact.data["node"]) for fact in self.facts("interrupt.reopened")]

    def ran_with(self, node: str, *fields: str) -> list[tuple[Json, ...]]:
        """Return the values of these fields at each start of a node's code."""
        return [
            tuple(order.values.get(name) for name in fields or ("amount", "order_id"))
            for order in self.orders(node)
        ]
