"""One agent in six frameworks: the same tools and the same script, written for each framework.

`Office.lines` shows what tools and models did. It is in memory, or in a file that outlives a process.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias, get_type_hints

from pydantic import BaseModel

from abeyance import START, Graph
from abeyance.adapters import ForeignAgent
from abeyance.testing import InMemoryRun

Call: TypeAlias = tuple[str, str, int | dict[str, Any]]
"""The id of a call, its tool, and its arguments; a number is the argument `x`."""
Turn: TypeAlias = "Sequence[Call] | str"

THREE: Sequence[Call] = (("c1", "pay", 1), ("c2", "look", 2), ("c3", "pay", 3))


class Letter(BaseModel):
    letter: str = "Pay what is due."
    reply: str | None = None


class Office:
    """An agent's tools and script, and what it did. Its process dies once, after the line `dies_at`."""

    def __init__(self, *turns: Turn, file: Path | None = None, dies_at: str | None = None) -> None:
        self.turns = turns
        self.heard: list[str] = []
        self._file = file
        self._dies_at = dies_at
        self._lines: list[str] = []

    @property
    def lines(self) -> list[str]:
        if self._file is None:
            return self._lines
        return self._file.read_text(encoding="utf-8").splitlines() if self._file.exists() else []

    def note(self, line: str) -> None:
        if self._file is None:
            self._lines.append(line)
            return
        with self._file.open("a", encoding="utf-8") as lines:
            lines.write(f"{line}\n")
        if line == self._dies_at and self.lines.count(line) == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def pay(self, x: int) -> str:
        self.note(f"pay {x}")
        return f"paid {x}"

    def look(self, x: int) -> str:
        self.note(f"look {x}")
        return f"looked {x}"

    def turn(self, made: int, heard: Sequence[str]) -> Turn:
        """Return the model's turn after `made` calls, and note what the model heard."""
        self.heard = [*heard]
        number = 0
        while made > 0:
            made -= len(self.turns[number])
            number += 1
        self.note(f"turn {number + 1}")
        return self.turns[number]


class Died(Exception):
    """Raised where the worker is lost."""


class Recorder:
    """The journal of one turn, which outlives its worker. With `lost_after` the worker is lost once, at
    the beginning of the entry after that many.
    """

    def __init__(self, lost_after: int | None = None) -> None:
        self.recorded: dict[str, str] = {}
        self._lost_after = lost_after

    async def journal(self, name: str, function: Callable[[], Awaitable[Any]]) -> Any:
        if name not in self.recorded:
            if len(self.recorded) == self._lost_after:
                self._lost_after = None
                raise Died
            self.recorded[name] = json.dumps(await function())
        return json.loads(self.recorded[name])


def desk(agent: Any) -> Graph:
    """Return a graph whose only node, `clerk`, is the agent."""
    graph = Graph("desk", state=Letter)
    graph.agent("clerk", agent, input="letter", output="reply")
    graph.edge(START, "clerk")
    return graph


async def started(agent: Any) -> InMemoryRun:
    """Start a run of the agent, and let it run until it waits or ends."""
    run = InMemoryRun(desk(agent))
    await run.start()
    return run


def pydantic_ai_model(office: Office) -> Any:
    """Return a model of Pydantic AI that takes its turns from the office."""
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.usage import RequestUsage

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        made = sum(len(each.tool_calls) for each in messages if isinstance(each, ModelResponse))
        heard = [str(getattr(part, "content", "")) for each in messages for part in each.parts]
        said = office.turn(made, heard)
        parts: list[Any] = (
            [TextPart(said)]
            if isinstance(said, str)
            else [ToolCallPart(tool, _arguments(x), id_) for id_, tool, x in said]
        )
        return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=7, output_tokens=3))

    return FunctionModel(model)


def pydantic_ai(office: Office, **options: Any) -> ForeignAgent:
    from pydantic_ai import Agent

    from abeyance.adapters.pydantic_ai import pydantic_ai_agent

    clerk = Agent(pydantic_ai_model(office), name="clerk")
    clerk.tool_plain(requires_approval=True)(_named("pay", office.pay))
    clerk.tool_plain(_named("look", office.look))
    return pydantic_ai_agent(clerk, **options)


