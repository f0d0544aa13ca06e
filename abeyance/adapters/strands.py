"""Agents of Strands as nodes.

    graph.agent("clerk", strands_agent(make_agent), input="letter", output="reply")

A Strands agent holds its conversation, so the adapter takes a function that makes one. Each call of a
tool is held by a hook. Strands has no approvals of its own: rules say what is approved. An interrupt of a
hook or a tool is a question.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from pydantic_core import to_jsonable_python
from strands import Agent
from strands.hooks import BeforeModelCallEvent, BeforeToolCallEvent
from strands.interrupt import InterruptException
from strands.models.model import Model
from strands.tools.tools import PythonAgentTool
from strands.types._events import ToolInterruptEvent, ToolResultEvent
from strands.types._snapshot import Snapshot
from strands.types.session import decode_bytes_values, encode_bytes_values

from abeyance.agents.foreign import (
    ForeignAgent,
    ForeignCall,
    ForeignContext,
    ForeignTool,
    ForeignTurn,
    ToolRules,
    TurnTaken,
    answer_of,
    warn_untested,
)
from abeyance.agents.model_request import unused_ids
from abeyance.agents.tool_errors import ResultError
from abeyance.core.json import Json, canonical

TESTED: Final = ("strands-agents", "1.62.0", "2.0.0")
QUESTION: Final = "interrupt"
"""The tool by which an interrupt of a hook is asked."""

_HELD: Final = "abeyance call"
_ANY: Final[dict[str, Json]] = {"type": "object", "properties": {"name": {}, "reason": {}}}


def strands_agent(
    make: Callable[[], Agent], *, tools: ToolRules | None = None, **options: Any
) -> ForeignAgent:
    """Return the agent of Strands that a function makes as the agent of a node.

    Args:
        make: Makes the agent, anew for each turn and each call.
        tools: By tool name, options of `@tool`, such as `approve=True`; `timeout` is the deadline.
        options: Those of `abeyance.Agent`, such as `name`, `max_turns`, `hooks` and `memory`.
    """
    warn_untested(*TESTED)
    # An agent can be called too: that asks its model.
    if isinstance(make, Agent) or not callable(make):
        raise TypeError(f"{make!r} is not a function that makes an Agent of Strands")
    return ForeignAgent(Strands(make), tools=tools, **options)


class Strands:
    """The adapter: see `abeyance.adapters.Framework`."""

    def __init__(self, make: Callable[[], Agent]) -> None:
        self._make = make
        agent = make()
        self._name = str(agent.name)
        self._tools = [
            ForeignTool(
                name=name,
                description=tool.tool_spec["description"],
                parameters=tool.tool_spec["inputSchema"]["json"],
            )
            for name, tool in agent.tool_registry.registry.items()
        ]

    @property
    def name(self) -> str:
        return self._name.replace(" ", "_")

    def tools(self) -> list[ForeignTool]:
        question = ForeignTool(
            name=QUESTION, description="Ask a person.", parameters=_ANY, is_question=True
        )
        return [*self._tools, question]

    def output(self) -> Any:
        return None

    async def turn(self, turn: ForeignTurn) -> TurnTaken:
        agent = self._make()
        agent.model = _recorded(agent.model, turn)
        state = turn.state or {"snapshot": None, "open": {}}
        if state["snapshot"] is not None:
            agent.load_snapshot(Snapshot.from_dict(state["snapshot"]))
        given: Any = turn.text
        if state["open"]:
            given = [
                {"interruptResponse": {"interruptId": id_, "response": _response(turn, call_id)}}
                for call_id, id_ in state["open"].items()
            ]
            _say(agent, turn)
        # Behind the hooks of the agent: they may ask first, or cancel the call.
        agent.hooks.add_callback(BeforeToolCallEvent, _hold)
        result = await agent.invoke_async(given)
        interrupts = list(result.interrupts or ()) if result.stop_reason == "interrupt" else []
        uses = [
            block["toolUse"]
            for message in agent.messages
            for block in message["content"]
            if "toolUse" in block
        ]
        by_id = {use["toolUseId"]: use for use in uses}
        # A call that a hook asks about waits until that is answered.
        asked = {_use_of(each.id) for each in interrupts if each.name != _HELD}
        open_, calls = {}, []
        for each in interrupts:
            use = by_id.get(_use_of(each.id))
            if each.name != _HELD:
                call_id = f"{_use_of(each.id)}.{each.name}"
                reason = to_jsonable_python(each.reason, fallback=str)
                arguments = {"name": each.name, "reason": reason}
                calls.append(ForeignCall(id=call_id, tool=QUESTION, arguments=arguments))
            elif use is not None and use["toolUseId"] not in asked:
                call_id = use["toolUseId"]
                calls.append(
                    ForeignCall(id=call_id, tool=use["name"], arguments=use["input"] or {})
                )
            else:
                continue
            open_[call_id] = each.id
        usage = result.metrics.accumulated_usage
        return TurnTaken(
            state={"snapshot": agent.take_snapshot(preset="session").to_dict(), "open": open_},
            calls=calls,
            output=None if calls else str(result).strip(),
            input_tokens=usage["inputTokens"],
            output_tokens=usage["outputTokens"],
        )

    async def call(self, name: str, arguments: dict[str, Any], ctx: ForeignContext) -> Any:
        if name == QUESTION:
            return await answer_of(ctx, str(arguments.get("name", name)), arguments.get("reason"))
        agent = self._make()
        tool = agent.tool_registry.registry[name]
        use: Any = {"toolUseId": ctx.call_id, "name": name, "input": arguments}
        result: Any = None
        while result is None:
            waiting = None
            try:
                async for event in tool.stream(use, {"agent": agent}):
                    match event:
                        case ToolInterruptEvent():
                            waiting = event.interrupts[0]
                        case ToolResultEvent():
                            result = event.tool_result
                        case {"toolUseId": _, "status": _}:
                            result = event
                        case _:
                            pass
            except InterruptException as error:
                waiting = error.interrupt
            if waiting is not None:
                reason = to_jsonable_python(waiting.reason, fallback=str)
                answer = await answer_of(ctx, waiting.name, reason)
                agent._interrupt_state.interrupts[waiting.id].response = answer  # noqa: SLF001 it has no other name
        texts = [block["text"] for block in result["content"] if "text" in block]
        content = "\n".join(texts) if len(texts) == len(result["content"]) else result["content"]
        if result["status"] == "error":
            raise ResultError(content if isinstance(content, str) else canonical(content))
        return content


def _recorded(model: Model, turn: ForeignTurn) -> Model:
    """Return a copy of a model whose responses are recorded in the visit."""

    async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        async def request() -> Json:
            pieces: list[str] = []
            turn.speak(lambda: "".join(pieces))
            events = []
            unused_id = unused_ids()
            async for each in model.stream(*args, **kwargs):
                if (
                    use := each.get("contentBlockStart", {}).get("start", {}).get("toolUse")
                ) is not None:
                    use["toolUseId"] = unused_id(use["toolUseId"])
                events.append(each)
                pieces.append(each.get("contentBlockDelta", {}).get("delta", {}).get("text", ""))
            return encode_bytes_values(events)

        for each in decode_bytes_values(await turn.journal("model", request)):
            yield each

    recorded = copy.copy(model)
    recorded.stream = stream
    return recorded


def _hold(event: BeforeToolCallEvent[Any]) -> None:
    tool = event.selected_tool
    # Strands tells the model that there is no such tool.
    if event.cancel_tool or tool is None:
        return
    given = event.interrupt(_HELD)
    content = given["content"]
    text = content if isinstance(content, str) else canonical(content)

    def returned(use: Any, **_: Any) -> Any:
        status = "success" if given["ok"] else "error"
        return {"toolUseId": use["toolUseId"], "status": status, "content": [{"text": text}]}

    event.selected_tool = PythonAgentTool(tool.tool_name, tool.tool_spec, returned)


def _say(agent: Agent, turn: ForeignTurn) -> None:
    """Let the model read what people said behind the results of its calls."""
    unsaid = [turn.text] if turn.prompts else []

    def say(event: BeforeModelCallEvent) -> None:
        if unsaid:
            event.agent.messages[-1]["content"].append({"text": unsaid.pop()})

    agent.hooks.add_callback(BeforeModelCallEvent, say)


def _response(turn: ForeignTurn, call_id: str) -> Any:
    known = turn.results.get(call_id)
    if known is None:
        return {"content": None, "ok": False}
    is_answer = "." in call_id and known.ok
    return known.content if is_answer else {"content": known.content, "ok": known.ok}


def _use_of(interrupt_id: str) -> str:
    """Return the id of the call that an interrupt belongs to."""
    return interrupt_id.split(":")[2]
