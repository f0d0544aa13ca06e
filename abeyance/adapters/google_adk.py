"""Agents of Google's ADK as nodes.

    graph.agent("clerk", google_adk_agent(my_agent), input="letter", output="reply")

ADK's own confirmation holds each call in the place of its tool, after the callbacks before the tool, in a
resumable app with its own session. `require_confirmation` and `request_confirmation` are approvals.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Final

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.apps import App, ResumabilityConfig
from google.adk.flows.llm_flows.single_flow import SingleFlow  # noqa: F401 see Workflow
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.session import Session
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.adk.tools.tool_context import ToolContext

# ADK would load both in its first run, and hold the worker's loop for longer than a heartbeat may take.
from google.adk.workflow import Workflow  # noqa: F401
from google.genai import types

from abeyance.agents.foreign import (
    CallResult,
    ForeignAgent,
    ForeignCall,
    ForeignContext,
    ForeignTool,
    ForeignTurn,
    Heard,
    NeedsApproval,
    ToolRules,
    TurnTaken,
    made_by,
    warn_untested,
)
from abeyance.agents.model_request import unused_ids
from abeyance.core.json import Json

TESTED: Final = ("google-adk", "2.13.0", "3.0.0")

_APP: Final = "abeyance"
_USER: Final = "abeyance"
_SESSION: Final = "agent"
_CONFIRMATION: Final = "adk_request_confirmation"


def google_adk_agent(
    agent: BaseAgent | Callable[[], BaseAgent],
    *,
    tools: ToolRules | None = None,
    **options: Any,
) -> ForeignAgent:
    """Return an agent of ADK, or the one that a function makes, as the agent of a node.

    Args:
        agent: The agent, which stays as it is, or a function that makes it.
        tools: By tool name, options of `@tool` for the approval; `timeout` is its deadline.
        options: The options of `abeyance.Agent`, such as `name`, `max_turns`, `hooks` and `memory`.
    """
    warn_untested(*TESTED)
    made = made_by(agent, BaseAgent, "an agent of ADK")
    return ForeignAgent(GoogleAdk(made), tools=tools, **options)


class GoogleAdk:
    """The adapter: see `abeyance.adapters.Framework`."""

    def __init__(self, agent: BaseAgent) -> None:
        self._agent = agent
        self._tools: dict[str, tuple[BaseAgent, BaseTool]] = {}
        for owner, tool in _tools_of(agent):
            self._tools.setdefault(tool.name, (owner, tool))

    @property
    def name(self) -> str:
        return str(self._agent.name)

    def tools(self) -> list[ForeignTool]:
        return [
            ForeignTool(
                name=name,
                description=tool.description,
                parameters=_schema_of(tool),
                approve=getattr(tool, "_require_confirmation", False) is True,
            )
            for name, (_, tool) in self._tools.items()
        ]

    def output(self) -> Any:
        return None

    async def turn(self, turn: ForeignTurn) -> TurnTaken:
        state = turn.state or {"session": None, "open": {}, "heard": []}
        heard = Heard(state["heard"])
        sessions, app = InMemorySessionService(), self._app(_Hearing(heard), turn)
        if state["session"] is None:
            await sessions.create_session(app_name=_APP, user_id=_USER, session_id=_SESSION)
        else:
            sessions.sessions[_APP] = {_USER: {_SESSION: Session.model_validate(state["session"])}}
        parts = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=id_, name=_CONFIRMATION, response={"confirmed": True, "payload": held}
                )
            )
            for id_, held in state["open"].values()
        ]
        if parts:
            heard.new = [turn.text] if turn.prompts else []
        else:
            parts = [types.Part(text=turn.text)]
        texts: list[str] = []
        calls, open_ = [], {}
        tokens = [0, 0]
        model = None
        async with Runner(app=app, session_service=sessions) as runner:
            async for event in runner.run_async(
                user_id=_USER,
                session_id=_SESSION,
                new_message=types.Content(role="user", parts=parts),
            ):
                model = event.model_version or model
                if (usage := event.usage_metadata) is not None:
                    tokens[0] += usage.prompt_token_count or 0
                    tokens[1] += usage.candidates_token_count or 0
                for part in (event.content.parts or ()) if event.content else ():
                    if part.text and not part.thought:
                        texts.append(part.text)
                    asked = part.function_call
                    if asked is not None and asked.name == _CONFIRMATION:
                        call = (asked.args or {})["originalFunctionCall"]
                        held = (asked.args or {})["toolConfirmation"]["payload"]
                        open_[call["id"]] = [asked.id, held]
                        calls.append(
                            ForeignCall(
                                id=call["id"],
                                tool=call["name"],
                                arguments=held["arguments"],
                                approve=held["approve"],
                            )
                        )
        session = await sessions.get_session(app_name=_APP, user_id=_USER, session_id=_SESSION)
        assert session is not None  # noqa: S101 it was made above
        return TurnTaken(
            state={
                "session": session.model_dump(mode="json", by_alias=True, exclude_none=True),
                "open": open_,
                "heard": heard.texts,
            },
            calls=calls,
            text="".join(texts) if calls else "",
            output=None if calls else "".join(texts),
            model=model,
            input_tokens=tokens[0],
            output_tokens=tokens[1],
        )

    async def call(self, name: str, arguments: dict[str, Any], ctx: ForeignContext) -> Any:
        owner, tool = self._tools[name]
        sessions = InMemorySessionService()
        session = await sessions.create_session(app_name=_APP, user_id=_USER, session_id=_SESSION)
        context = ToolContext(
            InvocationContext(
                session_service=sessions,
                invocation_id=ctx.idempotency_key,
                agent=owner,
                session=session,
            ),
            function_call_id=ctx.call_id,
            tool_confirmation=ToolConfirmation(confirmed=True) if ctx.approved else None,
        )
        result = await tool.run_async(args=arguments, tool_context=context)
        if context.actions.requested_tool_confirmations and not ctx.approved:
            raise NeedsApproval
        return result

    def _app(self, plugin: BasePlugin, turn: ForeignTurn) -> App:
        root = self._agent.clone()
        for own, copied in zip(_with_sub_agents(self._agent), _with_sub_agents(root), strict=True):
            if isinstance(own, LlmAgent) and isinstance(copied, LlmAgent):
                copied.model = _recorded(own.canonical_model, turn)
                copied.tools = [_held(each, turn) for each in own.tools]
                copied.before_tool_callback = [
                    _unless_made(each, turn) for each in own.canonical_before_tool_callbacks
                ]
        return App(
            name=_APP,
            root_agent=root,
            plugins=[plugin],
            resumability_config=ResumabilityConfig(is_resumable=True),
        )


class _Hearing(BasePlugin):
    """Puts messages behind the results of the calls."""

    def __init__(self, heard: Heard) -> None:
        super().__init__(name="abeyance")
        self._heard = heard

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        del callback_context
        llm_request.contents[:] = self._heard.placed(
            llm_request.contents,
            lambda text: types.Content(role="user", parts=[types.Part(text=text)]),
        )


def _result(turn: ForeignTurn, context: ToolContext) -> CallResult | None:
    """Return the result of a call once Abeyance has made it."""
    known = turn.results.get(context.function_call_id or "")
    return None if context.tool_confirmation is None else known


def _held(entry: Any, turn: ForeignTurn) -> Any:
    """Return a copy of a tool that waits, after all callbacks; a toolset is returned as it is."""
    tool = _tool_of(entry)
    if tool is None:
        return entry

    async def run(*, args: dict[str, Any], tool_context: ToolContext) -> Any:
        known = _result(turn, tool_context)
        if known is not None:
            if isinstance(known.content, Mapping):
                return dict(known.content)
            return {"result" if known.ok else "error": known.content}
        required = await tool.check_require_confirmation(args, tool_context)
        tool_context.request_confirmation(payload={"arguments": args, "approve": bool(required)})
        tool_context.actions.skip_summarization = True
        return {"error": "This call waits."}

    async def ask(*_: Any) -> bool:
        return False

    held: Any = copy.copy(tool)
    held.run_async = run
    held.check_require_confirmation = ask
    return held


def _unless_made(callback: Any, turn: ForeignTurn) -> Any:
    """Wrap a callback, so that it does not run again for a call that Abeyance has made."""

    async def before(*, tool: BaseTool, args: dict[str, Any], tool_context: ToolContext) -> Any:
        if _result(turn, tool_context) is None:
            said = callback(tool=tool, args=args, tool_context=tool_context)
            return await said if inspect.isawaitable(said) else said
        args.clear()
        args |= tool_context.tool_confirmation.payload["arguments"]
        return None

    return before


def _with_sub_agents(agent: BaseAgent) -> Iterator[BaseAgent]:
    yield agent
    for inner in agent.sub_agents:
        yield from _with_sub_agents(inner)


def _recorded(model: BaseLlm, turn: ForeignTurn) -> BaseLlm:
    """Return a copy of a model whose responses are recorded in the visit."""

    async def generate(*args: Any, **kwargs: Any) -> AsyncIterator[LlmResponse]:
        async def request() -> Json:
            said = [each async for each in model.generate_content_async(*args, **kwargs)]
            unused_id = unused_ids()
            for part in [
                part for each in said if each.content for part in each.content.parts or ()
            ]:
                if part.function_call is not None and part.function_call.id:
                    part.function_call.id = unused_id(part.function_call.id)
            return [each.model_dump(mode="json", exclude_none=True) for each in said]

        for each in await turn.journal("model", request):
            yield LlmResponse.model_validate(each)

    recorded = copy.copy(model)
    # Pydantic refuses a plain assignment, and a wrapper would lack the type and the other methods.
    object.__setattr__(recorded, "generate_content_async", generate)
    return recorded


def _tools_of(agent: BaseAgent) -> Iterator[tuple[BaseAgent, BaseTool]]:
    """Yield the tools of an agent and its sub-agents that are known before a run."""
    for owner in _with_sub_agents(agent):
        for entry in getattr(owner, "tools", ()):
            if (tool := _tool_of(entry)) is not None:
                yield owner, tool


def _tool_of(entry: Any) -> BaseTool | None:
    if isinstance(entry, BaseTool):
        return entry
    return FunctionTool(entry) if inspect.isroutine(entry) else None


def _schema_of(tool: BaseTool) -> dict[str, Any]:
    declaration = tool._get_declaration()  # noqa: SLF001 it has no other name
    if declaration is None:
        return {"type": "object"}
    if declaration.parameters_json_schema is not None:
        return dict(declaration.parameters_json_schema)
    schema = declaration.parameters
    if schema is None:
        return {"type": "object"}
    plain: dict[str, Any] = schema.json_schema.model_dump(mode="json", exclude_none=True)
    return plain
