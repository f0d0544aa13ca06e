"""Code reads who has answered and voted, in memory, where days take no time."""

from __future__ import annotations

from typing import Any

from sample_graphs import Decision, State
from scripted_agents import Script, desk, told

from abeyance import (
    START,
    Agent,
    Context,
    Graph,
    Principal,
    ToolContext,
    testing,
    tool,
)

YES = {"approved": True}
ADA, BOB, CAROL = (Principal(subject=name, capabilities=("*",)) for name in ("ada", "bob", "carol"))


async def test_a_node_reads_the_votes_on_a_question_and_who_answered_it() -> None:
    graph = Graph("paying", state=State)
    seen: dict[str, Any] = {}

    @graph.node
    async def pay(state: State, ctx: Context) -> None:
        seen.update(votes=ctx.votes("approve"), by=ctx.answered_by("approve"))
        seen.update(none=ctx.answered_by("other"), no_votes=ctx.votes("other"))

    graph.interrupt("approve", prompt="Pay?", response=Decision, quorum=2)
    graph.edge(START, "approve")
    graph.edge("approve", "pay")
    run = testing.InMemoryRun(graph)
    await run.start()
    await run.respond("approve", YES, principal=ADA, note="fine")
    await run.respond("approve", YES, principal=BOB)

    assert seen["by"] == {"by": "bob", "on_behalf_of": None}
    first, second = seen["votes"]
    assert first == {
        "by": "ada",
        "on_behalf_of": None,
        "at": "2026-01-01T00:00:00Z",
        "answer": YES,
        "note": "fine",
    }
    assert (second["by"], second["note"]) == ("bob", None)
    assert (seen["none"], seen["no_votes"]) == (None, [])


async def test_a_tool_reads_the_votes_on_its_own_call() -> None:
    @tool(approve=True, quorum=2)
    async def pay(ctx: ToolContext, amount: int) -> str:
        return f"{amount} by {' and '.join(vote['by'] for vote in ctx.votes('approve'))}"

    calls = [("pay", {"amount": 9}), ("pay", {"amount": 5})]
    run = testing.InMemoryRun(desk(Agent("clerk", model=Script(calls, told), tools=[pay])))
    await run.start()
    first, second = await run.interrupts()
    await run.respond(first.id, YES, principal=ADA)
    await run.respond(first.id, {**YES, "arguments": {"amount": 7}}, principal=BOB)
    await run.respond({first.id: YES, second.id: YES}, principal=CAROL)
    await run.respond(second.id, YES, principal=ADA)

    report = str(run.values["report"])
    assert "7 by bob and carol" in report
    assert "5 by carol and ada" in report


async def test_a_retry_keeps_the_person_for_whom_a_service_started_the_run() -> None:
    graph = Graph("transfer")
    graph.interrupt("approve", prompt="Pay?", response=bool, not_by="@starter")
    graph.edge(START, "approve")
    run = testing.InMemoryRun(graph, started_by="svc", on_behalf_of="carol")
    await run.start()
    view = await run.view()
    assert (view.started_by, view.sent_by) == ("carol", "svc")
    assert view.interrupts[0].barred == {"carol": "@starter"}
    (started, *_) = [each async for each in run.events(follow=False)]
    assert (started.actor, started.data["on_behalf_of"]) == ("svc", "carol")

    await run.cancel("over", principal=ADA)
    await run.retry(principal=BOB)
    assert (await run.interrupts())[0].barred == {"carol": "@starter"}
