"""An agent whose model is down: the run says what is wrong, and goes on when the model is up again."""

from __future__ import annotations

import asyncio

from model_server import ModelServer, chat_model, serving
from scripted_agents import Script, desk, told
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import Agent, tool, views


async def blocked(site: Site, run_id: str, attempt: int = 1) -> views.RunView:
    """Return the view once it says that a visit is blocked and was tried so often."""

    async def found() -> views.RunView | None:
        view = await site.client.run(run_id).view()
        return view if view.blocked and (view.blocked[0].attempt or 0) >= attempt else None

    view: views.RunView = await eventually(found)
    return view


async def test_a_run_whose_model_is_down_says_so_and_goes_on_when_it_is_up_again(
    temporal: TemporalClient,
) -> None:
    async with serving(ModelServer(status=503, body={"error": {"message": "busy"}})) as server:
        site = Site(temporal, desk(Agent("clerk", model=chat_model(server.url), model_retries=0)))
        async with site.worker():
            run_id = await site.start()
            view = await blocked(site, run_id, attempt=2)
            server.status = 200
            ended = await site.ended(run_id)
            await site.replays(run_id)
        events = await site.published(run_id)

    (why,) = view.blocked
    assert view.status == "running"
    assert (why.code, why.node) == ("model_unavailable", "desk.clerk.model")
    assert "cannot be reached now" in why.message
    assert ended.status == "completed", ended.error
    assert ended.values["report"] == "Hello there"
    assert [event.type for event in events] == [
        "run.started",
        "node.started",
        "node.blocked",
        "node.finished",
        "model.turn",
        "node.unblocked",
        "run.completed",
    ]


async def test_a_call_that_takes_longer_than_it_may_be_silent_is_made_once(
    temporal: TemporalClient,
) -> None:
    made: list[int] = []

    @tool(heartbeat=2)
    async def think() -> str:
        made.append(1)
        await asyncio.sleep(3)
        return "thought"

    agent = Agent("clerk", model=Script([("think", {})], told), tools=[think])
    site = Site(temporal, desk(agent))
    async with site.worker():
        ended = await site.ended(await site.start())

    assert (ended.values["report"], len(made)) == ("think: success: thought", 1)
