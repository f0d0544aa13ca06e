"""Declaring an agent: a model with instructions and tools, that works until it has an output.

An agent is lowered to a nested graph: a node for the turns of its model, and one for each tool. So it has
the addresses, interrupts, messages and pause boundaries of every other graph (Eino's agents are built on
its graphs in the same way).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from abeyance.agents.approvals import Approve, OnApprovalTimeout
from abeyance.agents.hooks import hook_faults
from abeyance.agents.model_request import ToolSpec
from abeyance.agents.output import FINAL_RESULT, OutputType
from abeyance.agents.tool import Tool
from abeyance.agents.tool_decorator import tool
from abeyance.authoring.callables import refuses
from abeyance.authoring.declarations import DeclarationErrors
from abeyance.core.json import Json
from abeyance.duration import Duration, seconds
from abeyance.mcp.server import McpServer
from abeyance.mcp.toolset import McpToolset
from abeyance.schemas.state_model import StateModel

if TYPE_CHECKING:
    from abeyance.agents.model_request import ModelLike

MODEL_NODE: Final = "model"
"""The node of a model's turns. No tool may be named so."""
ENTRY_NODE: Final = "agents.entry"
"""The node of what is asked before an agent is called."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]")
_LONGEST_NODE: Final = 100

ToolLike: TypeAlias = "Tool | AgentTool | McpServer | Callable[..., Any]"


class Agent:
    """A model that works with tools until it has an output.

    Args:
        name: Its name in addresses, events and Temporal's UI.
        model: `"openai:gpt-5"` or any other name that pydantic-ai knows, one of its `Model` instances, or
            a function `(messages, info) -> ModelResponse` in its place.
        instructions: What the model is told above everything else.
        tools: Functions, tools that `@tool` made, agents `as_tool(...)`, and MCP servers.
        hooks: Objects that are asked before and after calls; see `hooks`.
        output: What the result is: text unless given, a pydantic model, or any type it can validate.
        description: What the agent is for, in one sentence.
        max_turns: How many times the model may be asked in one visit; more fail it with `max_turns`.
        max_corrections: How often in a row the model may correct an output that does not fit.
        tool_execution: `concurrent` runs the calls of a turn together, `sequential` one after the other.
        memory: `run`: another visit of the same node goes on with the conversation of the last.
        asks: The capabilities that its hooks ask for, by name or by a pattern such as `tenant:*:approve`.
        model_settings: Handed to the model as they are, such as `{"temperature": 0}`.
        model_timeout: How long one turn of the model may take.
        model_retries: How often a turn that failed is tried again. A model that cannot be reached is
            tried for as long as it takes, and does not count.
    """

    def __init__(
        self,
        name: str,
        *,
        model: ModelLike,
        instructions: str | None = None,
        tools: Sequence[ToolLike] = (),
        hooks: Sequence[object] = (),
        output: Any = None,
        description: str = "",
        max_turns: int = 50,
        max_corrections: int = 3,
        tool_execution: Literal["concurrent", "sequential"] = "concurrent",
        memory: Literal["run"] | None = None,
        asks: str | Sequence[str] = (),
        model_settings: Mapping[str, Any] | None = None,
        model_timeout: Duration = 600.0,
        model_retries: int = 3,
    ) -> None:
        self.name = name
        self.model = model
        self.instructions = instructions
        self.hooks = tuple(hooks)
        self.output = OutputType(output)
        self.description = description
        self.max_turns = max_turns
        self.max_corrections = max_corrections
        self.is_sequential = tool_execution == "sequential"
        self.remembers = memory == "run"
        self.model_settings = dict(model_settings or {})
        self.model_timeout = seconds(model_timeout)
        self.model_retries = model_retries
        found = [
            each if isinstance(each, Tool | AgentTool | McpServer) else tool(each) for each in tools
        ]
        self.tools = {each.name: each for each in found if isinstance(each, Tool)}
        self.agents = {each.name: each for each in found if isinstance(each, AgentTool)}
        self.servers = {
            _node_of(each): McpToolset(each) for each in found if isinstance(each, McpServer)
        }
        self._names = [
            _node_of(each) if isinstance(each, McpServer) else each.name for each in found
        ]
        self._given = (tool_execution, memory)
        self._intake = DeclarationErrors(StateModel(None))
        self.asks = self._intake.capabilities(asks, f"the agent {name!r}")

    @property
    def faults(self) -> list[str]:
        """What is wrong with the declaration, a sentence for each thing."""
        return list(self._faults())

    def _faults(self) -> Iterator[str]:
        execution, memory = self._given
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            yield f"an agent is named {self.name!r}; letters, digits, '_' and '-' make a name, up to 64"
        for name in sorted({each for each in self._names if self._names.count(each) > 1}):
            more = "; give its McpServer a name=" if name in self.servers else ""
            yield f"two tools are named {name!r}{more}"
        for name in sorted({MODEL_NODE, ENTRY_NODE, FINAL_RESULT} & {*self._names}):
            yield f"a tool is named {name!r}, which is taken: give it another name"
        for what, value, least in (
            ("max_turns", self.max_turns, 1),
            ("max_corrections", self.max_corrections, 0),
            ("model_retries", self.model_retries, 0),
        ):
            if not isinstance(value, int) or value < least:
                yield f"{what} is {value!r}, and is a whole number of at least {least}"
        if (fault := _model_fault(self.model)) is not None:
            yield fault
        if not isinstance(self.instructions, str | None):
            yield f"instructions={self.instructions!r} is no text"
        if execution not in {"concurrent", "sequential"}:
            yield f"tool_execution is {execution!r}, and is 'concurrent' or 'sequential'"
        if memory not in {None, "run"}:
            yield f"memory is {memory!r}, and is 'run' or None"
        yield from self._intake.faults
        for hook in self.hooks:
            yield from hook_faults(hook)

    async def offered(self) -> dict[str, Offer]:
        """The tools that the model may call now, by name. Raises Blocked while a server is not there."""
        found = {each.name: Offer(tool=each, node=each.name) for each in self.tools.values()}
        found |= {name: Offer(tool=each.tool, node=name) for name, each in self.agents.items()}
        for title, server in self.servers.items():
            for name, each in (await server.offered()).items():
                # What the author declares goes before what a server calls the same.
                found.setdefault(name, Offer(tool=each, node=title))
        return found

    def as_tool(
        self,
        *,
        description: str,
        name: str | None = None,
        approve: Approve = False,
        requested_capability: str | None = None,
        approval_timeout: Duration | None = None,
        on_timeout: OnApprovalTimeout = "halt",
    ) -> AgentTool:
        """This agent as a tool of another, which calls it with one argument: `task`, a text.

        What is asked inside it is asked of people like everything else, at its own address. `description`
        is what the other model is told. `approve` and what follows are as for `@tool`.
        """
        called = tool(
            name=self.name if name is None else name,
            schema=_TASK,
            description=description,
            approve=approve,
            requested_capability=requested_capability,
            approval_timeout=approval_timeout,
            on_timeout=on_timeout,
        )(_never_called)
        return AgentTool(agent=self, tool=called)


def _node_of(server: McpServer) -> str:
    # A host with its port, such as localhost:8000, is no name of a node.
    name = _NO_NAME.sub("_", server.title)
    begins_well = name[:1].isalpha() or name.startswith("_")
    return (name if begins_well else f"mcp_{name}")[:_LONGEST_NODE]


def _model_fault(model: Any) -> str | None:
    match model:
        case str() if ":" in model or model == "test":
            return None
        case str():
            return f"model={model!r} names no provider: write it as in 'openai:gpt-5'"
        case _ if hasattr(model, "request"):
            return None
        case _ if callable(model):
            if not refuses(model, 2):
                return None
            return f"model={model!r} has to take (messages, info), and return a ModelResponse"
        case _:
            return (
                f"model={model!r} is neither a name such as 'openai:gpt-5', nor a Model, nor a function "
                "of (messages, info)"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offer:
    """A tool, and the node of the agent's graph that makes its calls."""

    tool: Tool
    node: str

    @property
    def spec(self) -> ToolSpec:
        """What the model is told of it."""
        told = self.tool
        return ToolSpec(name=told.name, description=told.description, parameters=told.schema)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AgentTool:
    """An agent that another one may call."""

    agent: Agent
    tool: Tool

    @property
    def name(self) -> str:
        """What the model calls it."""
        return self.tool.name


_TASK: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "task": {
            "type": "string",
            "description": "What is to be done, with all that it takes to do it.",
        }
    },
    "required": ["task"],
    "additionalProperties": False,
}


def _never_called(context: object, arguments: Mapping[str, Json]) -> None:
    message = f"{context!r}: an agent is entered, not called, with {arguments!r}"
    raise AssertionError(message)
