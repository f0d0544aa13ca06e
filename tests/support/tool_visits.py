"""The visit of one tool call, as a worker runs it after an earlier attempt has written a journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from one_visit import NoMail, context, given
from scripted_agents import with_agent

from abeyance import Agent, Tool
from abeyance.authoring.context import VisitRuntime
from abeyance.authoring.journal import Journal
from abeyance.core.answering import call_digest
from abeyance.core.ledger import Answerer
from abeyance.core.outcome import Call
from abeyance.runtime.node_runner import graph_for, run_visit
from abeyance.storage.blobs import MemoryBlobs


@dataclass(kw_only=True)
class ToolOrder:
    """A call of a tool by the agent `clerk`. The new journal goes into `kept`."""

    tool: Tool
    arguments: dict[str, Any]
    own: dict[str, Any]
    journal: Mapping[str, Any]
    kept: dict[str, Any] = field(default_factory=dict)
    hooks: tuple[object, ...] = ()


def visiting(
    tool: Tool,
    arguments: Mapping[str, Any],
    *,
    approved: Any = None,
    answers: Mapping[str, Any] | None = None,
    journal: Mapping[str, Any] | None = None,
    kept: dict[str, Any] | None = None,
    hooks: tuple[object, ...] = (),
) -> ToolOrder:
    """Return a call that was approved, or, with `hooks`, a call about which they have asked."""
    return ToolOrder(
        tool=tool,
        arguments=tool.read(dict(arguments)),
        own={**({} if hooks else {"/approval/approve": approved}), **(answers or {})},
        hooks=hooks,
        journal=journal or {},
        kept={} if kept is None else kept,
    )


async def ended(
    visit: ToolOrder,
    *,
    answers: Mapping[str, Any] | None = None,
    journal: Mapping[str, Any] | None = None,
    answerers: Mapping[str, Answerer] | None = None,
) -> Any:
    """Make one attempt at the call, and return its outcome."""
    tool = visit.tool
    graph = with_agent(Agent("clerk", model="test", tools=[tool], hooks=visit.hooks))
    digest = call_digest(tool.name, visit.arguments)
    order = given(
        graph="clerk",
        path=("review",),
        node=tool.name,
        address=f"graph:g;node:review;agent:clerk;tool:{tool.name}:c1",
        own_answers={**visit.own, **(answers or {})},
        answerers=answerers or {},
        item={
            "tool": tool.name,
            "call_id": "c1",
            "args": visit.arguments,
            **({"hooked": True} if visit.hooks else {"digest": digest}),
        },
        call=Call(tool=tool.name, id="c1", once=True),
    )

    async def write(steps: Mapping[str, Any]) -> None:
        visit.kept.update(steps)

    steps = visit.journal if journal is None else journal
    runtime = VisitRuntime(
        journal=Journal(dict(steps), write, lambda: datetime.now(UTC)),
        channel=NoMail(),
        send_heartbeat=lambda: None,
        blobs=MemoryBlobs(),
    )
    about = context(input=order, runtime=runtime)
    return await run_visit(graph_for(order, {"g": graph}), about)
