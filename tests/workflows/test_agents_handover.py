"""Continue-as-new in the middle of agents: nothing is asked, heard, said or done twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo
from scripted_agents import Call, Script, desk, prompts, told
from temporal_site import ANYBODY, Site, begun, eventually
from temporalio.client import Client as TemporalClient

from abeyance import Agent, Refusal, ToolContext, commands, tool, views
from abeyance.core.state import Limits
from abeyance.errors import Code

SMALL = Limits(continue_as_new_after=6)


async def pushed_on(site: Site, run_id: str) -> None:
    """Have the run do something until it goes on in a new history."""
    before = await site.executions(run_id)
    for _ in range(10):
        await site.pause_and_resume(run_id)
        if await site.executions(run_id) > before:
            return
    raise AssertionError("ten pauses, and no hand-over")


class Ledger:
    """A tool that writes down who was paid; larger sums have to be approved."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        paid = self.paid

        @tool(approve=lambda args: args["amount"] > 1000)
        async def pay(ctx: ToolContext, to: str, amount: int) -> str:
            """Pay somebody."""
            paid.append(to)
            ctx.agent_state[to] = amount
            return f"paid {to}"

        self.pay = pay


async def test_approvals_that_are_open_three_levels_deep_are_the_same_after_hand_overs(
    temporal: TemporalClient,
) -> None:
    ledger = Ledger()

    def paying(name: str, *more: Agent) -> Agent:
        calls: list[Call] = [("pay", {"to": f"{name}'s", "amount": 5000})]
        calls += [(each.name, {"task": "Go on."}) for each in more]
        below = [each.as_tool(description="Goes on.") for each in more]
        return Agent(name, model=Script(calls, told), tools=[ledger.pay, *below])

    clerk = paying("clerk", paying("cashier", paying("teller")))
    async with begun(temporal, desk(clerk), limits=SMALL) as (site, run):

        async def all_three() -> list[views.InterruptView] | None:
            found = (await run.view()).interrupts
            return found if len(found) == 3 else None

        first = await eventually(all_three)
        await pushed_on(site, run.run_id)
        second = await eventually(all_three)
        before = await site.executions(run.run_id)
        inside = sorted(second, key=lambda entry: -len(entry.address))
        for entry in inside:
            await run.respond({entry.id: {"approved": True}}, principal=ANYBODY)
            await pushed_on_or_over(site, run.run_id)
        ended = await site.ended(run.run_id)
        after = await site.executions(run.run_id)

    assert {entry.id for entry in first} == {entry.id for entry in second}
    assert after > before > 1
    assert sorted(ledger.paid) == ["cashier's", "clerk's", "teller's"]
    assert ended.values["report"] == (
        "pay: success: paid clerk's; cashier: success: pay: success: paid cashier's; "
        "teller: success: pay: success: paid teller's"
    )


async def pushed_on_or_over(site: Site, run_id: str) -> None:
    try:
        await site.client.run(run_id).pause()
        await site.client.run(run_id).resume()
    except Refusal as over:
        # The last answer lets the run go on to its end.
        assert over.code is Code.NOT_RUNNING


async def test_a_model_that_speaks_at_the_hard_mark_is_asked_again_and_heard_once(
    temporal: TemporalClient,
) -> None:
    heard: list[list[str]] = []
    go = asyncio.Event()

    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        heard.append(prompts(messages))
        yield "Once"
        await go.wait()
        yield " more."

    site = Site(temporal, desk(Agent("clerk", model=model)))
    sent = 0
    async with site.worker():
        run_id = await site.start({"question": "Tell me."}, limits=SMALL)
        await eventually(lambda: heard)

        async def is_asked_again() -> bool:
            nonlocal sent
            # Send no more than the queue has room for: the model may take long to hear of the hand-over.
            if sent < 80:
                text = commands.SteerMessage(message_id=f"m{sent}", text=f"hint {sent}.")
                await site.client.run(run_id).send_message(text)
                sent += 1
            return len(heard) > 1

        await eventually(is_asked_again)
        go.set()
        ended = await site.ended(run_id)
        count = await site.executions(run_id)

    assert count > 1
    assert heard[:2] == [["Tell me."], ["Tell me."]]
    said = [text for text in heard[-1] if "hint" in text]
    assert [f"hint {number}." in text for number, text in enumerate(said)] == [True] * sent
    assert ended.values["report"] == "Once more."
    assert ended.undelivered == []
