"""Scenarios: agents, their turns and calls, and what people do about them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo
from scripted_agents import desk, scripted, told
from temporal_site import eventually

from abeyance import (
    END,
    AfterToolCall,
    Agent,
    BeforeToolCall,
    Graph,
    Principal,
    ToolContext,
    tool,
    views,
)
from abeyance.core.state import Limits
from tests.replay.questions import open_questions, reply
from tests.replay.stage import SHORT, Scenario, Stage

YES = {"approved": True}


@tool(approve=lambda args: args["amount"] > 1000)
async def pay(ctx: ToolContext, to: str, amount: int) -> str:
    """Pay somebody."""
    ctx.agent_state["last"] = to
    return f"paid {to} {amount}"


def _call(to: str, amount: int) -> tuple[str, dict[str, Any]]:
    return "pay", {"to": to, "amount": amount}


LARGE, SMALL = _call("bob", 5000), _call("eve", 5)


def paying(*calls: tuple[str, dict[str, Any]], **options: Any) -> Graph:
    """An agent that makes calls in its first turn, and tells in its second what they came to."""
    return desk(Agent("clerk", model=scripted(calls, told), tools=[pay], **options))


async def an_agent_takes_turns(stage: Stage) -> None:
    clerk = Agent("clerk", model=scripted([SMALL], [SMALL, SMALL], "Paid."), tools=[pay])
    async with stage.run(desk(clerk)) as run:
        ended = await run.ended()
    assert ended.values["report"] == "Paid."


async def a_gated_call_waits(stage: Stage) -> None:
    async with stage.run(paying(LARGE, SMALL)) as run:
        await run.waiting()


async def a_gated_call_is_approved(stage: Stage) -> None:
    async with stage.run(paying(LARGE)) as run:
        await run.waiting()
        await run.answer(approve={"approved": True, "arguments": {"to": "bob", "amount": 4000}})
        ended = await run.ended()
    assert ended.values["report"] == "pay: success: paid bob 4000"


async def a_gated_call_is_rejected(stage: Stage) -> None:
    async with stage.run(paying(LARGE, SMALL)) as run:
        await run.waiting()
        await run.answer(approve={"approved": False, "reason": "too much"})
        ended = await run.ended()
    assert "rejected by a person" in ended.values["report"]


async def gated_calls_are_handed_over(stage: Stage) -> None:
    calls = [_call(name, 5000) for name in ("bob", "eve", "ann")]
    async with stage.run(paying(*calls), limits=SHORT) as run:
        asked = await open_questions(run, 3)
        await run.hand_over()
        for entry in reversed(asked):
            await reply(run, entry, YES)
        await run.ended()


async def a_call_is_decided_by_votes(stage: Stage) -> None:
    @tool(approve=True, quorum=2)
    async def transfer(amount: int) -> str:
        return f"transferred {amount}"

    clerk = Agent("clerk", model=scripted([("transfer", {"amount": 9})], told), tools=[transfer])
    async with stage.run(desk(clerk), limits=SHORT) as run:
        (asked,) = await open_questions(run, 1)
        respond = run.site.client.run(run.id).respond
        await respond(asked.id, YES, principal=Principal(subject="bob"))
        less = {**YES, "arguments": {"amount": 7}}
        await respond(asked.id, less, principal=Principal(subject="carol"), note="less")
        await run.hand_over()
        await respond(asked.id, YES, principal=Principal(subject="bob"))
        ended = await run.ended()
    assert ended.values["report"] == "transfer: success: transferred 7"


async def a_call_would_do_something_else_than_its_approver_saw(stage: Stage) -> None:
    balances = [100, 100, 50, 50]

    async def would_transfer(amount: int) -> dict[str, Any]:
        balance = balances.pop(0) if len(balances) > 1 else balances[0]
        return {"summary": f"{balance - amount} would be left"}

    @tool(approve=True, preview=would_transfer, decisions=("approve", "edit", "respond"))
    async def transfer(amount: int) -> str:
        return f"transferred {amount}"

    calls = scripted([("transfer", {"amount": 9}), ("transfer", {"amount": 8})], told)
    clerk = Agent("clerk", model=calls, tools=[transfer], tool_execution="sequential")
    async with stage.run(desk(clerk)) as run:
        (first,) = await open_questions(run, 1)
        await reply(run, first, {**YES, "arguments": {"amount": 7}})
        (second,) = await open_questions(run, 1)
        while second.id == first.id:
            (second,) = await open_questions(run, 1)
        await reply(run, second, YES)
        third = second
        while third.id == second.id:
            (third,) = await open_questions(run, 1)
        await reply(run, third, YES)
        await run.waiting()
        await run.answer(approve={"approved": False, "result": "by hand"})
        await run.ended()


async def calls_are_made_in_sequence(stage: Stage) -> None:
    graph = paying(SMALL, LARGE, SMALL, tool_execution="sequential")
    async with stage.run(graph) as run:
        await run.waiting()
        await run.answer(approve=YES)
        await run.ended()


def _nested() -> Graph:
    cashier = Agent("cashier", model=scripted([LARGE], told), tools=[pay])
    clerk = Agent(
        "clerk",
        model=scripted([("cashier", {"task": "pay"}), LARGE], told),
        tools=[pay, cashier.as_tool(description="Pays.")],
    )
    return desk(clerk)


async def an_agent_calls_an_agent(stage: Stage) -> None:
    async with stage.run(_nested()) as run:
        for entry in await open_questions(run, 2):
            await reply(run, entry, YES)
        await run.ended()


async def an_agent_in_an_agent_is_handed_over(stage: Stage) -> None:
    async with stage.run(_nested(), limits=SHORT) as run:
        for entry in await open_questions(run, 2):
            await reply(run, entry, YES)
        await run.ended()


class Guardian:
    """Asks before a call whether somebody may be trusted, and afterwards whether it was right."""

    async def before_tool_call(self, event: BeforeToolCall) -> None:
        if event.agent_state.get("trusted") != event.args["to"]:
            event.agent_state["trusted"] = await event.interrupt("trusted")

    async def after_tool_call(self, event: AfterToolCall) -> None:
        event.result = f"{event.result}, {await event.interrupt('right')}"


async def hooks_ask(stage: Stage) -> None:
    async with stage.run(paying(LARGE, hooks=[Guardian()])) as run:
        await run.waiting()
        await run.answer(trusted="bob")
        await run.waiting()
        await run.answer(approve=YES)
        await run.waiting()
        await run.answer(right="that is right")
        ended = await run.ended()
    assert ended.values["report"].endswith("paid bob 5000, that is right")


def _guarded() -> Graph:
    """An agent that calls an agent, about which a hook asks before and afterwards."""
    cashier = Agent("cashier", model=scripted("Paid."))
    clerk = Agent(
        "clerk",
        model=scripted([("cashier", {"task": "pay"})], told),
        tools=[cashier.as_tool(description="Pays.")],
        hooks=[Teller()],
    )
    return desk(clerk)


class Teller:
    async def before_tool_call(self, event: BeforeToolCall) -> None:
        event.args["task"] = await event.interrupt("task", response=str)

    async def after_tool_call(self, event: AfterToolCall) -> None:
        event.result = f"{event.result} {await event.interrupt('right')}"


async def hooks_ask_about_an_agent(stage: Stage) -> None:
    async with stage.run(_guarded()) as run:
        await run.waiting()
        await run.answer(task="pay twice")
        await run.waiting()
        await run.answer(right="That is right.")
        ended = await run.ended()
    assert ended.values["report"] == "cashier: success: Paid. That is right."


async def hooks_that_ask_about_an_agent_are_handed_over(stage: Stage) -> None:
    async with stage.run(_guarded(), limits=SHORT) as run:
        await run.waiting()
        await run.hand_over()
        await run.answer(task="pay twice")
        await run.waiting()
        await run.answer(right="That is right.")
        await run.ended()


async def nobody_answers_for_calls(stage: Stage) -> None:
    @tool
    async def choose(ctx: ToolContext) -> str:
        return str(await ctx.interrupt("which", timeout="1s", on_timeout="goto:END"))

    @tool(approve=True, approval_timeout="1s", on_timeout="reject")
    async def send() -> str:
        return "sent"

    calls: list[tuple[str, dict[str, Any]]] = [("choose", {}), ("send", {})]
    graph = desk(Agent("clerk", model=scripted(calls, told), tools=[choose, send]))
    async with stage.run(graph) as run:
        ended = await run.ended()
    assert "choose: interrupted: Nobody answered 'which' in time" in ended.values["report"]
    assert "send: denied: Nobody answered in time" in ended.values["report"]


async def many_calls_are_made_in_sequence(stage: Stage) -> None:
    few = Limits(max_visits=2)
    graph = paying(*[SMALL] * 5, tool_execution="sequential")
    async with stage.run(graph, limits=few) as run:
        ended = await run.ended()
    assert ended.values["report"].count("paid eve 5") == 5


class _Speaker:
    """A model that says one word, waits to be let go on, and says another."""

    def __init__(self) -> None:
        self.asked = 0
        self.go = asyncio.Event()
        self.graph = desk(Agent("clerk", model=self.model))

    async def model(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        self.asked += 1
        yield "Once"
        await self.go.wait()
        yield " more."

    async def is_asked(self, times: int = 1) -> None:
        await eventually(lambda: self.asked == times)


async def an_agent_hears_what_is_said_before_it_ends(stage: Stage) -> None:
    speaker = _Speaker()
    async with stage.run(speaker.graph) as run:
        await speaker.is_asked()
        await run.say("m1", "In Dutch.")
        speaker.go.set()
        ended = await run.ended()
    assert (speaker.asked, ended.undelivered) == (2, [])


async def a_model_that_speaks_is_paused_now(stage: Stage) -> None:
    speaker = _Speaker()
    async with stage.run(speaker.graph) as run:
        await speaker.is_asked()
        await run.pause(mode="now")
        await eventually(run.is_idle)
        await run.resume()
        await speaker.is_asked(2)
        speaker.go.set()
        await run.ended()


async def a_model_that_speaks_is_cancelled(stage: Stage) -> None:
    speaker = _Speaker()
    async with stage.run(speaker.graph) as run:
        await speaker.is_asked()
        await run.cancel(reason="enough")
        await run.ended("cancelled")


async def a_call_that_runs_is_cancelled(stage: Stage) -> None:
    begun = asyncio.Event()

    @tool
    async def bore() -> None:
        begun.set()
        await asyncio.Event().wait()

    graph = desk(Agent("clerk", model=scripted([("bore", {})], told), tools=[bore]))
    async with stage.run(graph) as run:
        await eventually(begun.is_set)
        await run.cancel()
        await run.ended("cancelled")


async def the_outcome_of_a_call_is_asked(stage: Stage) -> None:
    begun: list[int] = []
    go = asyncio.Event()

    @tool(approve=True)
    async def bore() -> str:
        begun.append(1)
        if len(begun) == 1:
            await go.wait()
        return "a hole"

    site = stage.site(desk(Agent("clerk", model=scripted([("bore", {})], told), tools=[bore])))
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


async def an_agent_remembers_its_visits(stage: Stage) -> None:
    clerk = Agent("clerk", model=scripted([SMALL], "One.", "Two."), tools=[pay], memory="run")
    graph = desk(clerk)
    graph.interrupt("more", prompt="Once more?")
    graph.edge("clerk", "more")
    graph.edge("more", "clerk", when={"report": "One."})
    graph.edge("more", END, when="else")
    async with stage.run(graph) as run:
        for said in ("One.", "Two."):
            view = await run.waiting()
            assert view.values["report"] == said
            await run.answer(more="yes")
        await run.ended()


async def an_agent_takes_too_many_turns(stage: Stage) -> None:
    clerk = Agent("clerk", model=scripted([SMALL]), tools=[pay], max_turns=2)
    async with stage.run(desk(clerk)) as run:
        view: views.RunView = await run.ended("failed")
    assert view.error is not None
    assert view.error.code == "max_turns"


SCENARIOS: list[Scenario] = [
    an_agent_takes_turns,
    a_gated_call_waits,
    a_gated_call_is_approved,
    a_gated_call_is_rejected,
    gated_calls_are_handed_over,
    a_call_is_decided_by_votes,
    a_call_would_do_something_else_than_its_approver_saw,
    calls_are_made_in_sequence,
    an_agent_calls_an_agent,
    an_agent_in_an_agent_is_handed_over,
    hooks_ask,
    hooks_ask_about_an_agent,
    hooks_that_ask_about_an_agent_are_handed_over,
    nobody_answers_for_calls,
    many_calls_are_made_in_sequence,
    an_agent_hears_what_is_said_before_it_ends,
    a_model_that_speaks_is_paused_now,
    a_model_that_speaks_is_cancelled,
    a_call_that_runs_is_cancelled,
    the_outcome_of_a_call_is_asked,
    an_agent_remembers_its_visits,
    an_agent_takes_too_many_turns,
]
