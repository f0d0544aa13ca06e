"""Budgets on a real server: work is counted where it is done, and the account outlives its workers."""

from __future__ import annotations

from typing import Any

from agent_scripts import Script, call, with_agent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import Agent, Budget, tool, views
from abeyance.core.state import Limits


@tool
async def look(what: str) -> str:
    """Look at something."""
    return f"{what} is fine"


def said(*parts: Any) -> ModelResponse:
    return ModelResponse(parts=list(parts), usage=RequestUsage(input_tokens=90, output_tokens=10))


async def test_a_budget_asks_under_one_worker_and_is_raised_under_another(
    temporal: TemporalClient,
) -> None:
    looks = [said(call("look", f"c{n}", what="x")) for n in range(3)]
    script = Script(*looks, said(TextPart("all is well")))
    agent = Agent("clerk", model=script, tools=[look], budget=Budget(tokens=200))
    site = Site(temporal, with_agent(agent))

    async def asked() -> views.InterruptView | None:
        view = await site.client.run(run_id).view()
        return next(iter(view.interrupts), None)

    async with site.worker():
        run_id = await site.start(limits=Limits(continue_as_new_after=3))
        question = await eventually(asked)
    assert (question.kind, question.reason["reached"]) == ("budget", ["tokens"])
    assert question.reason["used"]["tokens"] == 200
    assert question.reason["used"]["time"] > 0
    assert question.reason["by"]["look"]["calls"] == 2
    async with site.worker():
        answer = {question.id: {"raise_to": {"tokens": 9_000}}}
        await site.client.run(run_id).respond(answer, principal=ANYBODY)
        ended = await site.ended(run_id)
        await site.replays(run_id)

    assert ended.values["report"] == "all is well"
    assert len(script.seen) == 4
