"""Functions to be tools, and the context of a call, without a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from one_visit import context

from abeyance import tool
from abeyance.agents.state import AgentState
from abeyance.agents.tool import ToolContext


def calling(state: dict[str, Any] | None = None, **about: Any) -> ToolContext:
    return ToolContext.of(
        context(**about),
        tool="t",
        call_id="call_1",
        agent="clerk",
        agent_state=AgentState(state),
    )


def written(source: str, **known: Any) -> Callable[..., Any]:
    """A function that no type checker would take."""
    exec(source, known)
    found: Callable[..., Any] = known[source.removeprefix("def ").partition("(")[0]]
    return found


class Purse:
    """The tool `pay`, which has to be approved, and what it has paid."""

    def __init__(self, **about: Any) -> None:
        self.paid: list[tuple[int, str]] = []
        purse = self

        @tool(**{"approve": True, **about})
        async def pay(amount: int, to: str = "bob") -> str:
            """Pay somebody."""
            purse.paid.append((amount, to))
            return f"paid {amount}"

        self.tool = pay
