"""The hooks that each framework may run before a call of `pay`, and their effects.

`Hooked.agent` makes an agent of the framework with one hook before the call. `alone` runs the agent
without Abeyance, and `wrap` makes it the agent of a node.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from foreign_office import (
    Office,
    _named,
    agent_framework_client,
    google_adk_model,
    langgraph_clerk,
    openai_model,
    pydantic_ai_model,
    strands_model,
)

from abeyance.adapters import ForeignAgent

Does: TypeAlias = Literal["nothing", "no", "change", "error", "no later"]
"""`no later` lets the first call through, and refuses all later ones."""


class Refused(Exception):
    """The error that a hook before the call raises."""


class Guard:
    """Decides about calls. Its count outlives the agents, which are made anew for each turn."""

    def __init__(self, does: Does) -> None:
        self.does = does
        self._asked = 0

    @property
    def refuses(self) -> bool:
        self._asked += 1
        if self.does == "error":
            raise Refused("the guard is broken")
        return self.does == "no" or (self.does == "no later" and self._asked > 1)

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {"x": 7} if self.does == "change" else dict(given)


@dataclass(frozen=True)
class Hooked:
    """An agent with a hook. The framework runs a hook in `after_approval` after a person's approval."""

    agent: Callable[[Office, str, Guard], Any]
    alone: Callable[[Any], Awaitable[Any]]
    wrap: Callable[..., ForeignAgent]
    after_approval: frozenset[str] = frozenset()


ALL: Sequence[Does] = ("no", "change", "error", "no later")
PLACES: Mapping[str, Mapping[str, Sequence[Does]]] = {
    "agent_framework": {
        "middleware": ("no", "change", "error"),
        "middleware that stops the run": ("error",),
    },
    "google_adk": {"callback": ALL, "last callback": ALL},
    "langgraph": {
        "middleware": ("no", "change", "error"),
        "middleware after the model": ("no", "change", "error"),
    },
    "openai_agents": {
        "guardrail": ("no", "error"),
        "guardrail that stops the run": ("error",),
        "hook": ("error",),
        "needs_approval": ("error",),
    },
    "pydantic_ai": {
        "toolset": ("no", "change", "error"),
        "hook": ("no", "change", "error"),
        "validator": ("no", "error"),
    },
    "strands": {
        "hook": ALL,
        "last hook": ALL,
        "hook before all calls": ("no", "error", "no later"),
        "intervention": ALL,
        "middleware": ("no", "change", "error"),
        "input middleware": ("no", "change", "error"),
    },
}
"""The effects that the hook at each place can have, by framework."""


def strands() -> Hooked:
    from strands import Agent, tool
    from strands.hooks import BeforeToolCallEvent, BeforeToolsEvent
    from strands.interventions import Deny, InterventionHandler, Proceed, Transform
    from strands.middleware import ExecuteToolStage

    from abeyance.adapters.strands import strands_agent

    def agent(office: Office, place: str, guard: Guard) -> Any:
        def hook(event: Any) -> None:
            if guard.refuses:
                event.cancel_tool = "No."
            use = event.tool_use
            event.tool_use = {**use, "input": guard.arguments(use["input"])}

        def before_all(event: Any) -> None:
            if guard.refuses:
                event.cancel = "No."

        class Rule(InterventionHandler):  # type: ignore[misc, unused-ignore]
            name = "rule"

            def before_tool_call(self, event: Any, **_: Any) -> Any:
                if guard.refuses:
                    return Deny(reason="No.")
                if guard.does != "change":
                    return Proceed()
                given = guard.arguments(event.tool_use["input"])
                return Transform(apply=lambda event: event.tool_use.update(input=given))

        async def wrapped(context: Any, call_next: Any) -> Any:
            use = context.tool_use
            if guard.refuses:
                return
            given = {**use, "input": guard.arguments(use["input"])}
            async for event in call_next(context.replace(tool_use=given)):
                yield event

        def input_(context: Any) -> Any:
            if guard.refuses:
                return context.replace(tool=None)
            use = context.tool_use
            return context.replace(tool_use={**use, "input": guard.arguments(use["input"])})

        clerk = Agent(
            model=strands_model(office),
            tools=[tool(_named("pay", office.pay))],
            name="clerk",
            callback_handler=None,
            interventions=[Rule()] if place == "intervention" else None,
        )
        match place:
            case "hook":
                clerk.hooks.add_callback(BeforeToolCallEvent, hook)
            case "last hook":
                clerk.hooks.add_callback(BeforeToolCallEvent, hook, order=1_000)
            case "hook before all calls":
                clerk.hooks.add_callback(BeforeToolsEvent, before_all)
            case "middleware":
                clerk.add_middleware(ExecuteToolStage, wrapped)
            case "input middleware":
                clerk.add_middleware(ExecuteToolStage.Input, input_)
            case _:
                pass
        return clerk

    return Hooked(
        agent=agent, alone=lambda agent: agent.invoke_async("Pay what is due."), wrap=strands_agent
    )


