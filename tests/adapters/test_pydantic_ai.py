"""What only Pydantic AI has: toolsets that list their tools while they run."""

from __future__ import annotations

from typing import Any

from foreign_office import desk
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.models.test import TestModel

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
