"""Agents of Pydantic AI as nodes.

    graph.agent("clerk", pydantic_ai_agent(my_agent), input="letter", output="reply")

Each call is held in the place of its function tool, behind hooks and the toolsets around it. Toolsets
that rename their tools, or list them only while they run, such as MCP servers, run inside the turn.
`requires_approval` and `ApprovalRequired` are asked as approvals, and `CallDeferred` of a tool as a
question whose answer is the result.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RunContext,
    Tool,
    ToolApproved,
    UsageLimits,
)
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelResponse,
    ToolCallPart,
    ToolReturn,
    ToolReturnContent,
)
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.toolsets import (
    AbstractToolset,
    FunctionToolset,
    PrefixedToolset,
    RenamedToolset,
    WrapperToolset,
)
from pydantic_ai.usage import RunUsage
from pydantic_core import to_jsonable_python

from abeyance.agents.foreign import (
    ForeignAgent,
    ForeignCall,
    ForeignContext,
    ForeignTool,
    ForeignTurn,
    NeedsApproval,
    ToolRules,
    TurnTaken,
    fresh,
    made_by,
    warn_untested,
)
from abeyance.agents.model_request import can_stream, name_of, resolve_model, with_unique_call_ids
from abeyance.agents.tool_errors import ArgumentsError, ResultError
from abeyance.core.json import Json
from abeyance.errors import AgentFailed, FailureCode

TESTED: Final = ("pydantic-ai-slim", "2.68.0", "3.0.0")
_RESULTS: Final[TypeAdapter[Any]] = TypeAdapter(
    ToolReturn[Any] | ToolReturnContent, config=ConfigDict(ser_json_bytes="base64")
)


def pydantic_ai_agent(
    agent: Agent[Any, Any] | Callable[[], Agent[Any, Any]],
    *,
    tools: ToolRules | None = None,
    deps: Any = None,
    **options: Any,
) -> ForeignAgent:
    """Return an agent of Pydantic AI, or the one that a function makes, as the agent of a node.

    Args:
        agent: The agent, which stays as it is, or a function that makes it.
        tools: By tool name, options of `@tool` for the approval; `timeout` is its deadline.
        deps: The dependencies of tools and instructions, or a function that makes them. They are made or
            passed anew for each turn and call, and not stored.
        options: The options of `abeyance.Agent`, such as `name`, `max_turns`, `hooks` and `memory`.
    """
    warn_untested(*TESTED)
    made = made_by(agent, Agent, "an Agent of Pydantic AI")
    return ForeignAgent(PydanticAI(made, deps), tools=tools, **options)


class PydanticAI:
    """The adapter: see `abeyance.adapters.Framework`."""

    def __init__(self, agent: Agent[Any, Any], deps: Any) -> None:
        self._agent = agent
        self._deps = deps
        self._toolsets = {
            name: leaf
            for toolset in agent.toolsets
            for leaf in _leaves(toolset)
            for name in leaf.tools
        }

    @property
    def name(self) -> str:
        return (self._agent.name or "agent").replace(" ", "_")

    def tools(self) -> list[ForeignTool]:
        entries = [(name, toolset.tools[name]) for name, toolset in self._toolsets.items()]
        return [
            ForeignTool(
                name=name,
                description=tool.tool_def.description or "",
                parameters=tool.tool_def.parameters_json_schema,
                judge=partial(self._judge, tool),
                approve=tool.requires_approval,
            )
            for name, tool in entries
        ]

    def _judge(self, tool: Tool[Any], arguments: dict[str, Json]) -> None:
        # A validation context comes from the context of the run, which an approver's edit lacks.
        if self._agent.validation_context is None:
            try:
                tool.function_schema.validator.validate_json(json.dumps(arguments))
            except ModelRetry as retry:
                raise ValueError(retry.message) from retry

    def output(self) -> Any:
        declared = self._agent.output_type
        if isinstance(declared, list | tuple):
            types = [each for each in declared if each is not DeferredToolRequests]
            declared = types[0] if len(types) == 1 else Any
        return declared if isinstance(declared, type) and declared is not str else _plain(declared)

    async def turn(self, turn: ForeignTurn) -> TurnTaken:
        agent = self._agent
        kept = turn.state or {"messages": [], "open": []}
        model = agent.model or "test"
        journaled = _Journaled(resolve_model(name_of(model), model), turn)
        approvals: dict[str, Any] = {id_: ToolApproved() for id_ in kept["open"]}
        held: dict[str, _HeldCall] = {}
        asks: set[str] = set()
        leaves = {id(leaf) for leaf in self._toolsets.values()}

        def stand_in(leaf: AbstractToolset[Any]) -> AbstractToolset[Any]:
            return _Held(leaf, turn, held) if id(leaf) in leaves else _Recorded(leaf, turn)

        toolsets = [toolset.visit_and_replace(stand_in) for toolset in agent.toolsets]
        declared = agent.output_type
        outputs = list(declared) if isinstance(declared, list | tuple) else [declared]
        prompt = _prompt_of(turn)
        messages = ModelMessagesTypeAdapter.validate_python(kept["messages"])
        usage = RunUsage()
        while True:
            with agent.override(toolsets=toolsets, tools=[], model=journaled):
                result = await agent.run(
                    prompt,
                    message_history=messages or None,
                    deferred_tool_results=DeferredToolResults(approvals=approvals)
                    if approvals
                    else None,
                    output_type=[*outputs, DeferredToolRequests]
                    if DeferredToolRequests not in outputs
                    else None,
                    deps=fresh(self._deps),
                    usage_limits=UsageLimits(request_limit=None),
                    usage=usage,
                )
            if not isinstance(result.output, DeferredToolRequests):
                break
            if result.output.calls:
                message = (
                    f"{self.name!r} defers the call of {result.output.calls[0].tool_name!r} outside of "
                    "its tool: raise CallDeferred in a tool of a FunctionToolset"
                )
                raise AgentFailed(FailureCode.NODE_FAILED, message)
            unheld = {each.tool_call_id for each in result.output.approvals} - held.keys()
            if not unheld:
                break
            # Approvals of the framework pass here: people are asked in the places of the tools.
            asks |= unheld
            approvals = {each.tool_call_id: ToolApproved() for each in result.output.approvals}
            messages, prompt = result.all_messages(), None
        state: dict[str, Any] = {
            "messages": to_jsonable_python(result.all_messages(), bytes_mode="base64"),
            "open": [],
        }
        output = result.output
        taken = TurnTaken(
            state=state,
            output=output,
            model=journaled.model_name,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
        )
        if not isinstance(output, DeferredToolRequests):
            return taken
        said = [each for each in result.all_messages() if isinstance(each, ModelResponse)][-1]
        order = [call.tool_call_id for call in said.tool_calls]
        open_ = sorted(output.approvals, key=lambda call: order.index(call.tool_call_id))
        state["open"] = [call.tool_call_id for call in open_]
        calls = []
        for call in open_:
            reached = held[call.tool_call_id]
            if reached.tool != call.tool_name:
                message = (
                    f"a toolset of {self.name!r} calls {call.tool_name!r} by another name, "
                    f"{reached.tool!r}"
                )
                raise AgentFailed(FailureCode.NODE_FAILED, message)
            calls.append(
                ForeignCall(
                    id=call.tool_call_id,
                    tool=reached.tool,
                    arguments=self._as_model(call, reached),
                    approve=call.tool_call_id in asks,
                )
            )
        return replace(taken, calls=calls, text=said.text or "")

    async def call(self, name: str, arguments: dict[str, Any], ctx: ForeignContext) -> Any:
        context = RunContext(
            deps=fresh(self._deps),
            model=infer_model(self._agent.model or "test"),
            usage=RunUsage(),
            agent=self._agent,
            tool_name=name,
            tool_call_id=ctx.call_id,
            tool_call_approved=ctx.approved,
        )
        toolset = self._toolsets[name]
        async with toolset:
            tool = (await toolset.get_tools(context))[name]
            given = self._agent.validation_context
            context = replace(
                context, validation_context=given(context) if callable(given) else given
            )
            try:
                typed = tool.args_validator.validate_json(
                    json.dumps(arguments), context=context.validation_context
                )
                if tool.args_validator_func is not None:
                    verdict = tool.args_validator_func(context, **typed)
                    if inspect.isawaitable(verdict):
                        await verdict
                result = await toolset.call_tool(name, typed, context, tool)
            except ApprovalRequired:
                raise NeedsApproval from None
            except CallDeferred as deferred:
                reason = {"tool": name, "arguments": arguments}
                if deferred.metadata:
                    reason["metadata"] = to_jsonable_python(deferred.metadata, fallback=str)
                return await ctx.interrupt("result", reason=reason)
            except ModelRetry as retry:
                raise ResultError(retry.message) from retry
            except ValidationError as error:
                raise ArgumentsError(str(error)) from error
        returned = getattr(result, "return_value", result)
        try:
            # Models of the framework read bytes as base64.
            return to_jsonable_python(returned, bytes_mode="base64")
        except ValueError:
            return returned  # The call's own check names what is not JSON.

    def _as_model(self, call: ToolCallPart, reached: _HeldCall) -> Any:
        """Return the arguments of a call as its model would write them."""
        schema = self._toolsets[call.tool_name].tools[call.tool_name].function_schema
        if isinstance(call.args, str):
            said = schema.validator.validate_json(call.args or "{}", context=reached.context)
        else:
            said = schema.validator.validate_python(call.args or {}, context=reached.context)
        if said == reached.arguments:
            return call.args or {}
        changed: Any = reached.arguments
        if schema.single_arg_name is not None:
            changed = reached.arguments[schema.single_arg_name]
        return to_jsonable_python(changed)


@dataclass(frozen=True, slots=True)
class _HeldCall:
    """A call that waits: its tool, the arguments that reached it, and the context of their validation."""

    tool: str
    arguments: dict[str, Any]
    context: Any


@dataclass
class _Held(WrapperToolset[Any]):
    """A toolset whose calls wait, and then return their results.

    `held` are the calls that wait, by id.
    """

    turn: ForeignTurn
    held: dict[str, _HeldCall]

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        del tool
        known = self.turn.results.get(ctx.tool_call_id)
        if known is None:
            self.held[ctx.tool_call_id] = _HeldCall(name, tool_args, ctx.validation_context)
            raise ApprovalRequired
        return known.content


@dataclass
class _Recorded(WrapperToolset[Any]):
    """A toolset whose results are recorded in the visit."""

    turn: ForeignTurn

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        results = []

        async def run() -> Any:
            results.append(await self.wrapped.call_tool(name, tool_args, ctx, tool))
            return _RESULTS.dump_python(results[0], mode="json")

        recorded = await self.turn.journal(f"call {ctx.tool_call_id}", run)
        return results[0] if results else _RESULTS.validate_python(recorded)


@dataclass(init=False)
class _Journaled(WrapperModel):
    """A model whose responses are recorded in the visit."""

    turn: ForeignTurn
    asked: int = field(default=0)

    def __init__(self, model: Model, turn: ForeignTurn) -> None:
        super().__init__(model)
        self.turn = turn
        self.asked = 0

    async def request(self, *args: Any, **kwargs: Any) -> ModelResponse:
        self.asked += 1

        async def ask() -> Any:
            if not can_stream(self.wrapped):
                response = await self.wrapped.request(*args, **kwargs)
            else:
                async with self.wrapped.request_stream(*args, **kwargs) as stream:
                    self.turn.speak(lambda: stream.get().text or "")
                    async for _ in stream:
                        pass
                    response = stream.get()
            unique = with_unique_call_ids(args[0], response)
            return to_jsonable_python([unique], bytes_mode="base64")

        recorded = await self.turn.journal(f"turn {self.asked}", ask)
        (response,) = ModelMessagesTypeAdapter.validate_python(recorded)
        assert isinstance(response, ModelResponse)  # noqa: S101 what was recorded above
        return response


def _plain(declared: Any) -> Any:
    return None if declared is str else declared


def _prompt_of(turn: ForeignTurn) -> Any:
    if not turn.prompts:
        return None
    parts: list[Any] = []
    for prompt in turn.prompts:
        parts += [prompt] if isinstance(prompt, str) else prompt
    return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts


def _leaves(toolset: Any) -> Iterator[FunctionToolset[Any]]:
    """Yield the function toolsets inside a toolset: their tools are known before a run."""
    if isinstance(toolset, PrefixedToolset | RenamedToolset):
        return
    if isinstance(toolset, FunctionToolset):
        yield toolset
    for inner in getattr(toolset, "toolsets", ()):
        yield from _leaves(inner)
    if (wrapped := getattr(toolset, "wrapped", None)) is not None:
        yield from _leaves(wrapped)