def google_adk() -> Hooked:
    from google.adk.agents import LlmAgent
    from google.adk.apps import App
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService
    from google.adk.tools.function_tool import FunctionTool
    from google.genai import types

    from abeyance.adapters.google_adk import google_adk_agent

    def agent(office: Office, place: str, guard: Guard) -> Any:
        def before(tool: Any, args: dict[str, Any], tool_context: Any) -> Any:
            if guard.refuses:
                return {"error": "No."}
            args |= guard.arguments(args)
            return None

        async def later(tool: Any, args: dict[str, Any], tool_context: Any) -> Any:
            return before(tool, args, tool_context)

        def nothing(tool: Any, args: dict[str, Any], tool_context: Any) -> None:
            return None

        return LlmAgent(
            name="clerk",
            model=google_adk_model(office),
            tools=[FunctionTool(_named("pay", office.pay))],
            before_tool_callback=before if place == "callback" else [nothing, later],
        )

    async def alone(agent: Any) -> None:
        sessions = InMemorySessionService()
        await sessions.create_session(app_name="alone", user_id="u", session_id="s")
        said = types.Content(role="user", parts=[types.Part(text="Pay what is due.")])
        app = App(name="alone", root_agent=agent)
        async with Runner(app=app, session_service=sessions) as runner:
            async for _ in runner.run_async(user_id="u", session_id="s", new_message=said):
                pass

    return Hooked(agent=agent, alone=alone, wrap=google_adk_agent)


def agent_framework() -> Hooked:
    from agent_framework import Agent, FunctionMiddleware, MiddlewareFailure, tool

    from abeyance.adapters.agent_framework import agent_framework_agent

    def agent(office: Office, place: str, guard: Guard) -> Any:
        class Rule(FunctionMiddleware):
            async def process(self, context: Any, call_next: Any) -> None:
                try:
                    refuses = guard.refuses
                except Refused as error:
                    if place == "middleware that stops the run":
                        raise MiddlewareFailure("No.") from error
                    raise
                if refuses:
                    context.result = "No."
                    return
                context.arguments = guard.arguments(context.arguments)
                await call_next()

        pay = tool(approval_mode="never_require")(_named("pay", office.pay))
        client = agent_framework_client(office)
        return Agent(client=client, tools=[pay], name="clerk", middleware=[Rule()])

    return Hooked(
        agent=agent, alone=lambda agent: agent.run("Pay what is due."), wrap=agent_framework_agent
    )


def langgraph() -> Hooked:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool

    from abeyance.adapters.langgraph import langgraph_agent

    def agent(office: Office, place: str, guard: Guard) -> Any:
        def before(request: Any) -> Any:
            call = request.tool_call
            if guard.refuses:
                return ToolMessage("No.", tool_call_id=call["id"], status="error")
            return request.override(tool_call={**call, "args": guard.arguments(call["args"])})

        class Around(AgentMiddleware):
            async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
                said = before(request)
                return said if isinstance(said, ToolMessage) else await handler(said)

        class AfterModel(AgentMiddleware):
            def after_model(self, state: Any, runtime: Any) -> Any:
                last = state["messages"][-1]
                if not last.tool_calls:
                    return None
                (call,) = last.tool_calls
                if guard.refuses:
                    said = ToolMessage("No.", tool_call_id=call["id"], status="error")
                    return {"messages": [said], "jump_to": "model"}
                changed = {**call, "args": guard.arguments(call["args"])}
                return {"messages": [last.model_copy(update={"tool_calls": [changed]})]}

        AfterModel.after_model.__can_jump_to__ = ["model"]  # type: ignore[attr-defined]
        middleware = AfterModel() if place == "middleware after the model" else Around()
        return langgraph_clerk(office, [tool(_named("pay", office.pay))], middleware)

    return Hooked(
        agent=agent,
        alone=lambda agent: agent.ainvoke({"messages": [HumanMessage("Pay what is due.")]}),
        wrap=langgraph_agent,
    )


