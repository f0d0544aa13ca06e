"""Agents of the Microsoft Agent Framework as nodes.

    graph.agent("clerk", agent_framework_agent(my_agent), input="letter", output="reply")

Each call is held in the place of its function tool, behind the middleware. The framework asks about all
calls of a turn if one needs an approval; here calls without `approval_mode="always_require"` run at once.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final
from uuid import uuid4

from agent_framework import (
    Agent,
    AgentSession,
    ChatContext,
    ChatMiddleware,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    FunctionTool,
    Message,
)
from agent_framework.exceptions import ChatClientException, UserInputRequiredException
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
    made_by,
    warn_untested,
)
from abeyance.agents.model_request import unused_ids
from abeyance.core.json import Json, canonical

TESTED: Final = ("agent-framework-core", "1.23.0", "2.0.0")


def agent_framework_agent(
    agent: Agent[Any] | Callable[[], Agent[Any]],
    *,
    tools: ToolRules | None = None,
    **options: Any,
) -> ForeignAgent:
    """Return an agent of the Agent Framework, or the one that a function makes, as the agent of a node.

    Args:
        agent: The agent, which stays as it is, or a function that makes it.
        tools: By tool name, options of `@tool` for the approval; `timeout` is its deadline.
        options: The options of `abeyance.Agent`, such as `name`, `max_turns`, `hooks` and `memory`.
    """
    warn_untested(*TESTED)
    made = made_by(agent, Agent, "an Agent of the Agent Framework")
    return ForeignAgent(AgentFramework(made), tools=tools, **options)


class AgentFramework:
    """The adapter: see `abeyance.adapters.Framework`."""

    def __init__(self, agent: Agent[Any]) -> None:
        for layer in (FunctionInvocationLayer, ChatMiddlewareLayer):
            if not isinstance(agent.client, layer):
                message = (
                    f"the client {type(agent.client).__name__!r} has no {layer.__name__}: derive it from "
                    "FunctionInvocationLayer, ChatMiddlewareLayer and BaseChatClient, in this order"
                )
                raise TypeError(message)
        self._agent = agent
        self._all: list[Any] = list(agent.default_options.get("tools") or ())
        self._tools = {each.name: each for each in self._all if isinstance(each, FunctionTool)}

    @property
    def name(self) -> str:
        return (self._agent.name or "agent").replace(" ", "_")

    def tools(self) -> list[ForeignTool]:
        return [
            ForeignTool(
                name=name,
                description=tool.description,
                parameters=tool.parameters(),
                judge=partial(_judge, tool),
                approve=tool.approval_mode == "always_require",
            )
            for name, tool in self._tools.items()
        ]

    def output(self) -> Any:
        return self._agent.default_options.get("response_format")

    async def turn(self, turn: ForeignTurn) -> TurnTaken:
        agent = copy.copy(self._agent)
        kept = turn.state or {"session": None, "open": [], "heard": []}
        asked = [Content.from_dict(each) for each in kept["open"]]
        held = _Held(turn, asked)
        agent.default_options = {
            **agent.default_options,
            "tools": [
                held.tool(each) if isinstance(each, FunctionTool) else each for each in self._all
            ],
        }
        heard = Heard(kept["heard"])
        session = (
            agent.create_session()
            if kept["session"] is None
            else AgentSession.from_dict(kept["session"])
        )
        if asked:
            responses = [each.to_function_approval_response(approved=True) for each in asked]
            said = Message("user", responses)
            heard.new = [turn.text] if turn.prompts else []
        else:
            said = Message("user", [turn.text])
        try:
            recorded = _Recorded(turn, held, heard)
            response = await agent.run([said], session=session, middleware=[recorded])
        except ChatClientException as error:
            # A failure is classified by the error that the client of the provider raised.
            hidden = error.__cause__ or error
            raise hidden from hidden.__cause__
        contents = [each for message in response.messages for each in message.contents]
        asked = [each for each in contents if each.type == "function_approval_request"]
        usage = response.usage_details or {}
        calls = [
            ForeignCall(
                id=each.function_call.call_id,  # type: ignore[union-attr, arg-type]
                tool=each.function_call.name,  # type: ignore[union-attr, arg-type]
                arguments=held.arguments[each.function_call.call_id],  # type: ignore[union-attr, index]
            )
            for each in asked
        ]
        state = {
            "session": session.to_dict(),
            "open": [each.to_dict() for each in asked],
            "heard": heard.texts,
        }
        has_type = self.output() is not None
        return TurnTaken(
            state=to_jsonable_python(state),
            calls=calls,
            text=response.text if calls else "",
            output=None if calls else response.value if has_type else response.text,
            input_tokens=usage.get("input_token_count") or 0,
            output_tokens=usage.get("output_token_count") or 0,
        )

    async def call(self, name: str, arguments: dict[str, Any], ctx: ForeignContext) -> Any:
        contents = await self._tools[name].invoke(arguments=arguments, tool_call_id=ctx.call_id)
        texts = [each.text for each in contents]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(text for text in texts if text is not None)
        return [each.to_dict() for each in contents]


class _Recorded(ChatMiddleware):
    """Records the responses of the model in the visit, and puts messages that people sent while calls
    were open behind the results: the framework would put them before.
    """

    def __init__(self, turn: ForeignTurn, held: _Held, heard: Heard) -> None:
        self._turn = turn
        self._held = held
        self._heard = heard

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        context.messages = self._heard.placed(
            context.messages, lambda text: Message("user", [text])
        )

        async def request() -> Json:
            await call_next()
            assert isinstance(context.result, ChatResponse)  # noqa: S101 turns are not streamed
            unused_id = unused_ids()
            for content in [
                each for message in context.result.messages for each in message.contents
            ]:
                if content.type == "function_call":
                    content.call_id = unused_id(content.call_id or "")
                    # The framework matches an answer to its request by this id.
                    content.id = content.id or uuid4().hex
            return to_jsonable_python(context.result.to_dict(), bytes_mode="base64")

        recorded = await self._turn.journal("model", request)
        if context.result is None:
            context.result = ChatResponse.from_dict(recorded)
        assert isinstance(context.result, ChatResponse)  # noqa: S101 turns are not streamed
        for message in context.result.messages:
            self._held.note(message.contents)


class _Held:
    """Holds calls in the place of their tools. Each result is returned once: a call may be made again.

    `calls` are the model's calls by id, and `arguments` are the arguments that the middleware left.
    """

    def __init__(self, turn: ForeignTurn, asked: Sequence[Content]) -> None:
        self._results = dict(turn.results)
        self.calls: dict[str, Content] = {}
        self.arguments: dict[str, dict[str, Any]] = {}
        self.note(each.function_call for each in asked if each.function_call is not None)

    def note(self, contents: Iterable[Content]) -> None:
        self.calls |= {str(each.call_id): each for each in contents if each.type == "function_call"}

    def tool(self, tool: FunctionTool) -> FunctionTool:
        """Return a copy of a tool that waits, and then returns the result of the call."""
        held = copy.copy(tool)
        held.approval_mode = "never_require"

        async def invoke(
            *, arguments: Any = None, tool_call_id: str | None = None, **_: Any
        ) -> list[Content]:
            id_ = str(tool_call_id)
            known = self._results.pop(id_, None)
            if known is None:
                call = self.calls[id_]
                self.arguments[id_] = _as_model(tool, call, dict(arguments or {}))
                request = Content.from_function_approval_request(str(call.id), call)
                raise UserInputRequiredException([request])
            content = known.content
            return [Content.from_text(content if isinstance(content, str) else canonical(content))]

        held.invoke = invoke  # type: ignore[method-assign]
        return held


def _judge(tool: FunctionTool, arguments: dict[str, Any]) -> None:
    try:
        tool._prepare_arguments(arguments)  # noqa: SLF001 it has no other name
    except TypeError as error:
        hidden = error.__cause__ or error
        raise hidden from hidden.__cause__


def _as_model(tool: FunctionTool, call: Content, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call as its model would write them: middleware gets typed ones."""
    said = call.parse_arguments() or {}
    try:
        if tool._prepare_arguments(said) == tool._prepare_arguments(arguments):  # noqa: SLF001
            return said
    except TypeError:
        pass  # The framework reports this where the arguments are judged.
    return dict(to_jsonable_python(arguments))
