"""An agent as a node of a graph: its faults, and the nodes that its MCP servers become."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Annotated, Any

import pytest
from graph_faults import faults
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo

from abeyance import START, Agent, Graph, McpServer, add
from abeyance.core.spec import SubgraphNode
from abeyance.testing import run


class Case(BaseModel):
    text: str = "a claim"
    verdict: str = "none yet"


def judge(messages: Sequence[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart("granted")])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"model": 5}, "model=5 is not a model: pass a name such as 'openai:gpt-5'"),
        (
            {"model": "gpt-5"},
            "model='gpt-5' names no provider: write 'provider:model', such as 'openai:gpt-5'",
        ),
        ({"model": lambda messages: None}, "must take (messages, info) and return a ModelResponse"),
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
def test_a_faulty_agent_has_exactly_its_fault(options: dict[str, Any], told: str) -> None:
    graph = Graph("court", state=Case)
    clerk = Agent("judge", **{"model": judge, **options})
    graph.agent("judge", clerk, input="text", output="verdict")
    graph.edge(START, "judge")

    (fault,) = faults(graph)
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


def test_a_node_that_is_neither_an_agent_nor_a_graph_is_refused() -> None:
    graph = Graph("court", state=Case)

    with pytest.raises(TypeError, match="'judge' is not an Agent: write Agent"):
        graph.agent("judge", "judge", input="text")  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"'judge' is not a Graph: write subgraph\('judge', graph\)"
    ):
        graph.subgraph("judge", "judge")  # type: ignore[arg-type]


class Bill(BaseModel):
    due: date | None = None
    total: Annotated[Decimal, add] = Decimal("1.10")
    paid: bool = False


def says(*texts: str) -> Any:
    """A model whose turns are these texts, the last of them for good."""

    def model(messages: Sequence[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(each, ModelResponse) for each in messages)
        return ModelResponse(parts=[TextPart(texts[min(turn, len(texts) - 1)])])

    return model


def billing(model: Any, field: str) -> Graph:
    graph = Graph("billing", state=Bill)
    clerk = Agent("clerk", model=model, max_corrections=1)
    graph.agent("work", clerk, input=lambda state: "Go.", output=field, on_error="goto:paid")
    graph.node(name="paid")(lambda state: {"paid": True})
    graph.edge(START, "work")
    return graph


@pytest.mark.parametrize(
    ("field", "texts", "written"),
    [
        ("due", ["2026-03-02"], "2026-03-02"),
        ("due", ["soon", "2026-03-02"], "2026-03-02"),
        ("due", ["soon"], None),
        ("total", ["0.20"], "1.30"),
    ],
)
async def test_a_result_is_written_as_its_field_writes_it_or_corrected(
    field: str, texts: list[str], written: str | None
) -> None:
    ended = await run(billing(says(*texts), field))

    assert (ended.status, ended.values[field]) == ("completed", written)
    assert ended.values["paid"] is (written is None), (
        "no later node meets a value that it cannot read"
    )