def openai_agents() -> Hooked:
    from agents import (
        Agent,
        AgentHooks,
        Runner,
        ToolGuardrailFunctionOutput,
        ToolInputGuardrail,
        function_tool,
    )

    from abeyance.adapters.openai_agents import openai_agent

    def agent(office: Office, place: str, guard: Guard) -> Any:
        def look(data: Any) -> Any:
            refuse = ToolGuardrailFunctionOutput.reject_content("No.")
            return refuse if guard.refuses else ToolGuardrailFunctionOutput.allow()

        def stop(data: Any) -> Any:
            try:
                return look(data)
            except Refused:
                return ToolGuardrailFunctionOutput.raise_exception("No.")

        class Hooks(AgentHooks[Any]):
            async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
                assert not guard.refuses

        async def asks(context: Any, arguments: Any, call_id: str) -> bool:
            return guard.refuses

        looks = {"guardrail": look, "guardrail that stops the run": stop}
        pay = function_tool(
            _named("pay", office.pay),
            needs_approval=asks if place == "needs_approval" else False,
            tool_input_guardrails=[ToolInputGuardrail(looks[place])] if place in looks else None,
        )
        return Agent(
            name="clerk",
            model=openai_model(office),
            tools=[pay],
            hooks=Hooks() if place == "hook" else None,
        )

    return Hooked(
        agent=agent,
        alone=lambda agent: Runner.run(agent, "Pay what is due."),
        wrap=openai_agent,
        after_approval=frozenset({"hook"}),
    )


def pydantic_ai() -> Hooked:
    from pydantic_ai import Agent, FunctionToolset, ModelRetry
    from pydantic_ai.capabilities import Hooks
    from pydantic_ai.exceptions import SkipToolExecution
    from pydantic_ai.toolsets import WrapperToolset

    from abeyance.adapters.pydantic_ai import pydantic_ai_agent

    def agent(office: Office, place: str, guard: Guard) -> Any:
        class Around(WrapperToolset[Any]):
            async def call_tool(self, name: str, args: Any, ctx: Any, tool: Any) -> Any:
                if guard.refuses:
                    return "No."
                return await super().call_tool(name, guard.arguments(args), ctx, tool)

        async def before(ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
            if guard.refuses:
                raise SkipToolExecution("No.")
            return guard.arguments(args)

        async def valid(ctx: Any, x: int) -> None:
            if guard.refuses:
                raise ModelRetry("No.")

        tools: FunctionToolset[Any] = FunctionToolset()
        tools.add_function(
            _named("pay", office.pay),
            takes_ctx=False,
            args_validator=valid if place == "validator" else None,
        )
        return Agent(
            pydantic_ai_model(office),
            name="clerk",
            toolsets=[Around(tools) if place == "toolset" else tools],
            capabilities=[Hooks(before_tool_execute=before)] if place == "hook" else None,
        )

    return Hooked(
        agent=agent, alone=lambda agent: agent.run("Pay what is due."), wrap=pydantic_ai_agent
    )


_MAKERS = {
    "agent_framework": agent_framework,
    "google_adk": google_adk,
    "langgraph": langgraph,
    "openai_agents": openai_agents,
    "pydantic_ai": pydantic_ai,
    "strands": strands,
}


@functools.cache
def hooked(framework: str) -> Hooked:
    """Import a framework, and return its maker of agents."""
    return _MAKERS[framework]()
