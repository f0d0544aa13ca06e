"""An agent as a node of a graph, whose hooks may keep it from being run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo

from abeyance import START, Agent, Graph, McpServer, Send, testing
from abeyance.core.spec import SubgraphNode
from abeyance.errors import GraphError


class Case(BaseModel):
    text: str = "a claim"
    verdict: str = "none yet"


def judge(messages: Sequence[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart("granted")])


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


@pytest.mark.parametrize(
    ("on_error", "status"),
    [(None, "failed"), ("interrupt", "awaiting-input"), ("goto:other", "completed")],
)
async def test_what_becomes_of_an_agent_that_fails_is_said_at_its_node(
    on_error: str | None, status: str
) -> None:
    def broken(messages: Sequence[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise RuntimeError("out of ideas")

    graph = Graph("court", state=Case)
    clerk = Agent("judge", model=broken, model_retries=0)
    graph.agent("judge", clerk, input="text", output="verdict", on_error=on_error)
    graph.node(name="other")(lambda state: {"verdict": "by the other one"})
    graph.edge(START, "judge")
    graph.edge("judge", "other")

    run = await testing.run(graph)
    assert run.status == status
    if on_error == "interrupt":
        assert (await run.interrupts())[0].address == "graph:court;node:judge"
        await run.respond("error", {"action": "skip", "patch": {"verdict": "none"}})
        assert run.values["verdict"] == "by the other one"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"model": 5}, "model=5 is not a model: pass a name such as 'openai:gpt-5'"),
        (
            {"model": "gpt-5"},
            "model='gpt-5' names no provider: write 'provider:model', such as 'openai:gpt-5'",
        ),
        (
            {"model": lambda messages: None},
            "must take (messages, info) and return a ModelResponse",
        ),
        ({"max_turns": "many"}, "max_turns='many' is invalid: use an integer of at least 1"),
        ({"max_turns": True}, "max_turns=True is invalid: use an integer of at least 1"),
        ({"max_corrections": -1}, "max_corrections=-1 is invalid: use an integer of at least 0"),
        ({"instructions": 5}, "instructions=5 is not text"),
        ({"tool_execution": "parallel"}, "tool_execution='parallel' is invalid"),
        (
            {"tools": [McpServer(command=["x"]), McpServer(command=["x", "y"])]},
            "two tools are named 'x': rename one, or give its McpServer a name=",
        ),
    ],
)
def test_what_is_wrong_with_an_agent_is_told_alone(options: dict[str, Any], told: str) -> None:
    graph = Graph("court", state=Case)
    clerk = Agent("judge", **{"model": judge, **options})
    graph.agent("judge", clerk, input="text", output="verdict")
    graph.edge(START, "judge")

    with pytest.raises(GraphError) as caught:
        graph.build()
    (fault,) = caught.value.faults
    assert fault.startswith("the nested graph 'judge': ")
    assert told in fault


@pytest.mark.parametrize(
    ("server", "node"),
    [
        (McpServer(url="http://localhost:8000/mcp"), "localhost_8000"),
        (McpServer(url="http://127.0.0.1:8000/mcp"), "mcp_127.0.0.1_8000"),
        (McpServer(name="our shop", url="http://127.0.0.1:8000/mcp"), "our_shop"),
        (McpServer(name="_hub", command=["x"]), "_hub"),
    ],
)
def test_a_server_of_any_name_is_a_node_of_its_agent(server: McpServer, node: str) -> None:
    graph = Graph("court", state=Case)
    graph.agent("judge", Agent("judge", model=judge, tools=[server]), input="text")
    graph.edge(START, "judge")

    inner = graph.build().nodes["judge"]
    assert isinstance(inner, SubgraphNode)
    assert set(inner.graph.nodes) == {"model", node}


def test_what_is_no_agent_and_no_graph_is_said_to_be_none() -> None:
    graph = Graph("court", state=Case)

    with pytest.raises(TypeError, match="'judge' is not an Agent: write Agent"):
        graph.agent("judge", "judge", input="text")  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"'judge' is not a Graph: write subgraph\('judge', graph\)"
    ):
        graph.subgraph("judge", "judge")  # type: ignore[arg-type]
