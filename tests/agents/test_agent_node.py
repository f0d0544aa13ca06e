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


async def test_what_is_said_to_an_agent_that_is_kept_out_is_reported_as_not_read() -> None:
    graph = Graph("court", state=Case)
    graph.agent("judge", Agent("judge", model=judge, hooks=[Doorkeeper()]), input="text")

    @graph.node
    async def before(state: Case, ctx: Context) -> None:
        return None

    graph.edge(START, "before")
    graph.edge("before", "judge")
    run = testing.InMemoryRun(graph, interrupt_before=["before"])
    await run.start()
    await run.send("be kind", message_id="m1", target="judge")
    await run.respond("interrupt_before", None)
    await run.respond("enter", "no")

    told = [each.type for each in run.events if each.type.startswith("message.")]
    assert told == [
        "message.queued",
        "message.delivered",
        "message.returned",
        "message.undelivered",
    ]
    assert [each.message_id for each in run.state.mailbox.undelivered] == ["m1"]


class Cases(BaseModel):
    count: int = 2


async def test_an_agent_of_a_fan_out_is_told_its_item() -> None:
    graph = Graph("courts", state=Cases)

    @graph.node(to=["judge"])
    async def open_cases(state: Cases) -> list[Send]:
        return [Send("judge", {"case": number}) for number in range(1, state.count + 1)]

    def told(state: Cases, item: dict[str, int]) -> str:
        return f"case {item['case']} of {state.count}"

    graph.agent("judge", Agent("judge", model=judge), input=told)
    graph.edge(START, "open_cases")
    run = await testing.run(graph)

    assert run.status == "completed"
    first = {(await run.transcript(address))[0].text for address in run.state.transcripts}
    assert first == {"case 1 of 2", "case 2 of 2"}
