"""Hooks made of functions, and the tool call that they get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from abeyance.agents.hook_runner import HooksOutcome
from abeyance.agents.hooks import BeforeToolCall
from abeyance.agents.tool_decorator import tool


class Named:
    """A named hook that calls a function before tool calls."""

    def __init__(self, name: str, function: Callable[[BeforeToolCall], Any]) -> None:
        self.name = name
        self._function = function

    async def before_tool_call(self, event: BeforeToolCall) -> None:
        await self._function(event)


def call(**about: Any) -> BeforeToolCall:
    given: dict[str, Any] = {"tool": "pay", "args": {"amount": 5, "to": ["X"]}, "call_id": "c1"}
    return BeforeToolCall(**{**given, **about})


def keys(outcome: HooksOutcome[Any]) -> list[str]:
    return [asked.key for asked in outcome.asked]


@tool
async def pay(amount: int, to: list[str]) -> str:
    return "paid"
