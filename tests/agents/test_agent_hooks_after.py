"""Hooks after a tool: what they withhold."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import ToolCallPart
from scripted_agents import Script, call, started

from abeyance import (
    AfterToolCall,
    Agent,
    Principal,
    tool,
)


class Broken:
    """Raises when it is told what became of a call."""

    async def after_tool_call(self, event: AfterToolCall) -> None:
        message = "no connection"
        raise OSError(message)


@tool
async def look() -> str:
    return "fine"


@tool
async def fail() -> str:
    message = "the connection was lost"
    raise OSError(message)


@tool(approve=True)
async def pay() -> str:
    return "paid"


WITHHELD = "result is withheld: denied by hook Broken: OSError: no connection"


@pytest.mark.parametrize(
    ("made", "answer", "outcome", "told"),
    [
        (call("look", "c1"), None, "failed", f"'look' has run, but its {WITHHELD}"),
        (
            call("fail", "c1"),
            None,
            "failed",
            "'fail' failed and may have been done, but its error is withheld: ",
        ),
        (call("helper", "c1", task="x"), None, "failed", f"'helper' has run, but its {WITHHELD}"),
        (
            call("pay", "c1"),
            {"approved": False, "result": "in cash"},
            "failed",
            "A person gave the result of 'pay' in place of the call, but it is withheld: ",
        ),
        (
            call("pay", "c1"),
            {"approved": False},
            "denied",
            "denied by hook Broken: OSError: no connection",
        ),
    ],
    ids=["has run", "failed", "agent", "result of a person", "rejected"],
)
async def test_an_after_hook_that_raises_withholds_a_result_and_hides_nothing_else(
    made: ToolCallPart, answer: Any, outcome: str, told: str
) -> None:
    script = Script(made, "done")
    helper = Agent("helper", model=Script("helped")).as_tool(description="Helps.")
    tools: list[Any] = [look, fail, pay, helper]
    run = await started(Agent("clerk", model=script, tools=tools, hooks=[Broken()]))
    if answer is not None:
        await run.respond("approve", answer, principal=Principal(subject="ada"))

    ((found, text),) = script.told().values()
    assert (found, text[: len(told)]) == (outcome, told)
    items = await run.transcript(min(run.state.transcripts, key=len))
    (item,) = [each for each in items if each.role == "tool"]
    assert (item.outcome, run.status) == (outcome, "completed")
    assert item.answered_by == ("ada" if answer and "result" in answer else None)
