"""An agent as a node of a graph, whose hooks may keep it from being run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo

from abeyance import START, Agent, BeforeNode, Context, Graph, Send, testing


class Case(BaseModel):
    text: str = "a claim"
    verdict: str = "none yet"


class Doorkeeper:
    async def before_node(self, event: BeforeNode) -> None:
        answer = await event.interrupt("enter", reason={"node": event.node, "at": event.address})
        if answer != "yes":
            event.cancel_node = "nobody let it in"


def judge(messages: Sequence[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart("granted")])


@pytest.mark.parametrize(("answer", "verdict"), [("yes", "granted"), ("no", "none yet")])
async def test_a_hook_asks_before_an_agent_begins_and_may_keep_it_out(
    answer: str, verdict: str
) -> None:
    graph = Graph("court", state=Case)
    graph.agent(
        "judge",
        Agent("judge", model=judge, hooks=[Doorkeeper()]),
        input=lambda state: state.text,
        output="verdict",
    )
    graph.edge(START, "judge")
    run = testing.InMemoryRun(graph)
    await run.start()

    (asked,) = run.interrupts
    assert asked.reason == {"node": "judge", "at": "graph:court;node:judge"}
    await run.respond("enter", answer)
    assert (run.status, run.values["verdict"]) == ("completed", verdict)


class Cases(BaseModel):
    count: int = 2


async def test_an_agent_of_a_fan_out_is_told_its_item() -> None:
    def echo(messages: Sequence[ModelMessage], info: AgentInfo) -> ModelResponse:
        (part,) = messages[-1].parts
        return ModelResponse(parts=[TextPart(f"granted: {part.content}")])

    graph = Graph("courts", state=Cases)

    @graph.node(to=["judge"])
    async def open_cases(state: Cases) -> list[Send]:
        return [Send("judge", {"case": number}) for number in range(1, state.count + 1)]

    def told(state: Cases, item: dict[str, int]) -> str:
        return f"case {item['case']}"

    graph.agent("judge", Agent("judge", model=echo), input=told)

    @graph.node
    async def done(state: Cases, ctx: Context) -> None:
        assert len(ctx.results) == 2

    graph.edge(START, "open_cases")
    graph.edge(["judge"], "done")
    run = await testing.run(graph)
    said = [
        item.text
        for address in sorted(run.state.transcripts)
        for item in await run.transcript(address)
    ]
    assert said == ["case 1", "granted: case 1", "case 2", "granted: case 2"]
