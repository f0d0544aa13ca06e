"""The turns of a model: how an agent reaches its output, and what stops it."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.usage import RequestUsage
from scripted_agents import Script, call, failure, started, with_agent

from abeyance import Agent, ToolContext, tool
from abeyance.testing import InMemoryRun


class Verdict(BaseModel):
    approved: bool
    score: int


def final(call_id: str, **arguments: Any) -> ToolCallPart:
    return ToolCallPart("final_result", arguments, call_id)


@tool
async def look(what: str) -> str:
    """Look at something."""
    return f"{what} is fine"


async def test_corrections_are_bounded_in_a_row() -> None:
    script = Script(final("c1", approved="perhaps"))
    run = await started(Agent("clerk", model=script, output=Verdict, max_corrections=2))

    code, message = failure(run)
    assert (code, "3 times in a row" in message) == ("node_failed", True)
    assert "score: Field required" in message
    assert len(script.seen) == 3
    assert [item.role for item in await run.transcript()] == ["user", *["assistant", "tool"] * 3]


async def test_a_turn_that_calls_tools_does_not_count_as_a_correction() -> None:
    bad, good = final("c1", approved="perhaps"), final("c2", approved=True, score=1)
    script = Script(bad, call("look", "l1", what="x"), bad, call("look", "l2", what="y"), good)
    agent = Agent("clerk", model=script, output=Verdict, tools=[look], max_corrections=1)
    run = await started(agent)

    assert run.values["report"] == {"approved": True, "score": 1}


async def test_an_output_beside_calls_waits_for_their_results() -> None:
    script = Script(
        [call("look", "c1", what="till"), final("c2", approved=True, score=1)],
        final("c3", approved=False, score=2),
    )
    run = await started(Agent("clerk", model=script, output=Verdict, tools=[look]))

    told = script.told()
    assert told["c1"] == ("success", "till is fine")
    assert "Not taken" in told["c2"][1]
    assert run.values["report"] == {"approved": False, "score": 2}


async def test_a_model_that_loops_is_ended_by_max_turns() -> None:
    count = iter(range(1_000))
    script = Script(lambda messages: call("look", f"c{next(count)}", what="x"))
    run = await started(Agent("clerk", model=script, tools=[look], max_turns=4))

    code, message = failure(run)
    assert (code, "max_turns=4" in message) == ("max_turns", True)
    assert len(script.seen) == 4
    assert [item.role for item in await run.transcript()][-2:] == ["assistant", "tool"]


async def test_the_usage_of_turns_is_published_and_summed() -> None:
    def counted(part: Any) -> ModelResponse:
        usage = RequestUsage(input_tokens=10, output_tokens=3)
        return ModelResponse(parts=[part], usage=usage, finish_reason="stop")

    script = Script(counted(call("look", "c1", what="x")), counted(TextPart("done")))
    run = await started(Agent("clerk", model=script, tools=[look]))

    turns = [each async for each in run.events(follow=False) if each.type == "model.turn"]
    assert [each.address for each in turns] == [
        "graph:g;node:review;agent:clerk;node:model",
        "graph:g;node:review;agent:clerk;node:model:2",
    ]
    assert turns[0].data == {
        "turn": 1,
        "model": "function:Script",
        "calls": ["look"],
        "usage": {"requests": 1, "input_tokens": 10, "output_tokens": 3},
        "finish_reason": "stop",
    }
    assert turns[1].data["turn"] == 2


async def test_a_model_that_raises_is_tried_again_as_often_as_the_agent_says() -> None:
    tried: list[int] = []

    def broken(messages: Any, info: Any) -> ModelResponse:
        tried.append(1)
        message = "a bug"
        raise KeyError(message)

    run = await started(Agent("clerk", model=broken, model_retries=2))

    assert (len(tried), failure(run)[0]) == (3, "node_failed")
    assert "a bug" in failure(run)[1]


async def test_the_input_of_a_call_does_not_grow_with_the_conversation() -> None:
    sizes: list[int] = []

    @tool
    async def note(ctx: ToolContext, what: str) -> str:
        sizes.append(len(json.dumps(ctx.values)))
        return what

    def turn(messages: Any) -> Any:
        return "done" if len(sizes) == 20 else call("note", f"c{len(sizes):02}", what="x" * 1_000)

    run = await started(Agent("clerk", model=Script(turn), tools=[note]))

    assert (run.status, len(sizes)) == ("completed", 20)
    assert max(sizes) < 1_000
    # The numbers of turns and tokens have more digits by then.
    assert sizes[-1] - sizes[0] < 20


async def test_an_output_may_be_nothing_and_then_replaces_what_was_there() -> None:
    graph = with_agent(Agent("clerk", model=Script(final("c1", result=None)), output=str | None))
    run = InMemoryRun(graph, {"report": "an objection of the last round"})
    await run.start()

    assert (run.status, run.values["report"]) == ("completed", None)
