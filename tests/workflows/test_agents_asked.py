"""Hooks around the calls of agents, and attempts that are nobody's fault, on a real server."""

from __future__ import annotations

import asyncio

from scripted_agents import desk, prompts, scripted, told
from temporal_site import ANYBODY, Site, eventually
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client as TemporalClient

from abeyance import AfterToolCall, Agent, BeforeToolCall, views
from abeyance.core.state import Limits

CLERK = "graph:desk;node:clerk;agent:clerk"


class Guard:
    """Asks before a call, and about what it came to."""

    async def before_tool_call(self, event: BeforeToolCall) -> None:
        event.args["task"] = await event.interrupt("task", reason=event.args, response=str)

    async def after_tool_call(self, event: AfterToolCall) -> None:
        event.result = await event.interrupt("result", reason={"result": event.result})


async def question(site: Site, run_id: str, name: str) -> views.InterruptView:
    """The open question of this name, once there is one."""

    async def found() -> views.InterruptView | None:
        view = await site.client.run(run_id).view()
        return next((each for each in view.interrupts if each.name == name), None)

    entry: views.InterruptView = await eventually(found)
    return entry


async def activities(site: Site, run_id: str) -> list[str]:
    """The names of the activities so far."""
    return [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in (await site.history(run_id)).events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]


async def test_what_hooks_ask_around_an_agent_is_answered_while_no_worker_is_there_and_handed_over(
    temporal: TemporalClient,
) -> None:
    helper = Agent("helper", model=scripted(lambda messages: prompts(messages)[0]))
    calls = [("helper", {"task": "look"})]
    clerk = Agent(
        "clerk",
        model=scripted(calls, told),
        tools=[helper.as_tool(description="Helps.")],
        hooks=[Guard()],
    )
    site = Site(temporal, desk(clerk))
    async with site.worker():
        run_id = await site.start(limits=Limits(continue_as_new_after=5))
        before = await question(site, run_id, "task")
    assert before.address == f"{CLERK};tool:helper:1.1;process:Guard"
    assert "desk.clerk.helper" not in await activities(site, run_id)
    answering = asyncio.create_task(
        site.client.run(run_id).respond({before.id: "look twice"}, principal=ANYBODY)
    )
    async with site.worker():
        await answering
        after = await question(site, run_id, "result")
        assert after.reason == {"result": "look twice"}
        assert after.address == f"{CLERK};node:model:2;process:Guard.after.1.1"
        await site.client.run(run_id).respond({after.id: "well done"}, principal=ANYBODY)
        ended = await site.ended(run_id)
        await site.replays(run_id)

    assert ended.values["report"] == "helper: success: well done"
