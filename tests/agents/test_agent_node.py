"""An agent as a node of a graph, whose hooks may keep it from being run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo

from abeyance import START, Agent, BeforeNode, Graph, testing


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
