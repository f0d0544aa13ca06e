"""Clients that are made of layers, which only the Agent Framework has.

Every test process imports this module, but only one needs the framework: the tests import it themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from foreign_office import Office, Turn, agent_framework_client, desk

from abeyance.errors import Blocked
from abeyance.testing import InMemoryRun


@pytest.mark.parametrize("missing", ["FunctionInvocationLayer", "ChatMiddlewareLayer"])
def test_a_client_without_a_layer_that_holds_calls_or_messages_is_refused(missing: str) -> None:
    import agent_framework

    from abeyance.adapters.agent_framework import agent_framework_agent

    layers: list[Any] = [
        getattr(agent_framework, name)
        for name in ("FunctionInvocationLayer", "ChatMiddlewareLayer", "BaseChatClient")
        if name != missing
    ]
    client = type("MyClient", tuple(layers), {"_inner_get_response": None})()
    with pytest.raises(TypeError, match=f"the client 'MyClient' has no {missing}"):
        agent_framework_agent(agent_framework.Agent(client=client, name="clerk"))


async def test_a_provider_that_is_down_blocks_the_run() -> None:
    from agent_framework import Agent
    from agent_framework.exceptions import ChatClientException

    from abeyance.adapters.agent_framework import agent_framework_agent

    class Down(Office):
        def turn(self, made: int, heard: Sequence[str]) -> Turn:
            raise ChatClientException("the prompt failed") from ConnectionError("gone")

    run = InMemoryRun(
        desk(agent_framework_agent(Agent(client=agent_framework_client(Down()), name="clerk")))
    )
    with pytest.raises(Blocked, match="'clerk' cannot be reached now: gone"):
        await run.start()
