"""What only Pydantic AI has: toolsets that list their tools while they run."""

from __future__ import annotations

from typing import Any

import pytest
from foreign_office import Died, Recorder, desk
from pydantic_ai import Agent, BinaryContent, FunctionToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from abeyance.adapters import ForeignTurn
from abeyance.adapters.pydantic_ai import pydantic_ai_agent
from abeyance.testing import InMemoryRun


class Secret:
    """What no serialiser knows."""


async def test_what_cannot_be_stored_is_named() -> None:
    def look() -> Any:
        return Secret()

    async def listed_late(_: Any) -> FunctionToolset[Any]:
        return FunctionToolset([look])

    agent = Agent(TestModel(), name="clerk", toolsets=[listed_late])
    run = InMemoryRun(desk(pydantic_ai_agent(agent)))
    await run.start()

    assert run.status == "failed"
    assert "the state of the agent 'clerk' cannot be stored" in (run.reason or "")
    assert "Secret" in (run.reason or "")


@pytest.mark.parametrize("lost_after", [1, 2])
async def test_a_worker_that_is_lost_within_a_turn_repeats_nothing_of_it(lost_after: int) -> None:
    done: list[str] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        done.append(f"request {len(messages)}")
        return ModelResponse(
            parts=[TextPart("Done.") if len(messages) > 1 else ToolCallPart("look", {}, "c1")]
        )

    def look() -> Any:
        done.append("look")
        return [BinaryContent(b"\xff", media_type="image/png"), "a picture"]

    async def listed_late(_: Any) -> FunctionToolset[Any]:
        return FunctionToolset([look])

    agent = Agent(FunctionModel(model), toolsets=[listed_late])
    framework = pydantic_ai_agent(agent).framework
    journal = Recorder(lost_after).journal
    turn = ForeignTurn(state=None, results={}, prompts=["Look."], journal=journal)
    with pytest.raises(Died):
        await framework.turn(turn)
    taken = await framework.turn(turn)

    assert taken.output == "Done."
    assert done == ["request 1", "look", "request 3"]