def openai_model(office: Office) -> Any:
    """Return a model of the OpenAI Agents SDK that takes its turns from the office."""
    from agents import set_tracing_disabled
    from agents.items import ModelResponse
    from agents.models.interface import Model
    from agents.usage import Usage
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    set_tracing_disabled(True)

    class Scripted(Model):
        async def get_response(
            self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
        ) -> ModelResponse:
            items = [{"content": input}] if isinstance(input, str) else input
            made = sum(item.get("type") == "function_call" for item in items)
            heard = [str(item.get("output", item.get("content"))) for item in items]
            said = office.turn(made, heard)
            output: list[Any] = (
                [_message(said, ResponseOutputMessage, ResponseOutputText)]
                if isinstance(said, str)
                else [
                    ResponseFunctionToolCall(
                        arguments=json.dumps(_arguments(x)),
                        call_id=id_,
                        name=tool,
                        type="function_call",
                        status="completed",
                    )
                    for id_, tool, x in said
                ]
            )
            usage = Usage(requests=1, input_tokens=7, output_tokens=3, total_tokens=10)
            return ModelResponse(output=output, usage=usage, response_id=None)

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("the script has whole responses, and no stream of them")

    return Scripted()


def _arguments(x: int | dict[str, Any]) -> dict[str, Any]:
    return x if isinstance(x, dict) else {"x": x}


def openai_agents(office: Office, **options: Any) -> ForeignAgent:
    from agents import Agent, function_tool

    from abeyance.adapters.openai_agents import openai_agent

    pay = function_tool(_named("pay", office.pay), needs_approval=True)
    look = function_tool(_named("look", office.look))
    clerk = Agent(name="clerk", model=openai_model(office), tools=[pay, look])
    return openai_agent(clerk, **options)


def langgraph_model(office: Office) -> Any:
    """Return a model of LangChain that takes its turns from the office."""
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, *args: Any, **kwargs: Any) -> Any:
            return self

        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
            made = sum(len(getattr(each, "tool_calls", ())) for each in messages)
            said = office.turn(made, [each.text for each in messages])
            usage: Any = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
            message = (
                AIMessage(said, usage_metadata=usage)
                if isinstance(said, str)
                else AIMessage(
                    "",
                    usage_metadata=usage,
                    tool_calls=[
                        {"name": name, "args": _arguments(x), "id": id_} for id_, name, x in said
                    ],
                )
            )
            return ChatResult(generations=[ChatGeneration(message=message)])

    return Scripted()


def langgraph_clerk(office: Office, tools: Sequence[Any], *middleware: Any) -> Any:
    """Return an agent of LangChain whose model takes its turns from the office."""
    from langchain.agents import create_agent

    return create_agent(langgraph_model(office), list(tools), middleware=middleware, name="clerk")


def langgraph(office: Office, **options: Any) -> ForeignAgent:
    from langchain.agents.middleware import HumanInTheLoopMiddleware
    from langchain_core.tools import tool

    from abeyance.adapters.langgraph import langgraph_agent

    both = [tool(_named("pay", office.pay)), tool(_named("look", office.look))]
    gate = HumanInTheLoopMiddleware(interrupt_on={"pay": True})
    return langgraph_agent(langgraph_clerk(office, both, gate), **options)


def agent_framework_client(office: Office) -> Any:
    """Return a client of the Agent Framework that takes its turns from the office."""
    from agent_framework import (
        BaseChatClient,
        ChatMiddlewareLayer,
        ChatResponse,
        Content,
        FunctionInvocationLayer,
        Message,
        UsageDetails,
    )

    class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
        def _inner_get_response(self, *, messages: Any, **kwargs: Any) -> Any:
            async def respond() -> ChatResponse[Any]:
                contents = [each for message in messages for each in message.contents]
                made = sum(each.type == "function_call" for each in contents)
                said = office.turn(made, [str(each.text or each.result) for each in contents])
                parts = (
                    [Content.from_text(said)]
                    if isinstance(said, str)
                    else [
                        Content.from_function_call(call_id=id_, name=name, arguments=_arguments(x))
                        for id_, name, x in said
                    ]
                )
                usage = UsageDetails(input_token_count=7, output_token_count=3)
                return ChatResponse(messages=[Message("assistant", parts)], usage_details=usage)

            return respond()

    return Scripted()


def agent_framework(office: Office, **options: Any) -> ForeignAgent:
    from agent_framework import Agent, tool

    from abeyance.adapters.agent_framework import agent_framework_agent

    pay = tool(approval_mode="always_require")(_named("pay", office.pay))
    look = tool(approval_mode="never_require")(_named("look", office.look))
    clerk = Agent(client=agent_framework_client(office), tools=[pay, look], name="clerk")
    return agent_framework_agent(clerk, **options)


