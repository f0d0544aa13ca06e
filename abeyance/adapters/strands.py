"""Agents of Strands as nodes.

    graph.agent("clerk", strands_agent(make_agent), input="letter", output="reply")

A Strands agent holds its conversation, so the adapter takes a function that makes one. A call is held in
the place of its tool, after hooks, interventions and middleware, with the arguments that they left.
`Confirm` is an approval, also from `HumanInTheLoop`. Any other interrupt is a question.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from pydantic_core import to_jsonable_python
from strands import Agent
from strands.hooks import BeforeModelCallEvent, BeforeToolCallEvent, BeforeToolsEvent
from strands.interrupt import Interrupt, InterruptException
from strands.interventions import Confirm, InterventionHandler
from strands.middleware import ExecuteToolStage
from strands.models.model import Model
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
    by_call,
    warn_untested,
)
from abeyance.agents.model_request import unused_ids
from abeyance.agents.tool_errors import ResultError
from abeyance.core.json import Json, canonical

TESTED: Final = ("strands-agents", "1.62.0", "2.0.0")
QUESTION: Final = "interrupt"
"""The tool that asks an interrupt of a hook."""

_HELD: Final = "abeyance call"
_ANY: Final[dict[str, Json]] = {"type": "object", "properties": {"name": {}, "reason": {}}}


def strands_agent(
    make: Callable[[], Agent], *, tools: ToolRules | None = None, **options: Any
) -> ForeignAgent:
    """Return the agent of Strands that a function makes as the agent of a node.

    Args:
        make: Makes the agent, anew for each turn and each call.
        tools: By tool name, options of `@tool`, such as `approve=True`; `timeout` is the deadline.
        options: The options of `abeyance.Agent`, such as `name`, `max_turns`, `hooks` and `memory`.
    """
    warn_untested(*TESTED)
    # An agent is callable too, but a call asks its model.
    if isinstance(make, Agent) or not callable(make):
        raise TypeError(f"{make!r} is not a function that makes an Agent of Strands")
    return ForeignAgent(Strands(make), tools=tools, **options)


class Strands:
    """The adapter: see `abeyance.adapters.Framework`."""

    def __init__(self, make: Callable[[], Agent]) -> None:
        self._make = make
        agent = make()
        if agent._background_tasks is not None:  # noqa: SLF001 it has no other name
            message = (
                f"{agent.name!r} runs tools in the background, where no call can wait: turn it off"
            )
            raise TypeError(message)
        self._name = str(agent.name)
        handlers = agent._intervention_registry.handlers  # noqa: SLF001
        ask = InterventionHandler.before_tool_call
        may_ask = any(type(each).before_tool_call is not ask for each in handlers)
        self._tools = [
            ForeignTool(
                name=name,
                description=tool.tool_spec["description"],
                parameters=tool.tool_spec["inputSchema"]["json"],
                approve=by_call if may_ask else False,
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
                {
                    "interruptResponse": {
                        "interruptId": id_,
                        "response": _response(turn, call_id, use),
                    }
                }
                for call_id, (id_, use) in state["open"].items()
            ]
            _say(agent, turn)
        _Hold(agent).begin()
        result = await agent.invoke_async(given)
        open_, calls = {}, []
        for each in result.interrupts or () if result.stop_reason == "interrupt" else ():
            if each.name == _HELD:
                use, approve = each.reason["use"], each.reason["approve"]
                call = ForeignCall(
                    id=use["toolUseId"],
                    tool=use["name"],
                    arguments=use["input"] or {},
                    approve=approve,
                )
            else:
                use = None
                reason = to_jsonable_python(each.reason, fallback=str)
                arguments = {"name": each.name, "reason": reason}
                id_ = f"{each.id.split(':')[2]}.{each.name}"
                call = ForeignCall(id=id_, tool=QUESTION, arguments=arguments)
            calls.append(call)
            open_[call.id] = [each.id, use]
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
            return await ctx.interrupt(
                str(arguments.get("name", name)), reason=arguments.get("reason")
            )
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
                answer = await ctx.interrupt(waiting.name, reason=reason)
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


class _Hold:
    """Holds the calls of an agent in the place of their tools, until their results are there.

    Strands runs the hooks before a call again when it has the result. The hooks have decided by then, and
    the tool has run, so a second decision would be false: the hooks are not run again.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._made: Counter[str] = Counter()
        self._confirmed: dict[str, str | bool] = {}

    def begin(self) -> None:
        hooks = self._agent.hooks
        interventions = self._agent._intervention_registry  # noqa: SLF001 it has no other name
        invoke, apply = hooks.invoke_callbacks_async, interventions._apply_before_tool_call  # noqa: SLF001

        async def unless_made(event: Any) -> Any:
            match event:
                case BeforeModelCallEvent():
                    # The model may use an id again.
                    self._made.clear()
                case BeforeToolsEvent(message={"content": content}):
                    uses = [
                        block["toolUse"]["toolUseId"] for block in content if "toolUse" in block
                    ]
                    if any(self._held(id_) for id_ in uses):
                        return event, []
                case BeforeToolCallEvent(tool_use={"toolUseId": id_}) if held := self._held(id_):
                    event.tool_use = held.reason["use"]
                    event.selected_tool = self._tool(event.tool_use["name"])
                    return event, []
                case _:
                    pass
            return await invoke(event)

        def confirm_later(event: Any, action: Any, handler: str) -> bool:
            if isinstance(action, Confirm) and action.response is None:
                words = filter(None, [action.prompt, action.reason])
                self._confirmed[event.tool_use["toolUseId"]] = " ".join(words) or True
                return False
            return bool(apply(event, action, handler))

        hooks.invoke_callbacks_async = unless_made
        interventions._apply_before_tool_call = confirm_later  # noqa: SLF001
        # The last middleware is the innermost.
        self._agent.add_middleware(ExecuteToolStage, self._stand_in)

    async def _stand_in(self, context: Any, call_next: Any) -> AsyncIterator[Any]:
        use = context.tool_use
        if context.tool is None:
            # Strands tells the model that there is no such tool.
            async for event in call_next(context):
                yield event
            return
        if context.tool is not self._tool(use["name"]):
            message = f"{use['name']!r} was replaced by a tool that the agent does not have"
            raise RuntimeError(message)
        id_ = use["toolUseId"]
        held = self._held(id_)
        if held is None:
            reason = {"use": use, "approve": self._confirmed.get(id_, False)}
            yield ToolInterruptEvent(use, [Interrupt(self._interrupt_id(id_), _HELD, reason)])
            return
        self._made[id_] += 1
        content, ok = held.response["content"], held.response["ok"]
        text = content if isinstance(content, str) else canonical(content)
        status: Any = "success" if ok else "error"
        yield ToolResultEvent({"toolUseId": id_, "status": status, "content": [{"text": text}]})

    def _tool(self, name: str) -> Any:
        return self._agent.tool_registry.registry.get(name)

    def _held(self, id_: str) -> Interrupt | None:
        """Return the next hold of a call if its result is there. A hook may want the call again."""
        known = self._agent._interrupt_state.interrupts.get(self._interrupt_id(id_))  # noqa: SLF001
        return None if known is None or known.response is None else known

    def _interrupt_id(self, id_: str) -> str:
        return f"v1:abeyance:{id_}:{self._made[id_] + 1}"


def _say(agent: Agent, turn: ForeignTurn) -> None:
    """Let the model read the messages of people behind the results of its calls."""
    unsaid = [turn.text] if turn.prompts else []

    def say(event: BeforeModelCallEvent) -> None:
        if unsaid:
            event.agent.messages[-1]["content"].append({"text": unsaid.pop()})

    agent.hooks.add_callback(BeforeModelCallEvent, say)


def _response(turn: ForeignTurn, call_id: str, use: Json) -> Any:
    """Return the value that the interrupt gets: an answer as it is, or the result of a call with its
    status.
    """
    known = turn.results.get(call_id)
    content, ok = (None, False) if known is None else (known.content, known.ok)
    return content if use is None and ok else {"content": content, "ok": ok}
