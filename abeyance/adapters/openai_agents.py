"""Agents of the OpenAI Agents SDK as nodes.

    graph.agent("clerk", openai_agent(my_agent), input="letter", output="reply")

Each function tool, of the agent and of the agents that it hands off to, is held at its call; hand-offs
and hosted tools run inside the turn. The SDK's own `needs_approval` decides which calls are asked about.
Its tool guardrails run before anybody is asked, and again before the tool runs. The SDK takes no input
while calls are open, so messages are put into the input of the model, at the places where they came in.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from agents import (
    Agent,
    AgentHooks,
    FunctionTool,
    Handoff,
    Model,
    ModelProvider,
    ModelResponse,
    RunConfig,
    Runner,
    RunState,
    ToolExecutionConfig,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
)
from agents.models.multi_provider import MultiProvider
from agents.run_context import RunContextWrapper
from agents.tool_context import ToolContext
from agents.tool_guardrails import ToolInputGuardrailData, ToolOutputGuardrailData
from openai.types.responses import ResponseFunctionToolCall
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from abeyance.agents.foreign import (
    ForeignAgent,
    ForeignCall,
    ForeignContext,
    ForeignTool,
    ForeignTurn,
    Heard,
    ToolRules,
    TurnTaken,
    by_call,
    fresh,
    made_by,
    warn_untested,
)
from abeyance.agents.model_request import unused_ids
from abeyance.agents.tool_errors import ResultError, described
from abeyance.errors import Fatal

TESTED: Final = ("openai-agents", "0.24.0", "0.25.0")
_RESPONSES: Final = TypeAdapter(ModelResponse)


def openai_agent(
    agent: Agent[Any] | Callable[[], Agent[Any]],
    *,
    tools: ToolRules | None = None,
    context: Any = None,
    run_config: RunConfig | None = None,
    **options: Any,
) -> ForeignAgent:
    """Return an agent of the OpenAI Agents SDK, or the one that a function makes, as a node's agent.

    Args:
        agent: The agent, which stays as it is, or a function that makes it.
        tools: By tool name, options of `@tool` for the approval; `timeout` is its deadline.
        context: The SDK's context object for tools and instructions, or a function that makes it. It is
            made or passed anew for each turn and call, and not stored.
        run_config: The SDK's configuration of runs.
        options: The options of `Agent`, such as `name`, `max_turns`, `hooks` and `memory`.
    """
    warn_untested(*TESTED)
    made = made_by(agent, Agent, "an Agent of the OpenAI Agents SDK")
    return ForeignAgent(OpenAIAgents(made, context, run_config), tools=tools, **options)


class OpenAIAgents:
    """The adapter: see `abeyance.adapters.Framework`."""

    def __init__(self, agent: Agent[Any], context: Any, run_config: RunConfig | None) -> None:
        self._agent = agent
        self._context = context
        self._config = run_config or RunConfig()
        self._tools: dict[str, tuple[Agent[Any], FunctionTool]] = {}
        for each in _reachable(agent, {}):
            for tool in each.tools:
                if isinstance(tool, FunctionTool):
                    other = self._tools.setdefault(tool.name, (each, tool))[1]
                    if other is not tool:
                        message = f"two tools of {agent.name!r} are named {tool.name!r}: rename one"
                        raise TypeError(message)

    @property
    def name(self) -> str:
        return self._agent.name.replace(" ", "_")

    def tools(self) -> list[ForeignTool]:
        return [
            ForeignTool(
                name=name,
                description=tool.description,
                parameters=tool.params_json_schema,
                approve=tool.needs_approval if isinstance(tool.needs_approval, bool) else by_call,
                timeout=tool.timeout_seconds,
            )
            for name, (_, tool) in self._tools.items()
        ]

    def output(self) -> Any:
        declared = self._agent.output_type
        return getattr(declared, "output_type", declared)

    async def turn(self, turn: ForeignTurn) -> TurnTaken:
        held = _Held(self._agent, turn, self._config)
        execution = replace(
            self._config.tool_execution or ToolExecutionConfig(),
            pre_approval_tool_input_guardrails=True,
        )
        config = replace(self._config, model_provider=held.provider(), tool_execution=execution)
        kept: Mapping[str, Any] = turn.state or {}
        start, given = await self._start(held, kept, turn)
        result = await Runner.run(
            start, given, context=fresh(self._context), max_turns=None, run_config=config
        )
        usage = result.context_wrapper.usage
        used = kept.get("used", [0, 0]) if isinstance(given, RunState) else [0, 0]
        told = {"said": held.heard.texts, "used": [usage.input_tokens, usage.output_tokens]}
        ended = {"items": result.to_input_list(), "agent": result.last_agent.name, **told}
        taken = TurnTaken(
            state=to_jsonable_python(ended),
            output=result.final_output,
            model=held.model,
            input_tokens=usage.input_tokens - used[0],
            output_tokens=usage.output_tokens - used[1],
        )
        if not result.interruptions:
            return taken
        run = result.to_state().to_json(context_serializer=lambda _: {})
        calls = [
            ForeignCall(
                id=item.raw_item.call_id,  # type: ignore[union-attr]
                tool=item.name,  # type: ignore[arg-type]
                arguments=item.raw_item.arguments,  # type: ignore[union-attr]
                approve=item.raw_item.call_id in held.asks,  # type: ignore[union-attr]
            )
            for item in result.interruptions
        ]
        waiting = to_jsonable_python({"run": run, **told})
        return replace(taken, state=waiting, calls=calls, text="".join(held.texts))

    async def _start(
        self, held: _Held, kept: Mapping[str, Any], turn: ForeignTurn
    ) -> tuple[Agent[Any], Any]:
        """Return the agent to begin with, and its input or the state of its run."""
        held.heard = Heard(kept.get("said", ()))
        if "run" in kept:
            held.heard.new = [turn.text] if turn.prompts else []
            context = RunContextWrapper(fresh(self._context))
            state = await RunState.from_json(held.agent, kept["run"], context_override=context)
            for item in state.get_interruptions():
                state.approve(item)
            return held.agent, state
        if "items" in kept:
            started = held.by_name.get(kept["agent"], held.agent)
            return started, [*kept["items"], _user(turn.text)]
        return held.agent, turn.text

    async def call(self, name: str, arguments: dict[str, Any], ctx: ForeignContext) -> Any:
        agent, tool = self._tools[name]
        text = json.dumps(arguments)
        context = ToolContext(
            context=fresh(self._context),
            tool_name=name,
            tool_call_id=ctx.call_id,
            tool_arguments=text,
            agent=agent,
            run_config=self._config,
        )
        for before in tool.tool_input_guardrails or ():
            verdict = await before.run(ToolInputGuardrailData(context=context, agent=agent))
            match verdict.behavior:
                case {"type": "reject_content", "message": message}:
                    raise ResultError(str(message))
                case {"type": "raise_exception"}:
                    message = f"a guardrail of {name!r} stops the run: {verdict.output_info}"
                    raise Fatal(message)
                case _:
                    pass
        if agent.hooks is not None:
            try:
                await agent.hooks.on_tool_start(context, agent, tool)
            except Exception as error:
                raise Fatal(f"a hook before {name!r} stops the run: {described(error)}") from error
        result = await tool.on_invoke_tool(context, text)
        for after in tool.tool_output_guardrails or ():
            data = ToolOutputGuardrailData(context=context, agent=agent, output=result)
            looked = await after.run(data)
            match looked.behavior:
                case {"type": "reject_content", "message": message}:
                    result = message
                case {"type": "raise_exception"}:
                    message = (
                        f"{name!r} has run, and a guardrail stops the run: {looked.output_info}"
                    )
                    raise Fatal(message)
                case _:
                    pass
        return result


class _Asked(Model):
    """A model that records its responses in the visit. Not a dataclass: the SDK would copy its fields."""

    def __init__(self, model: Model, held: _Held) -> None:
        self._model = model
        self._held = held

    async def get_response(
        self,
        system_instructions: str | None,
        input: Any,  # noqa: A002 the SDK's word
        *args: Any,
        **kwargs: Any,
    ) -> ModelResponse:
        held = self._held
        held.asked += 1
        heard = held.placed(input)

        async def ask() -> Any:
            response = await self._model.get_response(system_instructions, heard, *args, **kwargs)
            return _RESPONSES.dump_python(response, mode="json")

        recorded = await held.turn.journal(f"turn {held.asked}", ask)
        response = _RESPONSES.validate_python(recorded)
        # The SDK would take a second call with an id for the first one, which was approved.
        unused_id = unused_ids(str(item.get("call_id")) for item in heard if isinstance(item, dict))
        for item in response.output:
            if isinstance(item, ResponseFunctionToolCall):
                item.call_id = unused_id(item.call_id)
        held.texts = [
            part.text
            for item in response.output
            for part in getattr(item, "content", None) or ()
            if getattr(part, "type", "") == "output_text"
        ]
        return response

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        return self._model.stream_response(*args, **kwargs)


class _Provider(ModelProvider):
    def __init__(self, provider: ModelProvider, held: _Held) -> None:
        self._provider = provider
        self._held = held

    def get_model(self, model_name: str | None) -> Model:
        self._held.model = model_name or self._held.model
        return _Asked(self._provider.get_model(model_name), self._held)


class _Hooks(AgentHooks[Any]):
    """The hooks of an agent. For a call that Abeyance makes, the start is told where the call is made."""

    def __init__(self, hooks: AgentHooks[Any], turn: ForeignTurn) -> None:
        self._hooks = hooks
        self._turn = turn
        for name in (
            "on_start",
            "on_end",
            "on_handoff",
            "on_tool_end",
            "on_llm_start",
            "on_llm_end",
        ):
            setattr(self, name, getattr(hooks, name))

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        if getattr(context, "tool_call_id", None) not in self._turn.results:
            await self._hooks.on_tool_start(context, agent, tool)


class _Held:
    """Copies of an agent and of those that it hands off to, whose tools return the results of calls.

    `heard` are the texts that people sent while calls were open. `asks` are the ids of the calls that
    need an approval.
    """

    def __init__(self, agent: Agent[Any], turn: ForeignTurn, config: RunConfig) -> None:
        self.turn = turn
        self.asked = 0
        self.asks: set[str] = set()
        self.heard = Heard()
        self.texts: list[str] = []
        self.model: str | None = config.model if isinstance(config.model, str) else None
        self._provider = config.model_provider
        copies = {id(each): self._copy(each) for each in _reachable(agent, {})}
        for each in _reachable(agent, {}):
            copies[id(each)].handoffs = [_to_copy(entry, copies) for entry in each.handoffs]
        self.agent = copies[id(agent)]
        self.by_name = {copy.name: copy for copy in copies.values()}

    def provider(self) -> ModelProvider:
        return _Provider(self._provider or MultiProvider(), self)

    def placed(self, given: Any) -> Any:
        """Return the input of the model with the messages of people in their places."""
        if not self.heard:
            return given
        items = [_user(given)] if isinstance(given, str) else given
        return self.heard.placed(items, _user)

    def _copy(self, agent: Agent[Any]) -> Agent[Any]:
        model = agent.model
        copy = agent.clone(
            tools=[
                self._hold(tool) if isinstance(tool, FunctionTool) else tool for tool in agent.tools
            ],
            model=_Asked(model, self) if isinstance(model, Model) else model,
            hooks=agent.hooks if agent.hooks is None else _Hooks(agent.hooks, self.turn),
        )

        async def get_mcp_tools(run_context: RunContextWrapper[Any]) -> list[Any]:
            tools = await agent.get_mcp_tools(run_context)
            return [
                self._record(tool) if isinstance(tool, FunctionTool) else tool for tool in tools
            ]

        copy.get_mcp_tools = get_mcp_tools  # type: ignore[method-assign]
        return copy

    def _record(self, tool: FunctionTool) -> FunctionTool:
        async def call(context: ToolContext[Any], arguments: str) -> Any:
            async def run() -> Any:
                return to_jsonable_python(await tool.on_invoke_tool(context, arguments))

            return await self.turn.journal(f"call {context.tool_call_id}", run)

        return replace(tool, on_invoke_tool=call)

    def _unless_made(self, guardrail: ToolInputGuardrail[Any]) -> ToolInputGuardrail[Any]:
        """Wrap a guardrail, so that it does not run again for a call that Abeyance has made."""

        async def look(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
            if data.context.tool_call_id in self.turn.results:
                return ToolGuardrailFunctionOutput.allow()
            return await guardrail.run(data)

        return ToolInputGuardrail(look, name=guardrail.get_name())

    def _hold(self, tool: FunctionTool) -> FunctionTool:
        guardrails = tool.tool_input_guardrails or ()

        async def result(context: ToolContext[Any], _: str) -> Any:
            known = self.turn.results.get(context.tool_call_id)
            content = None if known is None else known.content
            return content if isinstance(content, str) else json.dumps(content)

        async def ask(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
            own = tool.needs_approval
            if not isinstance(own, bool) and await own(context, arguments, call_id):
                self.asks.add(call_id)
            return True

        return replace(
            tool,
            on_invoke_tool=result,
            needs_approval=ask,
            tool_input_guardrails=[self._unless_made(each) for each in guardrails] or None,
            tool_output_guardrails=None,
            timeout_seconds=None,
            _is_agent_tool=False,
        )


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _to_copy(entry: Any, copies: Mapping[int, Agent[Any]]) -> Any:
    if not isinstance(entry, Handoff):
        return copies[id(entry)]
    original = entry.on_invoke_handoff

    async def invoke(context: Any, arguments: str) -> Any:
        chosen = await original(context, arguments)
        return copies.get(id(chosen), chosen)

    copy = replace(entry, on_invoke_handoff=invoke)
    target = None if entry._agent_ref is None else entry._agent_ref()  # noqa: SLF001 it has no other name
    if target is not None:
        copy._agent_ref = weakref.ref(copies[id(target)])  # noqa: SLF001
    return copy


def _reachable(agent: Agent[Any], seen: dict[int, Agent[Any]]) -> Iterator[Agent[Any]]:
    """Yield the agent and the agents that it hands off to, each once."""
    if id(agent) in seen:
        return
    seen[id(agent)] = agent
    yield agent
    for entry in agent.handoffs:
        target = entry
        if isinstance(entry, Handoff):
            target = None if entry._agent_ref is None else entry._agent_ref()  # type: ignore[assignment]  # noqa: SLF001
        if isinstance(target, Agent):
            yield from _reachable(target, seen)
