"""Functions for tools, and the context of a tool call, without a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from one_visit import context
from scripted_agents import Script, call, started

from abeyance import Agent, tool
from abeyance.agents.state import AgentState
from abeyance.agents.tool import ToolContext
from abeyance.testing import InMemoryRun


def calling(state: dict[str, Any] | None = None, **about: Any) -> ToolContext:
    return ToolContext.of(
        context(**about),
        tool="t",
        call_id="call_1",
        agent="clerk",
        agent_state=AgentState(state),
    )


def written(source: str, **known: Any) -> Callable[..., Any]:
    """Compile a function that no type checker would accept."""
    exec(source, known)
    found: Callable[..., Any] = known[source.removeprefix("def ").partition("(")[0]]
    return found


async def paying(purse: Purse, *more: Any, **about: Any) -> tuple[InMemoryRun, Script]:
    """Start a run of an agent that pays 5 in its first turn, and let it run until it waits or ends."""
    script = Script([call("pay", "c1", amount=5), *more], "done")
    return await started(Agent("clerk", model=script, tools=[purse.tool], **about)), script


class Purse:
    """The tool `pay`, which needs an approval, and its payments."""

    def __init__(self, **about: Any) -> None:
        self.paid: list[tuple[int, str]] = []
        purse = self

        @tool(**{"approve": True, **about})
        async def pay(amount: int, to: str = "bob") -> str:
            """Pay somebody."""
            purse.paid.append((amount, to))
            return f"paid {amount}"

        self.tool = pay
