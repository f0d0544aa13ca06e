"""Features that only Pydantic AI has: toolsets that list their tools while they run, deferred calls."""

from __future__ import annotations

from typing import Any

import pytest
from foreign_office import Died, Office, Recorder, _named, desk, pydantic_ai_model, started
from pydantic_ai import Agent, BinaryContent, CallDeferred, FunctionToolset
from pydantic_ai.capabilities import Hooks
from pydantic_ai.exceptions import SkipToolExecution
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from abeyance.adapters import ForeignTurn
from abeyance.adapters.pydantic_ai import pydantic_ai_agent
from abeyance.errors import Blocked
from abeyance.testing import InMemoryRun


class Secret:
    """A value that no serialiser knows."""


async def test_a_state_that_cannot_be_stored_is_named() -> None:
    def look() -> Any:
        return Secret()

    async def listed_late(_: Any) -> FunctionToolset[Any]:
        return FunctionToolset([look])

    agent = Agent(TestModel(), name="clerk", toolsets=[listed_late])
    run = await started(pydantic_ai_agent(agent))

    assert run.status == "failed"
    assert "the state of the agent 'clerk' cannot be stored" in (run.reason or "")
    assert "Secret" in (run.reason or "")


async def told_of(result: Any) -> str:
    """Return what a model reads of the result of a tool."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        (last,) = messages[-1].parts
        called = isinstance(last, ToolReturnPart)
        said = last.model_response_str() if isinstance(last, ToolReturnPart) else ""
        return ModelResponse(parts=[TextPart(said) if called else ToolCallPart("look", {}, "c1")])

    def look() -> Any:
        return result

    agent = Agent(FunctionModel(model), name="clerk", tools=[look])
    run = await started(pydantic_ai_agent(agent))
    return str(run.values["reply"])


async def test_a_result_that_is_not_json_is_named_once_the_tool_has_run() -> None:
    said = await told_of([Secret()])
    assert said.startswith("'look' has run, but its result, a list, is not JSON: ")
    assert "Secret" in said


async def test_a_model_reads_bytes_as_the_framework_shows_them() -> None:
    alone = ToolReturnPart("look", {"picture": b"\xff\xfe"}, "c1")
    assert await told_of({"picture": b"\xff\xfe"}) == alone.model_response_str()


@pytest.mark.parametrize(
    ("model", "message"),
    [("openai:gpt-5", "set OPENAI_API_KEY in its environment"), ("nobody:big", "Unknown model")],
)
async def test_a_worker_that_cannot_use_a_model_it_looks_up_late_is_blocked(
    model: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    run = InMemoryRun(desk(pydantic_ai_agent(Agent(model, defer_model_check=True))))
    with pytest.raises(Blocked, match=f"'{model}': {message}"):
        await run.start()

    assert [each.code for each in (await run.view()).blocked] == ["model_unavailable"]


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("wrapped", [False, True], ids=["requires_approval", "toolset"])
async def test_a_hook_speaks_before_the_approval_that_the_framework_wants(
    refuses: bool, wrapped: bool
) -> None:
    office = Office([("c1", "pay", 1)], "Done.")

    async def before(ctx: Any, *, call: Any, tool_def: Any, args: dict[str, Any]) -> dict[str, Any]:
        if refuses:
            raise SkipToolExecution("No.")
        return {"x": 7}

    tools: FunctionToolset[Any] = FunctionToolset()
    pay = _named("pay", office.pay)
    tools.add_function(pay, takes_ctx=False, requires_approval=not wrapped)
    agent = Agent(
        pydantic_ai_model(office),
        name="clerk",
        toolsets=[tools.approval_required() if wrapped else tools],
        capabilities=[Hooks(before_tool_execute=before)],
    )
    run = await started(pydantic_ai_agent(agent))
    for question in await run.interrupts():
        assert question.reason == {"tool": "pay", "arguments": {"x": 7}}
        assert office.lines == ["turn 1"]
        await run.respond(question.id, {"approved": True})

    assert run.values["reply"] == "Done."
    assert office.lines == ["turn 1", *([] if refuses else ["pay 7"]), "turn 2"]
    assert ("No." in office.heard) == refuses


async def test_a_call_that_is_deferred_before_its_tool_is_not_made() -> None:
    office = Office([("c1", "pay", 1)], "Done.")

    async def before(ctx: Any, *, call: Any, tool_def: Any, args: dict[str, Any]) -> dict[str, Any]:
        raise CallDeferred

    tools: FunctionToolset[Any] = FunctionToolset()
    tools.add_function(_named("pay", office.pay), takes_ctx=False)
    agent = Agent(
        pydantic_ai_model(office),
        toolsets=[tools],
        capabilities=[Hooks(before_tool_execute=before)],
    )
    run = await started(pydantic_ai_agent(agent))

    assert run.status == "failed"
    assert "defers the call of 'pay' outside of its tool" in (run.reason or "")
    assert office.lines == ["turn 1"]


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