def strands_model(office: Office) -> Any:
    """Return a model of Strands that takes its turns from the office."""
    from strands.models.model import Model

    class Scripted(Model):
        def __init__(self) -> None:
            self._config: dict[str, Any] = {}

        def update_config(self, **config: Any) -> None:
            self._config |= config

        def get_config(self) -> Any:
            return self._config

        def structured_output(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("the script has texts and calls, and no structured output")

        async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            blocks = [block for message in messages for block in message["content"]]
            made = sum("toolUse" in block for block in blocks)
            said = office.turn(made, [text for block in blocks for text in _texts(block)])
            yield {"messageStart": {"role": "assistant"}}
            if isinstance(said, str):
                yield {"contentBlockStart": {"start": {}}}
                yield {"contentBlockDelta": {"delta": {"text": said}}}
                yield {"contentBlockStop": {}}
            for id_, name, x in () if isinstance(said, str) else said:
                yield {
                    "contentBlockStart": {"start": {"toolUse": {"name": name, "toolUseId": id_}}}
                }
                arguments = json.dumps(_arguments(x))
                yield {"contentBlockDelta": {"delta": {"toolUse": {"input": arguments}}}}
                yield {"contentBlockStop": {}}
            reason = "end_turn" if isinstance(said, str) else "tool_use"
            yield {"messageStop": {"stopReason": reason}}
            usage = {"inputTokens": 7, "outputTokens": 3, "totalTokens": 10}
            yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}

    return Scripted()


def _texts(block: dict[str, Any]) -> list[str]:
    if "toolResult" in block:
        return [each["text"] for each in block["toolResult"]["content"]]
    return [block["text"]] if "text" in block else []


def strands(office: Office, **options: Any) -> ForeignAgent:
    from strands import Agent, tool

    from abeyance.adapters.strands import strands_agent

    def clerk() -> Agent:
        both = [tool(_named("pay", office.pay)), tool(_named("look", office.look))]
        return Agent(model=strands_model(office), tools=both, name="clerk", callback_handler=None)

    # Other tests cover the questions of Strands' interventions.
    rules = dict(options.pop("tools", None) or {})
    rules["pay"] = {"approve": True, **rules.get("pay", {})}
    return strands_agent(clerk, tools=rules, **options)


def google_adk_model(office: Office) -> Any:
    """Return a model of ADK that takes its turns from the office."""
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.genai import types

    class Scripted(BaseLlm):
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            parts = [part for each in llm_request.contents for part in each.parts or ()]
            made = sum(part.function_call is not None for part in parts)
            heard = [
                part.text or str(part.function_response.response)
                for part in parts
                if part.text or part.function_response
            ]
            said = office.turn(made, heard)
            spoken = (
                [types.Part(text=said)]
                if isinstance(said, str)
                else [
                    types.Part(
                        function_call=types.FunctionCall(id=id_, name=name, args=_arguments(x))
                    )
                    for id_, name, x in said
                ]
            )
            yield LlmResponse(
                content=types.Content(role="model", parts=spoken),
                usage_metadata=types.GenerateContentResponseUsageMetadata(
                    prompt_token_count=7, candidates_token_count=3
                ),
            )

    return Scripted(model="scripted")


def google_adk(office: Office, **options: Any) -> ForeignAgent:
    from google.adk.agents import LlmAgent
    from google.adk.tools.function_tool import FunctionTool

    from abeyance.adapters.google_adk import google_adk_agent

    pay = FunctionTool(_named("pay", office.pay), require_confirmation=True)
    look = FunctionTool(_named("look", office.look))
    clerk = LlmAgent(name="clerk", model=google_adk_model(office), tools=[pay, look])
    return google_adk_agent(clerk, **options)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _message(text: str, message: Any, part: Any) -> Any:
    return message(
        id="m",
        role="assistant",
        status="completed",
        type="message",
        content=[part(text=text, type="output_text", annotations=[])],
    )


def _named(name: str, function: Callable[[int], str]) -> Callable[[int], str]:
    def called(x: int) -> str:
        return function(x)

    called.__name__ = name
    # A subclass of the office may take an argument of another type.
    called.__annotations__ = get_type_hints(function)
    called.__doc__ = f"{name.capitalize()}."
    return called


_MAKERS: dict[str, Callable[..., ForeignAgent]] = {
    "agent_framework": agent_framework,
    "agents": openai_agents,
    "google.adk": google_adk,
    "langchain": langgraph,
    "pydantic_ai": pydantic_ai,
    "strands": strands,
}
FRAMEWORKS = {maker.__name__: maker for module, maker in _MAKERS.items() if _is_installed(module)}
"""The installed frameworks by name: some of them cannot be installed together."""
