"""What only the OpenAI Agents SDK has: hand-offs, whose filters may write into the input of a model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agents import Agent, HandoffInputData, handoff
from foreign_office import Office, desk, openai_model

from abeyance.adapters.openai_agents import openai_agent
from abeyance.testing import InMemoryRun


class Secret:
    """What no serialiser knows."""


async def test_what_cannot_be_stored_is_named() -> None:
    office = Office([("h1", "transfer_to_expert", {})], "Done.")

    def filtered(data: HandoffInputData) -> HandoffInputData:
        noted: Any = {"role": "user", "content": "Go on.", "note": Secret()}
        return replace(data, input_history=(noted,))

    expert = Agent(name="expert", model=openai_model(office))
    given = handoff(expert, input_filter=filtered)
    clerk = Agent(name="clerk", model=openai_model(office), handoffs=[given])
    run = InMemoryRun(desk(openai_agent(clerk)))
    await run.start()

    assert run.status == "failed"
    assert "the state of the agent 'clerk' cannot be stored" in (run.reason or "")
    assert "Secret" in (run.reason or "")
    assert "keep in it what JSON can hold" in (run.reason or "")
