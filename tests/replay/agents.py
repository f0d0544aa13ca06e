"""Scenarios: agents, their turns and calls, and what people do about them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import foreign_office
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage
from scripted_agents import Script, desk, told
from temporal_site import eventually

from abeyance import AfterToolCall, Agent, BeforeToolCall, Budget, Principal, ToolContext, tool
from abeyance.core.state import Limits
from tests.replay.questions import open_questions, reply
from tests.replay.stage import Scenario, Stage
from tests.replay.waits import YES


@tool(approve=lambda args: args["amount"] > 1000)
async def pay(ctx: ToolContext, to: str, amount: int) -> str:
    """Pay somebody."""
    ctx.agent_state["last"] = to
    return f"paid {to} {amount}"


def _call(to: str, amount: int) -> tuple[str, dict[str, Any]]:
    return "pay", {"to": to, "amount": amount}


LARGE, SMALL = _call("bob", 5000), _call("eve", 5)


async def gated_calls_are_decided(stage: Stage) -> None:
    clerk = Agent("clerk", model=Script([LARGE, SMALL, LARGE], told), tools=[pay])
    async with stage.run(desk(clerk)) as run:
        first, second = await open_questions(run, 2)
        await reply(run, second, {"approved": False, "reason": "too much"})
        await reply(run, first, {**YES, "arguments": {"to": "bob", "amount": 4000}})
        ended = await run.ended()
    assert "pay: success: paid bob 4000" in ended.values["report"]
    assert "rejected by a person" in ended.values["report"]


async def a_call_is_decided_by_votes(stage: Stage) -> None:
    @tool(approve=True, quorum=2)
    async def transfer(amount: int) -> str:
        return f"transferred {amount}"

    clerk = Agent("clerk", model=Script([("transfer", {"amount": 9})], told), tools=[transfer])
    async with stage.run(desk(clerk)) as run:
        (asked,) = await open_questions(run, 1)
        respond = run.site.client.run(run.id).respond
        await respond(asked.id, YES, principal=Principal(subject="bob"))
        less = {**YES, "arguments": {"amount": 7}}
        await respond(asked.id, less, principal=Principal(subject="carol"), note="less")
        await respond(asked.id, YES, principal=Principal(subject="bob"))
        ended = await run.ended()
    assert ended.values["report"] == "transfer: success: transferred 7"


class Teller:
    async def before_tool_call(self, event: BeforeToolCall) -> None:
        event.args["task"] = await event.interrupt("task", response=str)
        event.args["task"] += await event.interrupt("right", response=str)

    async def after_tool_call(self, event: AfterToolCall) -> None:
        event.result = f"{event.result} Really."


async def an_agent_in_an_agent_is_handed_over(stage: Stage) -> None:
    """A hook asks twice before a call of an agent that calls a tool, and adds to the call's result."""
    cashier = Agent("cashier", model=Script([SMALL], "Paid."), tools=[pay])
    calls = Script([("cashier", {"task": "pay"})], told)
    as_tool = cashier.as_tool(description="Pays.")
    clerk = Agent("clerk", model=calls, tools=[as_tool], hooks=[Teller()], memory="run")
    async with stage.run(desk(clerk), limits=Limits(continue_as_new_after=40)) as run:
        await run.waiting()
        await run.answer(task="pay twice")
        await run.waiting()
        await run.hand_over()
        await run.answer(right=", please")
        ended = await run.ended()
    assert ended.values["report"] == "cashier: success: Paid. Really."


async def a_model_that_speaks_is_paused_and_hears(stage: Stage) -> None:
    """The model streams a word, waits for an event, and streams another."""
    heard: list[str] = []
    go = asyncio.Event()

    async def speak(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        heard.append(str(messages))
        yield "Once"
        await go.wait()
        yield " more."

    async with stage.run(desk(Agent("clerk", model=speak))) as run:
        await eventually(lambda: heard)
        await run.pause(mode="now")
        await eventually(run.is_idle)
        await run.resume()
        await eventually(lambda: len(heard) == 2)
        await run.say("m1", "In Dutch.")
        go.set()
        ended = await run.ended()
    assert ended.undelivered == [], ended
    assert ["In Dutch." in each for each in heard[:3]] == [False, False, True], heard


async def the_outcome_of_a_call_is_asked(stage: Stage) -> None:
    begun: list[int] = []
    go = asyncio.Event()

    @tool(approve=True)
    async def bore() -> str:
        begun.append(1)
        if len(begun) == 1:
            await go.wait()
        return "a hole"

    site = stage.site(desk(Agent("clerk", model=Script([("bore", {})], told), tools=[bore])))
    async with site.worker():
        run = await stage.started(site)
        await run.waiting()
        await run.answer(approve=YES)
        await eventually(lambda: begun)
    async with site.worker():
        (asked,) = await open_questions(run, 1)
        await run.answer(outcome={"action": "retry"})
        ended = await run.ended()
    assert (asked.kind, ended.values["report"]) == ("outcome", "bore: success: a hole")


async def a_budget_is_raised(stage: Stage) -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        said = Script([SMALL], [SMALL], "Paid.")(messages, info)
        used = RequestUsage(input_tokens=90, output_tokens=10)
        return ModelResponse(parts=said.parts, usage=used)

    clerk = Agent("clerk", model=model, tools=[pay], budget=Budget(tokens=100))
    async with stage.run(desk(clerk)) as run:
        (asked,) = await open_questions(run, 1)
        await reply(run, asked, {"raise_to": {"tokens": 9_000}})
        ended = await run.ended()
    assert (asked.kind, ended.values["report"]) == ("budget", "Paid.")


async def calls_of_a_foreign_agent_are_decided(stage: Stage) -> None:
    office = foreign_office.Office(foreign_office.THREE, "Done.")
    graph = foreign_office.desk(foreign_office.pydantic_ai(office))
    async with stage.run(graph) as run:
        first, second = await open_questions(run, 2)
        await reply(run, first, YES)
        await reply(run, second, {"approved": False})
        await run.ended()
    assert "pay 3" not in office.lines


SCENARIOS: tuple[Scenario, ...] = (
    gated_calls_are_decided,
    a_call_is_decided_by_votes,
    an_agent_in_an_agent_is_handed_over,
    a_model_that_speaks_is_paused_and_hears,
    the_outcome_of_a_call_is_asked,
    a_budget_is_raised,
    calls_of_a_foreign_agent_are_decided,
)
